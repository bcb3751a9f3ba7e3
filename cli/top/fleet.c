/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the supervisor, over HTTP, for figures that `latchwork top` shows. The requests are sent one
 * after the other, and the time and size of each response are limited. */
#include "base/clock.h"
#include "cli/top/private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 1000, BYTES_MAX = 1 << 20 };

static int wait_for(int fd, short events, int64_t until_ms) {
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        int64_t left = until_ms - lw_boot_ms();
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0) return 0;
        if (n == 0) errno = ETIMEDOUT;
        if (n == 0 || errno != EINTR) return -1;
    }
}

static int connect_to(const char *host, int port, int64_t until_ms) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool is_v4 = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
    if (!is_v4) inet_pton(AF_INET6, host, &v6.sin6_addr);
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    int r = connect(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                    is_v4 ? sizeof v4 : sizeof v6),
        failed = 0;
    socklen_t n = sizeof failed;
    if (!r) return fd;
    if (errno == EINPROGRESS && !wait_for(fd, POLLOUT, until_ms) &&
        !getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n)) {
        if (!failed) return fd;
        errno = failed;
    }
    failed = errno;
    close(fd);
    errno = failed;
    return -1;
}

static int exchange(int fd, const char *request, struct lw_buf *answer, int64_t until_ms) {
    char part[16384];
    size_t n = strlen(request);
    if (send(fd, request, n, MSG_NOSIGNAL) != (ssize_t)n) return -1;
    for (;;) {
        if (wait_for(fd, POLLIN, until_ms)) return -1;
        ssize_t got = read(fd, part, sizeof part);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got < 0) return -1;
        if (!got) return 0;
        lw_buf_add(answer, part, (size_t)got);
        errno = EMSGSIZE;
        if (answer->n > BYTES_MAX) return -1;
    }
}

/* Requests one path and parses the JSON of the response. On failure returns NULL, with the reason
 * in `why`. */
static json_t *get(const struct lw_config *c, const char *path, char *why, size_t size) {
    const char *host = !strcmp(c->http.host, "0.0.0.0") ? "127.0.0.1"
                       : !strcmp(c->http.host, "::")    ? "::1"
                                                        : c->http.host;
    int64_t until = lw_boot_ms() + LIMIT_MS;
    struct lw_buf request = {0}, answer = {0};
    json_t *v = NULL;
    int fd = connect_to(host, c->http.port, until);
    lw_buf_addf(&request, "GET %s HTTP/1.0\r\nHost: localhost\r\n", path);
    /* any of the configured tokens allows reading, so the first one is sent */
    if (c->http.n_tokens)
        lw_buf_addf(&request, "Authorization: Bearer %s\r\n", c->http.tokens[0].secret);
    lw_buf_add(&request, "\r\n", 3); /* the length 3 includes the NUL at the end of the text */
    if (fd < 0 || exchange(fd, request.p, &answer, until)) {
        snprintf(why, size, "%s", strerror(errno));
    } else {
        lw_buf_add(&answer, "", 1);
        const char *body = strstr(answer.p, "\r\n\r\n");
        bool good = body && strlen(answer.p) > 12 && !strncmp(answer.p, "HTTP/1.", 7) &&
                    !strncmp(answer.p + 8, " 200", 4);
        v = good ? json_loads(body, 0, NULL) : NULL;
        if (!v) snprintf(why, size, "no Latchwork of this version answers there");
    }
    if (fd >= 0) close(fd);
    lw_buf_free(&request);
    lw_buf_free(&answer);
    return v;
}

static int64_t number(const json_t *o, const char *name) {
    return json_integer_value(json_object_get(o, name));
}

static double rate(int64_t now, int64_t before, int64_t ms) {
    return ms <= 0 || now < before ? -1 : (double)(now - before) * 1000 / (double)ms;
}

static void take_stats(struct top_fleet *f, const json_t *stats) {
    const json_t *c = json_object_get(stats, "counters");
    struct top_fleet was = *f;
    f->at_ms = lw_boot_ms();
    f->workers = (int)number(stats, "workers"), f->ready = (int)number(stats, "ready");
    f->lag = number(stats, "lag"), f->waiting = number(stats, "waiting"),
    f->in_handler = number(stats, "in_handler");
    f->done = number(c, "done"), f->dead = number(c, "dead"), f->retried = number(c, "retried"),
    f->received = number(c, "received");
    f->finished = f->done + f->dead + number(c, "dropped") + number(c, "skipped");
    f->in = was.on ? rate(f->received, was.received, f->at_ms - was.at_ms) : -1;
    f->out = was.on ? rate(f->finished, was.finished, f->at_ms - was.at_ms) : -1;
}

static int64_t percentile(const json_t *point, const char *name) {
    const json_t *v = json_object_get(point, name);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* Reads the percentiles from the newest point of the web page's charts. If the supervisor is of an
 * earlier version, its responses have no such point. */
static void take_point(struct top_fleet *f, const struct lw_config *c) {
    char why[120];
    json_t *answer = get(c, "/api/v1/point", why, sizeof why);
    const json_t *point = json_object_get(answer, "point");
    f->handler_p50_us = percentile(point, "handler_p50_us");
    f->handler_p99_us = percentile(point, "handler_p99_us");
    f->end_to_end_p50_us = percentile(point, "end_to_end_p50_us");
    f->end_to_end_p99_us = percentile(point, "end_to_end_p99_us");
    json_decref(answer);
}

static void take_workers(struct top *t, const json_t *list, int64_t since_ms) {
    size_t i;
    json_t *o;
    size_t before = t->n_worker;
    t->n_worker = 0;
    json_array_foreach(list, i, o) {
        if (i == TOP_WORKERS) break;
        struct top_worker *w = &t->worker[t->n_worker++];
        int64_t done = number(json_object_get(o, "counts"), "done");
        double done_rate =
            since_ms && i < before ? rate(done, w->done, lw_boot_ms() - since_ms) : -1;
        const char *state = json_string_value(json_object_get(o, "state"));
        *w = (struct top_worker){.index = (int)number(o, "worker"),
                                 .pid = (int)number(o, "pid"),
                                 .starts = number(o, "starts"),
                                 .waiting = number(o, "waiting"),
                                 .in_handler = number(o, "in_handler"),
                                 .turned_ms = number(o, "turned_ms_ago"),
                                 .done = done,
                                 .done_rate = done_rate};
        snprintf(w->state, sizeof w->state, "%s", state ? state : "?");
    }
}

void top_ask_fleet(struct top *t) {
    struct top_fleet *f = &t->fleet;
    const struct lw_config *c = t->o->c;
    char why[120] = "";
    bool was = f->on;
    int64_t since = was ? f->at_ms : 0;
    json_t *stats = NULL, *workers = NULL;
    if (!c->http.host)
        snprintf(f->why, sizeof f->why, "http.listen is off: no rates, no lag, no workers");
    else if (!c->http.port)
        snprintf(f->why, sizeof f->why,
                 "http.listen has no fixed port: no rates, no lag, no workers");
    else if (!(stats = get(c, "/api/v1/stats", why, sizeof why)) ||
             !(workers = get(c, "/api/v1/workers", why, sizeof why)))
        snprintf(f->why, sizeof f->why, "no supervisor at http.listen %.60s: %s", c->http.listen,
                 why);
    const char *name = json_string_value(json_object_get(stats, "name"));
    f->on = workers && name && !strcmp(name, c->name);
    if (workers && !f->on)
        snprintf(f->why, sizeof f->why, "http.listen %.60s is another application's: %.60s",
                 c->http.listen, name ? name : "?");
    if (f->on) {
        f->on = was;
        take_stats(f, stats);
        f->on = true;
        take_workers(t, workers, since);
        take_point(f, c);
    } else {
        t->n_worker = 0;
    }
    json_decref(stats);
    json_decref(workers);
}
