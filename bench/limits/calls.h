/* gate and settle as a bare client calls them: one shard, messages that all run at once and are done, each lane given up afterwards.
 *
 * This file and calls.c are all that knows the scripts' arguments here; they follow the heads of queue/lua/gate.lua and settle.lua.
 *
 *     calls_open → (calls_gate → its answer: calls_gate_check → calls_settle → its answer: calls_settle_check)… → calls_close */
#ifndef LW_BENCH_LIMITS_CALLS_H
#define LW_BENCH_LIMITS_CALLS_H

#include <hiredis/hiredis.h>
#include <stdint.h>

enum { CALLS_BATCH_MAX = 1024 };

struct calls; /* opaque */

struct call_msg {
    int32_t partition;
    int64_t offset;
    int64_t key;    /* the lane is k-KEY */
    uint64_t token; /* set by calls_gate */
};

struct calls_setup {
    redisContext *redis; /* lent */
    const char *topic;
    int32_t partitions;
    int64_t ttl_ms, payload; /* bytes */
};

/* Loads the scripts, begins an epoch, and removes what an earlier run left of offsets 0 … last of each partition. */
struct calls *calls_open(const struct calls_setup *setup, int64_t last);
void calls_close(struct calls *c);

/* Append one call to the pipeline. The messages stand in order of partition and offset and are of different lanes. */
void calls_gate(struct calls *c, struct call_msg *m, int n);
void calls_settle(struct calls *c, const struct call_msg *m, int n);
/* End the program unless all n messages run; unless all n leases were released. */
void calls_gate_check(const struct calls *c, int n, const redisReply *r);
void calls_settle_check(const struct calls *c, int n, const redisReply *r);

/* How many of these offsets are done in Redis; slow, for the end. And how many (partition, segment) pairs all calls named. */
int64_t calls_done(struct calls *c, int64_t last);
int64_t calls_groups(const struct calls *c);

#endif
