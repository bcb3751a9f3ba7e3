/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that involve more than one key of the configuration. They run after every key was read and
 * every default was filled in. */
#include "config/option.h"

#include <stdlib.h>
#include <string.h>

enum { HTTP_IN_FLIGHT = 64 };

static void finish_redis(struct lw_loader *l) {
    struct lw_config *c = l->c;
    if (!c->redis.shards && c->redis.cluster.on)
        lw_problem(l->problems, "redis.shards: missing; redis.cluster needs it: as many as the "
                                "cluster has masters, or a small multiple");
    if (!c->redis.shards) c->redis.shards = c->redis.n_urls ? (int)c->redis.n_urls : 1;
    if (c->redis.n_urls && (size_t)c->redis.shards < c->redis.n_urls)
        lw_problem(l->problems,
                   "redis.shards: %d shards leave servers of the %zu in redis.url unused",
                   c->redis.shards, c->redis.n_urls);
    lw_finish_redis(l);
}

static void finish_retry(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (c->retry.backoff_ms > c->retry.backoff_max_ms)
        lw_problem(l->problems, "retry.backoff_ms: %lld is more than retry.backoff_max_ms (%lld)",
                   (long long)c->retry.backoff_ms, (long long)c->retry.backoff_max_ms);
    if (c->retry.max_attempts == 1)
        lw_problem_warn(l->problems,
                        "retry.max_attempts: with 1, every failure is a dead letter at once");
    if (c->retry.order == LW_ORDER_SKIP)
        lw_problem_warn(
            l->problems,
            "retry.order: with \"skip\", later messages of a key overtake a failing one");
}

static void finish_dead(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    for (size_t i = 0; c->dead.topic && i < c->kafka.n_topics; i++)
        if (!strcmp(c->kafka.topics[i], c->dead.topic))
            lw_problem(l->problems,
                       "dead.to: %s is also in kafka.topics: dead letters would be consumed again",
                       c->dead.topic);
    if (c->dead.to == LW_DEAD_REDIS)
        lw_problem_warn(l->problems, "dead.to: dead letters in Redis end with it; a topic "
                                     "(\"topic:NAME\") outlives a wiped Redis");
}

static void finish_dedup(struct lw_loader *l) {
    struct lw_config *c = l->c;
    bool has_id = c->dedup.id.from != LW_KEY_MESSAGE;
    c->dedup.business = has_id && c->dedup.window_s > 0;
    if (has_id && !c->dedup.window_s)
        lw_problem_warn(l->problems, "dedup.id: no effect while dedup.window_s is 0");
    if (!has_id && c->dedup.window_s)
        lw_problem_warn(l->problems, "dedup.window_s: no effect while dedup.id is \"offset\"");
}

/* Returns true if a worker can be granted the next messages of a key while an earlier message of
 * the key runs. This is so only if messages run ahead (consumer/worker/hold.c). */
static bool knows_followers(const struct lw_config *c) {
    return c->lock.run_ahead > 1 && c->retry.order == LW_ORDER_BLOCK && !c->dedup.business;
}

/* Returns true for an http handler with "mode": "batch". Unless handler.batch is given, a batch of
 * such a handler has up to lock.run_ahead messages. */
static bool sends_batches(const struct lw_config *c) {
    const char *mode = json_string_value(json_object_get(c->handler.json, "mode"));
    return c->handler.type && !strcmp(c->handler.type, "http") && mode && !strcmp(mode, "batch");
}

static void finish_requests(struct lw_loader *l, bool exec, bool http) {
    struct lw_config *c = l->c;
    static const char *const only[] = {"in_flight", "batch"};
    for (size_t i = 0; i < 2 && !exec && !http && c->handler.type; i++)
        if (json_object_get(c->handler.json, only[i]))
            lw_problem(l->problems, "handler.%s: only exec and http have it", only[i]);
    if (!c->handler.in_flight) c->handler.in_flight = http ? HTTP_IN_FLIGHT : 1;
    if (!c->handler.batch)
        c->handler.batch = sends_batches(c) && knows_followers(c) ? c->lock.run_ahead : 1;
    if (lw_config_at_once(c) > LW_AT_ONCE_MAX)
        lw_problem(l->problems,
                   "handler.in_flight: %d processes with %d messages each are more than %d "
                   "messages at once",
                   c->handler.threads, c->handler.in_flight, (int)LW_AT_ONCE_MAX);
    if (c->handler.batch > 1 && !knows_followers(c))
        lw_problem_warn(l->problems, "handler.batch: no effect with lock.run_ahead 1, retry.order "
                                     "skip, or business ids");
    else if (c->handler.batch > c->lock.run_ahead)
        lw_problem_warn(l->problems,
                        "handler.batch: is %d, but only lock.run_ahead (%d) messages of a key are "
                        "known at once",
                        c->handler.batch, c->lock.run_ahead);
}

/* Returns true if the handler inserts into PostgreSQL, which allows many concurrent writers. SQLite
 * allows one. */
static bool inserts_into_postgres(const struct lw_config *c) {
    const char *store = json_string_value(json_object_get(c->handler.json, "store"));
    return store && strncmp(store, "postgres", strlen("postgres")) == 0;
}

static void finish_handler(struct lw_loader *l) {
    struct lw_config *c = l->c;
    const char *type = c->handler.type ? c->handler.type : "";
    bool exec = !strcmp(type, "exec"), http = !strcmp(type, "http");
    if (exec && json_object_get(c->handler.json, "threads"))
        lw_problem(l->problems, "handler.threads: exec has handler.processes instead");
    if (http && json_object_get(c->handler.json, "threads"))
        lw_problem(l->problems, "handler.threads: http has handler.in_flight instead");
    if (*type && !exec && json_object_get(c->handler.json, "processes"))
        lw_problem(l->problems, "handler.processes: only exec has processes; %.64s has handler.%s",
                   type, http ? "in_flight" : "threads");
    if (!c->handler.threads)
        c->handler.threads = http || (!strcmp(type, "insert") && !inserts_into_postgres(c)) ? 1 : 4;
    finish_requests(l, exec, http);
    if (c->workers * c->handler.threads > LW_SLOTS_MAX)
        lw_problem(l->problems, "workers: %d workers with %d handlers each are more than %d",
                   c->workers, c->handler.threads, (int)LW_SLOTS_MAX);
    if (c->handler.timeout_ms > c->shutdown.grace_ms)
        lw_problem_warn(l->problems, "shutdown.grace_ms: shorter than handler.timeout_ms: a slow "
                                     "handler is cut off at shutdown and runs again");
}

void lw_finish(struct lw_loader *l) {
    lw_finish_kafka(l);
    finish_redis(l);
    finish_retry(l);
    finish_dead(l);
    finish_dedup(l);
    finish_handler(l);
    lw_finish_http(l);
    lw_finish_tracing(l);
}
