/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches the hints of one shard by a blocking pop from the list `ready` into the list
 * `claimed:<worker>`, on a connection of its own, so that an idle worker learns of a runnable lane
 * at once and without polling.
 *
 * If a connection breaks during a pop, Redis may have moved a hint that never reached the worker.
 * So each new connection first reads `claimed` and reports the hints in it (at most RECONCILE_MAX
 * of them). A hint that is reported twice is harmless. When Redis is at maxmemory, it refuses the
 * pop. Then hints.lua, which Redis still allows, is called every 100 ms instead. */
#ifndef LW_CONSUMER_PROCESS_HINTS_H
#define LW_CONSUMER_PROCESS_HINTS_H

#include "base/redis/wire.h"

struct lw_hints;

struct lw_hints_setup {
    struct lw_finder *finder; /* finds the server of the shard; borrowed */
    const char *owner;        /* name of the worker that owns the connection; borrowed */
    int shard;
    int64_t ttl_ms;
    /* `prefix` is the prefix of the shard's names in Redis, "lw:{NAME.SHARD}:"; borrowed */
    const char *prefix;
    /* lw_hints_serve() calls `hint` for each hint */
    void (*hint)(void *ctx, int shard, struct lw_bytes lane);
    /* `epoch` copies the id of the shard's epoch, as lw_worker_epoch() does */
    bool (*epoch)(void *ctx, int shard, char *epoch, size_t size);
    void *ctx;
};

struct lw_hints *lw_hints_open(const struct lw_hints_setup *setup);
void lw_hints_close(struct lw_hints *h);
/* Sets whether hints are needed, and connects when they are needed for the first time. When they
 * are no longer wanted, a pop that has begun may still bring a hint. This function never calls
 * `hint` itself. */
void lw_hints_want(struct lw_hints *h, const char *ready, const char *claimed, bool want);

/* Returns the error with which the server refuses a command that is needed to fetch hints, or NULL
 * if the server refuses none. */
const char *lw_hints_refused(const struct lw_hints *h);

struct pollfd lw_hints_poll(const struct lw_hints *h);
int64_t lw_hints_due_ms(const struct lw_hints *h);
void lw_hints_serve(struct lw_hints *h, short revents);
/* Asks for the next hint if hints are needed and no request is unanswered. Call this function after
 * each turn. */
void lw_hints_step(struct lw_hints *h);

#endif
