/* SPDX-License-Identifier: Apache-2.0 */
/* What a new connection says before anything else: AUTH if there is a password, SELECT if there is a database, CLIENT SETNAME if there is
 * a name, and ROLE if only a master will do. */
#ifndef LW_BASE_REDIS_LOGIN_H
#define LW_BASE_REDIS_LOGIN_H

#include "base/err.h"
#include "base/redis/url.h"

#include <hiredis/hiredis.h>
#include <stddef.h>

enum { LW_LOGIN_MAX = 4, LW_CLIENT_NAME_MAX = 128 };

struct lw_redis_login {
    size_t n;
    struct {
        enum { LW_LOGIN_AUTH, LW_LOGIN_SELECT, LW_LOGIN_SETNAME, LW_LOGIN_ROLE } kind;
        int n;
        const char *word[4]; /* lent by the URL, or in here; NULL behind the last */
    } command[LW_LOGIN_MAX];
    char db[16], name[LW_CLIENT_NAME_MAX];
    enum lw_redis_via via;
};

/* client_name: NULL for none. What Redis does not allow in one becomes '-'. *out must not be copied: it points into itself. */
void lw_redis_login(const struct lw_redis_url *u, const char *client_name, struct lw_redis_login *out);
/* Takes the answer to command i. -1 with *err if it ends the connection. A user who may not name itself goes on without a name. */
int lw_redis_login_answer(const struct lw_redis_login *l, size_t i, const redisReply *reply, struct lw_err *err);
/* Fills *err for a connection that broke (why) before the login was answered. Always returns -1. */
int lw_redis_login_broken(const struct lw_redis_url *u, const char *why, struct lw_err *err);

#endif
