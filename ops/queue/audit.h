/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the audit in pages, for the API. */
#ifndef LW_OPS_QUEUE_AUDIT_H
#define LW_OPS_QUEUE_AUDIT_H

#include "ops/ops.h"

enum { QUEUE_AUDIT_CURSOR = 64 };
/* Appends at most `most` (at least 1) entries to the list, newest first. The list begins after the
 * cursor, or with the newest entry if the cursor is NULL. Sets `next` to the cursor of the next
 * page, or to "" if there are no more entries. Returns 0 on success, 1 if the cursor is malformed,
 * and -1 on failure with o->err. */
int queue_audit_page(struct ops *o, const char *cursor, int64_t most, json_t *list,
                     char next[QUEUE_AUDIT_CURSOR]);

#endif
