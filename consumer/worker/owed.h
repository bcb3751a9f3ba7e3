/* SPDX-License-Identifier: Apache-2.0 */
/* owed: the part of the worker that handles outcomes which a crash would leave uncounted. */
#ifndef LW_CONSUMER_WORKER_OWED_H
#define LW_CONSUMER_WORKER_OWED_H

#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct shard;

/* called before a settle is sent; writes its outcomes to the board */
void unsure_write(struct lw_worker *w, struct shard *sh);
/* called before the outcome of a run is counted; marks it as counted on the board */
void unsure_counted(struct lw_worker *w, struct run *r);
/* called when the settle is answered; clears its outcomes on the board */
void unsure_clear(struct lw_worker *w, struct shard *sh);
/* called when the settle will never be answered; marks its outcomes as owed */
void unsure_owe(struct lw_worker *w, const struct shard *sh);
/* Marks an outcome as owed, because another worker may be the first to find it recorded. */
void owed_add(struct lw_worker *w, const struct run *r);
/* called when a message is found finished; counts its outcome if it is owed */
void owed_pay(struct lw_worker *w, const struct part *p, int64_t offset);

#endif
