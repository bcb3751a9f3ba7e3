/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the upper limit of gate and settle. The program calls these two scripts in batches,
 * without Kafka, handlers, renewal or commits. --run sets how many messages in a row come from the
 * same partition. The effect of --run matters because a worker, too, gets thousands of messages of
 * one partition in a row, from one fetch. */
#include "bench/limits/calls.h"
#include "bench/limits/loop.h"
#include "bench/limits/tool.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char about[] = "usage: scripts --redis PATH --messages N [options]\n"
                            "gate and settle for batches of messages with contiguous offsets and "
                            "distinct keys; each runs at once and is done, so that\n"
                            "its payload never travels. Prints\n"
                            "{\"messages\", \"first_us\", \"last_us\", \"redis_cpu_us\" and "
                            "\"own_cpu_us\" a message, \"round_trips\" a message, \"segments\" "
                            "(segments of\n"
                            "partitions) a call}. Uses names of lw:{bench.0}: only, and removes "
                            "what an earlier run left there.\n\n";

struct scripts {
    struct calls *calls;
    int64_t run, partitions;
    int64_t count; /* number of calls so far */
    struct call_batch *slots;
};

/* Returns the partition and the offset of message i if the topic is read in runs: `run` messages of
 * partition 0, then `run` messages of partition 1, and so on through all partitions, repeatedly. */
static struct call_msg place(const struct scripts *s, int64_t i, int64_t key) {
    int64_t run = i / s->run;
    return (struct call_msg){.partition = (int32_t)(run % s->partitions),
                             .offset = run / s->partitions * s->run + i % s->run,
                             .key = key};
}

static int by_place(const void *a, const void *b) {
    const struct call_msg *x = a, *y = b;
    if (x->partition != y->partition) return x->partition < y->partition ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int take(void *ctx, const struct loop_batch *b) {
    struct scripts *s = ctx;
    struct call_batch *c = &s->slots[b->slot];
    c->n = b->n;
    for (int i = 0; i < b->n; i++) c->msg[i] = place(s, b->first + i, b->keys[i]);
    qsort(c->msg, (size_t)b->n, sizeof *c->msg, by_place);
    calls_gate(s->calls, c);
    s->count++;
    return 1;
}

static int give(void *ctx, const struct loop_batch *b) {
    struct scripts *s = ctx;
    calls_settle(s->calls, &s->slots[b->slot]);
    s->count++;
    return 1;
}

static void took(void *ctx, int slot, int n, int i, const redisReply *r) {
    (void)n, (void)i;
    calls_gate_check(&((struct scripts *)ctx)->slots[slot], r);
}

static void gave(void *ctx, int slot, int n, int i, const redisReply *r) {
    (void)ctx, (void)slot, (void)i;
    calls_settle_check(n, r);
}

int main(int argc, char **argv) {
    const char *path = NULL, *topic = "work";
    int64_t ttl_ms = 10000;
    struct loop l = {.messages = -1, .keys = 100000, .batch = 64, .depth = 4, .seed = 1};
    struct scripts s = {.run = 1000, .partitions = 8};
    const struct tool_option options[] = {
        {"redis", "socket of the server", &path, NULL, 0, 0},
        {"messages", "how many", NULL, &l.messages, 1, INT64_MAX},
        {"keys", "drawn uniformly from as many", NULL, &l.keys, 1, 100000000},
        {"partitions", "of the topic", NULL, &s.partitions, 1, 10000},
        {"run", "messages in a row from one partition", NULL, &s.run, 1, 1000000000},
        {"batch", "messages a call", NULL, &l.batch, 1, LOOP_BATCH_MAX},
        {"pipeline", "batches under way at once", NULL, &l.depth, 1, LOOP_DEPTH_MAX},
        {"ttl-ms", "of a lease", NULL, &ttl_ms, 100, 86400000},
        {"topic", "its name, a part of Redis' names", &topic, NULL, 0, 0},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    l.redis = tool_redis(path);
    int64_t last = (l.messages / (s.run * s.partitions) + 1) * s.run;
    const struct calls_setup setup = {l.redis, topic, (int32_t)s.partitions, ttl_ms};
    s.calls = calls_open(&setup, last);
    s.slots = lw_alloc((size_t)l.depth * sizeof *s.slots);
    struct loop_figures f;
    loop_run(&l, &(struct loop_work){take, took, give, gave, &s}, &f);
    int64_t done = calls_done(s.calls, last);
    if (done != l.messages)
        tool_die("%" PRId64 " of %" PRId64 " messages are done in Redis", done, l.messages);
    char more[40];
    snprintf(more, sizeof more, ",\"segments\":%.2f",
             (double)calls_segments(s.calls) / (double)s.count);
    loop_print(&l, &f, more);
    calls_close(s.calls);
    free(s.slots);
    redisFree(l.redis);
    return 0;
}
