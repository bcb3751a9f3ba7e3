/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server for what the exporter shows, bounded in connections, sizes and time. It answers only requests whose Host header names
 * an address, "localhost" or this machine: a page in a browser can then not reach it through a name of its own.
 *
 * Two threads. One takes all requests and answers what is at hand. What may have to wait for others (Redis) goes to the second, one request
 * after the other, so that nothing it waits for holds up the first. At most LW_HTTP_WAITING requests stand before the second; a request
 * that has not had its turn within LW_HTTP_LIMIT_MS is told so (503), as are those that find no place.
 *
 * Slow clients cannot shut out others: beyond LW_HTTP_CROWD connections, each new one closes the
 * oldest connection. A connection whose request waits for the second thread is exempt. */
#ifndef LW_MONITOR_HTTP_H
#define LW_MONITOR_HTTP_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LW_HTTP_CONNECTIONS = 64,
    LW_HTTP_CROWD = 32, /* exceeds LW_HTTP_WAITING, so that there is always a connection to close */
    LW_HTTP_IDLE_S = 10,
    LW_HTTP_BODY_MAX = 64 << 10,
    LW_HTTP_ARGS = 64,
    LW_HTTP_WAITING = 16,
    LW_HTTP_LIMIT_MS = 5000
};

struct lw_http;

struct lw_http_arg {
    char *name, *value; /* decoded */
};

/* Borrowed for the length of a call. */
struct lw_http_request {
    bool post;                 /* POST; otherwise GET or HEAD */
    const char *path;          /* as it was sent, with %XX not decoded */
    const char *authorization; /* the header; NULL: none */
    char from[64];             /* address of the client */
    struct lw_http_arg args[LW_HTTP_ARGS];
    size_t n_args;
    struct lw_buf body;
    int64_t until_ms; /* boot clock; after this time nobody waits for the answer */
};

/* Starts as zeros. */
struct lw_http_answer {
    int status;
    const char *type;  /* NULL: text/plain; otherwise a literal */
    const char *allow; /* for status 405; a literal */
    struct lw_buf body;
};

struct lw_http_handler {
    void *ctx;
    /* Fills *a, or returns false if that takes longer and `slow` must answer. One thread calls it,
     * which is not the one that calls slow. */
    bool (*quick)(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a);
    void (*slow)(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a); /* NULL: quick never returns false */
};

/* host: a numeric address. port 0: any free one. Copies *h. */
struct lw_http *lw_http_open(const char *host, int port, const struct lw_http_handler *h, struct lw_err *err);
int lw_http_port(const struct lw_http *h);
void lw_http_close(struct lw_http *h); /* waits for a slow answer in progress */

/* ---- http_request.c ---- */

/* Whether a request with this Host header (NULL: none) may be answered. `machine`: this machine's
 * name. */
bool lw_http_host_ok(const char *host, const char *machine);
/* Decodes %XX, appending to out. Returns false if one is torn or is a NUL. */
bool lw_http_decode(struct lw_bytes text, struct lw_buf *out);
/* Whether the Authorization header (NULL: none) is "Bearer TOKEN". Takes the same time whatever
 * differs. */
bool lw_http_bearer_ok(const char *authorization, const char *token);
/* Answers with a status and {"error":"…"}. */
void lw_http_error(struct lw_http_answer *a, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
