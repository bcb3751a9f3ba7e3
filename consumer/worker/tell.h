/* SPDX-License-Identifier: Apache-2.0 */
/* tell: logs why a message did not end as done, in one line with its identity, key (in the form
 * that log.keys sets), attempt, fence and time in the handler. */
#ifndef LW_CONSUMER_WORKER_TELL_H
#define LW_CONSUMER_WORKER_TELL_H

#include "base/log.h"
#include "queue/key.h"

struct lw_worker;
struct run;

void tell_key(const struct lw_worker *w, struct lw_bytes key, char out[LW_KEY_TEXT]);
void tell_end(struct lw_worker *w, const struct run *r, enum lw_log_level level, const char *what);

#endif
