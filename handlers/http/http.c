/* SPDX-License-Identifier: Apache-2.0 */
/* http: a handler behind a URL. A message is a CloudEvent in a POST request, and the response is
 * its outcome.
 *
 *     settings.c    the configuration
 *     loop.c        the one thread that drives all requests
 *     call.c        one request, which libcurl transfers
 *     socket.c      connections that must not be used again
 *     event.c       a message as a CloudEvent
 *     head.c        the headers of a request
 *     sign.c        the signature of a request
 *     answer.c      what a response means
 *     fate.c        what becomes of the messages of a request
 *     breaker.c     stops sending requests to a service that is down
 *     counts.c      what is counted for the metrics */
#include "handlers/feed.h"
#include "handlers/http/private.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROW_MIN = 10 };

static void check(const struct lw_config *c, struct lw_problems *problems) {
    struct http_settings s;
    http_settings_read(c, &s, problems);
    http_settings_free(&s);
}

static void close_handler(struct lw_handler *h) {
    http_loop_close(h);
    breaker_close(&h->breaker);
    lw_trial_close(&h->trial);
    http_settings_free(&h->set);
    free(h);
    curl_global_cleanup();
}

/* Returns how many failed requests in a row open the breaker. This number is greater than
 * retry.max_attempts, because one bad message may cause that many failures. */
static int row_max(const struct lw_config *c) {
    return c->retry.max_attempts >= ROW_MIN ? c->retry.max_attempts + 1 : ROW_MIN;
}

static struct lw_handler *open_handler(const struct lw_config *c, int worker, struct lw_err *err) {
    struct lw_problems problems = {0};
    (void)worker;
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        lw_fail(err, "http: libcurl cannot be initialised");
        return NULL;
    }
    struct lw_handler *h = lw_alloc(sizeof *h);
    h->epoll = -1;
    h->margin_ms = lw_feed_margin_ms(c->lock.ttl_ms);
    h->timeout_ms = c->handler.timeout_ms;
    h->in_flight = c->handler.in_flight > 0 ? c->handler.in_flight : 1;
    http_settings_read(c, &h->set, &problems);
    h->batch = h->set.mode == HTTP_BATCH && c->handler.batch > 0 ? c->handler.batch : 1;
    breaker_open(&h->breaker, h->set.service, h->set.breaker_percent, row_max(c),
                 c->retry.backoff_max_ms);
    lw_trial_open(&h->trial, h->in_flight);
    int bad =
        problems.n_errors ? lw_refuse(err, "%.*s", (int)problems.errors.n, problems.errors.p) : 0;
    lw_problems_free(&problems);
    if (!bad && !signer_open(&h->set.signer, err) && !http_loop_open(h, err)) return h;
    close_handler(h);
    return NULL;
}

static int start(struct lw_handler *h, int most, struct lw_err *err) {
    (void)h, (void)most, (void)err; /* connections are made on demand */
    return 0;
}

static enum lw_health health(struct lw_handler *h, char *why, size_t size) {
    return breaker_health(&h->breaker, lw_boot_ms(), why, size);
}

/* --- check --connect: can the service be reached? --------------------------------------------- */

/* Waits until the socket is connected. Returns 0 or an errno value. */
static int await_connection(int fd, int wait_ms) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t n = sizeof error;
    if (poll(&p, 1, wait_ms) <= 0) return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) ? errno : error;
}

static int try_connect(const struct addrinfo *a, int wait_ms) {
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return errno;
    int error = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
    if (error == EINPROGRESS) error = await_connection(fd, wait_ms);
    close(fd);
    return error;
}

/* Checks that the service accepts a connection. Sends no request, because the service might take
 * any request for a message. */
static int start_check(struct lw_handler *h, int wait_ms, struct lw_err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int bad = getaddrinfo(h->set.host, h->set.port, &hints, &list), error = 0;
    if (bad) return lw_fail(err, "%s: %s", h->set.service, gai_strerror(bad));
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        if (!(error = try_connect(a, wait_ms))) break;
    freeaddrinfo(list);
    return error ? lw_fail(err, "cannot connect to %s: %s", h->set.service, strerror(error)) : 0;
}

const struct lw_handler_type lw_handler_http = {
    .name = "http",
    .check = check,
    .open = open_handler,
    .start = start,
    .serve = http_serve,
    .health = health,
    .start_check = start_check,
    .close = close_handler,
};
