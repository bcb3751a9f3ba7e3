/* SPDX-License-Identifier: Apache-2.0 */
/* The feed: how a handler that serves many messages on one thread (`serve` of handlers/handler.h)
 * gets its jobs and hands them back.
 *
 *     main thread   submit ──> queue ──> take          the handler's thread
 *                   reap   <── ended <── lw_feed_ended, then lw_feed_publish
 *
 * Both sides work in batches: a submit wakes the handler at most once, and only if it sleeps; a
 * publish wakes the main thread at most once until the next reap.
 *
 * The handler's loop:
 *
 *     for (;;) {
 *         wait for its own descriptors, and for lw_feed_fd() if lw_feed_sleep() returned true
 *         lw_feed_awake()
 *         while there is room for lw_feed_first(): lw_feed_startable()? lw_feed_started() :
 *         lw_feed_give_back() for each answer: set the outcome, lw_feed_ended(); lw_job_end() names
 *         the follower to start lw_feed_publish() from time to time lw_feed_sweep() what still
 *         waits end if lw_feed_stopped(), and none of its jobs is in a handler
 *     }
 *
 * A job belongs to the handler's thread from take to publish, with all it points to. */
#ifndef LW_HANDLERS_FEED_H
#define LW_HANDLERS_FEED_H

#include "handlers/handler.h"

struct lw_feed;
struct lw_http_counts;
struct lw_job_queue;

enum {
    LW_FEED_LOOK_MS = 20, /* time between a handler's checks of leases and timeouts */
    /* when a chain of followers has run for this long, jobs that wait go first */
    LW_FEED_CHAIN_MS = 20,
};

struct lw_feed_setup {
    int64_t timeout_ms; /* handler.timeout_ms; 0: the job's own give_up_ms stays as it is */
    int notify_fd;      /* an eventfd, written when jobs have ended; -1: none */
    /* Called on the handler's thread when a job starts and when it has ended. May be NULL. */
    void (*started)(void *ctx, const struct lw_job *job);
    void (*ended)(void *ctx, const struct lw_job *job);
    void *ctx;
    /* where the http handler counts (handlers/http/counts.h); NULL: nowhere */
    struct lw_http_counts *http;
};

enum lw_feed_stop {
    LW_FEED_GOES_ON,
    LW_FEED_LAST, /* stop after the jobs that were submitted before */
    LW_FEED_DROP, /* jobs that have not started do not run, and belong to the submitter again */
};

struct lw_feed *lw_feed_open(const struct lw_feed_setup *setup, struct lw_err *err);
void lw_feed_close(struct lw_feed *f);

/* The main thread calls the next three functions. `then` of a submitted job is NULL or the first of
 * a chain of followers. */
void lw_feed_submit(struct lw_feed *f, struct lw_job **jobs, size_t n);
/* Takes up to `max` ended jobs, in the order in which they ended. Returns how many; if that is max,
 * call it again. */
size_t lw_feed_reap(struct lw_feed *f, struct lw_job **out, size_t max);
void lw_feed_stop(struct lw_feed *f, enum lw_feed_stop how);

/* The handler's thread calls the functions below. */
int lw_feed_fd(const struct lw_feed *f);
/* returns where the http handler counts, or NULL */
struct lw_http_counts *lw_feed_http(const struct lw_feed *f);
/* Announces that the handler is about to wait. Returns false if jobs wait; the handler must then
 * take them instead of waiting. A handler that has no room for more jobs does not call this
 * function, and is not woken for them. */
bool lw_feed_sleep(struct lw_feed *f);
/* must be called after waiting; `readable`: lw_feed_fd() is readable */
void lw_feed_awake(struct lw_feed *f, bool readable);
/* Takes all waiting jobs, oldest first, linked by `next`. */
struct lw_job *lw_feed_take(struct lw_feed *f);
enum lw_feed_stop lw_feed_stopped(struct lw_feed *f);
/* Returns the job that has waited longest, without removing it; NULL if there is none. When the
 * handler's queue `line`, which belongs to its thread, is empty, this function takes all waiting
 * jobs into it. */
struct lw_job *lw_feed_first(struct lw_feed *f, struct lw_job_queue *line);
/* Returns how long before the end of a lease a handler must be done with a job, so that nothing of
 * it goes on after the lease. */
int64_t lw_feed_margin_ms(int64_t ttl_ms);
/* Returns the time by which the job must be over: margin_ms before its lease ends. Each renewal of
 * the lease makes this time later. */
int64_t lw_feed_lease_end(const struct lw_job *job, int64_t margin_ms);
/* Returns true if a job may start, because more than margin_ms is left of its lease. Otherwise the
 * caller must give the job back. */
bool lw_feed_startable(struct lw_job *job, int64_t now_ms, int64_t margin_ms);
/* Ends a job that does not start, with LW_BACK, so that no attempt is counted. Closes the job,
 * unless lw_job_gather() has closed it. */
void lw_feed_give_back(struct lw_feed *f, struct lw_job *job);
/* Gives back those jobs of a queue that can no longer start; every job if `all` is true. */
void lw_feed_sweep(struct lw_feed *f, struct lw_job_queue *line, int64_t now_ms, int64_t margin_ms,
                   bool all);
void lw_feed_started(struct lw_feed *f, struct lw_job *job, int64_t now_ms);
/* Collects a job that has its outcome and was closed by lw_job_end(). took_us is its time in the
 * handler. */
void lw_feed_ended(struct lw_feed *f, struct lw_job *job, int64_t took_us);
void lw_feed_publish(struct lw_feed *f); /* hands what was collected to the main thread */

/* Runs one job to its end on the calling thread. */
int lw_feed_run_one(const struct lw_handler_type *t, struct lw_handler *h, struct lw_job *job,
                    struct lw_err *err);

#endif
