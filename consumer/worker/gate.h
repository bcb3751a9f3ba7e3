/* SPDX-License-Identifier: Apache-2.0 */
/* gate: new messages ask for their lane. */
#ifndef LW_CONSUMER_WORKER_GATE_H
#define LW_CONSUMER_WORKER_GATE_H

#include "consumer/worker/limits.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct lane;
struct lw_worker;
struct msg;
struct shard;

struct gate_item {
    struct lane *lane;
    int first, n; /* of the call's messages */
    bool envelopes;
    bool behind; /* behind a run of the fast path: asks only which messages are dropped */
};

/* Each step has its part of the shard, which only its own file changes; others call a function of that file. */
struct gate { /* gate.c */
    struct gate_item item[BATCH];
    struct msg *msgs[BATCH];
    int n, n_msgs;
    uint64_t token; /* one for all lanes of a call */
    struct lane *head, **tail;
    size_t ask;           /* how many lanes are asked for one that may run, 1 to 16 */
    int64_t rest_ms;      /* until then all lanes in the gate queue have to wait (not_before_ms) */
    int64_t oom_until_ms; /* Redis is at maxmemory: nothing is admitted until then; 0: it is not */
};

void gate_open(struct shard *sh);
void gate_begin(struct shard *sh);                              /* of a pipeline */
void gate_queue(struct shard *sh, struct lane *l, int64_t now); /* it may be gated */
void gate_forget(struct lw_worker *w, struct shard *sh);        /* its call is never answered */
void gate_refused(struct lw_worker *w, struct shard *sh);       /* Redis is at maxmemory: admission waits, the queue drains */
bool gate_rests(const struct shard *sh, int64_t now);           /* for that */
void gate_build(struct lw_worker *w, struct shard *sh, size_t most);
void gate_encode(struct lw_worker *w, struct shard *sh);
void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void gate_back(struct lw_worker *w, struct shard *sh);

#endif
