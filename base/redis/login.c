/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/login.h"

#include "base/bytes.h"
#include "base/redis/reply.h"

#include <stdio.h>
#include <string.h>

static void say(struct lw_redis_login *out, int kind, const char *command, const char *first,
                const char *second) {
    const char *words[] = {command, first, second};
    out->command[out->n].kind = kind;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i]) out->command[out->n].word[out->command[out->n].n++] = words[i];
    out->n++;
}

static void take_name(char *out, const char *name) {
    snprintf(out, LW_CLIENT_NAME_MAX, "%s", name);
    for (char *p = out; *p; p++)
        if (*p <= ' ' || *p > '~') *p = '-';
}

void lw_redis_login(const struct lw_redis_url *u, const char *client_name,
                    struct lw_redis_login *out) {
    *out = (struct lw_redis_login){.via = u->via};
    snprintf(out->db, sizeof out->db, "%d", u->db);
    if (client_name) take_name(out->name, client_name);
    if (u->password)
        say(out, LW_LOGIN_AUTH, "AUTH", u->user ? u->user : u->password,
            u->user ? u->password : NULL);
    if (u->db) say(out, LW_LOGIN_SELECT, "SELECT", out->db, NULL);
    if (client_name) say(out, LW_LOGIN_SETNAME, "CLIENT", "SETNAME", out->name);
    if (u->only_master) say(out, LW_LOGIN_ROLE, "ROLE", NULL, NULL);
}

static int role_answer(const redisReply *r, struct lw_err *err) {
    const redisReply *role = r->type == REDIS_REPLY_ARRAY && r->elements ? r->element[0] : NULL;
    char why[LW_REPLY_TEXT];
    if (!role || role->type != REDIS_REPLY_STRING)
        return lw_fail(err, "%s", lw_malformed(why, r, "ROLE", "[string, ...]"));
    if (strcmp(role->str, "master"))
        return lw_fail(err, "its role is %.20s; only a master takes writes", role->str);
    return 0;
}

/* The names of settings, for errors that tell the user what to correct. The names depend on the
 * settings from which the login comes. */
static const struct {
    const char *password, *both, *tls;
} words[] = {
    [LW_VIA_URL] = {"redis.password, or user:password@ in the URL",
                    "redis.username and redis.password, or those of the URL",
                    "write rediss:// in the URL"},
    [LW_VIA_SENTINEL] = {"redis.sentinel.password",
                         "redis.sentinel.username and redis.sentinel.password",
                         "set redis.sentinel.tls"},
    [LW_VIA_FOUND] = {"redis.password", "redis.username and redis.password", "set redis.tls"},
};

static int refused(enum lw_redis_via via, const redisReply *r, struct lw_err *err) {
    if (lw_begins(r->str, "NOAUTH"))
        return lw_fail(err, "it asks for a password; set %s (%s)", words[via].password, r->str);
    if (lw_begins(r->str, "WRONGPASS") || lw_begins(r->str, "ERR invalid password"))
        return lw_fail(err, "it refuses the user or password; correct %s (%s)", words[via].both,
                       r->str);
    if (lw_begins(r->str, "ERR AUTH <password> called without any password"))
        return lw_fail(err,
                       "its default user has no password; name another user, or leave the password "
                       "out: %s (%s)",
                       words[via].both, r->str);
    return lw_fail(err, "%s", r->str);
}

int lw_redis_login_answer(const struct lw_redis_login *l, size_t i, const redisReply *r,
                          struct lw_err *err) {
    if (r->type != REDIS_REPLY_ERROR)
        return l->command[i].kind == LW_LOGIN_ROLE ? role_answer(r, err) : 0;
    if (l->command[i].kind == LW_LOGIN_SETNAME &&
        (lw_begins(r->str, "NOPERM") || lw_begins(r->str, "ERR unknown")))
        return 0;
    return refused(l->via, r, err);
}

int lw_redis_login_broken(const struct lw_redis_url *u, const char *why, struct lw_err *err) {
    bool plain = !u->path && !u->tls.on;
    if (!plain) return lw_fail(err, "%s", why);
    return lw_fail(err, "%s; if this port speaks TLS, %s", why, words[u->via].tls);
}
