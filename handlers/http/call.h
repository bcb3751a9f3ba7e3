/* SPDX-License-Identifier: Apache-2.0 */
/* call: one request and its answer. libcurl transfers them if the URL begins with https://;
 * otherwise libcurl makes the connection, and conn.c transfers them. A call is used again for later
 * requests. */
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
    /* neighbours among the calls under way; `next` also links unused calls */
    struct call *next, *prev;
    struct http_head head;
    struct lw_buf body; /* body of the request, if it is not the payload itself */
    struct http_received received;
    /* the connection that carries the request; NULL: libcurl has it, or it is not made yet */
    struct http_conn *conn;
    struct http_reader reader; /* takes the answer from `conn` apart */
    struct lw_bytes content;   /* body of the request, borrowed from the job or from `body` */
    size_t sent;               /* number of bytes of headers and body that `conn` has taken */
    bool trial;                /* the request tests whether the service answers again */
    /* the messages of this batch go one by one, because the service refused them together */
    bool singly;
    char error[CURL_ERROR_SIZE];
    int64_t begun_us; /* boot clock in µs; when the request was sent */
    /* boot clock; when the first message of this chain of followers started */
    int64_t chain_ms;
    /* number of jobs; index of the first in the request; index behind the last one in it */
    int n, at, upto;
    struct lw_job *jobs[]; /* room for handler.batch jobs */
};

/* Says how a transfer ended. */
enum call_end {
    CALL_ANSWERED,  /* the service answered with a status */
    CALL_TOO_LONG,  /* the service answered with a status, but the answer is longer than allowed */
    CALL_UNREACHED, /* no connection was made */
    CALL_TLS,       /* TLS failed, so the service has not seen the request */
    CALL_BROKEN,    /* the connection broke before the answer was complete */
};

struct call *call_new(struct lw_handler *h, const struct http_settings *s, int batch);
void call_free(struct call *c);
/* Prepares the request with the messages from jobs[at] to jobs[upto - 1]. now_ms: boot clock;
 * wall_ms: ms since 1970. */
void call_prepare(struct call *c, const struct http_settings *s, int64_t now_ms, int64_t wall_ms);
/* Says how libcurl's transfer ended. If there is no answer, `why` gets the reason. */
enum call_end call_ended(struct call *c, CURLcode code, const struct http_settings *s, char *why,
                         size_t size);
/* Says how the transfer over `conn` ended, in the same way. */
enum call_end call_read(const struct call *c, const struct http_settings *s, char *why,
                        size_t size);
/* returns the answer, whose texts are borrowed from the call */
struct http_answer call_answer(const struct call *c);

#endif
