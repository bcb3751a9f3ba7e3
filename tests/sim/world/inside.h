/* SPDX-License-Identifier: Apache-2.0 */
/* What the oracles look at inside a worker; consumer/worker/private.h is private to consumer/, so only this file of the world reads it. */
#ifndef LW_SIM_INSIDE_H
#define LW_SIM_INSIDE_H

#include "consumer/worker/worker.h"

/* Partitions of replays that the worker remembers though nothing of them is left; NULL: none. */
const char *inside_idle_replay(const struct lw_worker *lw);
int inside_shard(const struct lw_job *job);
uint64_t inside_hold(const struct lw_job *job); /* the number of its acquisition */
bool inside_is_fast(const struct lw_job *job);  /* gate said run; not a head */

#endif
