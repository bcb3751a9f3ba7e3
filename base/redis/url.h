/* SPDX-License-Identifier: Apache-2.0 */
/* The address of a Redis server and the login for it: redis://[user:password@]host[:port][/db],
 * rediss:// for the same over TLS, or unix://[user:password@]/path[?db=N].
 *
 * User and password may be percent-encoded. They end at the last '@' of the URL, so a password with
 * an unencoded '/' or '@' works as well. An IPv6 host is in brackets. */
#ifndef LW_BASE_REDIS_URL_H
#define LW_BASE_REDIS_URL_H

#include "base/err.h"
#include "base/tls.h"

#include <stddef.h>

/* Says which settings contain the login, so that errors can name these settings. */
enum lw_redis_via { LW_VIA_URL, LW_VIA_SENTINEL, LW_VIA_FOUND };

struct lw_redis_url {
    char *host; /* name or address of the host; NULL for unix:// */
    /* numeric address of the host, so that no resolver is needed; NULL if it is not known yet */
    char *address;
    int port;              /* port of the server; 6379 if the URL gives none; 0 for unix:// */
    char *path;            /* path of the socket; NULL if the URL is not unix:// */
    char *user, *password; /* user and password of the login; NULL if not given */
    int db;
    struct lw_tls tls; /* TLS settings: rediss:// sets `on`, and the caller fills in the rest */
    /* set by the caller: true if the login must check with ROLE that the server is a master */
    bool only_master;
    enum lw_redis_via via; /* set by the caller: says which settings contain the login */
};

/* Parses a URL into *out, which owns its texts. On failure *out is empty, and *err does not contain
 * the password. */
int lw_redis_url_parse(const char *text, struct lw_redis_url *out, struct lw_err *err);
/* Parses an address of the form host[:port] into *out. default_port is used if the text has no
 * port. On failure *out is empty. */
int lw_redis_address_parse(const char *text, int default_port, struct lw_redis_url *out,
                           struct lw_err *err);
/* Makes a deep copy of *from in *out. Returns -1 if an allocation failed; *out is then empty. */
int lw_redis_url_copy(const struct lw_redis_url *from, struct lw_redis_url *out,
                      struct lw_err *err);
void lw_redis_url_free(struct lw_redis_url *u);
/* Writes the address of a server without user and password, for log lines and errors: "host:port"
 * or the path of the socket. Returns out. */
const char *lw_redis_url_where(const struct lw_redis_url *u, char *out, size_t size);

/* Returns a copy of any URL with "***" in place of its password, for logs and errors, or NULL if an
 * allocation failed. The caller frees it. */
char *lw_url_redact(const char *text);

#endif
