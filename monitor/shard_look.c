/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/shard_look.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/redis/connection.h"
#include "base/redis/reply.h"
#include "config/shard.h"
#include "ops/script.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct old {
    char *lane;
    size_t n;
    int64_t first_ms;
};

struct lw_shard_looker {
    char name[24], prefix[LW_SHARD_PREFIX];
    const struct lw_config *config;
    int shard;
    struct lw_redis *redis;
    /* `rank` is the index of the lane at which the next look begins. Each look visits a limited
     * number of lanes. After the last lane, the first lane is next. */
    int64_t rank;
    struct old old[LW_LOOK_OLD];
    int n_old;
    bool told;
};

struct lw_shard_looker *lw_shard_looker_open(const struct lw_config *c, int shard) {
    struct lw_shard_looker *k = lw_alloc(sizeof *k);
    snprintf(k->name, sizeof k->name, "shard %d", shard);
    lw_shard_prefix(c, shard, k->prefix);
    k->config = c;
    k->shard = shard;
    return k;
}

static void forget_old(struct lw_shard_looker *k) {
    while (k->n_old) free(k->old[--k->n_old].lane);
}

static void drop(struct lw_shard_looker *k) {
    lw_redis_close(k->redis);
    k->redis = NULL;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void append_heads(struct lw_shard_looker *k) {
    char lanes[160], wait[160], rank[24], many[16];
    const char *argv[7 + LW_LOOK_OLD] = {"EVAL", lw_op_heads.text, "1", lanes, rank, many, wait};
    size_t len[7 + LW_LOOK_OLD];
    snprintf(lanes, sizeof lanes, "%slanes", k->prefix);
    snprintf(wait, sizeof wait, "%swait:", k->prefix);
    snprintf(rank, sizeof rank, "%lld", (long long)k->rank);
    snprintf(many, sizeof many, "%d", LW_LOOK_LANES);
    for (int i = 0; i < 7; i++) len[i] = strlen(argv[i]);
    for (int i = 0; i < k->n_old; i++) argv[7 + i] = k->old[i].lane, len[7 + i] = k->old[i].n;
    lw_redis_append_argv(k->redis, 7 + k->n_old, argv, len);
}

/* Returns the next reply of the pipeline, which replies to `command`. Returns NULL with *err if the
 * reply is not of the type `type`, or if the connection broke. */
static redisReply *next(struct lw_shard_looker *k, const char *command, int type,
                        struct lw_err *err) {
    redisReply *reply = lw_redis_reply(k->redis);
    if (!reply) {
        lw_fail(err, "%s", k->redis->why);
        return NULL;
    }
    if (reply->type == type) return reply;
    char why[LW_REPLY_TEXT];
    lw_fail(err, "%s",
            reply->type == REDIS_REPLY_ERROR
                ? reply->str
                : lw_malformed(why, reply, command, "%s", lw_reply_type(type)));
    freeReplyObject(reply);
    return NULL;
}

static bool take_number(struct lw_shard_looker *k, const char *command, int64_t *out,
                        struct lw_err *err) {
    redisReply *r = next(k, command, REDIS_REPLY_INTEGER, err);
    if (!r) return false;
    *out = r->integer;
    freeReplyObject(r);
    return true;
}

/* Returns the time at which a message first arrived: FIRST_MS of the first line of its envelope
 * (queue/envelope.h), "1 TOPIC PARTITION OFFSET REPLAY FIRST_MS …". Returns 0 if the line is
 * malformed. */
static int64_t first_of(const redisReply *line) {
    long long first = 0;
    if (line->type != REDIS_REPLY_STRING ||
        sscanf(line->str, "1 %*s %*d %*s %*d %lld", &first) != 1)
        return 0;
    return first;
}

/* Keeps the lane if it is among the LW_LOOK_OLD lanes with the oldest heads and is not kept
 * already. */
static void keep(struct lw_shard_looker *k, const redisReply *lane, int64_t first_ms) {
    int worst = 0;
    if (first_ms <= 0 || lane->type != REDIS_REPLY_STRING) return;
    for (int i = 0; i < k->n_old; i++) {
        if (k->old[i].n == lane->len && memcmp(k->old[i].lane, lane->str, lane->len) == 0) return;
        if (k->old[i].first_ms > k->old[worst].first_ms) worst = i;
    }
    if (k->n_old < LW_LOOK_OLD)
        worst = k->n_old++;
    else if (k->old[worst].first_ms <= first_ms)
        return;
    else
        free(k->old[worst].lane);
    k->old[worst] = (struct old){lw_memdup(lane->str, lane->len), lane->len, first_ms};
}

static bool take_heads(struct lw_shard_looker *k, struct lw_shard_look *out, struct lw_err *err) {
    redisReply *r = next(k, "heads.lua", REDIS_REPLY_ARRAY, err);
    if (!r) return false;
    size_t seen = r->elements / 2, named = (size_t)k->n_old;
    forget_old(k);
    for (size_t i = 0; i < seen; i++) keep(k, r->element[2 * i], first_of(r->element[2 * i + 1]));
    /* if all lanes have been visited, a new round starts */
    k->rank = seen < named + LW_LOOK_LANES ? 0 : k->rank + LW_LOOK_LANES;
    out->oldest_ms = 0;
    for (int i = 0; i < k->n_old; i++)
        if (!out->oldest_ms || k->old[i].first_ms < out->oldest_ms)
            out->oldest_ms = k->old[i].first_ms;
    freeReplyObject(r);
    return true;
}

static bool ask(struct lw_shard_looker *k, struct lw_shard_look *out, struct lw_err *err) {
    struct lw_shard_look now = *out;
    if (!k->redis)
        k->redis = lw_config_connect(k->config, k->shard, "latchwork:exporter", LW_LOOK_TIMEOUT_MS,
                                     LW_LOOK_TIMEOUT_MS, err);
    if (!k->redis) return false;
    lw_redis_append(k->redis, "ZCARD %slanes", k->prefix);
    lw_redis_append(k->redis, "LLEN %sready", k->prefix);
    lw_redis_append(k->redis, "XLEN %sdead", k->prefix);
    lw_redis_append(k->redis, "SCARD %spaused", k->prefix);
    append_heads(k);
    if (!take_number(k, "ZCARD", &now.lanes, err) || !take_number(k, "LLEN", &now.ready, err) ||
        !take_number(k, "XLEN", &now.dead, err) || !take_number(k, "SCARD", &now.paused, err) ||
        !take_heads(k, &now, err))
        return false;
    *out = now;
    return true;
}

static void append_length(struct lw_shard_looker *k, struct lw_bytes lane) {
    struct lw_buf list = {0};
    lw_buf_addf(&list, "%swait:", k->prefix);
    lw_buf_add(&list, lane.p, lane.n);
    const char *argv[] = {"LLEN", list.p};
    size_t len[] = {4, list.n};
    lw_redis_append_argv(k->redis, 2, argv, len);
    lw_buf_free(&list);
}

bool lw_shard_waiting(struct lw_shard_looker *k, const struct lw_bytes *lanes, size_t n,
                      int64_t *waiting) {
    assert(n <= LW_LOOK_WAITING);
    if (!k->redis) return false; /* only lw_shard_look() connects */
    for (size_t i = 0; i < n; i++) append_length(k, lanes[i]);
    for (size_t i = 0; i < n; i++) {
        redisReply *r = lw_redis_reply(k->redis);
        if (!r) {
            drop(k);
            return false;
        }
        waiting[i] = r->type == REDIS_REPLY_INTEGER ? r->integer : -1;
        freeReplyObject(r);
    }
    return true;
}

void lw_shard_look(struct lw_shard_looker *k, struct lw_shard_look *out) {
    struct lw_err err = {0};
    out->up = ask(k, out, &err);
    if (out->up) {
        out->down_ms = 0;
        k->told = false;
        return;
    }
    if (!out->down_ms) out->down_ms = lw_boot_ms();
    drop(k); /* replies may still be under way, so the connection is closed */
    if (!k->told) lw_warn("%s: can't be asked for metrics: %s; retrying", k->name, err.text);
    k->told = true;
}
