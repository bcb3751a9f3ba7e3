/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/worker/private.h"
#include "tests/sim/world/inside.h"

const char *inside_idle_replay(const struct lw_worker *lw) {
    for (const struct part *p = lw->parts; p; p = p->hh.next)
        if (p->replay && !p->n_msgs) return p->name;
    return NULL;
}

/* The cast from a job to its run is valid, because struct run begins with its job. */
static const struct run *run_of(const struct lw_job *job) {
    return (const struct run *)(const void *)job;
}
int inside_shard(const struct lw_job *job) { return run_of(job)->hold->lane->shard; }
uint64_t inside_hold(const struct lw_job *job) { return run_of(job)->hold->lease.token; }
bool inside_is_fast(const struct lw_job *job) { return run_of(job)->hold->kind == FAST; }
