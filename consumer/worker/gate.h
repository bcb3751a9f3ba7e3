/* SPDX-License-Identifier: Apache-2.0 */
/* gate: new messages ask for their lane. */
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
    int first, n; /* first of the call's messages, and how many */
    bool envelopes;
    bool behind; /* these stand behind a run of the fast path; the call asks only which of them are dropped */
};

/* Each step has its part of the shard, which only its own file changes; others call a function of that file. */
struct gate { /* gate.c */
    struct gate_item item[BATCH];
    struct msg *msgs[BATCH];
    int n, n_msgs;
    uint64_t token; /* one for all lanes of a call */
    struct lane *head, **tail;
    size_t ask;           /* number of lanes to ask for per lane that may run, 1 to 16 */
    int64_t rest_ms;      /* until then every lane in the list has to wait (not_before_ms) */
    int64_t oom_until_ms; /* Redis is at maxmemory, and nothing is admitted until then; 0: it is not */
};

void gate_open(struct shard *sh);
void gate_begin(struct shard *sh);                             /* called when a pipeline begins */
void gate_list(struct shard *sh, struct lane *l, int64_t now); /* puts the lane into the list of lanes to gate */
void gate_forget(struct lw_worker *w, struct shard *sh);       /* called when the call will never be answered */
void gate_refused(struct lw_worker *w,
                  struct shard *sh);                  /* called when Redis is at maxmemory: admission pauses, while lanes that wait go on */
bool gate_rests(const struct shard *sh, int64_t now); /* true while admission pauses for that */
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
