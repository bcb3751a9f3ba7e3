/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/queue/paused_lanes.h"

#include "base/clock.h"
#include "base/redis/connection.h"
#include "base/redis/reply.h"
#include "base/redis/servers.h"
#include "config/shard.h"

#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 2000, LOOK_MS = 5000 };

struct look {
    struct lw_redis *redis;
    char tag[LW_SHARD_PREFIX];
    int64_t until_ms;
    struct lw_buf *names;
    struct lw_err *err;
    int found;
    bool may_move;
};

static redisReply *take(struct look *l, const char *command, redisReply *r, int type) {
    if (r && r->type == type) return r;
    char why[LW_REPLY_TEXT];
    const char *says = r && r->type == REDIS_REPLY_ERROR ? lw_redis_deposed(r->str) : NULL;
    if (says)
        lw_fail(l->err, "%s: %s (%s)", l->tag, says, r->str);
    else
        lw_fail(l->err, "%s: %s", l->tag, lw_reply_wrong(why, r, command, type, l->redis->why));
    if (r) freeReplyObject(r);
    return NULL;
}

static int connect_to(struct look *l, const struct lw_config *c, int shard) {
    struct lw_err why = {0};
    l->redis = lw_config_connect(c, shard, "latchwork:drain", TIMEOUT_MS, TIMEOUT_MS, &why);
    return l->redis ? 0 : lw_fail(l->err, "%s: cannot connect: %s", l->tag, why.text);
}

/* Counts a paused lane, and adds its name to the text unless the text already has
 * LW_PAUSED_NAMES_MAX names. Keys may hold any bytes, so control characters are shown as '?'. */
static void add_name(struct look *l, const char *key, size_t n) {
    l->found++;
    if (l->found > LW_PAUSED_NAMES_MAX) return;
    if (l->names->n) lw_buf_add(l->names, ", ", 2);
    for (size_t i = 0; i < n && i < 200; i++) {
        unsigned char b = (unsigned char)key[i];
        lw_buf_add(l->names, b < 0x20 || b == 0x7f ? "?" : key + i, 1);
    }
}

/* Examines one lane, unless it has no waiting messages. If the lane is paused, counts it and notes
 * its name. If the lane is not paused, sets `may_move`, because the lane's messages may still
 * run. */
static int look_at_lane(struct look *l, const char *key, size_t n) {
    redisReply *len = take(l, "LLEN", lw_redis_ask(l->redis, "LLEN %swait:%b", l->tag, key, n),
                           REDIS_REPLY_INTEGER);
    if (!len) return -1;
    bool waiters = len->integer > 0;
    freeReplyObject(len);
    if (!waiters) return 0;
    redisReply *is =
        take(l, "SISMEMBER", lw_redis_ask(l->redis, "SISMEMBER %spaused %b", l->tag, key, n),
             REDIS_REPLY_INTEGER);
    if (!is) return -1;
    if (is->integer)
        add_name(l, key, n);
    else
        l->may_move = true;
    freeReplyObject(is);
    return 0;
}

static int look_at_lanes(struct look *l, const redisReply *page) {
    /* a reply of ZSCAN has pairs of member and score; only the members are used */
    for (size_t i = 0; i + 1 < page->elements && !l->may_move; i += 2)
        if (look_at_lane(l, page->element[i]->str, page->element[i]->len) == -1) return -1;
    return 0;
}

static int look_at_locks(struct look *l, const redisReply *page) {
    if (page->elements) l->may_move = true;
    return 0;
}

/* Runs `command`, which is SCAN or ZSCAN, and calls `fn` with the names of each reply. Ends after
 * the last reply, or as soon as `may_move` is set because a message may still run. */
static int walk(struct look *l, const char *command, const char *pattern,
                int (*fn)(struct look *l, const redisReply *page)) {
    char cursor[32] = "0";
    do {
        redisReply *r =
            pattern ? lw_redis_ask(l->redis, "%s %s MATCH %slock:* COUNT 1000", command, cursor,
                                   pattern)
                    : lw_redis_ask(l->redis, "%s %slanes %s COUNT 1000", command, l->tag, cursor);
        r = take(l, command, r, REDIS_REPLY_ARRAY);
        if (!r) return -1;
        bool sound = r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
                     r->element[1]->type == REDIS_REPLY_ARRAY && r->element[0]->len < sizeof cursor;
        if (sound) memcpy(cursor, r->element[0]->str, r->element[0]->len + 1);
        char why[LW_REPLY_TEXT];
        int ok = sound ? fn(l, r->element[1])
                       : lw_fail(l->err, "%s: %s", l->tag,
                                 lw_malformed(why, r, command, "[cursor, array]"));
        freeReplyObject(r);
        if (ok == -1) return -1;
        if (lw_boot_ms() > l->until_ms)
            return lw_fail(l->err, "%s: %s timed out after %d ms", l->tag, command, LOOK_MS);
    } while (strcmp(cursor, "0") != 0 && !l->may_move);
    return 0;
}

/* Escapes the characters that SCAN would interpret as parts of a pattern. */
static void quote_pattern(const char *tag, char *out) {
    for (; *tag; tag++) {
        if (strchr("*?[]\\^", *tag)) *out++ = '\\';
        *out++ = *tag;
    }
    *out = 0;
}

static int look_at_shard(struct look *l, const struct lw_config *c, int shard) {
    char pattern[2 * sizeof l->tag];
    quote_pattern(l->tag, pattern);
    int ok = connect_to(l, c, shard);
    if (ok == 0) ok = walk(l, "ZSCAN", NULL, look_at_lanes);
    if (ok == 0 && !l->may_move) ok = walk(l, "SCAN", pattern, look_at_locks);
    lw_redis_close(l->redis);
    l->redis = NULL;
    return ok;
}

int lw_paused_lanes(const struct lw_config *c, struct lw_buf *names, struct lw_err *err) {
    struct look l = {.until_ms = lw_boot_ms() + LOOK_MS, .names = names, .err = err};
    for (int s = 0; s < c->redis.shards && !l.may_move; s++) {
        lw_shard_prefix(c, s, l.tag);
        if (look_at_shard(&l, c, s) == -1) return -1;
    }
    if (l.may_move) return 0;
    if (l.found > LW_PAUSED_NAMES_MAX)
        lw_buf_addf(names, " and %d more", l.found - LW_PAUSED_NAMES_MAX);
    return l.found;
}
