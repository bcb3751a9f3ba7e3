/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/dial.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Returns 0, or an errno value. */
static int wait_for_connection(int fd, int64_t until_ms) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    for (;;) {
        int64_t left = until_ms - lw_boot_ms();
        if (left <= 0) return ETIMEDOUT;
        int n = poll(&p, 1, (int)left);
        if (n < 0 && errno != EINTR) return errno;
        if (n <= 0) continue;
        int error = 0;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) ? errno : error;
    }
}

static int connect_to(int fd, const struct sockaddr *address, socklen_t size, int64_t until_ms) {
    if (connect(fd, address, size) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    return until_ms ? wait_for_connection(fd, until_ms) : 0;
}

/* Does not wait if until_ms is 0. Returns -1 with errno on failure. */
static int open_socket(int family, const struct sockaddr *address, socklen_t size, int64_t until_ms) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    int failed = connect_to(fd, address, size, until_ms);
    if (!failed && until_ms && fcntl(fd, F_SETFL, 0)) failed = errno;
    if (!failed) return fd;
    close(fd);
    errno = failed;
    return -1;
}

static int say_errno(struct lw_err *err) {
    if (errno == ENOMEM) return lw_fail_memory(err);
    return lw_fail(err, "%s", errno == ETIMEDOUT ? "no connection in time" : strerror(errno));
}

static int dial_path(const char *path, int64_t until_ms, struct lw_err *err) {
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof un.sun_path) return lw_fail(err, "the path of the socket is too long");
    memcpy(un.sun_path, path, strlen(path) + 1);
    int fd = open_socket(AF_UNIX, (const struct sockaddr *)&un, sizeof un, until_ms);
    return fd < 0 ? say_errno(err) : fd;
}

static int dial_addresses(const struct addrinfo *a, int64_t until_ms, struct lw_err *err) {
    int fd = -1;
    errno = EADDRNOTAVAIL;
    for (; a && fd < 0; a = a->ai_next) fd = open_socket(a->ai_family, a->ai_addr, a->ai_addrlen, until_ms);
    return fd < 0 ? say_errno(err) : fd;
}

/* Addresses of IPv4 if there are any, else of IPv6: "localhost" is 127.0.0.1, where Redis listens by default. */
static int dial_host(const char *host, int port, int64_t until_ms, struct lw_err *err) {
    char service[12];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    int failed = getaddrinfo(host, service, &hints, &list);
    if (failed && failed != EAI_MEMORY) {
        hints.ai_family = AF_INET6;
        failed = getaddrinfo(host, service, &hints, &list);
    }
    if (failed == EAI_MEMORY) return lw_fail_memory(err);
    if (failed) return lw_fail(err, "%s", gai_strerror(failed));
    int fd = dial_addresses(list, until_ms, err);
    freeaddrinfo(list);
    return fd;
}

int lw_dial(const struct lw_redis_url *url, int64_t timeout_ms, struct lw_err *err) {
    int64_t until_ms = timeout_ms ? lw_boot_ms() + timeout_ms : 0;
    return url->path ? dial_path(url->path, until_ms, err) : dial_host(url->host, url->port, until_ms, err);
}
