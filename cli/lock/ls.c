/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork lock ls`, which lists the locks that are held. It
 * searches with the cursors of SCAN, so it never blocks Redis for long. */
#include "cli/lock/lock.h"

#include "config/shard.h"
#include "lock/one.h"
#include "queue/lane.h"

#include <string.h>

struct listing {
    const struct lock_args *a;
    struct latchwork_client *client;
    const char *tag; /* prefix of the keys of lanes; NULL: the locks of the library are listed */
    int shard;
    int64_t now_ms, shown;
};

/* Returns the number of messages that wait behind a lane's lock, or 0 if Redis does not reply. */
static int64_t messages_waiting(struct listing *l, struct lw_bytes lane) {
    struct lw_call call;
    struct lw_buf name = {0};
    struct latchwork_error ignored;
    lw_buf_addf(&name, "%swait:", l->tag);
    lw_buf_add(&name, lane.p, lane.n);
    lw_call_script(&call, NULL, 0);
    lw_call_text(&call, "LLEN");
    lw_call_add(&call, name.p, name.n);
    redisReply *r = lw_client_call(l->client, &call, &ignored);
    int64_t n = r && r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
    if (r) freeReplyObject(r);
    lw_buf_free(&name);
    return n;
}

static int seen(void *ctx, const struct latchwork_lock_info *info) {
    struct listing *l = ctx;
    if (l->a->without_ttl && info->left_ms != -1) return 0;
    struct lock_row row = lock_row_of(info, l->now_ms, l->a->plain, l->tag, l->shard);
    if (l->tag) row.waiting = messages_waiting(l, row.key);
    if (!l->shown++ && !l->a->cli.json) lock_print_head();
    if (l->a->cli.json)
        lock_print_json(&row);
    else
        lock_print_row(&row);
    return ferror(stdout) || (l->a->limit && l->shown >= l->a->limit);
}

static bool full(const struct listing *l) {
    return ferror(stdout) || (l->a->limit && l->shown >= l->a->limit);
}

static void tell_foreign(const struct lock_args *a, const struct lw_foreign *foreign) {
    char name[600];
    lock_say(a, "skipped %lld key%s of another Redis type, which %s no lock%s: %s%s",
             (long long)foreign->n, foreign->n == 1 ? "" : "s", foreign->n == 1 ? "is" : "are",
             foreign->n == 1 ? "" : "s", lock_text(lw_bytes_of(foreign->first), name, sizeof name),
             foreign->n == 1 ? "" : ", ...");
}

/* Lists the locks of one Redis and closes its client. If the client is NULL, reports *opened, the
 * error that occurred when the client was opened. */
static int list_one(struct listing *l, struct latchwork_client *client,
                    const struct latchwork_error *opened, const char *glob, unsigned flags) {
    struct latchwork_error error = {0};
    l->client = client;
    if (!client) return lock_failed(l->a, opened);
    enum latchwork_result result = latchwork_client_ping(l->client, &error);
    l->now_ms = result == LATCHWORK_LOCK_OK ? lock_redis_now_ms(l->client) : 0;
    struct lw_foreign foreign = {0};
    if (result == LATCHWORK_LOCK_OK)
        result = lw_lock_list(l->client, glob, flags, seen, l, &foreign, &error);
    latchwork_client_close(l->client);
    if (foreign.n) tell_foreign(l->a, &foreign);
    return result == LATCHWORK_LOCK_OK ? 0 : lock_failed(l->a, &error);
}

static int list_lanes(struct listing *l, const struct lw_config *c) {
    int status = 0;
    for (int s = 0; s < c->redis.shards && !full(l); s++) {
        char tag[LW_SHARD_PREFIX];
        struct lw_buf glob = {0};
        lw_shard_prefix(c, s, tag);
        /* no character of a name has a meaning in a pattern */
        lw_buf_addf(&glob, "%slock:%s%c", tag, l->a->match ? l->a->match : "*", 0);
        l->tag = tag;
        l->shard = s;
        struct latchwork_error error = {0};
        struct latchwork_client *client = lw_lane_client_open(c, s, &error);
        int failed = list_one(l, client, &error, glob.p, LATCHWORK_FLAG_KEYS);
        /* The loop continues after a failure, so that the other shards are still listed. */
        if (failed) status = failed;
        lw_buf_free(&glob);
    }
    l->tag = NULL;
    return status;
}

int lock_ls(const struct lock_args *a) {
    struct listing l = {.a = a, .shard = -1};
    int status;
    if (a->cli.config) {
        struct lw_config *c = lock_config(a);
        if (!c) return LOCK_EXIT_USAGE;
        status = list_lanes(&l, c);
        lw_config_free(c);
    } else {
        struct latchwork_error error = {0};
        struct latchwork_client *client = lock_client_open(a, &error);
        status = list_one(&l, client, &error, a->match, a->plain ? LATCHWORK_FLAG_KEYS : 0);
    }
    int flushed = lock_flush(a);
    return status ? status : flushed;
}
