/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers as the worker sees them: one interface for plugin, exec and insert, and the registry
 * that knows them by name.
 *
 * Life: check → open (once per worker process, after fork) → slot_open (once per handler thread) →
 * run… → slot_close → close. `run` is called on its slot's thread only; everything else on the
 * worker's main thread. A worker has config.handler.threads slots. A job is borrowed for the time
 * of `run`. */
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
    _Atomic int64_t deadline_ms; /* on lw_boot_ms()'s clock; moves on while the lease is renewed */
    atomic_bool cancelled;       /* the lease is lost or about to be: stop */
};

enum { LW_REASON_MAX = 512, LW_IDENTITY_MAX = 320 };

struct lw_job {
    char identity[LW_IDENTITY_MAX]; /* topic/partition/offset or topic/partition/offset#n */
    const char *topic;
    int32_t partition;
    int64_t offset, timestamp_ms;
    struct lw_bytes key, payload; /* p == NULL: null */
    const struct lw_header *headers;
    size_t n_headers;
    int attempt;    /* 1 for the first */
    bool alone;     /* a suspect: no other job runs in this worker meanwhile */
    uint64_t fence; /* fencing token: grows with every message of a key. Several messages may run under one lease, each with its own */
    struct lw_job_lease *lease;
    int64_t give_up_ms;  /* boot clock: handler.timeout_ms after the start of this job; INT64_MAX: none. The pool sets it at the start */
    struct lw_job *next; /* used by the pool, between submit and reap */
    /* Running ahead: the job of the same key under the same lease that runs after this one, without the main thread in between. NULL when
     * the job is made (by its maker, not by submit: a whole chain may be linked before its first is submitted); LW_JOB_CLOSED once the job
     * is over, before it is reported. The main thread links (lw_job_then), whoever ran the job closes (lw_job_end), each once. What becomes
     * of a follower that was linked in time:
     *     the job done, the lease live        it runs at once on the same thread (or, where others have waited long, from the queue's end)
     *     the job done, the lease not live    it is reported unrun, LW_BACK; its own follower is not touched
     *     any other outcome                   it is neither run nor reported nor written to: whoever reaps the job has it back by that
     * A job is always reported before its follower. Suspects (`alone`) have no followers and follow nobody. */
    _Atomic(struct lw_job *) then;
    int64_t took_us; /* time in its handler (in a batch: its share), set by the pool. 0: it was not run */
    /* answered by run */
    enum lw_outcome outcome;    /* never LW_DEAD_SENT */
    char reason[LW_REASON_MAX]; /* the reason, for RETRY and DEAD; otherwise "" */
};

/* Value of `then` once the job is over: nothing can follow it any more. */
#define LW_JOB_CLOSED ((struct lw_job *)(uintptr_t)1)

/* For the main thread: `next` will run after `job`, which is not reaped yet. Returns false if the
 * job is over already; the caller then submits `next` itself when it reaps `job` as done. A job has
 * at most one follower. */
static inline bool lw_job_then(struct lw_job *job, struct lw_job *next) {
    struct lw_job *none = NULL;
    if (atomic_compare_exchange_strong(&job->then, &none, next)) return true;
    assert(none == LW_JOB_CLOSED);
    return false;
}

/* For the main thread: takes a follower back that has not started. Returns false if `job` is over:
 * the follower then runs, or is reported (see above).
 */
static inline bool lw_job_unthen(struct lw_job *job, struct lw_job *next) {
    return atomic_compare_exchange_strong(&job->then, &next, NULL);
}

/* For the thread that ran the job, after setting its outcome and before reporting it: closes it,
 * and returns the job that has to follow; NULL: none. */
static inline struct lw_job *lw_job_end(struct lw_job *job) {
    struct lw_job *next = atomic_exchange(&job->then, LW_JOB_CLOSED);
    assert(next != LW_JOB_CLOSED);
    return job->outcome == LW_DONE ? next : NULL;
}

enum lw_health {
    LW_WELL,
    LW_ON_TRIAL, /* it failed to start before: give it one message at a time until one is answered */
    LW_UNABLE,   /* it fails to start now: give it no messages for a while */
};

struct lw_handler; /* defined by each type */
struct lw_slot;

struct lw_handler_type {
    const char *name;
    bool blames_worker; /* it runs inside the worker's process, so a crash may be a message's fault */
    /* Appends problems of the handler section to `problems`. Asks no server and has no side effect.
     * It must know every key of its section. */
    void (*check)(const struct lw_config *c, struct lw_problems *problems);
    struct lw_handler *(*open)(const struct lw_config *c, int worker, struct lw_err *err);
    struct lw_slot *(*slot_open)(struct lw_handler *h, int slot, struct lw_err *err);
    size_t (*batch_max)(const struct lw_handler *h); /* maximum number of jobs in one run */
    /* Runs n jobs (1 <= n <= batch_max) of different keys and sets outcome and reason of each. Must end by itself: on
     * cancelled, on give_up_ms, and (where the effect is in another process) before deadline_ms. */
    void (*run)(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n);
    /* Everything below the committed watermark of this partition is done, so recorded identities
     * may be deleted. Called on the main thread; may do nothing. May be NULL. */
    void (*passed)(struct lw_handler *h, const char *topic, int32_t partition, int64_t watermark);
    /* Whether the handler can work; if not, `why` (may be NULL) gets the reason. Any thread may call it.
     * NULL: always well. */
    enum lw_health (*health)(struct lw_handler *h, char *why, size_t size);
    /* For `check`: returns 0 if the slot's process has started and runs for at least wait_ms. NULL:
     * slot_open has checked everything. */
    int (*slot_check)(struct lw_handler *h, struct lw_slot *s, int wait_ms, struct lw_err *err);
    void (*slot_close)(struct lw_handler *h, struct lw_slot *s);
    void (*close)(struct lw_handler *h);
};

/* Returns NULL with an error if there is no such type: it names the known types, and the nearest.
 * For http it says "not in this version". */
const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err);
extern const struct lw_handler_type lw_handler_exec, lw_handler_plugin, lw_handler_insert;

#endif
