/* SPDX-License-Identifier: Apache-2.0 */
/* tail: appends three lines to a file for each message:
 *
 *     start <boot ms> <pid> <identity> <fence> <attempt>
 *     line  <identity> <payload, without control characters>
 *     end   <boot ms> <pid> <identity> <fence> <attempt>
 *
 * Each line is written by one write(2), so that many workers can share the file. Configuration:
 * {"file": "out.log", "sleep_ms": 0}. sleep_ms is the time between `start` and `end`, which makes
 * it visible that messages of one key wait for each other. */
#include <latchwork/handler.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tail {
    const struct latchwork_host *host;
    int fd;
    long sleep_ms;
};

static int init(const struct latchwork_host *host, const char *config, void **self, char *error,
                size_t error_size) {
    (void)config;
    const char *file = host->setting(host, "/file"), *sleep_ms = host->setting(host, "/sleep_ms");
    if (!file) {
        snprintf(error, error_size, "config.file is missing: the file to append to");
        return -1;
    }
    struct tail *t = calloc(1, sizeof *t);
    if (!t) return -1;
    t->host = host;
    t->sleep_ms = sleep_ms ? strtol(sleep_ms, NULL, 10) : 0;
    t->fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (t->fd < 0) {
        snprintf(error, error_size, "%s: %s", file, strerror(errno));
        free(t);
        return -1;
    }
    *self = t;
    return 0;
}

/* Appends a line to the file. Returns false if the line was not written whole. */
static int append(const struct tail *t, const char *line, size_t n) {
    return write(t->fd, line, n) == (ssize_t)n;
}

static int mark(const struct tail *t, const char *what, const struct latchwork_message *m) {
    char line[600];
    int n = snprintf(line, sizeof line, "%s %" PRId64 " %d %s %" PRIu64 " %d\n", what,
                     t->host->now_ms(), (int)getpid(), m->identity, m->lease->fence, m->attempt);
    return append(t, line, (size_t)n);
}

static int write_payload(const struct tail *t, const struct latchwork_message *m) {
    size_t room = strlen(m->identity) + m->payload_len + 16;
    char *line = malloc(room);
    if (!line) return 0;
    size_t n = (size_t)snprintf(line, room, "line %s ", m->identity);
    const unsigned char *p = m->payload;
    for (size_t i = 0; i < m->payload_len; i++) line[n++] = p[i] < 0x20 ? ' ' : (char)p[i];
    line[n++] = '\n';
    int ok = append(t, line, n);
    free(line);
    return ok;
}

/* Sleeps in short steps, because a handler that works for long must check whether it should
 * stop. */
static int sleep_unless_cancelled(const struct tail *t, const struct latchwork_message *m) {
    for (int64_t until = t->host->now_ms() + t->sleep_ms; t->host->now_ms() < until;) {
        if (latchwork_cancelled(m)) return 0;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return 1;
}

static int handle(void *self, const struct latchwork_message *m, char *reason, size_t reason_size) {
    const struct tail *t = self;
    int ok = mark(t, "start", m);
    if (ok && t->sleep_ms && !sleep_unless_cancelled(t, m)) {
        mark(t, "end", m);
        return LATCHWORK_BACK;
    }
    if (ok && write_payload(t, m) && mark(t, "end", m)) return LATCHWORK_DONE;
    snprintf(reason, reason_size, "the file did not take the line");
    return LATCHWORK_RETRY;
}

static void finish(void *self) {
    struct tail *t = self;
    close(t->fd);
    free(t);
}

LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {
    LATCHWORK_HANDLER_INIT, .init = init, .handle = handle, .close = finish};
