/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to the shards of an application. Each carries one command at a time. */
#include "base/clock.h"
#include "config/shard.h"
#include "ops/ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_NAME "latchwork:operator"
enum { CONNECT_MS = 3000, ANSWER_MS = 10000 };

static int fail(struct ops *o, const struct ops_shard *sh, const redisReply *r) {
    if (r && r->type == REDIS_REPLY_ERROR) return lw_fail(&o->err, "shard %d: Redis answers: %s", sh->index, r->str);
    if (r) return lw_fail(&o->err, "shard %d: Redis answers in another form", sh->index);
    return lw_fail(&o->err, "shard %d: Redis: %s", sh->index, sh->redis && sh->redis->err ? sh->redis->why : "no connection");
}

static int connect_one(struct ops *o, struct ops_shard *sh) {
    struct lw_err why = {0};
    sh->redis = lw_config_connect(o->c, sh->index, CLIENT_NAME, o->connect_ms ? o->connect_ms : CONNECT_MS,
                                  o->answer_ms ? o->answer_ms : ANSWER_MS, &why);
    return sh->redis ? 0 : lw_fail(&o->err, "shard %d: %s", sh->index, why.text);
}

int ops_connect(struct ops *o) {
    size_t n_servers = lw_config_servers_count(o->c);
    assert(n_servers > 0);
    o->shards = lw_alloc((size_t)o->c->redis.shards * sizeof *o->shards);
    for (int s = 0; s < o->c->redis.shards; s++) {
        struct ops_shard *sh = &o->shards[s];
        sh->index = s;
        lw_shard_prefix(o->c, s, sh->prefix);
        sh->shares = (size_t)s >= n_servers;
        if (sh->shares)
            sh->redis = o->shards[(size_t)s % n_servers].redis;
        else if (connect_one(o, sh))
            return -1;
    }
    return 0;
}

void ops_disconnect(struct ops *o) {
    for (int s = 0; o->shards && s < o->c->redis.shards; s++)
        if (!o->shards[s].shares) lw_redis_close(o->shards[s].redis);
    free(o->shards);
    o->shards = NULL;
    lw_commands_free(&o->cmd);
}

struct ops_shard *ops_shard_of(struct ops *o, struct lw_bytes lane) {
    uint32_t tag;
    return &o->shards[lw_lane_shard(lane, o->c->redis.shards, &tag)];
}

/* ---- commands ---- */

void ops_begin(struct ops *o, const char *name) {
    lw_commands_reset(&o->cmd);
    o->script = NULL;
    lw_cmd(&o->cmd, name);
}

/* Calls a script by its hash. If the server does not know the script yet, sends its text and
 * calls it again. */
void ops_script(struct ops *o, const struct lw_script *s, int n_keys) {
    ops_begin(o, "EVALSHA");
    o->script = s;
    lw_arg_text(&o->cmd, s->sha1);
    lw_arg_i64(&o->cmd, n_keys);
}

void ops_key(struct ops *o, const struct ops_shard *sh, const char *name, struct lw_bytes rest) {
    lw_arg_join(&o->cmd, lw_bytes_of(sh->prefix), name, rest);
}

static redisReply *send(struct ops *o, struct ops_shard *sh) {
    const struct lw_command *c = &o->cmd.cmd[0];
    return sh->redis->err ? NULL : lw_redis_ask_argv(sh->redis, c->argc, o->cmd.argv + c->first, o->cmd.len + c->first);
}

static bool is_unknown_script(const redisReply *r) { return r && r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOSCRIPT", 8) == 0; }

redisReply *ops_ask(struct ops *o, struct ops_shard *sh) {
    if (o->deadline_ms && lw_boot_ms() >= o->deadline_ms) {
        lw_fail(&o->err, "it takes too long; ask for less");
        return NULL;
    }
    redisReply *r = send(o, sh);
    if (o->script && is_unknown_script(r)) { /* load the script and repeat the call, because EVAL would carry the text each time */
        freeReplyObject(r);
        r = lw_redis_ask(sh->redis, "SCRIPT LOAD %s", o->script->text);
        if (r && r->type == REDIS_REPLY_STRING) {
            freeReplyObject(r);
            r = send(o, sh);
        }
    }
    if (r && r->type != REDIS_REPLY_ERROR) return r;
    fail(o, sh, r);
    if (r) freeReplyObject(r);
    return NULL;
}

redisReply *ops_ask_for(struct ops *o, struct ops_shard *sh, int type) {
    redisReply *r = ops_ask(o, sh);
    if (!r || r->type == type) return r;
    fail(o, sh, r);
    freeReplyObject(r);
    return NULL;
}

int64_t ops_page_size(int64_t asked, size_t bytes) {
    enum { MANY = 128 << 10, FEW = 32 << 10 };
    if (bytes > MANY && asked > 2) return asked / 2;
    return bytes < FEW && asked < OPS_PAGE ? asked * 2 : asked;
}

int ops_ask_int(struct ops *o, struct ops_shard *sh, long long *out) {
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_INTEGER);
    if (!r) return -1;
    *out = r->integer;
    freeReplyObject(r);
    return 0;
}
