/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/http/conn.h"

#include "base/log.h"
#include "handlers/http/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    PIECE = 16 << 10, /* maximum number of bytes per recv */
    /* A connection that was idle for longer than IDLE_MAX_MS is closed, because a firewall may have
     * forgotten it. */
    IDLE_MAX_MS = 118000,
};

/* --- idle and closed connections -------------------------------------------------------------- */

static void put(struct http_conn **list, struct http_conn *conn) {
    conn->next = *list;
    *list = conn;
}

static struct http_conn *take(struct http_conn **list) {
    struct http_conn *conn = *list;
    if (conn) *list = conn->next;
    return conn;
}

static void shut(struct lw_handler *h, struct http_conn *conn) {
    close(conn->fd); /* closing a socket also removes it from the epoll set */
    *conn = (struct http_conn){.fd = -1};
    put(&h->closed, conn);
}

/* Closes an idle connection. */
static void drop_idle(struct lw_handler *h, struct http_conn *conn) {
    struct http_conn **at = &h->idle;
    while (*at != conn) at = &(*at)->next;
    *at = conn->next;
    shut(h, conn);
}

/* Returns the connection that became idle last, or NULL if no connection can be used. If the last
 * one has been idle for more than IDLE_MAX_MS, closes all idle connections, because the others have
 * been idle even longer. */
static struct http_conn *take_idle(struct lw_handler *h) {
    if (h->idle && h->now_ms - h->idle->idle_ms <= IDLE_MAX_MS) return take(&h->idle);
    while (h->idle) drop_idle(h, h->idle);
    return NULL;
}

void http_conns_open(struct lw_handler *h) {
    h->conns = lw_alloc((size_t)h->in_flight * sizeof *h->conns);
    for (int i = h->in_flight - 1; i >= 0; i--) {
        h->conns[i].fd = -1;
        put(&h->closed, &h->conns[i]);
    }
}

void http_conns_close(struct lw_handler *h) {
    for (int i = 0; h->conns && i < h->in_flight; i++)
        if (h->conns[i].fd >= 0) close(h->conns[i].fd);
    free(h->conns);
}

/* --- sending ---------------------------------------------------------------------------------- */

static uint32_t number_of(const struct lw_handler *h, const struct http_conn *conn) {
    return (uint32_t)(conn - h->conns);
}

static int watch(struct lw_handler *h, const struct http_conn *conn, int how) {
    struct epoll_event ev = {.events = EPOLLIN | (conn->full ? EPOLLOUT : 0),
                             .data.u64 = HTTP_EVENT_CONN | number_of(h, conn)};
    return epoll_ctl(h->epoll, how, conn->fd, &ev) ? errno : 0;
}

static void set_full(struct lw_handler *h, struct http_conn *conn, bool full) {
    if (conn->full == full) return;
    conn->full = full;
    int error = watch(h, conn, EPOLL_CTL_MOD);
    if (error) lw_error("handler: can't watch a connection: epoll: %s", strerror(error));
}

/* Stores in `out` the parts of the request that are not sent yet. Returns the number of parts. */
static size_t rest_of(const struct call *c, struct iovec out[2]) {
    const struct lw_buf *head = &c->head.text;
    size_t n = 0, body = c->sent > head->n ? c->sent - head->n : 0;
    if (c->sent < head->n) out[n++] = (struct iovec){head->p + c->sent, head->n - c->sent};
    if (body < c->content.n)
        out[n++] = (struct iovec){(void *)(uintptr_t)(c->content.p + body), c->content.n - body};
    return n;
}

/* Shuts down a connection on which sending has failed. epoll then reports the connection, and
 * reading shows whether the service answered before the failure. */
static void spoil(struct http_conn *conn) {
    conn->spoiled = true;
    shutdown(conn->fd, SHUT_RDWR);
}

/* Sends as much of the request as the kernel accepts. */
static void push(struct call *c) {
    struct http_conn *conn = c->conn;
    struct iovec parts[2];
    struct msghdr m = {.msg_iov = parts};
    bool full = false;
    while (!conn->spoiled && !full && (m.msg_iovlen = rest_of(c, parts))) {
        ssize_t n = sendmsg(conn->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            c->sent += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            full = true;
        else if (errno != EINTR)
            spoil(conn);
    }
    set_full(c->h, conn, full);
}

static void carry(struct http_conn *conn, struct call *c) {
    conn->call = c;
    c->conn = conn;
    push(c);
}

bool http_conn_send(struct call *c) {
    struct http_conn *conn = take_idle(c->h);
    if (conn) carry(conn, c);
    return conn != NULL;
}

int http_conn_adopt(struct call *c) {
    struct lw_handler *h = c->h;
    struct http_conn *conn = take(&h->closed);
    curl_socket_t fd = CURL_SOCKET_BAD;
    /* An unused entry always exists, because there is an entry for each call that can be under way,
     * and this call has no entry yet. */
    assert(conn);
    curl_easy_getinfo(c->easy, CURLINFO_ACTIVESOCKET, &fd);
    *conn = (struct http_conn){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    int error = conn->fd < 0 ? errno : watch(h, conn, EPOLL_CTL_ADD);
    /* conn->fd is a duplicate of the socket, so libcurl may close its own descriptor */
    curl_multi_remove_handle(h->multi, c->easy);
    if (!error) {
        if (h->counts) atomic_fetch_add_explicit(&h->counts->connections, 1, memory_order_relaxed);
        carry(conn, c);
        return 0;
    }
    if (conn->fd >= 0) close(conn->fd);
    conn->fd = -1;
    put(&h->closed, conn);
    return error;
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Sends the request over a new connection, because the service closed the old connection before it
 * answered. */
static void send_again(struct call *c) {
    struct lw_handler *h = c->h;
    shut(h, c->conn);
    c->conn = NULL;
    c->sent = 0;
    reader_begin(&c->reader, &c->received);
    http_connect(c);
}

static void end_if_over(struct call *c) {
    if (!reader_over(&c->reader)) return;
    if (c->reader.state == READER_BROKEN && c->conn->used && !c->reader.begun)
        send_again(c);
    else
        http_settle_read(c);
}

static void pull(struct call *c) {
    char piece[PIECE];
    ssize_t n = recv(c->conn->fd, piece, sizeof piece, MSG_DONTWAIT);
    /* bytes after the end of the response make the connection unusable for a further request */
    if (n > 0)
        c->conn->spoiled |= reader_take(&c->reader, piece, (size_t)n) < (size_t)n;
    else if (n == 0)
        reader_end(&c->reader, NULL);
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        reader_end(&c->reader, strerror(errno));
    end_if_over(c);
}

void http_conn_go_on(struct lw_handler *h, uint32_t number, uint32_t events) {
    struct http_conn *conn = &h->conns[number];
    if (conn->fd < 0) return;
    if (!conn->call) {
        /* on an idle connection, an event means that the service has closed it or sent unexpected
         * bytes */
        drop_idle(h, conn);
        return;
    }
    if (events & EPOLLOUT) push(conn->call);
    if (events & ~(uint32_t)EPOLLOUT) pull(conn->call);
}

void http_conn_leave(struct call *c) {
    struct lw_handler *h = c->h;
    struct http_conn *conn = c->conn;
    struct iovec parts[2];
    bool whole = c->reader.state == READER_WHOLE && c->reader.keeps && !rest_of(c, parts);
    c->conn = NULL;
    conn->call = NULL;
    if (!whole || conn->spoiled) {
        shut(h, conn);
        return;
    }
    conn->used = true;
    conn->idle_ms = h->now_ms;
    put(&h->idle, conn);
}
