/* SPDX-License-Identifier: Apache-2.0 */
/* call: one request and its response, which libcurl transfers. The memory of a call is reused for
 * later requests.
 *
 * libcurl sends a request again if a connection that it has kept ends before a byte of the answer
 * has come: usually the service closed it before it saw the request. But a service may also have
 * worked on the request, so it is sent again only within HTTP_RESEND_MS. Later it is a failure, and
 * the message gets another attempt with a new fence. */
#ifndef LW_HANDLERS_HTTP_CALL_H
#define LW_HANDLERS_HTTP_CALL_H

#include "handlers/handler.h"
#include "handlers/http/answer.h"
#include "handlers/http/head.h"
#include "handlers/http/settings.h"

enum {
    RECEIVED_BODY_MAX = 1 << 20,
    RECEIVED_HEAD_MAX = 64 << 10,
    RECEIVED_RETRY_AFTER = 64,
    HTTP_RESEND_MS = 200,
};

/* The part of a response that has arrived. */
struct http_received {
    struct lw_buf body;
    size_t head_bytes; /* number of bytes in the response's headers */
    bool too_long;     /* the response is longer than allowed */
    bool json;         /* its Content-Type is JSON */
    bool head_over;    /* the empty line after the headers has arrived */
    char retry_after[RECEIVED_RETRY_AFTER];
};

struct call {
    struct lw_handler *h;
    CURL *easy;
    /* `next` and `prev` are the neighbours in the list of calls under way; `next` also links
     * unused calls */
    struct call *next, *prev;
    struct http_head head;
    struct lw_buf body; /* body of the request, unless the payload itself is the body */
    struct http_received received;
    struct lw_bytes content; /* body of the request, borrowed from the job or from `body` */
    int sends;               /* how often libcurl has begun to send this request */
    int port;                /* local port of the connection that carries the request */
    bool begun;              /* a part of an answer came before the connection ended */
    bool unsent;             /* the request was stopped before a byte of it was sent */
    bool trial;              /* the request is the trial of a half-open breaker */
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
    CALL_UNSENT,    /* nothing was sent, because the connection cannot be trusted */
    CALL_ANSWERED,  /* the service answered with a status */
    CALL_TOO_LONG,  /* the service answered with a status, but the response is too long */
    CALL_UNREACHED, /* no connection was made */
    CALL_TLS,       /* TLS failed, so the request did not reach the service */
    CALL_BROKEN,    /* the connection broke before the response was complete */
};

struct call *call_new(struct lw_handler *h, const struct http_settings *s, int batch);
void call_free(struct call *c);
/* Forgets the last request and its answer. */
void call_clear(struct call *c);
/* Prepares the request with the messages from jobs[at] to jobs[upto - 1]. now_ms: boot clock;
 * wall_ms: ms since 1970. */
void call_prepare(struct call *c, const struct http_settings *s, int64_t now_ms, int64_t wall_ms);
/* Returns how libcurl's transfer ended. If there is no response, `why` receives the reason. */
enum call_end call_ended(struct call *c, CURLcode code, const struct http_settings *s, char *why,
                         size_t size);
/* Returns the response. Its texts stay valid until the call is reused or freed. */
struct http_answer call_answer(const struct call *c);

#endif
