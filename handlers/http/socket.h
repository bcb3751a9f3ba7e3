/* SPDX-License-Identifier: Apache-2.0 */
/* socket: looks after the connections that libcurl makes, so that no answer is taken for the answer
 * to another request.
 *
 * HTTP/1.1 has nothing that ties an answer to its request but their order. If a service answers
 * twice, or sends a body with a 204, the bytes that nobody has read stand before the next answer.
 * libcurl does not notice them over TLS, and without TLS it replaces the connection without a word.
 * So a connection on which bytes wait is never used for another request, and each such event is
 * reported (`suspect`): then the caller uses a new connection for each request for a while, because
 * a second answer that comes late cannot be told from the answer to the next request. Under load it
 * may be noticed late, because each answer then stands in for the one after it. So no connection is
 * used for a new request after HTTP_LIFE_S.
 *
 * Only the thread that runs serve() calls these functions. */
#ifndef LW_HANDLERS_HTTP_SOCKET_H
#define LW_HANDLERS_HTTP_SOCKET_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_socket {
    int fd, port;     /* descriptor and local port; port 0: not known yet */
    bool answered;    /* an answer came over this connection */
    bool multiplexed; /* HTTP/2: frames name their request, so nothing is mistaken */
    /* number of bytes that had come when the request began; set to true: more have come since when
     * the connection was closed */
    uint64_t received;
    bool *more_came;
};

struct http_sockets {
    struct http_socket *list;
    size_t n, cap;
    bool tls;
    bool
        cut; /* a transfer is being given up, so bytes that wait on its connection are no offence */
    void (*suspect)(void *ctx, const char *what);
    void *ctx;
};

/* Makes the transfers of a handle use these sockets. */
void http_sockets_use(struct http_sockets *s, CURL *easy);
void http_sockets_free(struct http_sockets *s);
/* Returns the socket with this local port, or NULL. */
struct http_socket *http_socket_at(struct http_sockets *s, int local_port);
/* Looks for bytes that wait on connections which carry no request, and reports them. Later versions
 * of libcurl throw such bytes away together with the connection. */
void http_sockets_look(struct http_sockets *s);
/* Takes note that a request begins on this connection. If the connection is closed after bytes of
 * an answer came, *more_came becomes true: libcurl itself counts whole lines only. */
void http_socket_watch(struct http_socket *socket, bool *more_came);
/* Returns false if bytes wait on a connection that is about to carry a request. The connection is
 * then shut down, and `suspect` was called. */
bool http_socket_clean(struct http_sockets *s, const struct http_socket *socket);

#endif
