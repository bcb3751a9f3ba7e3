/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/feed.h"

#include "base/clock.h"
#include "base/log.h"
#include "handlers/job_queue.h"
#include "handlers/reason.h"
#include "handlers/span.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MARGIN_MIN_MS = 50 };

struct lw_feed {
    struct lw_feed_setup set;
    int wake;
    pthread_mutex_t lock; /* mutex that guards the fields below it, except `mine` */
    struct lw_job_queue waiting, ended;
    bool asleep;    /* the handler waits for `wake` */
    bool signalled; /* notify_fd was written, and no reap has emptied `ended` since then */
    enum lw_feed_stop stop;
    /* `mine` holds the jobs that have ended and are not published yet; only the handler's thread
     * uses it */
    struct lw_job_queue mine;
};

static void signal_fd(int fd) {
    if (fd >= 0 && write(fd, &(uint64_t){1}, 8) < 0 && errno != EAGAIN)
        lw_error("handler: can't wake a thread: eventfd: %s", strerror(errno));
}

struct lw_feed *lw_feed_open(const struct lw_feed_setup *setup, struct lw_err *err) {
    struct lw_feed *f = lw_alloc(sizeof *f);
    f->set = *setup;
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&f->lock, NULL);
    lw_jobs_clear(&f->waiting), lw_jobs_clear(&f->ended), lw_jobs_clear(&f->mine);
    if (f->wake >= 0) return f;
    lw_fail(err, "eventfd: %s", strerror(errno));
    lw_feed_close(f);
    return NULL;
}

void lw_feed_close(struct lw_feed *f) {
    if (f->wake >= 0) close(f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* --- the main thread's side ------------------------------------------------------------------- */

void lw_feed_submit(struct lw_feed *f, struct lw_job **jobs, size_t n) {
    struct lw_job_queue q;
    lw_jobs_clear(&q);
    for (size_t i = 0; i < n; i++) lw_jobs_append(&q, jobs[i]);
    pthread_mutex_lock(&f->lock);
    lw_jobs_move(&f->waiting, &q);
    bool wake = f->asleep;
    f->asleep = false;
    pthread_mutex_unlock(&f->lock);
    if (wake) signal_fd(f->wake);
}

size_t lw_feed_reap(struct lw_feed *f, struct lw_job **out, size_t max) {
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    while (n < max && f->ended.head) out[n++] = lw_jobs_pop(&f->ended);
    if (!f->ended.head) f->signalled = false;
    pthread_mutex_unlock(&f->lock);
    return n;
}

void lw_feed_stop(struct lw_feed *f, enum lw_feed_stop how) {
    pthread_mutex_lock(&f->lock);
    f->stop = how;
    pthread_mutex_unlock(&f->lock);
    signal_fd(f->wake);
}

/* --- the handler's side ----------------------------------------------------------------------- */

int lw_feed_fd(const struct lw_feed *f) { return f->wake; }
struct lw_http_counts *lw_feed_http(const struct lw_feed *f) {
    return f->set.http;
}

bool lw_feed_sleep(struct lw_feed *f) {
    pthread_mutex_lock(&f->lock);
    f->asleep = !f->waiting.head;
    bool may = f->asleep;
    pthread_mutex_unlock(&f->lock);
    return may;
}

void lw_feed_awake(struct lw_feed *f, bool readable) {
    pthread_mutex_lock(&f->lock);
    f->asleep = false;
    pthread_mutex_unlock(&f->lock);
    uint64_t n;
    if (readable && read(f->wake, &n, sizeof n) < 0 && errno != EAGAIN)
        lw_error("handler: can't clear a wake-up: eventfd: %s", strerror(errno));
}

/* Takes all waiting jobs, oldest first, linked by `next`. Returns NULL if no job waits, or after a
 * stop with LW_FEED_DROP. */
static struct lw_job *take_all(struct lw_feed *f) {
    pthread_mutex_lock(&f->lock);
    struct lw_job *jobs = f->stop == LW_FEED_DROP ? NULL : f->waiting.head;
    if (jobs) lw_jobs_clear(&f->waiting);
    pthread_mutex_unlock(&f->lock);
    return jobs;
}

enum lw_feed_stop lw_feed_stopped(struct lw_feed *f) {
    pthread_mutex_lock(&f->lock);
    enum lw_feed_stop stop = f->stop;
    pthread_mutex_unlock(&f->lock);
    return stop;
}

struct lw_job *lw_feed_first(struct lw_feed *f, struct lw_job_queue *line) {
    for (struct lw_job *job = take_all(f), *next; job; job = next) {
        next = job->next;
        lw_jobs_append(line, job);
    }
    return line->head;
}

int64_t lw_feed_margin_ms(int64_t ttl_ms) {
    return ttl_ms > 10 * MARGIN_MIN_MS ? ttl_ms / 10 : MARGIN_MIN_MS;
}

int64_t lw_feed_lease_end(const struct lw_job *job, int64_t margin_ms) {
    return atomic_load_explicit(&job->lease->deadline_ms, memory_order_relaxed) - margin_ms;
}

bool lw_feed_startable(struct lw_job *job, int64_t now_ms, int64_t margin_ms) {
    lw_job_answer(job, LW_BACK, "");
    return !atomic_load(&job->lease->cancelled) && now_ms < lw_feed_lease_end(job, margin_ms);
}

void lw_feed_give_back(struct lw_feed *f, struct lw_job *job) {
    lw_job_answer(job, LW_BACK, "");
    if (atomic_load(&job->then) != LW_JOB_CLOSED) lw_job_end(job);
    lw_feed_ended(f, job, 0);
}

void lw_feed_sweep(struct lw_feed *f, struct lw_job_queue *line, int64_t now_ms, int64_t margin_ms,
                   bool all) {
    struct lw_job *jobs = line->head;
    lw_jobs_clear(line);
    for (struct lw_job *job = jobs, *next; job; job = next) {
        next = job->next;
        if (all || !lw_feed_startable(job, now_ms, margin_ms))
            lw_feed_give_back(f, job);
        else
            lw_jobs_append(line, job);
    }
}

void lw_feed_started(struct lw_feed *f, struct lw_job *job, int64_t now_ms) {
    if (f->set.timeout_ms > 0) job->give_up_ms = now_ms + f->set.timeout_ms;
    atomic_store_explicit(&job->started_ms, now_ms, memory_order_relaxed);
    if (f->set.started) f->set.started(f->set.ctx, job);
}

static void note_span(struct lw_job_span *span, int64_t took_us) {
    span->ended_us = lw_boot_us();
    span->begun_us = span->ended_us - took_us;
}

void lw_feed_ended(struct lw_feed *f, struct lw_job *job, int64_t took_us) {
    job->took_us = took_us;
    if (job->span && took_us > 0) note_span(job->span, took_us);
    if (took_us > 0 && f->set.ended) f->set.ended(f->set.ctx, job);
    lw_jobs_append(&f->mine, job);
}

void lw_feed_publish(struct lw_feed *f) {
    if (!f->mine.head) return;
    pthread_mutex_lock(&f->lock);
    lw_jobs_move(&f->ended, &f->mine);
    bool tell = !f->signalled;
    f->signalled = true;
    pthread_mutex_unlock(&f->lock);
    if (tell) signal_fd(f->set.notify_fd);
}

int lw_feed_run_one(const struct lw_handler_type *t, struct lw_handler *h, struct lw_job *job,
                    struct lw_err *err) {
    struct lw_feed *f = lw_feed_open(&(struct lw_feed_setup){.notify_fd = -1}, err);
    if (!f) return -1;
    lw_feed_submit(f, &job, 1);
    lw_feed_stop(f, LW_FEED_LAST);
    t->serve(h, f);
    lw_feed_close(f);
    return 0;
}
