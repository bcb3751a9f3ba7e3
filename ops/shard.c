/* SPDX-License-Identifier: Apache-2.0 */
/* Opens connections to the shards of an application. Each connection carries one command at a
 * time. */
#include "base/clock.h"
#include "base/redis/reply.h"
#include "base/redis/servers.h"
#include "config/shard.h"
#include "ops/kafka.h"
#include "ops/ops.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_NAME "latchwork:operator"
enum {
    CONNECT_MS = 3000,
    ANSWER_MS = 10000,
    /* MOVE_MS is the maximum wait for a slot that is being moved, or whose master does not
     * answer. */
    MOVE_MS = 10000,
    PAUSE_MS = 50, /* time between two attempts during this wait */
};

static int fail(struct ops *o, const struct ops_shard *sh, const redisReply *r) {
    const char *says = r && r->type == REDIS_REPLY_ERROR ? lw_redis_deposed(r->str) : NULL;
    if (says)
        return lw_fail(&o->err, "shard %d: %s (%s); try again when that is over", sh->index, says,
                       r->str);
    if (r && r->type == REDIS_REPLY_ERROR)
        return lw_fail(&o->err, "shard %d: Redis rejected the command: %s", sh->index, r->str);
    return lw_fail(&o->err, "shard %d: Redis: %s", sh->index,
                   sh->redis && sh->redis->err ? sh->redis->why : "no connection");
}

static int connect_one(struct ops *o, struct ops_shard *sh) {
    struct lw_err why = {0};
    sh->redis =
        lw_config_connect(o->c, sh->index, CLIENT_NAME, o->connect_ms ? o->connect_ms : CONNECT_MS,
                          o->answer_ms ? o->answer_ms : ANSWER_MS, &why);
    return sh->redis ? 0 : lw_fail(&o->err, "shard %d: %s", sh->index, why.text);
}

static void name_shards(struct ops *o) {
    o->shards = lw_alloc((size_t)o->c->redis.shards * sizeof *o->shards);
    for (int s = 0; s < o->c->redis.shards; s++) {
        o->shards[s].index = s;
        lw_shard_prefix(o->c, s, o->shards[s].prefix);
    }
}

int ops_connect_lane(struct ops *o, struct lw_bytes lane) {
    name_shards(o);
    struct ops_shard *sh = ops_shard_of(o, lane);
    if (connect_one(o, sh)) return -1;
    /* without shard 0, everything is known but what the limits hold up */
    if (sh->index && lw_config_limits(o->c) && connect_one(o, &o->shards[0]))
        o->err = (struct lw_err){0};
    return 0;
}

int ops_connect(struct ops *o) {
    size_t n_servers = lw_config_servers_count(o->c);
    assert(n_servers > 0);
    name_shards(o);
    for (int s = 0; s < o->c->redis.shards; s++) {
        struct ops_shard *sh = &o->shards[s];
        sh->shares = (size_t)s >= n_servers;
        if (sh->shares)
            sh->redis = o->shards[(size_t)s % n_servers].redis;
        else if (connect_one(o, sh))
            return -1;
    }
    return 0;
}

void ops_disconnect(struct ops *o) {
    ops_log_close(o->letters);
    o->letters = NULL;
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

/* --- commands --------------------------------------------------------------------------------- */

void ops_begin(struct ops *o, const char *name) {
    lw_commands_reset(&o->cmd);
    o->script = NULL;
    lw_cmd(&o->cmd, name);
}

/* Begins a call of a script by its hash. If the server does not know the script yet, ops_ask()
 * loads it and repeats the call. */
void ops_script(struct ops *o, const struct lw_script *s, int n_keys) {
    ops_begin(o, "EVALSHA");
    o->script = s;
    lw_arg_text(&o->cmd, s->sha1);
    lw_arg_i64(&o->cmd, n_keys);
}

void ops_add_words(struct ops *o, const char *const *words) {
    for (; *words; words++) lw_arg_text(&o->cmd, *words);
}

void ops_add_keys(struct ops *o, const struct ops_shard *sh, const char *const *names) {
    for (; *names; names++) ops_key(o, sh, *names, lw_bytes("", 0));
}

void ops_key(struct ops *o, const struct ops_shard *sh, const char *name, struct lw_bytes rest) {
    lw_arg_join(&o->cmd, lw_bytes_of(sh->prefix), name, rest);
}

static redisReply *send(struct ops *o, struct ops_shard *sh) {
    const struct lw_command *c = &o->cmd.cmd[0];
    return sh->redis->err ? NULL
                          : lw_redis_ask_argv(sh->redis, c->argc, o->cmd.argv + c->first,
                                              o->cmd.len + c->first);
}

static bool is_unknown_script(const redisReply *r) {
    return r && r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOSCRIPT", 8) == 0;
}

/* Sends the command. If the server does not know the command's script, loads the script and sends
 * the command again. EVAL is not used, because it would carry the whole text each time. */
static redisReply *send_script(struct ops *o, struct ops_shard *sh) {
    redisReply *r = send(o, sh);
    if (!o->script || !is_unknown_script(r)) return r;
    freeReplyObject(r);
    r = lw_redis_ask(sh->redis, "SCRIPT LOAD %s", o->script->text);
    if (!r || r->type != REDIS_REPLY_STRING) return r;
    freeReplyObject(r);
    return send(o, sh);
}

/* Returns true if a node of a cluster refused the whole command, because the slot is being moved or
 * belongs to another node. In this case no part of the command was executed. */
static bool is_turned_away(const struct ops *o, const redisReply *r) {
    if (!o->c->redis.cluster.on || !r || r->type != REDIS_REPLY_ERROR) return false;
    /* an error that occurred inside a script names the script in its text; such a script may have
     * run in part */
    return lw_redis_deposed(r->str) && !strstr(r->str, "cript");
}

/* Waits until the slot of the shard has an owner that executes the command, and returns its reply.
 * The function follows no ASK redirection, because the scripts of a shard need all keys of the
 * shard on one node. Returns the last error reply if the wait takes too long, or if the slot has
 * moved while a cursor of its old owner is in use. Returns NULL if the connection fails. */
static redisReply *wait_for_owner(struct ops *o, struct ops_shard *sh, redisReply *r) {
    int64_t until_ms = lw_boot_ms() + MOVE_MS;
    if (o->deadline_ms && o->deadline_ms < until_ms) until_ms = o->deadline_ms;
    while (is_turned_away(o, r) && lw_boot_ms() < until_ms) {
        bool moves = !strncmp(r->str, "ASK ", 4) || !strncmp(r->str, "TRYAGAIN", 8);
        if (!moves && sh->in_scan) return r;
        freeReplyObject(r);
        r = NULL;
        lw_sleep_ms(PAUSE_MS);
        if (!moves) {
            lw_redis_close(sh->redis);
            sh->redis = NULL;
            if (connect_one(o, sh)) return NULL;
        }
        r = send_script(o, sh);
    }
    return r;
}

redisReply *ops_ask(struct ops *o, struct ops_shard *sh) {
    if (o->deadline_ms && lw_boot_ms() >= o->deadline_ms) {
        lw_fail(&o->err, "timed out; narrow the filter");
        return NULL;
    }
    redisReply *r = sh->redis ? send_script(o, sh) : NULL;
    if (is_turned_away(o, r)) {
        r = wait_for_owner(o, sh, r);
        if (!sh->redis) return NULL;
    }
    if (r && r->type != REDIS_REPLY_ERROR) return r;
    fail(o, sh, r);
    if (r) freeReplyObject(r);
    return NULL;
}

int ops_malformed(struct ops *o, const struct ops_shard *sh, const redisReply *r,
                  const char *expected, ...) {
    char name[64], what[200], why[LW_REPLY_TEXT];
    const char *command = o->cmd.argv[o->cmd.cmd[0].first];
    snprintf(name, sizeof name, o->script ? "%s.lua" : "%s", o->script ? o->script->name : command);
    va_list ap;
    va_start(ap, expected);
    vsnprintf(what, sizeof what, expected, ap);
    va_end(ap);
    return lw_fail(&o->err, "shard %d: %s", sh->index, lw_malformed(why, r, name, "%s", what));
}

redisReply *ops_ask_for(struct ops *o, struct ops_shard *sh, int type) {
    redisReply *r = ops_ask(o, sh);
    if (!r || r->type == type) return r;
    if (r->type == REDIS_REPLY_ERROR)
        fail(o, sh, r);
    else
        ops_malformed(o, sh, r, "%s", lw_reply_type(type));
    freeReplyObject(r);
    return NULL;
}

static bool is_entry(const redisReply *e) {
    if (e->type != REDIS_REPLY_ARRAY || e->elements != 2) return false;
    const redisReply *f = e->element[1];
    bool sound = e->element[0]->type == REDIS_REPLY_STRING && f->type == REDIS_REPLY_ARRAY;
    for (size_t i = 0; sound && i < f->elements; i++)
        sound = f->element[i]->type == REDIS_REPLY_STRING;
    return sound;
}

redisReply *ops_ask_entries(struct ops *o, struct ops_shard *sh) {
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    bool sound = true;
    for (size_t i = 0; r && sound && i < r->elements; i++) sound = is_entry(r->element[i]);
    if (sound) return r;
    ops_malformed(o, sh, r, "[ID, [name, value, ...]] for each entry");
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
