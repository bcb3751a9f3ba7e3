/* SPDX-License-Identifier: Apache-2.0 */
/* outcome: the part of the worker that writes to the board how messages ended. The exporter reads
 * the board for its web page (consumer/outcomes.h). */
#ifndef LW_CONSUMER_WORKER_OUTCOME_H
#define LW_CONSUMER_WORKER_OUTCOME_H

#include "base/bytes.h"
#include "consumer/outcomes.h"

struct lw_worker;
struct part;
struct run;

/* Notes the outcome of a run after Redis has recorded it. */
void outcome_of_run(struct lw_worker *w, const struct run *r, int64_t wall_ms);
/* Notes the end of a record that is given to no handler. */
void outcome_of_record(struct lw_worker *w, struct part *p, int64_t offset, struct lw_bytes key,
                       enum lw_end end, const char *reason);

#endif
