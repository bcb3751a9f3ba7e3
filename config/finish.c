/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that involve more than one key of the configuration. They run after every key was read and
 * every default was filled in. */
#include "config/option.h"

#include <stdlib.h>
#include <string.h>

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

static void finish_busy(struct lw_loader *l) {
    if (l->c->queue.on_busy == LW_BUSY_LATEST && !lw_config_runs_ahead(l->c))
        lw_problem(l->problems, "queue.on_busy: \"latest\" goes with no lock.run_ahead of 1, "
                                "retry.order skip, dedup.id or limits, because a worker then knows "
                                "only one message of a key at a time");
}

void lw_finish(struct lw_loader *l) {
    lw_finish_kafka(l);
    finish_redis(l);
    finish_retry(l);
    lw_finish_limits(l);
    finish_dead(l);
    finish_dedup(l);
    finish_busy(l);
    lw_finish_handler(l);
    lw_finish_http(l);
    lw_finish_tracing(l);
}
