/* SPDX-License-Identifier: Apache-2.0 */
/* A bare client of Redis that repeats two operations, `take` and `give`, for batches of messages
 * over one connection: SET and DEL of locks in setdel.c, gate and settle in scripts.c.
 *
 *     take 1 ──answered──> give 1, take 2 ──answered──> give 2, take 3 …
 *     (`depth` of these sequences, called slots, side by side)
 *
 * A give and the next take are sent together, so a batch costs one round trip, like a turn of a
 * worker. The keys of each batch are drawn at random, uniformly. No two messages that are taken at
 * the same time have the same key, so no message ever waits. If `depth` is above 1, Redis works
 * while the client prepares the next batch. */
#ifndef LW_BENCH_LIMITS_LOOP_H
#define LW_BENCH_LIMITS_LOOP_H

#include <hiredis/hiredis.h>
#include <stdint.h>

enum { LOOP_BATCH_MAX = 1024, LOOP_DEPTH_MAX = 64 };

struct loop_batch {
    int slot; /* number of the slot, from 0 to depth - 1 */
    int n;
    /* number of the batch's first message; the other messages have the numbers that follow */
    int64_t first;
    /* key of each message, a number from 0 to the number of keys - 1 */
    int64_t keys[LOOP_BATCH_MAX];
};

/* The functions take() and give() append commands to the connection's pipeline, and return the
 * number of replies to expect. The loop calls took() for each reply to a take, and gave() for each
 * reply to a give. They check reply number i for a batch of n messages, and end the program if the
 * reply is wrong. They never get an error reply, because the loop itself ends the program after an
 * error reply. When gave() is called, the slot's next take may already be in flight. */
struct loop_work {
    int (*take)(void *ctx, const struct loop_batch *b);
    void (*took)(void *ctx, int slot, int n, int i, const redisReply *r);
    int (*give)(void *ctx, const struct loop_batch *b);
    void (*gave)(void *ctx, int slot, int n, int i, const redisReply *r);
    void *ctx;
};

struct loop {
    redisContext *redis;
    int64_t messages, keys, batch, depth;
    uint64_t seed;
};

struct loop_figures {
    /* `first_us` is the time before the first command, and `last_us` the time after the last reply,
     * in µs of CLOCK_MONOTONIC. */
    int64_t first_us, last_us;
    int64_t round_trips, redis_cpu_us, own_cpu_us;
};

void loop_run(const struct loop *l, const struct loop_work *work, struct loop_figures *out);
/* Prints the results as one line of JSON. The text `more`, which may be "", is inserted before the
 * closing brace. */
void loop_print(const struct loop *l, const struct loop_figures *f, const char *more);

#endif
