/* SPDX-License-Identifier: Apache-2.0 */
/* gate: the step in which new messages ask for their lane. */
#ifndef LW_CONSUMER_WORKER_GATE_H
#define LW_CONSUMER_WORKER_GATE_H

#include "consumer/worker/limits.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>

struct lane;
struct lw_worker;
struct msg;
struct shard;

struct gate_item {
    struct lane *lane;
    int first, n; /* index of the lane's first message in the call, and number of its messages */
    bool envelopes;
    /* the messages stand behind a run of the fast path; the call asks only which of them are
     * dropped */
    bool behind;
};

/* Holds what gate remembers of a shard. Each step has such a struct within the shard. Only the
 * step's own file changes it; other files call functions of that file. */
struct gate { /* only gate.c changes this struct */
    struct gate_item item[BATCH];
    struct msg *msgs[BATCH];
    int n, n_msgs;
    uint64_t token; /* the token that all locks taken by one call share */
    struct lane *head, **tail;
    size_t ask; /* number of lanes to ask for per message that may run, 1 to 16 */
    /* every listed lane has to wait at least until this time (not_before_ms) */
    int64_t rest_ms;
    /* Redis is at maxmemory, so nothing is admitted before this time; 0: Redis has memory left */
    int64_t oom_until_ms;
};

void gate_open(struct shard *sh);
/* called when a pipeline begins; empties the lists of lanes and messages to gate */
void gate_begin(struct shard *sh);
/* adds the lane to the list of lanes to gate */
void gate_list(struct shard *sh, struct lane *l, int64_t now);
/* frees the messages of a gate call that will never be answered */
void gate_forget(struct lw_worker *w, struct shard *sh);
/* stops admission for a moment, because Redis is at maxmemory; waiting messages still run */
void gate_refused(struct lw_worker *w, struct shard *sh);
/* true while admission pauses because of maxmemory */
bool gate_rests(const struct shard *sh, int64_t now);
void gate_build(struct lw_worker *w, struct shard *sh, size_t most);
void gate_encode(struct lw_worker *w, struct shard *sh);
void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void gate_back(struct lw_worker *w, struct shard *sh);

static inline void check_gate(const struct gate *g) {
    assert(g->n >= 0 && g->n <= g->n_msgs && g->n_msgs <= BATCH);
    assert(g->tail && (g->head || g->tail == &g->head));
    assert(g->ask >= 1);
}

#endif
