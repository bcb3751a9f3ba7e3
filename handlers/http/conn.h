/* SPDX-License-Identifier: Apache-2.0 */
/* conn: the connections to a service without TLS, and the requests that they carry.
 *
 *     libcurl connects ──> BUSY: a request is sent, its answer comes ──> IDLE ──> BUSY: the next
 *         request …
 *                            │                                            │
 *                            └──> closed                                  └──> closed
 *
 * libcurl looks up the name and connects, with its time limit, and then hands its socket over.
 * Requests and answers do not pass through libcurl, because it uses about 100,000 instructions per
 * request, and this file about 3,000.
 *
 * A connection that is not idle when its request ends, because the answer is not whole or the
 * service wants no more, is closed. If the service closes a connection that has been used before,
 * and no byte of an answer has come, the request is sent once more over a new connection: the
 * service has probably closed the connection before it saw the request.
 *
 * The thread of serve() calls everything. */
#ifndef LW_HANDLERS_HTTP_CONN_H
#define LW_HANDLERS_HTTP_CONN_H

#include <stdbool.h>
#include <stdint.h>

struct call;
struct lw_handler;

struct http_conn {
    int fd;            /* -1: there is no such connection */
    struct call *call; /* the call that it carries; NULL: it is idle */
    bool used;         /* it has carried a whole answer before */
    bool spoiled;      /* it cannot be used again */
    /* the kernel's buffer is full, so the loop waits until the rest of the request can be sent */
    bool full;
    int64_t idle_ms; /* boot clock; when it became idle */
    /* the connection that became idle before this one, or the next closed one */
    struct http_conn *next;
};

void http_conns_open(struct lw_handler *h); /* makes room for h->in_flight connections */
void http_conns_close(struct lw_handler *h);
/* Sends the request of a prepared call over an idle connection. Returns false if there is none;
 * libcurl must then connect. */
bool http_conn_send(struct call *c);
/* Takes over the socket that libcurl has connected for this call, and sends the request. Returns 0
 * or an errno value. */
int http_conn_adopt(struct call *c);
/* Goes on with a connection that epoll reports under this number. */
void http_conn_go_on(struct lw_handler *h, uint32_t number, uint32_t events);
/* Takes the connection from a call that is over: it is kept if it can carry further requests, and
 * closed otherwise. */
void http_conn_leave(struct call *c);

#endif
