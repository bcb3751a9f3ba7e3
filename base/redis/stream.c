/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/stream.h"

#include "base/clock.h"
#include "base/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    KEEPALIVE_IDLE_S = 10,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_COUNT = 3,
    /* Time after which a peer that acknowledges nothing counts as dead. On an idle connection,
     * keepalive probes detect a dead peer after the same time. */
    UNACKNOWLEDGED_MS = 25000,
};

void lw_stream_close(struct lw_stream *s) {
    if (s->ssl) SSL_free(s->ssl);
    if (s->fd >= 0) close(s->fd);
    *s = (struct lw_stream){.fd = -1};
}

static int fail_errno(struct lw_stream *s, int error, struct lw_err *err) {
    lw_stream_close(s);
    return error == ENOMEM ? lw_fail_memory(err) : lw_fail(err, "%s", strerror(error));
}

/* --- connecting ------------------------------------------------------------------------------- */

static void set_options(int fd) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){KEEPALIVE_IDLE_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){KEEPALIVE_INTERVAL_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){KEEPALIVE_COUNT}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(unsigned){UNACKNOWLEDGED_MS}, sizeof(unsigned));
}

static int start_at(struct lw_stream *s, int family, const struct sockaddr *address, socklen_t size,
                    struct lw_err *err) {
    *s = (struct lw_stream){.fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                            .state = LW_STREAM_CONNECTING};
    if (s->fd < 0) return fail_errno(s, errno, err);
    if (family != AF_UNIX) set_options(s->fd);
    return connect(s->fd, address, size) && errno != EINPROGRESS ? fail_errno(s, errno, err) : 0;
}

static int start_path(struct lw_stream *s, const char *path, struct lw_err *err) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof un.sun_path)
        return lw_fail(err, "the path of the socket is too long");
    memcpy(un.sun_path, path, strlen(path) + 1);
    return start_at(s, AF_UNIX, (const struct sockaddr *)&un, sizeof un, err);
}

static unsigned count_addresses(const struct addrinfo *a, int family) {
    unsigned n = 0;
    for (; a; a = a->ai_next) n += a->ai_family == family;
    return n;
}

static const struct addrinfo *address_of_family(const struct addrinfo *a, int family,
                                                unsigned index) {
    for (;; a = a->ai_next)
        if (a->ai_family == family && index-- == 0) return a;
}

/* Returns the addresses of a host, at least one, or NULL with *err. The caller frees them. */
static struct addrinfo *addresses_of(const struct lw_redis_url *at, struct lw_err *err) {
    char service[12];
    snprintf(service, sizeof service, "%d", at->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV},
                    *list = NULL;
    if (at->address) hints.ai_flags |= AI_NUMERICHOST;
    int failed = getaddrinfo(at->address ? at->address : at->host, service, &hints, &list);
    if (!failed && count_addresses(list, AF_INET) + count_addresses(list, AF_INET6)) return list;
    if (!failed) freeaddrinfo(list);
    if (failed == EAI_MEMORY)
        lw_fail_memory(err);
    else
        lw_fail(err, "%s", failed ? gai_strerror(failed) : "the host has no address");
    return NULL;
}

/* Returns the address for attempt number `attempt`: first each IPv4 address, then each IPv6
 * address, then again from the beginning. */
static const struct addrinfo *choose(const struct addrinfo *list, unsigned attempt,
                                     unsigned *addresses) {
    unsigned v4 = count_addresses(list, AF_INET), v6 = count_addresses(list, AF_INET6),
             i = attempt % (v4 + v6);
    *addresses = v4 + v6;
    return i < v4 ? address_of_family(list, AF_INET, i) : address_of_family(list, AF_INET6, i - v4);
}

static int start_host(struct lw_stream *s, const struct lw_redis_url *at, unsigned attempt,
                      unsigned *addresses, struct lw_err *err) {
    struct addrinfo *list = addresses_of(at, err);
    if (!list) return -1;
    const struct addrinfo *a = choose(list, attempt, addresses);
    int failed = start_at(s, a->ai_family, a->ai_addr, a->ai_addrlen, err);
    freeaddrinfo(list);
    return failed;
}

int lw_stream_resolve(struct lw_redis_url *at, unsigned attempt, struct lw_err *err) {
    char text[NI_MAXHOST];
    unsigned n;
    if (at->path || at->address) return 0;
    struct addrinfo *list = addresses_of(at, err);
    if (!list) return -1;
    const struct addrinfo *a = choose(list, attempt, &n);
    int failed = getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(list);
    if (failed) return lw_fail(err, "%s", gai_strerror(failed));
    at->address = strdup(text);
    return at->address ? 0 : lw_fail_memory(err);
}

int lw_stream_start(struct lw_stream *s, const struct lw_redis_url *at, unsigned attempt,
                    unsigned *addresses, struct lw_err *err) {
    unsigned n = 1;
    *s = (struct lw_stream){.fd = -1};
    int failed = at->path ? start_path(s, at->path, err) : start_host(s, at, attempt, &n, err);
    if (addresses) *addresses = n;
    return failed;
}

static int finish_connecting(struct lw_stream *s, const struct lw_redis_url *at,
                             struct lw_err *err) {
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0) return 0;
    int error = 0;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error})) error = errno;
    if (error) return fail_errno(s, error, err);
    s->state = LW_STREAM_READY;
    if (!at->tls.on) return 1;
    s->ssl = lw_tls_open(&at->tls, at->host, s->fd, err);
    if (!s->ssl) return lw_stream_close(s), -1;
    s->state = LW_STREAM_HANDSHAKE;
    return 1;
}

/* Returns the poll() event that must come before an OpenSSL call is repeated, or 0 if the call
 * failed. */
static short awaited(struct lw_stream *s, int result) {
    int kind = SSL_get_error(s->ssl, result);
    if (kind == SSL_ERROR_WANT_READ) return POLLIN;
    return kind == SSL_ERROR_WANT_WRITE ? POLLOUT : 0;
}

static int shake_hands(struct lw_stream *s, struct lw_err *err) {
    ERR_clear_error();
    errno = 0;
    int r = SSL_do_handshake(s->ssl);
    s->wants = r == 1 ? 0 : awaited(s, r);
    if (r == 1) return s->state = LW_STREAM_READY, 1;
    if (s->wants) return 0;
    lw_tls_fail(s->ssl, r, err);
    lw_stream_close(s);
    return -1;
}

int lw_stream_go_on(struct lw_stream *s, const struct lw_redis_url *at, struct lw_err *err) {
    int r = 1;
    if (s->state == LW_STREAM_CONNECTING) r = finish_connecting(s, at, err);
    if (r == 1 && s->state == LW_STREAM_HANDSHAKE) r = shake_hands(s, err);
    return r;
}

/* Waits until the stream is READY, but not longer than until the time until_ms on the boot clock.
 * If that time has come, *err says that timeout_ms have passed. Returns 0, or -1 with *err. */
static int wait_until_ready(struct lw_stream *s, const struct lw_redis_url *at, int64_t until_ms,
                            int64_t timeout_ms, struct lw_err *err) {
    int r;
    while ((r = lw_stream_go_on(s, at, err)) == 0) {
        int64_t left = until_ms - lw_boot_ms();
        if (left <= 0) {
            bool connected = s->state == LW_STREAM_HANDSHAKE;
            lw_stream_close(s);
            return connected ? lw_fail(err,
                                       "TLS handshake timed out after %lld ms; does the server "
                                       "speak TLS on this port?",
                                       (long long)timeout_ms)
                             : lw_fail(err, "no connection within %lld ms", (long long)timeout_ms);
        }
        struct pollfd p = {.fd = s->fd, .events = lw_stream_events(s, false)};
        if (poll(&p, 1, (int)left) < 0 && errno != EINTR) return fail_errno(s, errno, err);
    }
    return r == 1 ? 0 : -1;
}

int lw_stream_open(struct lw_stream *s, const struct lw_redis_url *at, int64_t timeout_ms,
                   struct lw_err *err) {
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    unsigned addresses = 1;
    for (unsigned attempt = 0;; attempt++) {
        struct lw_err why = {0};
        if (!lw_stream_start(s, at, attempt, &addresses, &why) &&
            !wait_until_ready(s, at, until_ms, timeout_ms, &why))
            return 0;
        if (attempt + 1 < addresses && lw_boot_ms() < until_ms) continue;
        return why.memory ? lw_fail_memory(err) : lw_fail(err, "%s", why.text);
    }
}

int lw_stream_block(struct lw_stream *s, int64_t timeout_ms, struct lw_err *err) {
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    /* use at least 1 ms, because to the kernel a timeout of zero means no timeout */
    if (timeout_ms <= 0) limit.tv_usec = 1000;
    if (setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) ||
        setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) ||
        (!s->blocks && fcntl(s->fd, F_SETFL, 0)))
        return lw_fail(err, "%s", strerror(errno));
    s->blocks = true;
    return 0;
}

/* --- bytes ------------------------------------------------------------------------------------ */

short lw_stream_events(const struct lw_stream *s, bool writing) {
    if (s->state == LW_STREAM_CONNECTING) return POLLOUT;
    if (s->state == LW_STREAM_HANDSHAKE) return s->wants;
    return (short)(POLLIN | s->wants | (writing ? POLLOUT : 0));
}

/* Returns the number of bytes that an OpenSSL call moved, 0 if the call must be repeated later, or
 * -1 with *err. `usual` is the poll() event for which such a call usually waits. */
static ssize_t tls_result(struct lw_stream *s, int r, short usual, struct lw_err *err) {
    short event = r > 0 ? usual : awaited(s, r);
    s->wants = event == usual ? 0 : event;
    if (r > 0) return r;
    return event ? 0 : lw_tls_fail(s->ssl, r, err);
}

static int clip(size_t n) { return n > 1 << 30 ? 1 << 30 : (int)n; }

ssize_t lw_stream_read(struct lw_stream *s, void *p, size_t n, struct lw_err *err) {
    errno = 0;
    if (s->ssl) {
        ERR_clear_error();
        return tls_result(s, SSL_read(s->ssl, p, clip(n)), POLLIN, err);
    }
    ssize_t got;
    do got = recv(s->fd, p, n, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) return got;
    if (got < 0 && errno == EAGAIN) return 0;
    return lw_fail(err, "%s", got ? strerror(errno) : "closed by the server");
}

/* Sets *err to the reason why a write failed. A server that refuses the client's certificate sends
 * an alert and closes the connection, and often the client can read the alert only after a write
 * has failed. */
static int fail_write(struct lw_stream *s, const struct lw_err *why, struct lw_err *err) {
    char byte;
    struct lw_err alert = {0};
    ERR_clear_error();
    int r = SSL_peek(s->ssl, &byte, 1);
    if (r <= 0 && !awaited(s, r)) lw_tls_fail(s->ssl, r, &alert);
    bool told = !strncmp(alert.text, "TLS: ", 5);
    return why->memory ? lw_fail_memory(err) : lw_fail(err, "%s", told ? alert.text : why->text);
}

ssize_t lw_stream_write(struct lw_stream *s, const void *p, size_t n, struct lw_err *err) {
    struct lw_err why = {0};
    errno = 0;
    if (s->ssl) {
        ERR_clear_error();
        ssize_t sent = tls_result(s, SSL_write(s->ssl, p, clip(n)), POLLOUT, &why);
        return sent < 0 ? fail_write(s, &why, err) : sent;
    }
    ssize_t sent;
    do sent = send(s->fd, p, n, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return sent;
    return errno == EAGAIN ? 0 : lw_fail(err, "%s", strerror(errno));
}
