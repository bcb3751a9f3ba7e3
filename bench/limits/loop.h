/* SPDX-License-Identifier: Apache-2.0 */
/* A bare client takes batches of messages and gives each batch back, over one connection.
 *
 *     take 1 ──answered──> give 1, take 2 ──answered──> give 2, take 3 …
 *     (`depth` of these sequences side by side)
 *
 * "give" and the next "take" are sent together, so a batch costs one round trip, as a turn of the
 * worker does. The keys of a batch are drawn anew, uniformly, and are distinct among all that are
 * taken and not yet given, so nothing ever waits. With a depth above 1 Redis works while the client
 * prepares the next batch. */
#ifndef LW_BENCH_LIMITS_LOOP_H
#define LW_BENCH_LIMITS_LOOP_H

#include <hiredis/hiredis.h>
#include <stdint.h>

enum { LOOP_BATCH_MAX = 1024, LOOP_DEPTH_MAX = 64 };

struct loop_batch {
    int slot; /* number of the slot, from 0 to depth - 1 */
    int n;
    /* number of the batch's first message; the others have the numbers that follow */
    int64_t first;
    int64_t keys[LOOP_BATCH_MAX]; /* key of each message, 0 … keys - 1 */
};

/* take and give append commands to the connection's pipeline and return how many replies these will
 * have. took and gave check the i-th reply (never an error) for a batch of n messages, and end the
 * program if that reply is wrong. When gave is called, the slot's next take may already be in
 * flight. */
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
    int64_t first_us, last_us; /* time before the first command, and after the last reply */
    int64_t round_trips, redis_cpu_us, own_cpu_us;
};

void loop_run(const struct loop *l, const struct loop_work *work, struct loop_figures *out);
/* Prints the results as one line of JSON; `more` (may be "") is inserted before its closing
 * brace. */
void loop_print(const struct loop *l, const struct loop_figures *f, const char *more);

#endif
