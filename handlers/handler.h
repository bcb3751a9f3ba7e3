/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers as the worker sees them: one interface for plugin, exec, http and insert, and the
 * registry of their names.
 *
 * There are two kinds of handler types. A type that blocks has `run`: the worker gives it a thread
 * per message. A type that waits for other processes, as exec and http do, has `serve`: an event
 * loop that drives all its messages on one thread (handlers/feed.h).
 *
 *     with run:    check → open (once per worker process, after fork) → slot_open (once per handler
 *                  thread) → run… → slot_close → close. The slot's thread calls `run`. A worker has
 *                  config.handler.threads slots. A job is borrowed until `run` returns.
 *     with serve:  check → open → start → serve (on its own thread, until the feed stops) → close.
 *
 * The worker's main thread calls all functions but `run` and `serve`. */
#ifndef LW_HANDLERS_HANDLER_H
#define LW_HANDLERS_HANDLER_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"
#include "lock/lane/lease.h"
#include "queue/codes.h"
#include "queue/key.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LW_REASON_MAX = 512, LW_IDENTITY_MAX = 320 };

struct lw_job_span;

struct lw_job {
    char identity[LW_IDENTITY_MAX]; /* topic/partition/offset, followed by #n for a replay */
    const char *topic;
    int32_t partition;
    int64_t offset, timestamp_ms;
    struct lw_bytes key, payload; /* key.p is NULL for a null key, payload.p for a null payload */
    const struct lw_header *headers;
    size_t n_headers;
    int attempt; /* number of this attempt; the first is 1 */
    /* `suspect` is true if the message was in a plugin when its worker died. The plugin gets it in
     * a process of its own (handlers/plugin_host.h), and the job is in no batch with others. */
    bool suspect;
    /* `fence` is the fencing token, which grows with every message of a key, even under the same
     * lease */
    uint64_t fence;
    struct lw_job_lease *lease;
    /* `give_up_ms` is the time at which the job must stop, handler.timeout_ms after its start;
     * boot clock, set by the pool or the feed; INT64_MAX: no limit */
    int64_t give_up_ms;
    /* `started_ms` is the time at which the job started; boot clock, set by the pool or the feed;
     * 0: it has not started. The main thread reads it while the job runs. */
    _Atomic int64_t started_ms;
    struct lw_job *next;      /* next job in a list of the pool, between submit and reap */
    struct lw_job_span *span; /* trace of this job (handlers/span.h); NULL: not traced */
    /* The follower: the job of the same key and lease that runs after this job without the main
     * thread in between. The maker of the job sets the field to NULL. A submit leaves the field
     * alone, because a whole chain may be linked before its first job is submitted. The field
     * becomes LW_JOB_CLOSED when the job is over, before the job is reported. The main thread links
     * a follower at most once (lw_job_then), and the thread that ran the job closes the field once
     * (lw_job_end). A follower that was linked in time has one of three fates:
     *     job done, lease live        it runs at once on the same thread, or later from the queue
     *                                 if other jobs have waited too long, or a batch is full
     *     job done, lease not live    it is reported as LW_BACK without a run; its own follower
     *                                 is not touched
     *     any other outcome           it is not run, reported or written to, and belongs again
     *                                 to the thread that reaps the job
     * A job is always reported before its follower. A suspect has no follower and is none. */
    _Atomic(struct lw_job *) then;
    /* `took_us` is the time that the job spent in the handler, in µs. The pool or the feed sets
     * it. The time of a batch is divided among its jobs. 0: the job was not run. */
    int64_t took_us;
    /* The handler sets `outcome`, `wait_ms` and `reason`. */
    enum lw_outcome outcome; /* outcome of the job; never LW_DEAD_SENT or LW_LATER */
    /* `wait_ms` is the wait in ms before the next run, for the outcomes RETRY and BACK. It is 0
     * before the run. If it stays 0, the worker chooses the wait. */
    int64_t wait_ms;
    bool uncounted; /* a RETRY that counts no attempt; false before the run */
    /* `unsent` is true if also nothing of the message has left this process, so that it cannot be
     * at fault, and retry.max_age_s is no bound; false before the run */
    bool unsent;
    char reason[LW_REASON_MAX]; /* reason of RETRY and DEAD; otherwise "" */
};

/* The value of `then` after the job is over. No follower can be linked to the job any more. */
#define LW_JOB_CLOSED ((struct lw_job *)(uintptr_t)1)

/* Sets the fields that have the same value at each start of a job, even if the job is started again
 * under the same lease. Only code that makes jobs calls this function. Afterwards the job is in no
 * list, has no follower, span, time limit or reason, and is no suspect. */
static inline void lw_job_begin(struct lw_job *job, struct lw_job_lease *lease) {
    job->lease = lease;
    job->suspect = false;
    job->give_up_ms = INT64_MAX;
    atomic_store_explicit(&job->started_ms, 0, memory_order_relaxed);
    job->next = NULL;
    job->span = NULL;
    atomic_store_explicit(&job->then, NULL, memory_order_relaxed);
    job->took_us = job->wait_ms = 0;
    job->uncounted = job->unsent = false;
    job->reason[0] = '\0';
}

/* Returns true if the lease of a job is lost or has ended, so that the job must not start. */
static inline bool lw_lease_over(const struct lw_job_lease *lease, int64_t now_ms) {
    return atomic_load(&lease->cancelled) || now_ms >= atomic_load(&lease->deadline_ms);
}

/* Returns the time by which a job must be done: the end of its lease or, if that comes sooner, of
 * its own time. */
static inline int64_t lw_job_end_ms(const struct lw_job *job) {
    int64_t deadline_ms = atomic_load(&job->lease->deadline_ms);
    return deadline_ms < job->give_up_ms ? deadline_ms : job->give_up_ms;
}

/* Returns true if a job that runs must stop: its lease is over, or its own time. */
static inline bool lw_job_over(const struct lw_job *job, int64_t now_ms) {
    return lw_lease_over(job->lease, now_ms) || now_ms >= job->give_up_ms;
}

/* For the main thread: links `next` as the follower of `job`, which is not reaped yet. Returns
 * false if `job` is already over; the caller must then submit `next` when it reaps `job` as done. A
 * job has at most one follower. */
static inline bool lw_job_then(struct lw_job *job, struct lw_job *next) {
    struct lw_job *none = NULL;
    if (atomic_compare_exchange_strong(&job->then, &none, next)) return true;
    assert(none == LW_JOB_CLOSED);
    return false;
}

/* For the main thread: unlinks a follower that has not started. Returns false if it is too late
 * because `job` is over; the comment at `then` says what becomes of the follower. */
static inline bool lw_job_unthen(struct lw_job *job, struct lw_job *next) {
    return atomic_compare_exchange_strong(&job->then, &next, NULL);
}

/* For the thread that ran the job: closes the job after its outcome is set and before it is
 * reported. Returns the follower that must run next, or NULL. */
static inline struct lw_job *lw_job_end(struct lw_job *job) {
    struct lw_job *next = atomic_exchange(&job->then, LW_JOB_CLOSED);
    assert(next != LW_JOB_CLOSED);
    return job->outcome == LW_DONE ? next : NULL;
}

/* For the thread that runs the job: collects the job and all followers linked so far, so that the
 * handler gets them as one batch. chain[0] is the job itself. Returns the number of collected jobs,
 * at most `max`. Closes every collected job but the last, for which the caller calls lw_job_end().
 * The caller reports the jobs in order, up to and including the first job that is not done, and
 * neither reports nor touches the jobs after that. */
static inline size_t lw_job_gather(struct lw_job **chain, size_t max) {
    size_t n = 1;
    while (n < max) {
        struct lw_job *next = atomic_load(&chain[n - 1]->then);
        if (!next || !atomic_compare_exchange_strong(&chain[n - 1]->then, &next, LW_JOB_CLOSED))
            break;
        assert(next != LW_JOB_CLOSED);
        chain[n++] = next;
    }
    return n;
}

enum lw_health {
    LW_WELL,
    /* LW_ON_TRIAL: the handler could not work, and now gets a few messages, with which it finds out
     * whether it can work again (handlers/trial.h) */
    LW_ON_TRIAL,
    LW_UNABLE, /* the handler cannot work: it gets no messages for a while */
};

/* Says which jobs may share a batch. */
enum lw_batch_of {
    LW_BATCH_KEYS,    /* jobs of different keys */
    LW_BATCH_ONE_KEY, /* jobs of one key, in order */
    LW_BATCH_ANY,     /* jobs of any keys; jobs of one key are adjacent, in order */
};

struct lw_feed;
struct lw_handler; /* each type of handler defines this structure for itself */
struct lw_slot;

struct lw_handler_type {
    const char *name;
    /* `runs_in_worker` is true if the handler runs inside the worker's process. Then a message may
     * crash the worker. */
    bool runs_in_worker;
    /* Appends problems of the handler section to `problems`, also for each key that this type of
     * handler does not have. Contacts no server and has no side effect. */
    void (*check)(const struct lw_config *c, struct lw_problems *problems);
    struct lw_handler *(*open)(const struct lw_config *c, int worker, struct lw_err *err);
    /* For a type with `serve`: starts at most `most` of the processes that serve() needs. */
    int (*start)(struct lw_handler *h, int most, struct lw_err *err);
    /* Takes jobs from the feed and ends them, many at a time, until the feed is stopped
     * (lw_feed_stopped()) and no job is under way. Like a job of `run`, each job must end in time
     * without outside help. Only commands and tests call the function again after it has
     * returned. */
    void (*serve)(struct lw_handler *h, struct lw_feed *feed);
    /* For a type with `serve`: writes how many requests each of its processes has now, for at most
     * `max` processes. Returns the number of processes, which may be greater than `max`. Any thread
     * may call it. NULL: the type has no processes. */
    int (*loads)(const struct lw_handler *h, uint32_t *out, int max);
    struct lw_slot *(*slot_open)(struct lw_handler *h, int slot, struct lw_err *err);
    /* Returns the maximum number of jobs in one call of `run`. */
    size_t (*batch_max)(const struct lw_handler *h);
    /* Returns which jobs may share a batch. NULL: LW_BATCH_KEYS. */
    enum lw_batch_of (*batch_of)(const struct lw_handler *h);
    /* Runs n jobs (1 <= n <= batch_max) and sets outcome and reason of each. For each key, the
     * first job that is not done ends the key's part of the batch: outcomes of later jobs of the
     * key do not count. The function must return when `cancelled` turns true, at give_up_ms, and
     * also before deadline_ms if the effect happens in another process. */
    void (*run)(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n);
    /* Tells the handler that all messages below the committed watermark of this partition are
     * finished, so that the handler can delete recorded identities. The main thread calls this
     * function. `passed` may be NULL. */
    void (*passed)(struct lw_handler *h, const char *topic, int32_t partition, int64_t watermark);
    /* Returns whether the handler can work. If it cannot, writes the reason to `why`, unless `why`
     * is NULL. Any thread may call this function. If `health` itself is NULL, the handler can
     * always work. */
    enum lw_health (*health)(struct lw_handler *h, char *why, size_t size);
    /* For the command `check`. Returns 0 if the process that start() started still runs after
     * wait_ms (exec), or if the service accepts a connection within wait_ms (http), otherwise -1
     * with *err. NULL: there is nothing to check. */
    int (*start_check)(struct lw_handler *h, int wait_ms, struct lw_err *err);
    void (*slot_close)(struct lw_handler *h, struct lw_slot *s);
    void (*close)(struct lw_handler *h);
};

/* Returns the handler type of this name, or NULL with an error that names the known types and the
 * most similar one. */
const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err);
extern const struct lw_handler_type lw_handler_exec, lw_handler_plugin, lw_handler_http,
    lw_handler_insert;

#endif
