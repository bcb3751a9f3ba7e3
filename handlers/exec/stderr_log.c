/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/stderr_log.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

enum {
    LINE_MAX_BYTES = 1800, /* label and line fit into the log's limit of 2,048 bytes */
    FLUSH_MS = 300,
    LABEL_MAX = 48,
    READS_A_TURN = 16,
    LAST_MS = 1000
};

/* What is remembered of a stream: its last line, and the first line after its last blank line. The
 * structure has two owners: the stream, and the caller of lw_stderr_log_add(). */
struct lw_last_words {
    pthread_mutex_t lock;
    int owners;
    bool ended;
    bool blank; /* the previous line was blank */
    char text[256];
    /* the first line after the last blank line, except a line with Node's version */
    char headline[256];
};

struct stream {
    struct lw_last_words *words;
    struct stream *prev, *next;
    int fd;
    bool fresh; /* the partial line has grown since it was last checked */
    size_t n;
    char label[LABEL_MAX];
    char line[LINE_MAX_BYTES + 1];
};

struct lw_stderr_log {
    pthread_t thread;
    /* The mutex `lock` guards `streams`, and `prev` and `next` of each stream. The other members of
     * a stream belong to the reading thread. */
    pthread_mutex_t lock;
    struct stream *streams;
    int epoll, wake;
    atomic_bool stop;
};

/* --- last words ------------------------------------------------------------------------------- */

static struct lw_last_words *new_words(void) {
    struct lw_last_words *w = lw_alloc(sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    w->owners = 2;
    return w;
}

/* Keeps a line as the last line of its stream. If the line is Node's version, keeps the headline
 * instead: after an uncaught error, Node prints a blank line, the error, its stack, a blank line
 * and its version, which says nothing about the error. */
static void remember(struct lw_last_words *w, const char *line) {
    pthread_mutex_lock(&w->lock);
    bool blank = !line[strspn(line, " \t")], version = strncmp(line, "Node.js v", 9) == 0;
    if (version && w->headline[0])
        memcpy(w->text, w->headline, sizeof w->text);
    else if (!blank)
        snprintf(w->text, sizeof w->text, "%.*s", (int)sizeof w->text - 1, line);
    if (w->blank && !blank && !version) memcpy(w->headline, w->text, sizeof w->headline);
    w->blank = blank;
    pthread_mutex_unlock(&w->lock);
}

static void leave(struct lw_last_words *w, bool ended) {
    pthread_mutex_lock(&w->lock);
    w->ended |= ended;
    bool last = !--w->owners;
    pthread_mutex_unlock(&w->lock);
    if (!last) return;
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static bool read_words(struct lw_last_words *w, char *out, size_t size) {
    pthread_mutex_lock(&w->lock);
    bool ended = w->ended;
    snprintf(out, size, "%s", w->text);
    pthread_mutex_unlock(&w->lock);
    return ended;
}

void lw_last_words_get(struct lw_last_words *w, int wait_ms, char *out, size_t size) {
    int64_t until = lw_boot_ms() + wait_ms;
    while (!read_words(w, out, size) && lw_boot_ms() < until) lw_sleep_ms(2);
}

void lw_last_words_clear(struct lw_last_words *w) {
    pthread_mutex_lock(&w->lock);
    w->text[0] = w->headline[0] = '\0';
    pthread_mutex_unlock(&w->lock);
}

void lw_last_words_drop(struct lw_last_words *w) {
    if (w) leave(w, false);
}

/* --- lines ------------------------------------------------------------------------------------ */

static void flush_line(struct stream *s) {
    while (s->n && s->line[s->n - 1] == '\r') s->n--;
    s->line[s->n] = '\0';
    if (s->n) lw_some(5000, LW_LOG_INFO, NULL, 0, "%s: %s", s->label, s->line);
    remember(s->words, s->line);
    s->n = 0;
}

static void take(struct stream *s, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n' || s->n == LINE_MAX_BYTES) flush_line(s);
        if (p[i] != '\n') s->line[s->n++] = p[i] ? p[i] : ' ';
    }
    s->fresh = true;
}

static void drop(struct lw_stderr_log *l, struct stream *s) {
    flush_line(s);
    leave(s->words, true);
    pthread_mutex_lock(&l->lock);
    DL_DELETE(l->streams, s);
    pthread_mutex_unlock(&l->lock);
    /* Closing the descriptor does not always remove it from the epoll set: if a child between fork
     * and exec still has the pipe open, epoll would report the stream after its memory is freed. */
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    close(s->fd);
    free(s);
}

/* Reads a bounded number of bytes, so that one noisy subprocess does not delay the others. Returns
 * false at the end of the stream or after an error. */
static bool read_some(struct stream *s) {
    char chunk[4096];
    for (int i = 0; i < READS_A_TURN; i++) {
        ssize_t n = read(s->fd, chunk, sizeof chunk);
        if (n > 0) {
            take(s, chunk, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        return n < 0 && errno == EAGAIN;
    }
    return true;
}

/* Logs incomplete lines: all of them if `all` is true, otherwise only the lines that have not grown
 * since the last call of this function. */
static void flush_quiet(struct lw_stderr_log *l, bool all) {
    pthread_mutex_lock(&l->lock);
    for (struct stream *s = l->streams; s; s = s->next) {
        if (s->n && (all || !s->fresh)) flush_line(s);
        s->fresh = false;
    }
    pthread_mutex_unlock(&l->lock);
}

static void *run(void *arg) {
    struct lw_stderr_log *l = arg;
    struct epoll_event ev[16];
    int64_t flushed_ms = lw_boot_ms(), end_ms = INT64_MAX;
    for (;;) {
        bool last = atomic_load(&l->stop);
        if (last && end_ms == INT64_MAX) end_ms = lw_boot_ms() + LAST_MS;
        int n = epoll_wait(l->epoll, ev, 16, last ? 0 : FLUSH_MS);
        bool read_any = false;
        for (int i = 0; i < n; i++) {
            struct stream *s = ev[i].data.ptr;
            if (!s) continue; /* the event is from the wake-up descriptor */
            read_any = true;
            if (!read_some(s)) drop(l, s);
        }
        int64_t now = lw_boot_ms();
        if (now - flushed_ms >= FLUSH_MS) {
            flush_quiet(l, false);
            flushed_ms = now;
        }
        if (last && (!read_any || now >= end_ms)) break;
    }
    flush_quiet(l, true);
    return NULL;
}

struct lw_stderr_log *lw_stderr_log_open(struct lw_err *err) {
    struct lw_stderr_log *l = lw_alloc(sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    bool ok =
        l->epoll >= 0 && l->wake >= 0 && epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &ev) == 0;
    ok = ok && lw_thread_start(&l->thread, run, l) == 0;
    if (ok) return l;
    lw_fail(err, "exec: cannot start the thread that reads stderr");
    if (l->epoll >= 0) close(l->epoll);
    if (l->wake >= 0) close(l->wake);
    free(l);
    return NULL;
}

struct lw_last_words *lw_stderr_log_add(struct lw_stderr_log *l, int fd, const char *label) {
    struct stream *s = lw_alloc(sizeof *s);
    struct lw_last_words *words = s->words = new_words();
    s->fd = fd;
    snprintf(s->label, sizeof s->label, "%s", label);
    pthread_mutex_lock(&l->lock);
    DL_PREPEND(l->streams, s);
    pthread_mutex_unlock(&l->lock);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev)) drop(l, s);
    return words;
}

void lw_stderr_log_close(struct lw_stderr_log *l) {
    atomic_store(&l->stop, true);
    /* Without this wake-up the thread would notice the stop only after FLUSH_MS. */
    if (write(l->wake, &(uint64_t){1}, 8) < 0)
        lw_debug("exec: wake-up of the stderr thread failed");
    pthread_join(l->thread, NULL);
    while (l->streams) drop(l, l->streams);
    close(l->epoll);
    close(l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
