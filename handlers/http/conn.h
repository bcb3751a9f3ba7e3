/* SPDX-License-Identifier: Apache-2.0 */
/* conn: the connections to a service without TLS, and the requests that they carry.
 *
 *     libcurl connects ──> BUSY: sends request, reads its response ──> IDLE ──> BUSY again …
 *                            │                                           │
 *                            └──> closed                                 └──> closed
 *
 * libcurl looks up the name, connects within its time limit, and hands its socket over. Requests
 * and responses do not pass through libcurl, because libcurl uses about 100,000 instructions per
 * request, and this file about 3,000.
 *
 * After a request, its connection becomes idle if the response is complete and the service keeps
 * the connection open. Otherwise the connection is closed. If the service closes a connection that
 * has been used before, and no byte of a response has arrived, the request is sent once more over a
 * new connection: the service has probably closed the old one before it saw the request.
 *
 * The thread that runs serve() calls all functions. */
#ifndef LW_HANDLERS_HTTP_CONN_H
#define LW_HANDLERS_HTTP_CONN_H

#include <stdbool.h>
#include <stdint.h>

struct call;
struct lw_handler;

struct http_conn {
    int fd;            /* socket; -1: the entry is unused */
    struct call *call; /* the call that the connection carries; NULL: idle */
    bool used;         /* the connection has carried a complete response before */
    bool spoiled;      /* the connection cannot be used again */
    /* `full` is true if the socket's send buffer is full. Then epoll must report when the rest of
     * the request can be sent. */
    bool full;
    int64_t idle_ms; /* time when the connection became idle; boot clock */
    /* `next` is the next entry in the list of idle connections (latest first), or in the list of
     * unused entries */
    struct http_conn *next;
};

void http_conns_open(struct lw_handler *h); /* allocates h->in_flight entries */
void http_conns_close(struct lw_handler *h);
/* Sends the request of a prepared call over an idle connection. Returns false if no connection is
 * idle; libcurl must then make one. */
bool http_conn_send(struct call *c);
/* Takes over the socket that libcurl has connected for this call, and sends the request. Returns 0
 * or an errno value. */
int http_conn_adopt(struct call *c);
/* Handles the events that epoll reports for the connection h->conns[number]. Sends and reads what
 * is possible without blocking. */
void http_conn_go_on(struct lw_handler *h, uint32_t number, uint32_t events);
/* Separates a call that is over from its connection. The connection becomes idle if it can carry
 * further requests, and is closed otherwise. */
void http_conn_leave(struct call *c);

#endif
