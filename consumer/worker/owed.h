/* SPDX-License-Identifier: Apache-2.0 */
/* owed: outcomes that a crash would leave uncounted. */
#ifndef LW_CONSUMER_WORKER_OWED_H
#define LW_CONSUMER_WORKER_OWED_H

#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct shard;

void unsure_write(struct lw_worker *w, struct shard *sh);     /* called before a settle is sent; writes its outcomes to the board */
void unsure_counted(struct lw_worker *w, struct run *r);      /* called before the outcome of a run is counted */
void unsure_clear(struct lw_worker *w, struct shard *sh);     /* called when the settle is answered */
void unsure_owe(struct lw_worker *w, const struct shard *sh); /* called when the settle will never be answered */
/* Marks an outcome as owed, because another worker may be the first to find it recorded. */
void owed_add(struct lw_worker *w, const struct run *r);
void owed_pay(struct lw_worker *w, const struct part *p,
              int64_t offset); /* called when a message is found finished; counts it if it is owed */

#endif
