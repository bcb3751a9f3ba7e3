/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/connect.h"

#include "base/redis/url.h"

#include <stdbool.h>

static bool fine(redisContext *c, redisReply *r, struct lw_err *err) {
    bool ok = r && r->type != REDIS_REPLY_ERROR;
    if (!ok) lw_fail(err, "%s", r ? r->str : c->errstr);
    if (r) freeReplyObject(r);
    return ok;
}

static bool log_in(redisContext *c, const struct lw_redis_url *u, struct lw_err *err) {
    struct lw_redis_login login;
    lw_redis_login(u, &login);
    for (size_t i = 0; i < login.n; i++)
        if (!fine(c, redisCommandArgv(c, login.command[i].n, (const char **)login.command[i].word, NULL), err)) return false;
    return true;
}

redisContext *lw_redis_connect(const char *url, int64_t timeout_ms, struct lw_err *err) {
    struct lw_redis_url u;
    if (lw_redis_url_parse(url, &u, err)) return NULL;
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    redisContext *c = u.path ? redisConnectUnixWithTimeout(u.path, limit) : redisConnectWithTimeout(u.host, u.port, limit);
    bool ok = false;
    if (!c || c->err || redisSetTimeout(c, limit) != REDIS_OK)
        lw_fail(err, "can't connect to %s: %s", u.path ? u.path : u.host, c ? c->errstr : "out of memory");
    else
        ok = log_in(c, &u, err);
    lw_redis_url_free(&u);
    if (ok) return c;
    if (c) redisFree(c);
    return NULL;
}
