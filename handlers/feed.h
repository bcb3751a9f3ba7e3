/* SPDX-License-Identifier: Apache-2.0 */
/* The feed: how a handler that drives many messages on one thread (`serve` of handlers/handler.h)
 * gets its jobs and hands them back.
 *
 *     main thread   submit ──> queue ──> take          the handler's thread
 *                   reap   <── ended <── lw_feed_ended, then lw_feed_publish
 *
 * Both sides work in batches. A submit wakes the handler only if the handler sleeps. A publish
 * wakes the main thread at most once until the next reap.
 *
 * The handler's loop:
 *
 *     for (;;) {
 *         wait for its own descriptors, and for lw_feed_fd() if lw_feed_sleep() returned true
 *         lw_feed_awake()
 *         while there is room for lw_feed_first():
 *             lw_feed_startable() ? lw_feed_started() : lw_feed_give_back()
 *         for each answer:
 *             set the outcome
 *             lw_job_end(), which returns the follower to start
 *             lw_feed_ended()
 *         lw_feed_publish()
 *         from time to time lw_feed_sweep() of the waiting jobs
 *         break if lw_feed_stopped() and no job is in a handler
 *     }
 *
 * Between take and publish, a job and everything it points to belong to the handler's thread. */
#ifndef LW_HANDLERS_FEED_H
#define LW_HANDLERS_FEED_H

#include "handlers/handler.h"

struct lw_feed;
struct lw_http_counts;
struct lw_job_queue;

enum {
    LW_FEED_LOOK_MS = 20, /* time between a handler's checks of leases and timeouts */
    /* LW_FEED_CHAIN_MS: when a chain of followers has run for this long, waiting jobs run before
     * the chain's next follower */
    LW_FEED_CHAIN_MS = 20,
};

struct lw_feed_setup {
    int64_t timeout_ms; /* handler.timeout_ms; 0: do not change a job's give_up_ms */
    int notify_fd;      /* eventfd that is written when jobs have ended; -1: none */
    /* `started` is called on the handler's thread when a job starts, and `ended` when this job has
     * ended. A job that is given back before its start calls neither. Either may be NULL. */
    void (*started)(void *ctx, const struct lw_job *job);
    void (*ended)(void *ctx, const struct lw_job *job);
    void *ctx;
    /* `http` holds the counts of the http handler (handlers/http/counts.h); NULL: nothing is
     * counted */
    struct lw_http_counts *http;
};

enum lw_feed_stop {
    LW_FEED_GOES_ON,
    LW_FEED_LAST, /* stop after the jobs submitted so far */
    LW_FEED_DROP, /* stop now; jobs that have not started belong to the submitter again */
};

struct lw_feed *lw_feed_open(const struct lw_feed_setup *setup, struct lw_err *err);
void lw_feed_close(struct lw_feed *f);

/* The main thread calls lw_feed_submit(), lw_feed_reap() and lw_feed_stop(). `then` of a submitted
 * job is NULL or the first follower of a chain. */
void lw_feed_submit(struct lw_feed *f, struct lw_job **jobs, size_t n);
/* Takes up to `max` ended jobs, in the order in which they ended. Returns the number of jobs. If it
 * is `max`, more may be left, and the caller must call again. */
size_t lw_feed_reap(struct lw_feed *f, struct lw_job **out, size_t max);
void lw_feed_stop(struct lw_feed *f, enum lw_feed_stop how);

/* The handler's thread calls the functions below. */
int lw_feed_fd(const struct lw_feed *f);
/* Returns the counts of the http handler. Returns NULL if nothing is counted. */
struct lw_http_counts *lw_feed_http(const struct lw_feed *f);
/* Announces that the handler is about to sleep. Returns false if jobs wait; the handler must then
 * take the jobs instead of sleeping. A handler that has no room for more jobs does not call this
 * function, and new jobs do not wake it. */
bool lw_feed_sleep(struct lw_feed *f);
/* Notes that the handler is awake. The handler must call this function after each sleep. If
 * `readable` is true, lw_feed_fd() is readable, and this function empties it. */
void lw_feed_awake(struct lw_feed *f, bool readable);
enum lw_feed_stop lw_feed_stopped(struct lw_feed *f);
/* Returns the job that has waited longest, without removing it from `line`; NULL if no job waits.
 * `line` is the handler's own queue. This function first moves all waiting jobs of the feed to its
 * end, also if it is not empty: under load a handler appends the followers of long chains to it
 * again and again, so it may never become empty, and new lanes would wait for ever. */
struct lw_job *lw_feed_first(struct lw_feed *f, struct lw_job_queue *line);
/* Returns how long before the end of a lease a handler must be done with a job, so that the handler
 * does nothing for the job after the lease has ended. */
int64_t lw_feed_margin_ms(int64_t ttl_ms);
/* Returns the time by which the job must be over: margin_ms before its lease ends. Each renewal of
 * the lease moves this time. */
int64_t lw_feed_lease_end(const struct lw_job *job, int64_t margin_ms);
/* Returns true if the job may start: its lease is not cancelled, and more than margin_ms of the
 * lease is left. Otherwise the caller must give the job back. In both cases sets the job's outcome
 * to LW_BACK, which the handler replaces when the job ends. */
bool lw_feed_startable(struct lw_job *job, int64_t now_ms, int64_t margin_ms);
/* Ends a job that has not started. Its outcome is LW_BACK, so no attempt is counted. Also closes
 * the job as lw_job_end() does, unless lw_job_gather() has closed it. */
void lw_feed_give_back(struct lw_feed *f, struct lw_job *job);
/* Gives back those jobs in a queue that can no longer start in time or, if `all` is true, all jobs
 * in the queue. */
void lw_feed_sweep(struct lw_feed *f, struct lw_job_queue *line, int64_t now_ms, int64_t margin_ms,
                   bool all);
void lw_feed_started(struct lw_feed *f, struct lw_job *job, int64_t now_ms);
/* Collects a job for the next lw_feed_publish(). The job's outcome must be set, and lw_job_end()
 * must have closed the job. took_us is the time that the job spent in the handler. */
void lw_feed_ended(struct lw_feed *f, struct lw_job *job, int64_t took_us);
void lw_feed_publish(struct lw_feed *f); /* hands all collected jobs to the main thread */

/* Runs one job to its end on the calling thread. If no feed can be opened for the job, leaves the
 * job unchanged, and returns -1 with *err. */
int lw_feed_run_one(const struct lw_handler_type *t, struct lw_handler *h, struct lw_job *job,
                    struct lw_err *err);

#endif
