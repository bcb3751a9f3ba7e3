/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the http handler share. */
#ifndef LW_HANDLERS_HTTP_PRIVATE_H
#define LW_HANDLERS_HTTP_PRIVATE_H

#include "handlers/http/breaker.h"
#include "handlers/http/call.h"
#include "handlers/http/conn.h"
#include "handlers/http/counts.h"
#include "handlers/http/settings.h"
#include "handlers/job_queue.h"

struct lw_feed;

/* Marks an event of epoll as one of h->conns, whose number is in the lower half. Other events carry
 * a descriptor. */
#define HTTP_EVENT_CONN ((uint64_t)1 << 32)

struct lw_handler {
    struct http_settings set;
    int64_t margin_ms; /* how long before the end of a lease the request must be aborted */
    int64_t timeout_ms;
    int in_flight, batch; /* maximum number of requests under way, and of messages per request */
    struct breaker breaker;

    /* The fields below belong to the thread of serve(). */
    CURLM *multi;
    int epoll;
    /* boot clock; when libcurl wants to be called again; INT64_MAX: libcurl has no timer */
    int64_t timer_ms;
    struct lw_feed *feed;
    struct lw_http_counts *counts; /* counts of this worker; NULL: nothing is counted */
    struct lw_job_queue line;      /* jobs that wait for a free call */
    struct call *first, *last;     /* calls under way, oldest first */
    struct call *free;
    struct http_conn *conns; /* room for in_flight connections of conn.c */
    /* those of them that are idle, latest first, and those that are closed */
    struct http_conn *idle, *closed;
    /* number of requests sent since a request last got the order to close its connection
     * afterwards */
    int n_shared;
    int n_calls;            /* number of calls under way */
    int64_t now_us, now_ms; /* boot clock; time of this turn of the loop */
    int64_t wall_ms;        /* wall clock, ms since 1970; time of this turn of the loop */
    int64_t look_ms;        /* boot clock; when leases and timeouts are checked next */
};

/* The next functions are in loop.c, which is the thread of serve(). */
int http_loop_open(struct lw_handler *h, struct lw_err *err);
void http_loop_close(struct lw_handler *h);
void http_serve(struct lw_handler *h, struct lw_feed *feed);
/* Takes the call off the list of those under way, and aborts its transfer if the transfer is not
 * over. */
void http_leave(struct call *c);
/* keeps the memory of a call for a later request; must be called after http_leave() */
void http_release(struct call *c);
/* Sends the messages of the call from jobs[at] on. If the lease of the first one is over, gives
 * that message back instead. */
void http_send(struct call *c);
/* lets libcurl begin with a prepared call: with the connection, or with the whole transfer */
void http_connect(struct call *c);
/* Starts the follower of the last message of the call. Must be called after http_leave(). */
void http_follow(struct call *c, struct lw_job *follower);

/* The next functions are in fate.c, which decides what becomes of the messages of a call. */
void http_settle(struct call *c, CURLcode code); /* ends a call whose transfer by libcurl is over */
/* ends a call whose answer is over, or will not come */
void http_settle_read(struct call *c);
/* ends a call whose connection could not be taken over; error: an errno value */
void http_unadopted(struct call *c, int error);
/* ends a call with a message whose lease is lost or about to end */
void http_cancel(struct call *c);
void http_late(struct call *c); /* ends a call whose request has timed out */

#endif
