/* Handlers, seen from the worker: one interface for plugin, exec and insert, and the registry that knows them by name.
 *
 * Life: check → open (once a worker process, after fork) → slot_open (once a handler thread) → run… → slot_close → close.
 * `run` is called on its slot's thread only; all others on the worker's main thread. A worker has config.handler.threads slots.
 * A job is lent for the time of `run`. */
#ifndef LW_HANDLERS_HANDLER_H
#define LW_HANDLERS_HANDLER_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"
#include "consumer/key.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum lw_outcome {
    LW_DONE,  /* the effect happened, now or earlier under the same identity */
    LW_RETRY, /* try again after a backoff, counts an attempt */
    LW_DEAD,  /* never try again: a dead letter */
    LW_BACK,  /* not run (or unknown because the lease ended first): give it back, no attempt counted */
};

/* The lease of a job. The holder reads it from any thread. */
struct lw_job_lease {
    _Atomic int64_t deadline_ms; /* on lw_boot_ms()'s clock; moves on while the lease is renewed */
    atomic_bool cancelled;       /* the lease is lost or about to be: stop */
};

enum { LW_REASON_MAX = 512, LW_IDENTITY_MAX = 300 };

struct lw_job {
    char identity[LW_IDENTITY_MAX]; /* topic/partition/offset or topic/partition/offset#n */
    const char *topic;
    int32_t partition;
    int64_t offset, timestamp_ms;
    struct lw_bytes key, payload; /* p == NULL: null */
    const struct lw_header *headers;
    size_t n_headers;
    int attempt;    /* 1 at first */
    bool alone;     /* a suspect: nothing else runs in this worker meanwhile */
    uint64_t fence; /* grows with every message of a key: several may run under one lease, one after another, each with its own */
    struct lw_job_lease *lease;
    int64_t give_up_ms;  /* boot clock: handler.timeout_ms from the start of this job; INT64_MAX: none. Set by the pool at start */
    struct lw_job *next; /* the pool's own, between submit and reap */
    /* answered by run */
    enum lw_outcome outcome;
    char reason[LW_REASON_MAX]; /* for RETRY and DEAD; "" otherwise */
};

struct lw_handler; /* each type's own */
struct lw_slot;

struct lw_handler_type {
    const char *name;
    bool blames_worker; /* runs in the worker's process: a crash there may be the message's fault */
    /* Appends problems of the handler section to `problems`; no servers, no side effects. Knows every key of its section. */
    void (*check)(const struct lw_config *c, struct lw_problems *problems);
    struct lw_handler *(*open)(const struct lw_config *c, int worker, struct lw_err *err);
    struct lw_slot *(*slot_open)(struct lw_handler *h, int slot, struct lw_err *err);
    size_t (*batch_max)(const struct lw_handler *h); /* at most this many jobs in one run; 1 for one at a time */
    /* Runs n jobs (1 <= n <= batch_max) of different keys and sets outcome and reason of each. Must end by itself: on
     * cancelled, on give_up_ms, and (where the effect is in another process) before deadline_ms. */
    void (*run)(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n);
    /* Everything below the committed watermark of this partition is done: recorded identities may go. Main thread; may do nothing. May be
     * NULL. */
    void (*passed)(struct lw_handler *h, const char *topic, int32_t partition, int64_t watermark);
    void (*slot_close)(struct lw_handler *h, struct lw_slot *s);
    void (*close)(struct lw_handler *h);
};

/* NULL with an error that names the known types, and the nearest, where there is none; "not in this version" for http. */
const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err);
extern const struct lw_handler_type lw_handler_exec, lw_handler_plugin, lw_handler_insert;

#endif
