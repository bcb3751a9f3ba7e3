/* Does each Redis answer, is it one that Latchwork can rely on, and may this user do what the scripts do? */
#include "base/redis_url.h"
#include "base/script.h"
#include "tools/check_servers.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAJOR_FLOOR = 7, COMMANDS_MAX = 128, COMMAND_MAX = 32 };

struct server {
    const struct lw_config *c;
    struct lw_check_report *r;
    redisContext *ctx;
    char *shown; /* its URL, for messages */
};

#define PROBLEM(s, fmt, ...) lw_problem(&(s)->r->problems, "redis %s: " fmt, (s)->shown, __VA_ARGS__)

/* ---- talking ---- */

static bool connect_to(struct server *s, const struct lw_redis_url *u) {
    struct timeval wait = {s->r->wait_ms / 1000, s->r->wait_ms % 1000 * 1000};
    s->ctx = u->path ? redisConnectUnixWithTimeout(u->path, wait) : redisConnectWithTimeout(u->host, u->port, wait);
    if (!s->ctx || s->ctx->err)
        PROBLEM(s, "%s", s->ctx ? s->ctx->errstr : "out of memory");
    else if (redisSetTimeout(s->ctx, wait) == REDIS_OK)
        return true;
    else
        PROBLEM(s, "%s", s->ctx->errstr);
    return false;
}

/* NULL, with a problem, on an error reply, too. Free the reply. */
static redisReply *ask(struct server *s, const char *what, int argc, const char **argv) {
    redisReply *reply = redisCommandArgv(s->ctx, argc, argv, NULL);
    if (reply && reply->type != REDIS_REPLY_ERROR) return reply;
    PROBLEM(s, "%s: %s", what, reply ? reply->str : s->ctx->errstr);
    if (reply) freeReplyObject(reply);
    return NULL;
}

static bool succeeds(struct server *s, const char *what, int argc, const char **argv) {
    redisReply *reply = ask(s, what, argc, argv);
    if (reply) freeReplyObject(reply);
    return reply;
}

static bool log_in(struct server *s, const struct lw_redis_url *u) {
    char db[16];
    snprintf(db, sizeof db, "%d", u->db);
    const char *auth[] = {"AUTH", u->user ? u->user : u->password, u->password};
    if (u->password && !succeeds(s, "AUTH", u->user ? 3 : 2, auth)) return false;
    if (u->db && !succeeds(s, "SELECT", 2, (const char *[]){"SELECT", db})) return false;
    return succeeds(s, "PING", 1, (const char *[]){"PING"});
}

/* ---- INFO ---- */

/* The value of a field, cut at its line's end; "" where there is none. */
static void field(const char *info, const char *name, char *out, size_t size) {
    size_t n = strlen(name);
    *out = '\0';
    for (const char *line = info; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, name, n) || line[n] != ':') continue;
        snprintf(out, size, "%.*s", (int)strcspn(line + n + 1, "\r\n"), line + n + 1);
        return;
    }
}

static void check_version(struct server *s, const char *info, char *version, size_t size) {
    field(info, "redis_version", version, size);
    if (strtol(version, NULL, 10) < MAJOR_FLOOR) PROBLEM(s, "version %s; at least 7.0 is needed", *version ? version : "unknown");
}

static void check_role(struct server *s, const char *info) {
    char value[64];
    field(info, "role", value, sizeof value);
    if (strcmp(value, "master")) PROBLEM(s, "its role is %s; the lanes need the one that takes writes", *value ? value : "unknown");
    field(info, "cluster_enabled", value, sizeof value);
    if (!strcmp(value, "1")) PROBLEM(s, "%s", "it is part of a Redis Cluster: not in this version");
    field(info, "loading", value, sizeof value);
    if (!strcmp(value, "1")) PROBLEM(s, "%s", "it is still loading its data");
}

static void check_policy(struct server *s, const char *info) {
    char policy[64];
    field(info, "maxmemory_policy", policy, sizeof policy);
    if (strcmp(policy, "noeviction"))
        PROBLEM(s, "maxmemory-policy is %s: Redis would throw away locks and waiting messages when memory is short; set noeviction",
                *policy ? policy : "unknown");
}

static void note_server(struct server *s, const char *info, const char *version) {
    char aof[8], rdb[32], limit[32];
    field(info, "aof_enabled", aof, sizeof aof);
    field(info, "rdb_last_bgsave_status", rdb, sizeof rdb);
    field(info, "maxmemory_human", limit, sizeof limit);
    lw_buf_addf(&s->r->notes, "redis %s: version %s, maxmemory %s, append-only file %s, last snapshot %s\n", s->shown, version,
                strcmp(limit, "0B") ? limit : "unlimited", strcmp(aof, "1") ? "off" : "on", *rdb ? rdb : "unknown");
}

static void check_info(struct server *s) {
    char version[64];
    redisReply *reply = ask(s, "INFO", 1, (const char *[]){"INFO"});
    if (!reply) return;
    check_version(s, reply->str, version, sizeof version);
    check_role(s, reply->str);
    check_policy(s, reply->str);
    note_server(s, reply->str, version);
    freeReplyObject(reply);
}

/* ---- rights ---- */

struct commands {
    char name[COMMANDS_MAX][COMMAND_MAX];
    size_t n;
};

static void add_command(struct commands *all, const char *name, size_t n) {
    for (size_t i = 0; i < all->n; i++)
        if (strlen(all->name[i]) == n && !strncmp(all->name[i], name, n)) return;
    if (n == 0 || n >= COMMAND_MAX || all->n == COMMANDS_MAX) return;
    memcpy(all->name[all->n], name, n);
    all->name[all->n++][n] = '\0';
}

/* What a script calls, read out of its text, so that this list can't lag behind: call('SET', …), pcall_("GET", …). */
static void commands_of(const char *text, struct commands *all) {
    for (const char *p = text; (p = strstr(p, "call")); p++) {
        const char *q = p + 4;
        if (*q == '_') q++;
        if (*q++ != '(' || (*q != '\'' && *q != '"')) continue;
        add_command(all, q + 1, strspn(q + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
    }
}

/* Harmless: asks whether the user may, and does nothing. KEYS: a name under the shard's tag; ARGV: commands. Result: those refused. */
static const char rights_script[] = "local out = {}\n"
                                    "for i = 1, #ARGV do\n"
                                    "  local ok, may = pcall(redis.acl_check_cmd, ARGV[i], KEYS[1], KEYS[1], KEYS[1])\n"
                                    "  if ok and not may then out[#out + 1] = ARGV[i] end\n"
                                    "end\n"
                                    "return out\n";

static void tell_refused(struct server *s, const redisReply *reply, const char *key) {
    struct lw_buf list = {0};
    for (size_t i = 0; i < reply->elements; i++) lw_buf_addf(&list, "%s%s", i ? ", " : "", reply->element[i]->str);
    if (list.n) PROBLEM(s, "this user may not run %s on names like %s, as the scripts do; give it the rights (ACL)", list.p, key);
    lw_buf_free(&list);
}

/* One shard that lacks rights says enough: false. */
static bool check_rights(struct server *s, int shard) {
    struct commands all = {.n = 0};
    char key[128];
    const char *argv[4 + COMMANDS_MAX] = {"EVAL", rights_script, "1", key};
    for (size_t i = 0; i < LW_SCRIPTS; i++) commands_of(lw_scripts[i]->text, &all);
    add_command(&all, "BRPOPLPUSH", 10); /* called plainly */
    add_command(&all, "EVALSHA", 7);
    for (size_t i = 0; i < all.n; i++) argv[4 + i] = all.name[i];
    snprintf(key, sizeof key, "lw:{%s.%d}:check", s->c->name, shard);
    redisReply *reply = ask(s, "EVAL", (int)(4 + all.n), argv);
    if (!reply) return false;
    bool fine = reply->elements == 0;
    tell_refused(s, reply, key);
    freeReplyObject(reply);
    return fine;
}

static void check_scripts(struct server *s) {
    char what[64];
    for (size_t i = 0; i < LW_SCRIPTS; i++) {
        snprintf(what, sizeof what, "script %s", lw_scripts[i]->name);
        if (!succeeds(s, what, 3, (const char *[]){"SCRIPT", "LOAD", lw_scripts[i]->text})) return;
    }
}

/* ---- each server ---- */

static void check_server(struct server *s, size_t index, const struct lw_redis_url *u) {
    if (!connect_to(s, u) || !log_in(s, u)) return;
    check_info(s);
    if (!s->ctx->err) check_scripts(s);
    for (int shard = (int)index; !s->ctx->err && shard < s->c->redis.shards; shard += (int)s->c->redis.n_urls)
        if (!check_rights(s, shard)) break;
}

void lw_check_redis(const struct lw_config *c, struct lw_check_report *r) {
    for (size_t i = 0; i < c->redis.n_urls; i++) {
        struct lw_redis_url u;
        struct lw_err err = {0};
        struct server s = {.c = c, .r = r, .shown = lw_url_redact(c->redis.urls[i])};
        if (lw_redis_url_parse(c->redis.urls[i], &u, &err))
            PROBLEM(&s, "%s", err.text);
        else
            check_server(&s, i, &u);
        if (s.ctx) redisFree(s.ctx);
        lw_redis_url_free(&u);
        free(s.shown);
    }
}
