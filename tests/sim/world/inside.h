/* SPDX-License-Identifier: Apache-2.0 */
/* Lets the oracles look inside a worker without including consumer/worker/private.h, which is
 * private to consumer/. */
#ifndef LW_SIM_INSIDE_H
#define LW_SIM_INSIDE_H

#include "consumer/worker/worker.h"

/* Returns the name of a partition that exists only for replays, and that the worker still has in
 * memory although none of its messages is left. Returns NULL if there is none. */
const char *inside_idle_replay(const struct lw_worker *lw);
int inside_shard(const struct lw_job *job);
/* Returns the token of the lease under which the job runs. */
uint64_t inside_hold(const struct lw_job *job);
/* Returns true if gate let the job run at once, and false if the job is a head of a waiting
 * list. */
bool inside_is_fast(const struct lw_job *job);

#endif
