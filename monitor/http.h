/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server for what the exporter shows, with limits on connections, sizes and time. It
 * answers only requests whose Host header names an address, "localhost", this machine or one of the
 * handler's `hosts`. So a web page cannot make a browser call the server under a foreign domain
 * name that leads to this machine. Requests from pages of other sites (Origin) are refused.
 *
 * There are three threads. The first takes all requests, and answers those whose answer is at hand.
 * It passes a request that has to wait for Redis to one of the two slow threads, so that a slow
 * Redis does not hold up the first. One slow thread answers the lengthy requests, which may look at
 * all lanes for seconds; the other one answers the rest, which therefore never waits behind a
 * lengthy request. Each slow thread answers one request after the other, and a limited number of
 * requests waits for it. A request that finds no place there, or has not had its turn within
 * LW_HTTP_LIMIT_MS, is answered 503.
 *
 * Slow clients cannot shut out others: beyond LW_HTTP_CROWD connections, each new one closes the
 * oldest connection. A connection whose request waits for a slow thread is exempt, and so is a
 * stream. */
#ifndef LW_MONITOR_HTTP_H
#define LW_MONITOR_HTTP_H

#include "base/bytes.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LW_HTTP_CONNECTIONS = 96,
    /* larger than LW_HTTP_WAITING + LW_HTTP_LENGTHY + LW_STREAMS, so that some connection may
     * always be closed */
    LW_HTTP_CROWD = 48,
    LW_HTTP_IDLE_S = 10,
    LW_HTTP_BODY_MAX = 64 << 10,
    LW_HTTP_ARGS = 64,
    /* maximum number of requests at the slow thread for short ones, including the one that is being
     * answered */
    LW_HTTP_WAITING = 16,
    LW_HTTP_LENGTHY = 8, /* the same at the slow thread for lengthy requests */
    LW_HTTP_LIMIT_MS = 5000
};

struct lw_http;

struct lw_http_arg {
    char *name, *value; /* both with %XX decoded */
};

/* A request. It is valid only during the call that gets it. */
struct lw_http_request {
    bool post;                 /* true for POST; false for GET or HEAD */
    const char *path;          /* path as it was sent, with %XX not decoded */
    const char *authorization; /* value of this header; NULL: none */
    const char *if_none_match; /* value of this header; NULL: none */
    bool takes_gzip;           /* the client can read an answer that is compressed by gzip */
    char from[64];             /* address of the client, as text */
    struct lw_http_arg args[LW_HTTP_ARGS];
    size_t n_args;
    struct lw_buf body;
    int64_t until_ms; /* ms on the boot clock after which nobody waits for the answer */
};

/* An answer. It begins as zeros, and the handler fills it. */
struct lw_http_answer {
    int status;
    const char *type;  /* a string literal; NULL: text/plain */
    const char *allow; /* a string literal, for status 405 */
    /* a string literal, the header ETag: the client may keep the answer, and ask whether it is
     * still so; NULL: none */
    const char *tag;
    bool gzip; /* the body is compressed by gzip */
    /* value of the header Latchwork-Next: the cursor of the next part; empty: there is no such
     * header */
    struct lw_buf next;
    struct lw_buf body;
    /* the answer does not end: after the body, the client gets what lw_http_publish() sends
     * (monitor/stream.h) */
    bool stream;
};

struct lw_http_handler {
    void *ctx;
    /* Fills *a. Returns false if the answer must wait for Redis, so that `slow` must give it. All
     * calls of `quick` and `lengthy` come from one thread. */
    bool (*quick)(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a);
    /* Returns true if the answer of `slow` may take seconds. NULL: no answer does. */
    bool (*lengthy)(void *ctx, const struct lw_http_request *q);
    /* Fills *a. All calls with the same value of `lengthy` come from one thread, and those with the
     * other value from another thread. NULL: quick never returns false. */
    void (*slow)(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a,
                 bool lengthy);
    /* names that a Host header may have beside this machine's; they must outlive the server */
    char *const *hosts;
    size_t n_hosts;
};

/* Starts the server. host is a numeric address; port 0 means any free port. Copies *h. */
struct lw_http *lw_http_open(const char *host, int port, const struct lw_http_handler *h,
                             struct lw_err *err);
int lw_http_port(const struct lw_http *h);
/* Sends a text to all clients of streams. Returns at once, and never waits for a client.
 * Thread-safe. */
void lw_http_publish(struct lw_http *h, struct lw_bytes text);
int lw_http_streams(const struct lw_http *h); /* number of streams that are open. Thread-safe. */
void lw_http_close(struct lw_http *h);        /* waits for the slow answers that are in progress */

/* --- http_request.c --------------------------------------------------------------------------- */

/* Returns true if a request with this Host header (NULL: none) may be answered. `machine` is this
 * machine's name. */
bool lw_http_host_ok(const char *host, const char *machine);
/* Returns true if the Host header (NULL: none) is one of these names, with any port or none. */
bool lw_http_host_named(const char *host, char *const *names, size_t n);
/* Returns true if a request with this Origin header (NULL: none) comes from a page of the host in
 * its Host header, or from no page. A browser sends Origin with each request that a page makes to
 * another site, and "null" if it conceals the page. */
bool lw_http_origin_ok(const char *origin, const char *host);
/* Returns true if a client with this Accept-Encoding header (NULL: none) can read gzip. */
bool lw_http_takes_gzip(const char *accept_encoding);
/* Decodes %XX and appends the text to out. Returns false if a %XX is incomplete or stands for a
 * NUL. */
bool lw_http_decode(struct lw_bytes text, struct lw_buf *out);
/* Returns true if the Authorization header (NULL: none) is "Bearer TOKEN". The call takes the same
 * time wherever the texts differ, so that a token cannot be guessed by measuring. */
bool lw_http_bearer_ok(const char *authorization, const char *token);
/* Fills the answer with a status and this JSON value, whose reference it takes over. */
void lw_http_json(struct lw_http_answer *a, int status, json_t *v);
/* Fills the answer with a status and {"error":"…"}. */
void lw_http_error(struct lw_http_answer *a, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
