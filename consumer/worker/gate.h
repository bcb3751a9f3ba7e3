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
};

/* Holds what gate remembers of a shard. Each step has such a struct within the shard, and only the
 * step's own file changes it. Other files call functions of that file. */
struct gate { /* only gate.c changes this struct */
    struct gate_item item[BATCH];
    struct msg *msgs[BATCH];
    int n, n_msgs;
    uint64_t token; /* the token that all locks taken by one call share */
    struct lane *head, **tail;
    /* `ask` is a factor from 1 to 16: if n more messages may run, a call asks for n * `ask` lanes,
     * because many of the lanes may be busy */
    size_t ask;
    /* `rest_ms` is the earliest time at which one of the listed lanes may ask gate (its
     * not_before_ms) */
    int64_t rest_ms;
    /* `oom_until_ms` is the time before which nothing is admitted, because Redis is at maxmemory;
     * 0: Redis has memory left */
    int64_t oom_until_ms;
};

void gate_open(struct shard *sh);
/* Empties the call of gate, so that the next pipeline can fill it again. The lanes that wait to ask
 * gate stay listed. */
void gate_begin(struct shard *sh);
/* Adds the lane to the list of lanes that wait to ask gate. */
void gate_list(struct shard *sh, struct lane *l, int64_t now);
/* Frees the messages of a gate call that will never be answered. */
void gate_forget(struct lw_worker *w, struct shard *sh);
/* Stops admission for a moment, because Redis is at maxmemory. Waiting messages still run. */
void gate_refused(struct lw_worker *w, struct shard *sh);
/* Returns true while admission pauses because of maxmemory. */
bool gate_rests(const struct shard *sh, int64_t now);
/* Returns true if a lane waits to ask gate, even if it may not ask now. */
bool gate_has_lanes(const struct shard *sh);
/* Returns true if a listed lane may ask gate now, and Redis did not refuse the last call of gate
 * because of maxmemory. */
bool gate_due(const struct shard *sh, int64_t now);
/* Returns for how many lanes a call asks per message that may run (from 1 to 16), because many of
 * the lanes may be busy. */
size_t gate_lanes_per_message(const struct shard *sh);
/* Builds a call that asks for at most `most` lanes. Returns the number of lanes that it names. */
size_t gate_build(struct lw_worker *w, struct shard *sh, size_t most);
void gate_encode(struct lw_worker *w, struct shard *sh);
void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void gate_back(struct lw_worker *w, struct shard *sh);

static inline void check_gate(const struct gate *g) {
    assert(g->n >= 0 && g->n <= g->n_msgs && g->n_msgs <= BATCH);
    assert(g->tail && (g->head || g->tail == &g->head));
    assert(g->ask >= 1);
}

#endif
