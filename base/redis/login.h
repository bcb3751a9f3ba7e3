/* SPDX-License-Identifier: Apache-2.0 */
/* The first commands on a new connection: AUTH if there is a password, SELECT if there is a
 * database, CLIENT SETNAME if the connection has a name, and ROLE if the server must be a
 * master. */
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
        /* words of the command, followed by NULL; the URL or this structure owns them */
        const char *word[4];
    } command[LW_LOGIN_MAX];
    char db[16], name[LW_CLIENT_NAME_MAX];
    enum lw_redis_via via;
};

/* Fills in the commands of a login. client_name may be NULL; each character in it that Redis does
 * not allow becomes '-'. *out points into itself, so it must not be copied. */
void lw_redis_login(const struct lw_redis_url *u, const char *client_name,
                    struct lw_redis_login *out);
/* Evaluates the reply to command i of the login. Returns 0, or -1 with *err if the login has
 * failed. If the server does not know CLIENT SETNAME, or if the user may not call it, the login
 * continues, and the connection has no name. */
int lw_redis_login_answer(const struct lw_redis_login *l, size_t i, const redisReply *reply,
                          struct lw_err *err);
/* Sets *err for a connection that broke before all commands of the login were answered. `why` is
 * the reason why it broke. Always returns -1. */
int lw_redis_login_broken(const struct lw_redis_url *u, const char *why, struct lw_err *err);

#endif
