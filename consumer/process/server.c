/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/process/server.h"

#include "base/thread.h"
#include "consumer/process/journal.h"
#include "handlers/feed.h"

#include <stdlib.h>
#include <string.h>

struct lw_server {
    const struct lw_handler_type *type;
    struct lw_handler *handler;
    struct lw_feed *feed;
    struct lw_counts *counts;
    int journal;
    pthread_t thread;
};

static void on_started(void *ctx, const struct lw_job *job) {
    lw_journal_start(((struct lw_server *)ctx)->journal, job);
}

static void on_ended(void *ctx, const struct lw_job *job) {
    const struct lw_server *s = ctx;
    if (s->counts) lw_hist_add(&s->counts->handler, &lw_bounds_handler, job->took_us);
    lw_journal_end(s->journal, job);
}

static void *thread_main(void *arg) {
    struct lw_server *s = arg;
    s->type->serve(s->handler, s->feed);
    return NULL;
}

static void free_server(struct lw_server *s) {
    if (s->feed) lw_feed_close(s->feed);
    lw_journal_close(s->journal);
    free(s);
}

static int open_feed(struct lw_server *s, int64_t timeout_ms, int notify_fd, struct lw_err *err) {
    struct lw_feed_setup setup = {.timeout_ms = timeout_ms,
                                  .notify_fd = notify_fd,
                                  .started = on_started,
                                  .ended = on_ended,
                                  .ctx = s,
                                  .http = s->counts ? &s->counts->http : NULL};
    s->feed = lw_feed_open(&setup, err);
    return s->feed ? 0 : -1;
}

static int start_thread(struct lw_server *s, struct lw_err *err) {
    int e = lw_thread_start(&s->thread, thread_main, s);
    return e ? lw_fail(err, "handler thread cannot be started: %s", strerror(e)) : 0;
}

struct lw_server *lw_server_open(const struct lw_handler_type *t, struct lw_handler *h,
                                 int processes, int64_t timeout_ms, struct lw_counts *counts,
                                 int notify_fd, struct lw_err *err) {
    struct lw_server *s = lw_alloc(sizeof *s);
    *s = (struct lw_server){.type = t, .handler = h, .counts = counts};
    if (!lw_journal_open(&s->journal, err) && !open_feed(s, timeout_ms, notify_fd, err) &&
        !t->start(h, processes, err) && !start_thread(s, err))
        return s;
    free_server(s);
    return NULL;
}

void lw_server_submit(struct lw_server *s, struct lw_job **jobs, size_t n) {
    if (n) lw_feed_submit(s->feed, jobs, n);
}

size_t lw_server_reap(struct lw_server *s, struct lw_job **out, size_t max) {
    return lw_feed_reap(s->feed, out, max);
}

bool lw_server_close(struct lw_server *s, int64_t grace_ms) {
    lw_feed_stop(s->feed, LW_FEED_DROP);
    if (!lw_join_within(s->thread, grace_ms)) return false;
    free_server(s);
    return true;
}
