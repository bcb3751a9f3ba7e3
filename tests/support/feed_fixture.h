/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the tests of the handler types exec and http. A handler with serve() runs in a
 * separate thread. The test does the work of the worker's main thread: it submits jobs and reaps
 * them. The files of the handler's process or server are in a temporary folder. */
#ifndef LW_TESTS_SUPPORT_FEED_FIXTURE_H
#define LW_TESTS_SUPPORT_FEED_FIXTURE_H

#include "tests/support/handler_fixture.h"

#include "handlers/http/counts.h"

#include <pthread.h>

enum { MOST = 64 };

struct fx {
    const struct lw_handler_type *type;
    char *folder;
    struct lw_config *c;
    struct lw_handler *h;
    struct lw_feed *feed;
    struct lw_http_counts counts;
    pthread_t thread;
    struct fx_job j[MOST];
    struct lw_job *ended[MOST];
    size_t n_ended;
};

static UNUSED void *fx_serve(void *arg) {
    struct fx *x = arg;
    x->type->serve(x->h, x->feed);
    return NULL;
}

static UNUSED void make_folder(struct fx *x) {
    memset(x, 0, sizeof *x);
    x->folder = fx_folder();
}

/* Opens the handler with the configuration x->c. make_folder() must have been called before. */
static UNUSED void open_handler(struct fx *x, const struct lw_handler_type *type) {
    struct lw_err err = {0};
    x->type = type;
    x->c->retry.max_attempts = 5;
    x->h = type->open(x->c, 0, &err);
    if (!x->h || type->start(x->h, x->c->handler.threads, &err)) fail_msg("%s", err.text);
    x->feed = lw_feed_open(&(struct lw_feed_setup){.notify_fd = -1,
                                                   .http = &x->counts,
                                                   .timeout_ms = x->c->handler.timeout_ms},
                           &err);
    assert_non_null(x->feed);
}

/* Starts the thread of an open handler. */
static UNUSED void serve_handler(struct fx *x) {
    assert_int_equal(pthread_create(&x->thread, NULL, fx_serve, x), 0);
}

static UNUSED void start_handler(struct fx *x, const struct lw_handler_type *type) {
    open_handler(x, type);
    serve_handler(x);
}

static UNUSED void stop_handler(struct fx *x) {
    lw_feed_stop(x->feed, LW_FEED_DROP);
    pthread_join(x->thread, NULL);
    lw_feed_close(x->feed);
    x->type->close(x->h);
    fx_config_free(x->c);
}

static UNUSED struct lw_job *job(struct fx *x, int i, const char *payload) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    return fx_job(&x->j[i], i, key, payload);
}

static UNUSED void submit(struct fx *x, int i, const char *payload) {
    struct lw_job *one = job(x, i, payload);
    lw_feed_submit(x->feed, &one, 1);
}

static UNUSED bool has_ended(struct fx *x, size_t n) {
    x->n_ended += lw_feed_reap(x->feed, x->ended + x->n_ended, MOST - x->n_ended);
    return x->n_ended >= n;
}

static UNUSED void await(struct fx *x, size_t n) {
    wait_for(has_ended(x, n));
    assert_int_equal(x->n_ended, n);
    x->n_ended = 0;
}

static UNUSED enum lw_outcome outcome(const struct fx *x, int i) { return x->j[i].job.outcome; }

/* Returns the text of a file in the folder, or "" if there is no such file. The caller frees the
 * text. */
static UNUSED char *slurp(const struct fx *x, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", x->folder, name);
    return fx_read(path);
}

/* Returns the number of times that `part` occurs in a file of the folder. */
static UNUSED size_t count(const struct fx *x, const char *name, const char *part) {
    char *text = slurp(x, name);
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    free(text);
    return n;
}

/* Runs a chain of five messages, in which each message is the follower of the message before it.
 * `retried` is the payload of the fourth message, to which the handler must answer with the outcome
 * retry. The fifth message must then be neither run nor reported. */
static UNUSED void run_chain_of_five(struct fx *x, const char *retried) {
    struct lw_job *jobs[5];
    for (int i = 0; i < 5; i++) jobs[i] = job(x, i, i == 3 ? retried : "ok");
    for (int i = 0; i < 4; i++) assert_true(lw_job_then(jobs[i], jobs[i + 1]));
    lw_feed_submit(x->feed, jobs, 1);
    wait_for(has_ended(x, 4));
    for (int i = 0; i < 4; i++) assert_ptr_equal(x->ended[i], jobs[i]);
    for (int i = 0; i < 4; i++) assert_int_equal(outcome(x, i), i == 3 ? LW_RETRY : LW_DONE);
    assert_int_equal((int)outcome(x, 4), 99);
}

#endif
