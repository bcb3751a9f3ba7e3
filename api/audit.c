/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET audit: lists what operators did, newest first. */
#include "ops/queue/audit.h"

#include "api/private.h"

int api_audit(struct api_call *k) {
    char next[QUEUE_AUDIT_CURSOR];
    json_t *list = json_array();
    int bad = queue_audit_page(k->o, k->cursor, (int64_t)k->limit, list, next);
    if (!bad)
        api_put(k, json_pack("{s:O,s:o}", "audit", list, "next",
                             next[0] ? json_string(next) : json_null()));
    else if (bad > 0)
        api_misplaced(k);
    json_decref(list);
    return bad < 0 ? -1 : 0;
}
