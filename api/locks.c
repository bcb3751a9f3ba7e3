/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET locks: lists who holds lanes now. Redis has no list of locks, so the function walks
 * over all key names with SCAN. A response ends when it has enough rows or when its time is used
 * up. */
#include "api/private.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 500, WALK_MS = 1500 };

static int add_lock(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct api_rows *rs = ctx;
    struct lw_bytes worker;
    uint64_t fence;
    (void)o;
    /* leave out a lock that has expired since SCAN found it, and the lock of a backoff, which has
     * no holder */
    if (!ops_lane_held(l, &worker, &fence)) return 0;
    json_t *v = json_object();
    ops_set_bytes(v, "key", l->name);
    json_object_set_new(v, "shard", json_integer(l->shard));
    json_object_set_new(v, "holder", api_holder_json(l));
    json_object_set_new(v, "waiting", json_integer(l->n < 0 ? 0 : l->n));
    json_object_set_new(v, "paused", json_boolean(l->paused));
    api_append(rs, v, l->name.n + l->lock.n);
    return 0;
}

static int look_at(struct ops *o, struct ops_shard *sh, const redisReply *names, size_t n_prefix,
                   struct api_rows *rs) {
    struct lw_bytes lanes[OPS_BATCH];
    int stop = 0;
    size_t n = 0;
    for (size_t i = 0; i < names->elements && stop >= 0; i++) {
        struct lw_bytes lane =
            lw_bytes(names->element[i]->str + n_prefix, names->element[i]->len - n_prefix);
        if (names->element[i]->len > n_prefix && ops_lane_matches(o, lane)) lanes[n++] = lane;
        if (n < OPS_BATCH && i + 1 < names->elements) continue;
        stop = ops_look(o, sh, lanes, n, add_lock, rs);
        n = 0;
    }
    return stop;
}

/* Calls SCAN once, to read the next names of locks. The cursor `at` is "0" before the first call,
 * and again after the last one. */
static int scan(struct ops *o, struct ops_shard *sh, char at[OPS_CURSOR], struct api_rows *rs) {
    struct lw_buf pattern = {0};
    lw_buf_addf(&pattern, "%slock:*", sh->prefix);
    ops_begin(o, "SCAN"), ops_words(o, at, "MATCH"),
        lw_arg(&o->cmd, lw_bytes(pattern.p, pattern.n));
    lw_arg_text(&o->cmd, "COUNT"), lw_arg_i64(&o->cmd, COUNT);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    lw_buf_free(&pattern);
    if (!r) return -1;
    bool sound = r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[0]->len < OPS_CURSOR;
    if (sound) memcpy(at, r->element[0]->str, r->element[0]->len + 1);
    int stop = sound ? look_at(o, sh, r->element[1], strlen(sh->prefix) + strlen("lock:"), rs)
                     : ops_malformed(o, sh, r, "[cursor, array]");
    freeReplyObject(r);
    return stop;
}

/* Answers GET locks. The cursor in a response is "SHARD.CURSOR". */
int api_locks(struct api_call *k) {
    struct ops *o = k->o;
    struct api_rows rs = {.k = k, .limit = k->limit, .list = json_array()};
    char at[OPS_CURSOR] = "0", next[64];
    int shard = 0, end = 0, bad = 0;
    int64_t until_ms = lw_boot_ms() + WALK_MS;
    if (k->cursor &&
        (sscanf(k->cursor, "%3d.%20[0-9]%n", &shard, at, &end) != 2 || k->cursor[end] ||
         !api_scan_cursor(at) || shard < 0 || shard >= o->c->redis.shards)) {
        json_decref(rs.list);
        return api_misplaced(k);
    }
    while (bad >= 0 && shard < o->c->redis.shards && !api_full(&rs) && lw_boot_ms() < until_ms) {
        bad = scan(o, &o->shards[shard], at, &rs);
        shard += !strcmp(at, "0");
    }
    snprintf(next, sizeof next, "%d.%s", shard, at);
    if (bad >= 0)
        api_put(k, json_pack("{s:O,s:o}", "locks", rs.list, "next",
                             shard < o->c->redis.shards ? json_string(next) : json_null()));
    json_decref(rs.list);
    return bad < 0 ? -1 : 0;
}
