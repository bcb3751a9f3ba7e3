/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers as the worker sees them: one interface for plugin, exec, http and insert, and the
 * registry of their names.
 *
 * A type is of one of two kinds. A type that blocks has `run`: the worker gives it a thread per
 * message. A type that waits for others, as exec does for its processes and http for its service,
 * has `serve`: it drives all its messages on one thread by an event loop of its own
 * (handlers/feed.h).
 *
 *     with run:    check → open (once per worker process, after fork) → slot_open (once per handler
 *                  thread) → run… → slot_close → close. The slot's thread calls `run`. A worker has
 *                  config.handler.threads slots. A job is borrowed until `run` returns.
 *     with serve:  check → open → start → serve (on a thread of its own, until the feed stops) →
 *                  close.
 *
 * The worker's main thread calls everything else. */
#ifndef LW_HANDLERS_HANDLER_H
#define LW_HANDLERS_HANDLER_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"
#include "queue/codes.h"
#include "queue/key.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The lease of a job. Any thread may read it. */
struct lw_job_lease {
    /* boot clock; end of the lease, which moves on when the lease is renewed */
    _Atomic int64_t deadline_ms;
    /* true: the handler must stop, because the lease is lost or about to be */
    atomic_bool cancelled;
};

enum { LW_REASON_MAX = 512, LW_IDENTITY_MAX = 320 };

struct lw_job_span;

struct lw_job {
    char identity[LW_IDENTITY_MAX]; /* topic/partition/offset or topic/partition/offset#n */
    const char *topic;
    int32_t partition;
    int64_t offset, timestamp_ms;
    struct lw_bytes key, payload; /* p is NULL for a null key or payload */
    const struct lw_header *headers;
    size_t n_headers;
    int attempt; /* number of the attempt, from 1 */
    bool alone;  /* a suspect: no other job runs in this worker meanwhile */
    /* fencing token, which grows with every message of a key, also between messages that run under
     * one lease */
    uint64_t fence;
    struct lw_job_lease *lease;
    /* boot clock; handler.timeout_ms after the start of this job, set by the pool; INT64_MAX: no
     * limit */
    int64_t give_up_ms;
    struct lw_job *next;      /* next job in a list of the pool, between submit and reap */
    struct lw_job_span *span; /* what is traced of this job (handlers/span.h); NULL: nothing */
    /* The follower: the job of the same key and lease that runs after this one without the main
     * thread in between. Whoever makes the job sets the field to NULL. A submit does not, since a
     * whole chain may be linked before its first job is submitted. The field is LW_JOB_CLOSED once
     * the job is over, before the job is reported. The main thread links a follower at most once
     * (lw_job_then), and the thread that ran the job closes the field once (lw_job_end). A follower
     * that was linked in time has one of three fates:
     *     job done, lease live        it runs at once on the same thread, or from the end of the
     *                                 queue if others have waited for long
     *     job done, lease not live    it is reported unrun, as LW_BACK; its own follower is not
     *                                 touched
     *     any other outcome           it is neither run nor reported nor written to, and belongs
     *                                 again to the reaper of the job
     * A job is always reported before its follower. Suspects (`alone`) have no followers and follow
     * nobody. */
    _Atomic(struct lw_job *) then;
    /* time in the handler (of a batch: its share), µs, set by the pool; 0: the job was not run */
    int64_t took_us;
    /* `run` sets the fields below. */
    enum lw_outcome outcome; /* outcome of the job; never LW_DEAD_SENT */
    /* after RETRY and BACK: ms until the message may run again; 0 (set before the run): the worker
     * decides */
    int64_t wait_ms;
    char reason[LW_REASON_MAX]; /* reason for RETRY and DEAD; otherwise "" */
};

/* Value of `then` once the job is over, so that nothing can follow it any more. */
#define LW_JOB_CLOSED ((struct lw_job *)(uintptr_t)1)

/* For the maker of a job: sets what is the same at each new start of a job under this lease. It is
 * in no list, has no follower, no span, no time limit and no reason, and is no suspect. */
static inline void lw_job_begin(struct lw_job *job, struct lw_job_lease *lease) {
    job->lease = lease;
    job->alone = false;
    job->give_up_ms = INT64_MAX;
    job->next = NULL;
    job->span = NULL;
    atomic_store_explicit(&job->then, NULL, memory_order_relaxed);
    job->took_us = job->wait_ms = 0;
    job->reason[0] = '\0';
}

/* For the main thread: makes `next` run after `job`, which is not reaped yet. Returns false if the
 * job is already over; the caller must then submit `next` when it reaps `job` as done. A job has
 * at most one follower. */
static inline bool lw_job_then(struct lw_job *job, struct lw_job *next) {
    struct lw_job *none = NULL;
    if (atomic_compare_exchange_strong(&job->then, &none, next)) return true;
    assert(none == LW_JOB_CLOSED);
    return false;
}

/* For the main thread: takes back a follower that has not started. Returns false if `job` is over,
 * because it is then too late: `then` says what becomes of the follower. */
static inline bool lw_job_unthen(struct lw_job *job, struct lw_job *next) {
    return atomic_compare_exchange_strong(&job->then, &next, NULL);
}

/* For the thread that ran the job: closes it, after its outcome is set and before it is reported.
 * Returns the job that must follow, or NULL. */
static inline struct lw_job *lw_job_end(struct lw_job *job) {
    struct lw_job *next = atomic_exchange(&job->then, LW_JOB_CLOSED);
    assert(next != LW_JOB_CLOSED);
    return job->outcome == LW_DONE ? next : NULL;
}

/* For the thread that runs the job: collects the job and the followers that are linked now, so that
 * the handler gets all of them as one batch. chain[0] is the job. Returns the number of jobs
 * collected, at most `max`. Closes every collected job but the last, for which the caller calls
 * lw_job_end(). The caller reports the jobs in order, up to and including the first that is not
 * done, and neither reports nor touches those behind it. */
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
    /* the handler failed to start before: it gets one message at a time until one is answered */
    LW_ON_TRIAL,
    LW_UNABLE, /* the handler fails to start now: it gets no messages for a while */
};

/* Says which jobs may stand in one batch. */
enum lw_batch_of {
    LW_BATCH_KEYS,    /* jobs of different keys */
    LW_BATCH_ONE_KEY, /* jobs of one key, in their order */
    LW_BATCH_ANY,     /* jobs of any keys; those of one key stand side by side, in their order */
};

struct lw_feed;
struct lw_handler; /* each type of handler defines this structure for itself */
struct lw_slot;

struct lw_handler_type {
    const char *name;
    /* true: the handler runs inside the worker's process, so a message may be the cause of a
     * crash */
    bool blames_worker;
    /* Appends problems of the handler section to `problems`. Asks no server and has no side effect.
     * The function must know every key of the section. */
    void (*check)(const struct lw_config *c, struct lw_problems *problems);
    struct lw_handler *(*open)(const struct lw_config *c, int worker, struct lw_err *err);
    /* For a type with `serve`: starts at most `most` of the processes that serve() needs. */
    int (*start)(struct lw_handler *h, int most, struct lw_err *err);
    /* Takes jobs from the feed and ends them, many at a time, until lw_feed_stopped() and nothing
     * is under way. Each job must end by itself, as in `run`. Only commands and tests call it again
     * after it has returned. */
    void (*serve)(struct lw_handler *h, struct lw_feed *feed);
    /* For a type with `serve`: writes how many requests each of its processes has now, for at most
     * `max` of them, and returns the number of processes. Any thread may call it. NULL: the type
     * has no processes. */
    int (*loads)(const struct lw_handler *h, uint32_t *out, int max);
    struct lw_slot *(*slot_open)(struct lw_handler *h, int slot, struct lw_err *err);
    /* returns the maximum number of jobs in one run */
    size_t (*batch_max)(const struct lw_handler *h);
    /* says which jobs may stand in one batch; NULL: LW_BATCH_KEYS */
    enum lw_batch_of (*batch_of)(const struct lw_handler *h);
    /* Runs n jobs (1 <= n <= batch_max) and sets outcome and reason of each. Among the jobs of one
     * key, the first that is not done ends the batch: what is set for those behind it does not
     * count. A run must end by itself: when `cancelled` turns true, at give_up_ms and, if the
     * effect is in another process, before deadline_ms. */
    void (*run)(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n);
    /* Tells the handler that everything below the committed watermark of this partition is done, so
     * that the handler can delete recorded identities. Called on the main thread. May be NULL. */
    void (*passed)(struct lw_handler *h, const char *topic, int32_t partition, int64_t watermark);
    /* Returns whether the handler can work; if it cannot, `why` (may be NULL) gets the reason. Any
     * thread may call it.
     * NULL: the handler can always work. */
    enum lw_health (*health)(struct lw_handler *h, char *why, size_t size);
    /* For the command `check`: returns 0 if the process still runs after wait_ms (exec), or if the
     * service accepts a connection within that time (http); otherwise -1 with *err. NULL: there is
     * nothing to check. */
    int (*start_check)(struct lw_handler *h, int wait_ms, struct lw_err *err);
    void (*slot_close)(struct lw_handler *h, struct lw_slot *s);
    void (*close)(struct lw_handler *h);
};

/* Returns the type of that name, or NULL with an error that names the known types and the
 * nearest. */
const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err);
extern const struct lw_handler_type lw_handler_exec, lw_handler_plugin, lw_handler_http,
    lw_handler_insert;

#endif
