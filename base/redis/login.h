/* SPDX-License-Identifier: Apache-2.0 */
/* The first commands on a new connection: AUTH if there is a password, SELECT if there is a
 * database, CLIENT SETNAME if there is a name, and ROLE if only a master will do. */
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
        /* words of the command, NULL behind the last; they belong to the URL or to this
         * structure */
        const char *word[4];
    } command[LW_LOGIN_MAX];
    char db[16], name[LW_CLIENT_NAME_MAX];
    enum lw_redis_via via;
};

/* Fills in the commands. client_name may be NULL; a character that Redis does not allow in it
 * becomes '-'. *out points into itself, so it must not be copied. */
void lw_redis_login(const struct lw_redis_url *u, const char *client_name,
                    struct lw_redis_login *out);
/* Takes the answer to command i. Returns -1 with *err if the login has failed. If the user lacks
 * the right to name the connection, the login goes on without a name. */
int lw_redis_login_answer(const struct lw_redis_login *l, size_t i, const redisReply *reply,
                          struct lw_err *err);
/* Sets *err for a connection that broke, because of `why`, before the login was answered. Always
 * returns -1. */
int lw_redis_login_broken(const struct lw_redis_url *u, const char *why, struct lw_err *err);

#endif
