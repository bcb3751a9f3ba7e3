/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: one shard's blocking pop of `ready` into `claimed:<worker>`, on a connection of its own, so that an idle worker learns of a
 * runnable lane at once and without polling.
 *
 * A pop that is cut off may have moved a hint that nobody was told of; so each new connection first reads `claimed` and tells all of it:
 * a hint told twice is harmless. Where Redis is at its maxmemory and refuses the pop, hints.lua, which is allowed there, is asked every 100
 * ms instead. */
#ifndef LW_CONSUMER_PROCESS_HINTS_H
#define LW_CONSUMER_PROCESS_HINTS_H

#include "base/redis/wire.h"

struct lw_hints;

struct lw_hints_setup {
    struct lw_finder *finder; /* borrowed */
    const char *owner;        /* of the connection; lent */
    int shard;
    int64_t ttl_ms;
    const char *prefix;                                            /* "lw:{NAME.SHARD}:"; borrowed */
    void (*hint)(void *ctx, int shard, struct lw_bytes lane);      /* called from within lw_hints_serve() */
    bool (*epoch)(void *ctx, int shard, char *epoch, size_t size); /* lw_worker_epoch() */
    void *ctx;
};

struct lw_hints *lw_hints_open(const struct lw_hints_setup *setup);
void lw_hints_close(struct lw_hints *h);
/* Sets whether hints are wanted. Connects when they are first wanted. A pop under way may still
 * bring one after they are not. Calls no event function. */
void lw_hints_want(struct lw_hints *h, const char *ready, const char *claimed, bool want);

/* The error that the server answers to what hints need; NULL: none. */
const char *lw_hints_refused(const struct lw_hints *h);

struct pollfd lw_hints_poll(const struct lw_hints *h);
int64_t lw_hints_due_ms(const struct lw_hints *h);
void lw_hints_serve(struct lw_hints *h, short revents);
/* Called after each turn: asks for the next hint if one is wanted and none is being asked for. */
void lw_hints_step(struct lw_hints *h);

#endif
