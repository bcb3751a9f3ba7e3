/* SPDX-License-Identifier: Apache-2.0 */
/* hold: the part of the worker that handles one acquisition of a lane, and the messages granted
 * under it. */
#ifndef LW_CONSUMER_WORKER_HOLD_H
#define LW_CONSUMER_WORKER_HOLD_H

#include "consumer/worker/lease.h"

#include <assert.h>

struct lane;
struct lw_worker;
struct msg;
struct part;
struct run;

/* Says how the messages of a hold were granted. FAST: gate let them run at once. LANE: claim or
 * settle handed over heads of the waiting list. */
enum hold_kind { FAST, LANE };

/* Describes one acquisition of a lane, under one lease. Its messages run one after the other. The
 * list of runs begins with the finished runs. Then comes at most one that is running, and then the
 * runs granted ahead. A run that does not end as done is the last one of the list, because the
 * grants after it are withdrawn. */
struct hold {
    struct lw_lease lease;
    struct lane *lane;
    enum hold_kind kind;
    uint64_t fence; /* first fence of the acquisition, which is part of the lock's value */
    struct run *first, **tail;
    /* `n` is the number of messages granted since the lane last let other lanes go first
     * (lock.max_run) */
    int n;
    int n_finished; /* number of runs at the front of the list that are FINISHED */
    int n_open;     /* number of unfinished runs, which are RUNNING, SENDING or AHEAD */
    int n_in_call;  /* number of runs at the front of the list that the unanswered settle reports */
    /* `failed` is true if the outcome of the last finished run was not LW_DONE, so no further run
     * starts */
    bool failed;
    /* `stale` is true if the lease no longer belongs to this worker (settle has answered S). Then
     * nothing more is recorded, and the lane waits until the last run has ended. */
    bool stale;
    bool lost;   /* true: the epoch of the hold's shard was lost */
    bool listed; /* true: the hold is in its shard's list of holds to settle */
    /* `done_ms` is the time at which the first finished run ended, or the time of the answer to the
     * last settle, if that is later */
    int64_t done_ms;
    struct hold *next;
};

struct hold *hold_new(struct lw_worker *w, struct lane *l, enum hold_kind kind, uint64_t token,
                      uint64_t fence, int64_t deadline_ms);
/* Takes a hold out of its lane, and frees it with the runs that are left in it. */
void hold_free(struct lw_worker *w, struct hold *h);
/* Grants a message. It starts after the messages that were granted before it. */
void hold_grant(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries);
/* Links the runs behind `r`, which starts now, up to the first run that only the main thread may
 * start. */
void hold_link(struct lw_worker *w, struct run *r);
/* Withdraws the grants that have not started. */
void hold_cut(struct lw_worker *w, struct hold *h);
/* Frees all holds of a lane. */
void holds_free(struct lw_worker *w, struct lane *l);
/* Removes a run from a lost hold and frees the run, wherever it is in the list. */
void hold_remove(struct lw_worker *w, struct hold *h, struct run *r);
/* Removes and frees the first n runs of a hold. */
void hold_drop_runs(struct lw_worker *w, struct hold *h, int n);
void hold_to_settle(struct lw_worker *w, struct hold *h);
bool hold_has(const struct hold *h, const struct part *p, int64_t offset, struct msg **m);
/* Handles the loss of the epoch: keeps the hold only as long as a handler runs one of its messages,
 * or repair may still write one of them back. */
void hold_to_lost(struct lw_worker *w, struct hold *h);
/* Handles the loss of the lease: nothing more of the hold is settled. */
void hold_to_stale(struct lw_worker *w, struct hold *h);
/* Ends a stale or lost hold when none of its messages runs any more. */
void hold_maybe_end(struct lw_worker *w, struct hold *h);
size_t wanted_heads(const struct lw_worker *w);
bool runs_ahead(const struct lw_worker *w);

/* Asserts the invariants of a hold, which are true between two steps of its runs, but not within a
 * step. */
static inline void check_hold(const struct hold *h) {
    assert(h->lane && h->tail);
    assert(h->n_open >= 0 && h->n_in_call >= 0 && h->n_in_call <= h->n_finished);
    assert(h->first ? h->n_finished + h->n_open > 0
                    : !h->n_finished && !h->n_open && h->tail == &h->first);
    assert(!h->listed || (!h->lost && !h->stale));
}

/* Notes that the first of the open runs has ended. If the run has failed, no further run starts.
 * This function and those below are inline, because they are called for each message. */
static inline void hold_run_ended(struct hold *h, bool failed) {
    assert(h->n_open > 0);
    h->n_open--;
    h->n_finished++;
    h->failed |= failed;
}

/* Sets `done_ms` to `now`. A settle that does not report all runs of the hold is due some time
 * after `done_ms`, so that further runs can finish before the settle is sent. */
static inline void hold_waits_from(struct hold *h, int64_t now) { h->done_ms = now; }

/* Notes that an unanswered settle reports the first n finished runs. If n is 0, notes that no
 * settle of this hold is unanswered any more. */
static inline void hold_in_call(struct hold *h, int n) {
    assert(n >= 0 && n <= h->n_finished);
    h->n_in_call = n;
}

/* Removes the finished runs that a settle has reported, because the settle is answered. A failed
 * run is always the last finished run of its hold. So if no finished run is left, the failed run
 * has been removed, too. */
static inline void hold_settled(struct lw_worker *w, struct hold *h) {
    int n = h->n_in_call;
    h->n_in_call = 0;
    hold_drop_runs(w, h, n);
    if (!h->n_finished) h->failed = false;
}

/* Notes that the lane has let other lanes go first, so its messages are counted from 0 again up to
 * lock.max_run. */
static inline void hold_gave_way(struct hold *h) { h->n = 0; }

/* Notes that the messages which the hold gets from now on are heads of the waiting list. */
static inline void hold_to_heads(struct hold *h) { h->kind = LANE; }

#endif
