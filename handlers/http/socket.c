/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/socket.h"

#include "base/bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* A TLS connection that ends in order has an alert waiting, a record of at most TLS_ALERT_MAX
 * bytes. From a record of this type in TLS 1.3 nobody can tell what it holds, so ten bytes or more
 * that no request asked for are noticed, and fewer are not (met_a_rest() in fate.c). */
enum { TLS_DATA = 0x17, TLS_ALERT_MAX = 31 };

/* How much the end of a connection adds to its received bytes: one for the end itself, and an alert
 * of TLS. */
enum { END_BYTES = 1, TLS_END_BYTES = 32 };

static uint64_t bytes_of(int fd) {
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) ? 0 : info.tcpi_bytes_received;
}

static bool bytes_wait(const struct http_sockets *s, const struct http_socket *socket) {
    unsigned char p[TLS_ALERT_MAX + 1];
    if (socket->multiplexed || !socket->answered) return false;
    ssize_t n = recv(socket->fd, p, sizeof p, MSG_PEEK | MSG_DONTWAIT);
    return s->tls ? n > TLS_ALERT_MAX && p[0] == TLS_DATA : n > 0;
}

static struct http_socket *find(const struct http_sockets *s, int fd) {
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].fd == fd) return &s->list[i];
    return NULL;
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *a) {
    struct http_sockets *s = ctx;
    (void)purpose;
    int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd < 0) return CURL_SOCKET_BAD;
    s->list = lw_more(s->list, s->n, &s->cap, sizeof *s->list);
    s->list[s->n++] = (struct http_socket){.fd = fd};
    return fd;
}

static int on_close(void *ctx, curl_socket_t fd) {
    struct http_sockets *s = ctx;
    struct http_socket *socket = find(s, fd);
    if (socket) {
        if (socket->more_came &&
            bytes_of(fd) > socket->received + (s->tls ? TLS_END_BYTES : END_BYTES))
            *socket->more_came = true;
        if (!s->cut && bytes_wait(s, socket)) s->suspect(s->ctx, "bytes that no request asked for");
        *socket = s->list[--s->n];
    }
    close(fd);
    return 0;
}

void http_sockets_use(struct http_sockets *s, CURL *easy) {
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, s);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, s);
}

void http_sockets_free(struct http_sockets *s) { free(s->list); }

static int port_of(int fd) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

struct http_socket *http_socket_at(struct http_sockets *s, int local_port) {
    for (size_t i = 0; i < s->n; i++) {
        if (!s->list[i].port) s->list[i].port = port_of(s->list[i].fd);
        if (s->list[i].port == local_port) return &s->list[i];
    }
    return NULL;
}

void http_sockets_look(struct http_sockets *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->list[i].more_came && bytes_wait(s, &s->list[i])) {
            s->suspect(s->ctx, "bytes that no request asked for");
            return;
        }
}

void http_socket_watch(struct http_socket *socket, bool *more_came) {
    socket->received = bytes_of(socket->fd);
    socket->more_came = more_came;
}

bool http_socket_clean(struct http_sockets *s, const struct http_socket *socket) {
    if (!bytes_wait(s, socket)) return true;
    s->suspect(s->ctx, "bytes that no request asked for");
    shutdown(socket->fd, SHUT_RDWR);
    return false;
}
