/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the http handler share. */
#ifndef LW_HANDLERS_HTTP_PRIVATE_H
#define LW_HANDLERS_HTTP_PRIVATE_H

#include "handlers/http/breaker.h"
#include "handlers/http/call.h"
#include "handlers/http/counts.h"
#include "handlers/http/settings.h"
#include "handlers/http/socket.h"
#include "handlers/trial.h"

struct lw_feed;

enum { HTTP_FRESH_MS = 60000, HTTP_LIFE_S = 60 };

struct lw_handler {
    struct http_settings set;
    int64_t margin_ms; /* how long before the end of a lease a request is aborted */
    int64_t timeout_ms;
    /* maximum number of requests under way (in_flight), and of messages per request (batch) */
    int in_flight, batch;
    struct breaker breaker;
    struct lw_trial trial;

    /* The fields below belong to the thread that runs serve(). */
    CURLM *multi;
    struct http_sockets sockets;
    int epoll;
    int64_t resend_us; /* HTTP_RESEND_MS; a test sets it longer */
    long life_s;       /* HTTP_LIFE_S; a test sets it shorter */
    /* `timer_ms` is the time at which libcurl wants to be called again, boot clock; INT64_MAX:
     * libcurl has no timer */
    int64_t timer_ms;
    struct lw_feed *feed;
    struct lw_http_counts *counts; /* counts of this worker; NULL: not counted */
    /* `line` holds the jobs of this thread whose requests have not started yet */
    struct lw_job_queue line;
    struct call *first; /* calls under way, oldest first */
    struct call *free;
    /* `n_shared` is the number of TLS requests sent since a connection was last marked to be
     * closed after its request */
    int n_shared;
    int n_calls; /* number of calls under way */
    /* Until `fresh_ms` (boot clock) each request gets a connection of its own, because an answer
     * came that no request had asked for (http_suspect()). */
    int64_t fresh_ms;
    int64_t now_us, now_ms; /* time of this turn of the loop, in µs and in ms; boot clock */
    int64_t wall_ms;        /* time of this turn of the loop, ms since 1970 */
    int64_t look_ms;        /* time of the next check of leases and timeouts; boot clock */
};

/* The next functions are defined in loop.c, the event loop of serve(). */
int http_loop_open(struct lw_handler *h, struct lw_err *err);
void http_loop_close(struct lw_handler *h);
void http_serve(struct lw_handler *h, struct lw_feed *feed);
/* Removes the call from the list of calls under way, and aborts its transfer if the transfer is not
 * over. */
void http_leave(struct call *c);
/* Keeps the memory of a call for later requests. Must be called after http_leave(). */
void http_release(struct call *c);
/* Sends the messages of the call from jobs[at] on. If too little is left of the lease of the
 * message at jobs[at], gives that message back instead. */
void http_send(struct call *c);
/* Starts the follower of the last message of the call. Must be called after http_leave(). */
void http_follow(struct call *c, struct lw_job *follower);
/* Takes note that the service broke the rules of a connection: it sent bytes that belong to no
 * answer. Then the next answer on a connection may belong to an earlier request, so no connection
 * is used again for HTTP_FRESH_MS. `what` says what came. */
void http_suspect(struct lw_handler *h, const char *what);

/* The next functions are defined in fate.c, which decides what becomes of the messages of a
 * call. */
/* Ends a call that libcurl has finished. `code` is libcurl's result. */
void http_settle(struct call *c, CURLcode code);
/* Ends a call because the lease of its present message is lost or about to end. */
void http_cancel(struct call *c);
void http_late(struct call *c); /* ends a call whose request has timed out */

#endif
