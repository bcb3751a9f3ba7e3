/* SPDX-License-Identifier: Apache-2.0 */
/* Where a Redis is, and as whom to talk to it: redis://[user:password@]host[:port][/db], rediss:// for the same over TLS, or
 * unix://[user:password@]/path[?db=N].
 *
 * User and password may be percent-encoded; the last '@' ends them, so that a password with a bare '/' or '@' works too. An IPv6 host
 * stands in brackets. */
#ifndef LW_BASE_REDIS_URL_H
#define LW_BASE_REDIS_URL_H

#include "base/err.h"
#include "base/redis/tls.h"

#include <stddef.h>

/* Which settings say how to log in; errors name them. */
enum lw_redis_via { LW_VIA_URL, LW_VIA_SENTINEL, LW_VIA_FOUND };

struct lw_redis_url {
    char *host;            /* NULL for unix:// */
    int port;              /* 6379 if none is given; 0 for unix:// */
    char *path;            /* of the socket; NULL for redis:// */
    char *user, *password; /* NULL if not given */
    int db;
    struct lw_tls tls;     /* rediss:// sets `on`; the rest is for the caller to fill */
    bool only_master;      /* the login asks for the ROLE; for the caller to set */
    enum lw_redis_via via; /* for the caller to set: it is a Sentinel, or was found by one */
};

/* Fills *out (all owned); on failure *out is empty and err never holds the password. */
int lw_redis_url_parse(const char *text, struct lw_redis_url *out, struct lw_err *err);
/* The same for host[:port]; default_port is used if the text has no port. */
int lw_redis_address_parse(const char *text, int default_port, struct lw_redis_url *out, struct lw_err *err);
/* A deep copy into *out. -1 when an allocation failed; then *out is empty. */
int lw_redis_url_copy(const struct lw_redis_url *from, struct lw_redis_url *out, struct lw_err *err);
void lw_redis_url_free(struct lw_redis_url *u);
/* Where it is, without user and password, for messages: "host:port" or the path of the socket. Returns out. */
const char *lw_redis_url_where(const struct lw_redis_url *u, char *out, size_t size);

/* A copy of any URL with its password as "***"; for people. Free it. NULL when an allocation failed. */
char *lw_url_redact(const char *text);

#endif
