/* SPDX-License-Identifier: Apache-2.0 */
/* Lets the oracles look inside a worker. consumer/worker/private.h is private to consumer/, so
 * only inside.c includes it in the simulation. */
#ifndef LW_SIM_INSIDE_H
#define LW_SIM_INSIDE_H

#include "consumer/worker/worker.h"

/* Returns the name of a partition of replays that the worker remembers although none of its
 * messages is left, or NULL if there is none. */
const char *inside_idle_replay(const struct lw_worker *lw);
int inside_shard(const struct lw_job *job);
/* returns the token of the lease under which the job runs */
uint64_t inside_hold(const struct lw_job *job);
/* returns true if gate let the job run at once; false for a head */
bool inside_is_fast(const struct lw_job *job);

#endif
