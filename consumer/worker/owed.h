/* SPDX-License-Identifier: Apache-2.0 */
/* owed: outcomes that a crash would leave uncounted. */
#ifndef LW_CONSUMER_WORKER_OWED_H
#define LW_CONSUMER_WORKER_OWED_H

#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct shard;

void unsure_write(struct lw_worker *w, struct shard *sh);                 /* before a settle is sent: its outcomes */
void unsure_counted(struct lw_worker *w, struct run *r);                  /* before one of them is counted */
void unsure_clear(struct lw_worker *w, struct shard *sh);                 /* when the settle is answered */
void unsure_owe(struct lw_worker *w, const struct shard *sh);             /* when it never will be */
void owed_add(struct lw_worker *w, const struct run *r);                  /* done; others may find it finished first */
void owed_pay(struct lw_worker *w, const struct part *p, int64_t offset); /* found finished: count it if owed */

#endif
