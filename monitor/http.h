/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP server for the exporter, with limits on connections, sizes and times. It answers
 * only requests whose Host header is an address, "localhost", this machine's name or one of the
 * handler's `hosts`. Otherwise a web page could make a browser call the server through a foreign
 * domain name that resolves to this machine. Requests from pages of other sites (header Origin) are
 * refused.
 *
 * There are four threads. The first receives all requests, and answers those that need no waiting.
 * A request that must wait for Redis goes to one of two slow threads, so that a slow Redis does not
 * delay the first thread. One slow thread answers the lengthy requests, which may look at all lanes
 * for seconds. The other slow thread answers the short requests, which therefore never wait behind
 * a lengthy one. Each slow thread answers one request after the other, and the number of requests
 * that wait for it is limited. A request is answered 503 if too many requests wait already, or if
 * the request has waited for LW_HTTP_LIMIT_MS. A fourth thread delays the answers to wrong tokens.
 *
 * Slow clients cannot shut out others: beyond LW_HTTP_CROWD connections, each new connection makes
 * the server close the oldest one. Streams, and connections whose request waits for a slow thread,
 * are not closed for this reason. */
#ifndef LW_MONITOR_HTTP_H
#define LW_MONITOR_HTTP_H

#include "base/bytes.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LW_HTTP_CONNECTIONS = 96,
    /* LW_HTTP_CROWD is the number of connections beyond which each new connection closes the oldest
     * one. It is larger than LW_HTTP_WAITING + LW_HTTP_LENGTHY + LW_STREAMS, so that there is
     * always a connection that may be closed. */
    LW_HTTP_CROWD = 48,
    LW_HTTP_IDLE_S = 10,
    LW_HTTP_BODY_MAX = 64 << 10,
    LW_HTTP_ARGS = 64,
    /* LW_HTTP_WAITING is the maximum number of short requests that wait or are being answered */
    LW_HTTP_WAITING = 16,
    LW_HTTP_LENGTHY = 8, /* maximum number of lengthy requests that wait or are being answered */
    /* A wrong token is answered after LW_HTTP_DENIED_MS. While LW_HTTP_DENIED such answers wait,
     * the connection of one more is closed without an answer. Right tokens never wait for that. */
    LW_HTTP_DENIED = 16,
    LW_HTTP_DENIED_MS = 1000,
    LW_HTTP_LIMIT_MS = 5000
};

struct lw_http;

struct lw_http_arg {
    char *name, *value; /* name and value, with every %XX decoded */
};

/* A request. It is valid only during the call to which it is passed. */
struct lw_http_request {
    bool post;                 /* true for POST; false for GET or HEAD */
    const char *path;          /* path as sent, with every %XX undecoded */
    const char *authorization; /* header Authorization; NULL: none */
    const char *if_none_match; /* header If-None-Match; NULL: none */
    bool takes_gzip;           /* true if the client accepts responses compressed by gzip */
    char from[64];             /* address of the client, as text */
    struct lw_http_arg args[LW_HTTP_ARGS];
    size_t n_args;
    struct lw_buf body;
    int64_t until_ms; /* time at which the client's time limit ends; boot clock */
};

/* A response. It is initialized with zeros, and the handler fills it in. */
struct lw_http_answer {
    int status;
    const char *type;  /* content type, a string literal; NULL: text/plain */
    const char *allow; /* header Allow for status 405, a string literal */
    /* `tag` is the header ETag, a string literal, with which the client can ask later whether its
     * copy is still valid; NULL: none */
    const char *tag;
    bool gzip; /* true if the body is compressed by gzip */
    /* `next` is the header Latchwork-Next: the cursor of the next part of the result; empty: no
     * such header */
    struct lw_buf next;
    struct lw_buf body;
    /* `stream` is true if the response is a stream: after the body, the client gets what
     * lw_http_publish() sends (monitor/stream.h). */
    bool stream;
};

struct lw_http_handler {
    void *ctx;
    /* `quick` fills in the response *a. It returns false if the request must wait for Redis; then
     * the server calls `slow`. All calls of `quick` and `lengthy` come from the same thread. */
    bool (*quick)(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a);
    /* `lengthy` returns true if `slow` may take seconds for this request. If `lengthy` is NULL, all
     * requests are short. */
    bool (*lengthy)(void *ctx, const struct lw_http_request *q);
    /* `slow` fills in the response *a. Lengthy requests are answered on one thread, and short
     * requests on another. `slow` may be NULL if `quick` never returns false. */
    void (*slow)(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a,
                 bool lengthy);
    /* `hosts` has further names that a Host header may contain; they must outlive the server */
    char *const *hosts;
    size_t n_hosts;
};

/* Starts the server. `host` is a numeric address. Port 0 means any free port. *h is copied. Returns
 * NULL with *err on failure. */
struct lw_http *lw_http_open(const char *host, int port, const struct lw_http_handler *h,
                             struct lw_err *err);
int lw_http_port(const struct lw_http *h);
/* Sends a text to all clients of streams, without waiting for any of them. Thread-safe. */
void lw_http_publish(struct lw_http *h, struct lw_bytes text);
int lw_http_streams(const struct lw_http *h); /* returns the number of open streams; thread-safe */
/* Waits until each slow thread has answered its current request, answers all waiting requests with
 * 503, ends the streams and closes the server. */
void lw_http_close(struct lw_http *h);

/* --- http_request.c --------------------------------------------------------------------------- */

/* Returns true if a request with this Host header (NULL: none) may be answered. `machine` is the
 * name of this machine. */
bool lw_http_host_ok(const char *host, const char *machine);
/* Returns true if the Host header (NULL: none) is one of these names, with or without a port. */
bool lw_http_host_named(const char *host, char *const *names, size_t n);
/* Returns true if a request with this Origin header (NULL: none) comes from a page of the host in
 * its Host header, or from no page. A browser sends Origin with each request that a page makes to
 * another site, and sends "null" if it hides the page. */
bool lw_http_origin_ok(const char *origin, const char *host);
/* Returns true if a request to the API with this Sec-Fetch-Site header (NULL: none) comes from a
 * page of this server, from the address bar or from no browser. A browser sends this header also
 * with requests that have no Origin, such as those for images and scripts. */
bool lw_http_fetch_site_ok(const char *site);
/* Returns true if a client with this Accept-Encoding header (NULL: none) accepts gzip. */
bool lw_http_takes_gzip(const char *accept_encoding);
/* Decodes every %XX and appends the text to `out`. Returns false if a %XX is incomplete or encodes
 * a NUL. */
bool lw_http_decode(struct lw_bytes text, struct lw_buf *out);
/* Returns true if the Authorization header (NULL: none) is "Bearer TOKEN". The comparison takes the
 * same time wherever the texts differ, so that a token cannot be guessed by measuring times. */
bool lw_http_bearer_ok(const char *authorization, const char *token);
/* Fills the response with a status and this JSON value. Takes over the reference to the value. */
void lw_http_json(struct lw_http_answer *a, int status, json_t *v);
/* Fills the response with a status and {"error":"…"}. */
void lw_http_error(struct lw_http_answer *a, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
