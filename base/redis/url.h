/* SPDX-License-Identifier: Apache-2.0 */
/* Where a Redis is: redis://[user:password@]host[:port][/db] or unix://[user:password@]/path[?db=N].
 *
 * User and password may be percent-encoded; the last '@' ends them, so that a password with a bare '/' or '@' works too. An IPv6 host
 * stands in brackets. rediss:// is refused: not in this version. */
#ifndef LW_BASE_REDIS_URL_H
#define LW_BASE_REDIS_URL_H

#include "base/err.h"

#include <stddef.h>

struct lw_redis_url {
    char *host;            /* NULL for unix:// */
    int port;              /* 6379 where none is given; 0 for unix:// */
    char *path;            /* of the socket; NULL for redis:// */
    char *user, *password; /* NULL where not given */
    int db;
};

/* Fills *out (all owned); on failure *out is empty and err never holds the password. */
int lw_redis_url_parse(const char *text, struct lw_redis_url *out, struct lw_err *err);
void lw_redis_url_free(struct lw_redis_url *u);

/* What a new connection says before anything else: AUTH if the URL has a password, SELECT if it has a database. */
struct lw_redis_login {
    size_t n;
    struct {
        int n;
        const char *word[4]; /* lent by the URL; NULL behind the last */
    } command[2];
    char db[16];
};
void lw_redis_login(const struct lw_redis_url *u, struct lw_redis_login *out);
/* A copy of any URL with its password as "***"; for people. Free it. NULL when an allocation failed. */
char *lw_url_redact(const char *text);

#endif
