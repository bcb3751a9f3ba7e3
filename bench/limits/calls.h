/* SPDX-License-Identifier: Apache-2.0 */
/* A bare client that calls gate and settle on one shard. Each message has a lane of its own, and no
 * other client uses these lanes. Therefore gate lets each message run at once, settle records the
 * message as done, and the lane is free again. No envelopes are sent, because a worker sends none
 * for a lane that is free.
 *
 * The arguments of the scripts are made by queue/calls.h, as in a worker.
 *
 *     calls_open → (calls_gate → its answer: calls_gate_check → calls_settle → its answer:
 *         calls_settle_check)… → calls_close */
#ifndef LW_BENCH_LIMITS_CALLS_H
#define LW_BENCH_LIMITS_CALLS_H

#include <hiredis/hiredis.h>
#include <stdint.h>

enum { CALLS_BATCH_MAX = 1024 };

struct calls;

struct call_msg {
    int32_t partition;
    int64_t offset;
    int64_t key; /* number of the key; the lane is named k-KEY */
};

/* The messages of one gate call and of the settle call that follows, sorted by partition and
 * offset. Each has a lane of its own. */
struct call_batch {
    struct call_msg msg[CALLS_BATCH_MAX];
    int n;
    uint64_t token; /* token of the locks; set by calls_gate() */
    /* fence of the locks, set by calls_gate_check(); token and fence make the value of each lock */
    uint64_t fence;
};

struct calls_setup {
    redisContext *redis; /* connection to Redis, borrowed from the caller */
    const char *topic;
    int32_t partitions;
    int64_t ttl_ms;
};

/* Loads the scripts, begins an epoch, and removes the marks that an earlier run left at offsets
 * 0 … last of each partition. */
struct calls *calls_open(const struct calls_setup *setup, int64_t last);
void calls_close(struct calls *c);

/* calls_gate() and calls_settle() each append one call to the pipeline. */
void calls_gate(struct calls *c, struct call_batch *b);
void calls_settle(struct calls *c, const struct call_batch *b);
/* calls_gate_check() and calls_settle_check() end the program after an unexpected reply.
 * calls_gate_check() expects that all messages of the batch may run, and calls_settle_check() that
 * the leases of all n messages of the batch were released. */
void calls_gate_check(struct call_batch *b, const redisReply *r);
void calls_settle_check(int n, const redisReply *r);

/* calls_done() counts the offsets that are done in Redis, and ends the program if any offset is
 * waiting or dead. Counting takes long, so call calls_done() at the end. calls_segments() returns
 * the number of (partition, segment) pairs that the calls named, summed over all calls. */
int64_t calls_done(struct calls *c, int64_t last);
int64_t calls_segments(const struct calls *c);

#endif
