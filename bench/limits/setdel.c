/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the upper limit for any lock in Redis. The program only sends SET KEY TOKEN NX PX TTL,
 * and later DEL KEY, in pipelines. */
#include "bench/limits/loop.h"
#include "bench/limits/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char about[] = "usage: setdel --redis PATH --messages N [options]\n"
                            "For each message SET key token NX PX ttl and, a batch later, DEL key. "
                            "Prints {\"messages\", \"first_us\", \"last_us\",\n"
                            "\"redis_cpu_us\" and \"own_cpu_us\" a message, \"round_trips\" a "
                            "message}. Needs a Redis without keys \"lock:k-*\".\n\n";

enum { TOKEN = 32 };

struct setdel {
    redisContext *redis;
    char ttl_ms[24];
    uint64_t random;
};

static int take(void *ctx, const struct loop_batch *b) {
    struct setdel *s = ctx;
    for (int i = 0; i < b->n; i++) {
        char name[40], token[TOKEN + 1];
        int n = snprintf(name, sizeof name, "lock:k-%" PRId64, b->keys[i]);
        snprintf(token, sizeof token, "%016" PRIx64 "%016" PRIx64, tool_draw(&s->random),
                 tool_draw(&s->random));
        const char *argv[] = {"SET", name, token, "NX", "PX", s->ttl_ms};
        size_t len[] = {3, (size_t)n, TOKEN, 2, 2, strlen(s->ttl_ms)};
        redisAppendCommandArgv(s->redis, 6, argv, len);
    }
    return b->n;
}

static void took(void *ctx, int slot, int n, int i, const redisReply *r) {
    (void)ctx, (void)slot, (void)n, (void)i;
    if (r->type != REDIS_REPLY_STATUS) tool_die("a key is taken; FLUSHALL first");
}

static int give(void *ctx, const struct loop_batch *b) {
    struct setdel *s = ctx;
    for (int i = 0; i < b->n; i++) {
        char name[40];
        int n = snprintf(name, sizeof name, "lock:k-%" PRId64, b->keys[i]);
        const char *argv[] = {"DEL", name};
        size_t len[] = {3, (size_t)n};
        redisAppendCommandArgv(s->redis, 2, argv, len);
    }
    return b->n;
}

static void gave(void *ctx, int slot, int n, int i, const redisReply *r) {
    (void)ctx, (void)slot, (void)n, (void)i;
    if (r->type != REDIS_REPLY_INTEGER || r->integer != 1)
        tool_die("a lock was gone before its DEL; raise --ttl-ms");
}

int main(int argc, char **argv) {
    const char *path = NULL;
    int64_t ttl_ms = 10000;
    struct loop l = {.messages = -1, .keys = 100000, .batch = 64, .depth = 4, .seed = 1};
    const struct tool_option options[] = {
        {"redis", "socket of the server", &path, NULL, 0, 0},
        {"messages", "how many", NULL, &l.messages, 1, INT64_MAX},
        {"keys", "drawn uniformly from as many", NULL, &l.keys, 1, 100000000},
        {"batch", "messages a batch", NULL, &l.batch, 1, LOOP_BATCH_MAX},
        {"pipeline", "batches under way at once", NULL, &l.depth, 1, LOOP_DEPTH_MAX},
        {"ttl-ms", "of a lock", NULL, &ttl_ms, 1, 86400000},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    struct setdel s = {.redis = tool_redis(path), .random = 2};
    l.redis = s.redis;
    snprintf(s.ttl_ms, sizeof s.ttl_ms, "%" PRId64, ttl_ms);
    struct loop_figures f;
    loop_run(&l, &(struct loop_work){take, took, give, gave, &s}, &f);
    loop_print(&l, &f, "");
    redisFree(s.redis);
    return 0;
}
