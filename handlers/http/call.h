/* SPDX-License-Identifier: Apache-2.0 */
/* call: one request and its response. If the URL begins with https://, libcurl transfers both.
 * Otherwise libcurl only makes the connection, and conn.c does the transfer. The memory of a call
 * is reused for later requests. */
#ifndef LW_HANDLERS_HTTP_CALL_H
#define LW_HANDLERS_HTTP_CALL_H

#include "handlers/handler.h"
#include "handlers/http/answer.h"
#include "handlers/http/head.h"
#include "handlers/http/reader.h"
#include "handlers/http/settings.h"

struct http_conn;

struct call {
    struct lw_handler *h;
    CURL *easy;
    /* `next` and `prev` are the neighbours in the list of calls under way; `next` also links
     * unused calls */
    struct call *next, *prev;
    struct http_head head;
    struct lw_buf body; /* body of the request, unless the payload itself is the body */
    struct http_received received;
    /* `conn` is the connection that carries the request; NULL: libcurl transfers it, or no
     * connection is made yet */
    struct http_conn *conn;
    struct http_reader reader; /* parser of the response that arrives on `conn` */
    struct lw_bytes content;   /* body of the request, borrowed from the job or from `body` */
    size_t sent;               /* number of bytes of headers and body sent over `conn` */
    bool trial;                /* the request is the trial of a half-open breaker */
    /* `singly` is true if the messages of the batch are sent one by one, because the service
     * refused the whole batch. */
    bool singly;
    char error[CURL_ERROR_SIZE];
    int64_t begun_us; /* time when the request was sent; boot clock, µs */
    /* `chain_ms` is the time at which the first message of this chain of followers started; boot
     * clock */
    int64_t chain_ms;
    /* `n` is the number of jobs, `at` the index of the first job in the request, and `upto` the
     * index after the last job in it */
    int n, at, upto;
    struct lw_job *jobs[]; /* room for handler.batch jobs */
};

/* How a transfer ended. */
enum call_end {
    CALL_ANSWERED,  /* the service answered with a status */
    CALL_TOO_LONG,  /* the service answered with a status, but the response is too long */
    CALL_UNREACHED, /* no connection was made */
    CALL_TLS,       /* TLS failed, so the request did not reach the service */
    CALL_BROKEN,    /* the connection broke before the response was complete */
};

struct call *call_new(struct lw_handler *h, const struct http_settings *s, int batch);
void call_free(struct call *c);
/* Prepares the request with the messages from jobs[at] to jobs[upto - 1]. now_ms: boot clock;
 * wall_ms: ms since 1970. */
void call_prepare(struct call *c, const struct http_settings *s, int64_t now_ms, int64_t wall_ms);
/* Returns how libcurl's transfer ended. If there is no response, `why` receives the reason. */
enum call_end call_ended(struct call *c, CURLcode code, const struct http_settings *s, char *why,
                         size_t size);
/* Returns how a transfer over `conn` ended. If there is no response, `why` receives the reason. */
enum call_end call_read(const struct call *c, const struct http_settings *s, char *why,
                        size_t size);
/* Returns the response. Its texts stay valid until the call is reused or freed. */
struct http_answer call_answer(const struct call *c);

#endif
