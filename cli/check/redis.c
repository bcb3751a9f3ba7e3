/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether each Redis answers, whether Latchwork can rely on it, and whether the user of the
 * login may do what the scripts do. */
#include "base/bytes.h"
#include "base/redis/connection.h"
#include "base/redis/reply.h"
#include "base/redis/script.h"
#include "cli/check/acl.h"
#include "cli/check/redis_rights.h"
#include "cli/check/servers.h"
#include "config/shard.h"
#include "ops/script.h"
#include "queue/life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    const struct lw_config *c;
    struct lw_check_report *r;
    struct lw_redis *redis;
    char *shown;      /* name of the server in reported problems: its URL or its address */
    const char *user; /* name of the user as which the check logs in */
    bool no_lua;      /* true: the server has no Lua, which was already reported as a problem */
    /* true: the server is a replica, so its problems are only warnings as long as it is not
     * promoted */
    bool replica;
};

#define PROBLEM(s, fmt, ...)                                                                       \
    ((s)->replica ? lw_problem_warn : lw_problem)(&(s)->r->problems, "redis %s: " fmt, (s)->shown, \
                                                  __VA_ARGS__)

/* --- talking ---------------------------------------------------------------------------------- */

static bool connect_to(struct server *s, const struct lw_redis_url *at) {
    struct lw_err why = {0};
    s->redis = lw_redis_open(at, "latchwork:check", s->r->wait_ms, s->r->wait_ms, &why);
    if (!s->redis) PROBLEM(s, "%s", why.text);
    return s->redis;
}

/* Sends a command and returns its reply, which the caller frees. Adds a problem and returns NULL
 * if there is no reply or the reply is an error. */
static redisReply *ask(struct server *s, const char *what, int argc, const char **argv) {
    redisReply *reply = lw_redis_ask_argv(s->redis, argc, argv, NULL);
    if (reply && reply->type != REDIS_REPLY_ERROR) return reply;
    s->no_lua = reply && lw_redis_lacks_lua(reply->str);
    if (s->no_lua)
        PROBLEM(s,
                "this server runs without its Lua module, and Latchwork needs Lua scripts: load "
                "the module (%s)",
                reply->str);
    else
        PROBLEM(s, "%s: %s", what, reply ? reply->str : s->redis->why);
    if (reply) freeReplyObject(reply);
    return NULL;
}

static bool succeeds(struct server *s, const char *what, int argc, const char **argv) {
    redisReply *reply = ask(s, what, argc, argv);
    if (reply) freeReplyObject(reply);
    return reply;
}

/* --- INFO ------------------------------------------------------------------------------------- */

static void check_role(struct server *s, const char *info) {
    char value[64];
    lw_info_field(info, "role", value, sizeof value);
    if (strcmp(value, "master"))
        PROBLEM(s, "its role is %s; the lanes need the one that takes writes",
                *value ? value : "unknown");
    lw_info_field(info, "cluster_enabled", value, sizeof value);
    if (!strcmp(value, "1") && !s->c->redis.cluster.on)
        PROBLEM(s, "%s",
                "it is part of a Redis Cluster; give its nodes in redis.cluster, in place of "
                "redis.url");
    lw_info_field(info, "loading", value, sizeof value);
    if (!strcmp(value, "1")) PROBLEM(s, "%s", "it is still loading its data");
}

/* Checks the setting min-replicas-to-write. Redis reports the number of good replicas in INFO only
 * if that setting is above 0. */
static void check_min_replicas(struct server *s, const char *info) {
    char good[16];
    lw_info_field(info, "min_slaves_good_slaves", good, sizeof good);
    if (!s->c->redis.sentinel.on || *good) return;
    lw_problem_warn(&s->r->problems,
                    "redis %s: min-replicas-to-write is 0: an old master that is cut off from its "
                    "Sentinels would go on granting leases "
                    "beside the new one; set it to 1 on all of them",
                    s->shown);
}

static void check_policy(struct server *s, const char *info) {
    char policy[64];
    lw_info_field(info, "maxmemory_policy", policy, sizeof policy);
    if (strcmp(policy, "noeviction"))
        PROBLEM(s,
                "maxmemory-policy is %s: Redis would throw away locks and waiting messages when "
                "memory is short; set noeviction",
                *policy ? policy : "unknown");
}

static void note_server(struct server *s, const char *info, const struct lw_redis_server *who) {
    char aof[8], rdb[32], limit[32];
    lw_info_field(info, "aof_enabled", aof, sizeof aof);
    lw_info_field(info, "rdb_last_bgsave_status", rdb, sizeof rdb);
    lw_info_field(info, "maxmemory_human", limit, sizeof limit);
    lw_buf_addf(&s->r->notes, "redis %s: %s, maxmemory %s, append-only file %s, last snapshot %s\n",
                s->shown, who->text, strcmp(limit, "0B") ? limit : "unlimited",
                strcmp(aof, "1") ? "off" : "on", *rdb ? rdb : "unknown");
}

static void check_info(struct server *s) {
    struct lw_redis_server who;
    redisReply *reply = ask(s, "INFO", 1, (const char *[]){"INFO"});
    if (!reply) return;
    lw_redis_server_read(&who, reply->str);
    if (who.too_old) PROBLEM(s, "%s; at least Redis 7.0 or a Valkey is needed", who.text);
    check_role(s, reply->str);
    check_policy(s, reply->str);
    check_min_replicas(s, reply->str);
    note_server(s, reply->str, &who);
    freeReplyObject(reply);
}

/* --- rights ----------------------------------------------------------------------------------- */

enum { WORDS_MAX = 2048, WORD_BYTES = 40, SAMPLES_MAX = 128 };

/* Holds sample calls of commands as the arguments of one call of the script rights.lua, which tests
 * all samples. */
struct samples {
    const char *argv[WORDS_MAX];
    char number[SAMPLES_MAX][8];
    char args[SAMPLES_MAX][WORD_BYTES];
    size_t argc, n;
};

static void add_word(struct samples *all, const char *word) {
    if (all->argc < WORDS_MAX) all->argv[all->argc++] = word;
}

static void add_sample(struct samples *all, const char *command, const char *args,
                       const char *key) {
    char *save = NULL, *own = all->args[all->n];
    size_t count = all->argc, words = 1;
    snprintf(own, WORD_BYTES, "%s", args);
    add_word(all, all->number[all->n]);
    add_word(all, command);
    for (char *w = strtok_r(own, " ", &save); w; w = strtok_r(NULL, " ", &save), words++)
        add_word(all, strcmp(w, "K") ? w : key);
    snprintf(all->number[all->n++], sizeof all->number[0], "%zu", words);
    /* A sample that does not fit into `argv` would be left out. This does not happen, because the
     * tables of samples are constant and much smaller than `argv`. */
    if (all->argc == WORDS_MAX) all->argc = count;
}

/* Sends a command and returns its reply, which may be an error. Returns NULL if the connection
 * failed. */
static redisReply *call(struct server *s, size_t argc, const char **argv) {
    return lw_redis_ask_argv(s->redis, (int)argc, argv, NULL);
}

static void malformed(struct server *s, const redisReply *r, size_t n) {
    char why[LW_REPLY_TEXT];
    PROBLEM(s, "%s", lw_malformed(why, r, "rights.lua", "one letter for each of %zu commands", n));
}

/* Runs the script rights.lua, which tests all samples. Its reply has one letter per sample: 1 for
 * allowed, 0 for refused, ? for a command that the server does not know. Returns false if the reply
 * has another form, for example because the user may not run scripts. */
static bool ask_script(struct server *s, struct samples *all, char *letters) {
    all->argv[0] = "EVAL", all->argv[1] = lw_op_rights.text, all->argv[2] = "0";
    redisReply *reply = call(s, all->argc, all->argv);
    bool fine = reply && reply->type == REDIS_REPLY_STRING && reply->len == all->n;
    if (fine) memcpy(letters, reply->str, all->n);
    bool refused = reply && reply->type == REDIS_REPLY_ERROR;
    if (!reply) PROBLEM(s, "EVAL: %s", s->redis->why);
    if (reply && !fine && !refused) malformed(s, reply, all->n);
    if (reply) freeReplyObject(reply);
    return fine;
}

static char letter_of(const redisReply *r, bool queued) {
    if (r->type == REDIS_REPLY_ERROR)
        return strncmp(r->str, "NOPERM", 6) && strncmp(r->str, "ERR unknown", 11) ? '1' : '0';
    return queued || r->type == REDIS_REPLY_STATUS ? '1' : '0';
}

/* Sends each sample as a command, preceded by the words of `before`. Sets letters[i] to '1' if the
 * user can run sample i, otherwise to '0'. Returns false if the connection failed. */
static bool ask_each(struct server *s, const struct samples *all, const char *const *before,
                     size_t n_before, char *letters) {
    const char *argv[16];
    size_t at = 3;
    for (size_t i = 0; i < n_before; i++) argv[i] = before[i];
    for (size_t i = 0; i < all->n; i++) {
        size_t words = strtoul(all->argv[at], NULL, 10);
        for (size_t k = 0; k < words; k++) argv[n_before + k] = all->argv[at + 1 + k];
        at += words + 1;
        redisReply *reply = call(s, n_before + words, argv);
        if (!reply) return false;
        letters[i] = letter_of(reply, !n_before);
        freeReplyObject(reply);
    }
    return true;
}

static bool may(struct server *s, size_t argc, const char **argv) {
    redisReply *reply = call(s, argc, argv);
    bool fine = reply && reply->type != REDIS_REPLY_ERROR;
    if (reply) freeReplyObject(reply);
    return fine;
}

/* Tests the sample calls for a user that may not run EVAL: by ACL DRYRUN or, if the user may not
 * use it, by queueing the calls in a transaction that is then discarded. Returns false if the user
 * may use neither. */
static bool ask_otherwise(struct server *s, const struct samples *all, char *letters) {
    const char *dry[] = {"ACL", "DRYRUN", s->user, "PING"};
    if (may(s, 4, dry)) return ask_each(s, all, dry, 3, letters);
    if (!may(s, 1, (const char *[]){"MULTI"})) return false;
    bool known = ask_each(s, all, NULL, 0, letters);
    return may(s, 1, (const char *[]){"DISCARD"}) && known;
}

/* Finds out which of the sample calls the user may run. Sets letters[i] to '1' if the user may run
 * sample i, otherwise to '0'. Returns false if this cannot be found out. */
static bool ask_samples(struct server *s, struct samples *all, char *letters) {
    if (ask_script(s, all, letters)) return true;
    if (s->redis->err) return false;
    if (ask_otherwise(s, all, letters)) return true;
    PROBLEM(s,
            "this user may not run EVAL, so its other rights can't be checked; give it all of "
            "them: latchwork check --acl %s -c FILE",
            s->user);
    return false;
}

static const char *who_needs(int roles) {
    if (roles == LW_RIGHT_WORKER) return "as a worker does";
    return roles == LW_RIGHT_OPERATOR ? "as operators' commands do (queue, dead, lock, ledger)"
                                      : "as workers and operators do";
}

/* Reports, in one line, all refused commands that exactly these `roles` need. The role of the lock
 * library is not considered. Returns true if there is no such command. */
static bool tell_commands(struct server *s, const char *letters, int roles, const char *key) {
    struct lw_buf list = {0}, rules = {0};
    size_t at = 0;
    for (size_t i = 0; i < lw_n_redis_rights; i++) {
        const struct lw_redis_right *r = &lw_redis_rights[i];
        if (!(r->roles & LW_RIGHT_LANES)) continue;
        if (letters[at++] == '1' || (r->roles & LW_RIGHT_LANES) != roles) continue;
        lw_buf_addf(&list, "%s%s", list.n ? ", " : "", r->command);
        lw_buf_add(&rules, " ", 1);
        lw_acl_allow(&rules, r->command, r->args);
    }
    bool fine = !list.n;
    if (!fine)
        PROBLEM(
            s,
            "this user may not run %s on names like %s, %s; give it the rights: ACL SETUSER %s%.*s",
            list.p, key, who_needs(roles), s->user, (int)rules.n, rules.p);
    lw_buf_free(&list);
    lw_buf_free(&rules);
    return fine;
}

static bool check_commands(struct server *s, const char *key) {
    static struct samples all;
    char letters[SAMPLES_MAX];
    bool fine = true;
    all = (struct samples){.argc = 3};
    for (size_t i = 0; i < lw_n_redis_rights; i++)
        if (lw_redis_rights[i].roles & LW_RIGHT_LANES)
            add_sample(&all, lw_redis_rights[i].command, lw_redis_rights[i].args, key);
    if (!ask_samples(s, &all, letters)) return false;
    for (int roles = LW_RIGHT_WORKER; roles <= LW_RIGHT_LANES; roles++)
        if (!tell_commands(s, letters, roles, key)) fine = false;
    return fine;
}

/* Lists sample calls that read and write a key. A key name counts as refused only if all of these
 * calls are refused, because the user may lack the right to one of the commands instead. */
static const struct {
    const char *command, *args;
} touches[] = {{"SET", "K v GET"}, {"ZADD", "K 1 m"}, {"HSET", "K f v"}};
enum { TOUCHES = sizeof touches / sizeof *touches };

/* Reports the key names that the checked user may not use. `usable` becomes the first name that is
 * not refused, or "" if there is none. Returns true if no name is refused. */
static bool check_names(struct server *s, const char *tag, char usable[200]) {
    static struct samples all;
    static char names[SAMPLES_MAX][200];
    char letters[SAMPLES_MAX], pattern[LW_ACL_PATTERN];
    struct lw_buf list = {0};
    all = (struct samples){.argc = 3};
    for (size_t i = 0; lw_redis_names[i]; i++) {
        snprintf(names[i], sizeof names[i], "%s%s%s", tag, lw_redis_names[i],
                 strchr(lw_redis_names[i], ':') ? "check" : "");
        for (size_t k = 0; k < TOUCHES; k++)
            add_sample(&all, touches[k].command, touches[k].args, names[i]);
    }
    if (!ask_samples(s, &all, letters)) return false;
    for (size_t i = 0; i < all.n; i += TOUCHES)
        if (!memchr(letters + i, '1', TOUCHES))
            lw_buf_addf(&list, "%s%s", list.n ? ", " : "", names[i / TOUCHES]);
        else if (!*usable)
            memcpy(usable, names[i / TOUCHES], sizeof names[0]);
    lw_acl_pattern(s->c->name, pattern);
    if (list.n)
        PROBLEM(s,
                "this user may not read and write %s; give it the key pattern: ACL SETUSER %s ~%s",
                list.p, s->user, pattern);
    bool fine = !list.n;
    lw_buf_free(&list);
    return fine;
}

/* Reports all missing rights at once: the key names that the user may not use, and the commands
 * that the user may not run on an allowed key name. Returns false if a right is missing. The caller
 * then does not check the rights on the other shards, because one report is enough. */
static bool check_rights(struct server *s, int shard) {
    char tag[LW_SHARD_PREFIX], usable[200] = "";
    lw_shard_prefix(s->c, shard, tag);
    bool names = check_names(s, tag, usable);
    return (*usable ? check_commands(s, usable) : false) && names;
}

static void check_scripts(struct server *s) {
    char what[64];
    for (size_t i = 0; i < LW_SCRIPTS; i++) {
        snprintf(what, sizeof what, "script %s", lw_scripts[i]->name);
        if (!succeeds(s, what, 3, (const char *[]){"SCRIPT", "LOAD", lw_scripts[i]->text})) return;
    }
}

/* --- each server ------------------------------------------------------------------------------ */

/* Reads the name of the fleet, which is the epoch of shard 0. */
static void learn_fleet(struct server *s) {
    char key[LW_SHARD_PREFIX + 8];
    size_t n = lw_shard_prefix(s->c, 0, key);
    memcpy(key + n, "epoch", sizeof "epoch");
    redisReply *reply = ask(s, "HGET", 3, (const char *[]){"HGET", key, "id"});
    if (!reply) return;
    s->r->fleet_known = true;
    if (reply->type == REDIS_REPLY_STRING && reply->len >= LW_FLEET)
        snprintf(s->r->fleet, sizeof s->r->fleet, "%.*s", LW_FLEET, reply->str);
    freeReplyObject(reply);
}

/* Checks whether Latchwork could still work if a replica were promoted. For that the replica must
 * accept the user's login, give the user all rights that Latchwork needs, and have the settings
 * that check_policy() and check_min_replicas() check. */
static void check_replica(const struct server *master, int shard, const struct lw_redis_url *at) {
    char where[160];
    struct lw_buf shown = {0};
    lw_buf_addf(&shown, "%s, a replica of %s%c", lw_redis_url_where(at, where, sizeof where),
                master->shown, 0);
    struct server s = {
        .c = master->c, .r = master->r, .shown = shown.p, .user = master->user, .replica = true};
    redisReply *info = connect_to(&s, at) ? ask(&s, "INFO", 1, (const char *[]){"INFO"}) : NULL;
    if (info) {
        check_policy(&s, info->str);
        check_min_replicas(&s, info->str);
        freeReplyObject(info);
        check_rights(&s, shard);
    }
    lw_redis_close(s.redis);
    lw_buf_free(&shown);
}

/* Checks each replica that the master names. Replication does not copy users, so a replica may lack
 * the user of Latchwork. */
static void check_each_replica(struct server *s, int shard, const struct lw_redis_url *at) {
    redisReply *role = ask(s, "ROLE", 1, (const char *[]){"ROLE"});
    const redisReply *list = role && role->elements == 3 ? role->element[2] : NULL;
    for (size_t i = 0; list && i < list->elements; i++) {
        const redisReply *one = list->element[i];
        if (one->elements < 2 || one->element[0]->type != REDIS_REPLY_STRING ||
            one->element[1]->type != REDIS_REPLY_STRING)
            continue;
        struct lw_redis_url there = *at;
        there.host = one->element[0]->str;
        there.address = NULL;
        there.port = (int)strtol(one->element[1]->str, NULL, 10);
        there.only_master = false;
        check_replica(s, shard, &there);
    }
    if (role) freeReplyObject(role);
}

static void check_server(struct server *s, size_t index, const struct lw_redis_url *at) {
    s->user = at->user ? at->user : "default";
    if (!connect_to(s, at) || !succeeds(s, "PING", 1, (const char *[]){"PING"})) return;
    check_info(s);
    if (!s->redis->err) check_scripts(s);
    if (s->no_lua) return; /* the check of rights needs a script, which this server cannot run */
    for (int shard = (int)index; !s->redis->err && shard < s->c->redis.shards;
         shard += (int)lw_config_servers_count(s->c))
        if (!check_rights(s, shard))
            break;
        else if (shard == 0)
            learn_fleet(s);
    if (!s->redis->err && (s->c->redis.sentinel.on || s->c->redis.cluster.on))
        check_each_replica(s, (int)index, at);
}

/* Returns the name of a server for the reports of problems: its URL, its address (in a cluster), or
 * the master's name and address (with Sentinels). */
static char *name_of(const struct lw_config *c, size_t i, const struct lw_redis_url *at) {
    char where[160];
    struct lw_buf b = {0};
    if (c->redis.cluster.on) {
        lw_buf_addf(&b, "%s%c", lw_redis_url_where(at, where, sizeof where), 0);
        return b.p;
    }
    if (!c->redis.sentinel.on) return lw_or_abort(lw_url_redact(c->redis.urls[i]));
    lw_buf_addf(&b, "%s (%s)%c", c->redis.sentinel.master,
                lw_redis_url_where(at, where, sizeof where), 0);
    return b.p;
}

static void check_found(const struct lw_config *c, size_t i, const struct lw_redis_url *at,
                        struct lw_check_report *r) {
    struct server s = {.c = c, .r = r, .shown = name_of(c, i, at)};
    check_server(&s, i, at);
    lw_redis_close(s.redis);
    free(s.shown);
}

/* Returns true if the list `seen`, with one server per line, already has this server. Otherwise
 * adds the server and returns false. Shards of a cluster may share a node, which is then checked
 * only once. */
static bool seen_before(struct lw_buf *seen, const struct lw_redis_url *at) {
    char where[160], line[164];
    int n = snprintf(line, sizeof line, "\n%s\n", lw_redis_url_where(at, where, sizeof where));
    bool before = seen->n && memmem(seen->p, seen->n, line, (size_t)n);
    if (!before) lw_buf_add(seen, line, (size_t)n);
    return before;
}

static void check_servers(const struct lw_config *c, struct lw_redis_servers *servers,
                          struct lw_check_report *r) {
    struct lw_buf seen = {0};
    bool found = true;
    for (size_t i = 0; i < lw_redis_servers_count(servers) && (found || !c->redis.cluster.on);
         i++) {
        struct lw_redis_url at;
        struct lw_err err = {0};
        found = !lw_redis_servers_find(servers, (int)i, r->wait_ms, &at, &err);
        if (!found && c->redis.cluster.on)
            lw_problem(&r->problems, "redis: shard %zu: %s", i, err.text);
        else if (!found)
            lw_problem(&r->problems, "redis: %s", err.text);
        else if (!c->redis.cluster.on || !seen_before(&seen, &at))
            check_found(c, i, &at, r);
        lw_redis_url_free(&at);
    }
    lw_buf_free(&seen);
}

void lw_check_redis(const struct lw_config *c, struct lw_check_report *r) {
    struct lw_redis_servers servers;
    struct lw_err err = {0};
    if (lw_config_servers(c, &servers, &err)) {
        lw_problem(&r->problems, "redis: %s", err.text);
        return;
    }
    lw_check_sentinels(&servers, r);
    lw_check_cluster(&servers, r);
    check_servers(c, &servers, r);
    lw_redis_servers_free(&servers);
}
