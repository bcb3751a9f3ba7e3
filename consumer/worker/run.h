/* SPDX-License-Identifier: Apache-2.0 */
/* run: the step in which a granted message goes to the handlers and comes back with an outcome. */
#ifndef LW_CONSUMER_WORKER_RUN_H
#define LW_CONSUMER_WORKER_RUN_H

#include "handlers/handler.h"

#include <assert.h>

struct hold;
struct lw_worker;
struct msg;
struct part;

enum run_state { AHEAD, RUNNING, SENDING, FINISHED };

/* Describes a granted message and its outcome. */
struct run {
    /* the member `job` must stand first, because a pointer to a job that comes back is cast to its
     * run */
    struct lw_job job;
    struct hold *hold;
    struct msg *msg;
    enum run_state state;
    /* `outcome` is the outcome of the message: that of the handler (job.outcome), or dead if no
     * attempts are left */
    enum lw_outcome outcome;
    int tries;
    /* `linked` is true if the run is AHEAD, and the thread of the run before it may start it at any
     * time */
    bool linked;
    bool submitted; /* true: the job was given to the handlers */
    /* `accounted` is true if the run's outcome was added to the worker's counts, so it must not be
     * added again */
    bool accounted;
    /* `late` is true if the run was done only after its epoch was lost. Then the run blocks its
     * lane until repair has written the run back, or until it is too late to write it back. */
    bool late;
    bool in_repair;
    /* `rest_ms` is the time for which the lane rests, because the handler gave the message back
     * under a live lease; 0: no rest */
    int64_t rest_ms;
    /* `resend_ms` is the time at which the dead letter of a run in state SENDING is sent again; 0:
     * the letter is in flight */
    int64_t resend_ms;
    /* `next` is the next run of the same hold, in order, or the next run on the free list */
    struct run *next;
};

struct runs {         /* only run.c changes this struct */
    size_t in_flight; /* number of runs that have started and are not finished */
    /* `finished_since` is the number of runs that finished since the last call of runs_finished();
     * the window adapts to it. If several runs of one hold end as done in direct succession, like
     * the runs of a batch, they count as one. */
    size_t finished_since;
    /* `last_finished` is the hold of the run that finished last. The pointer is only compared,
     * because the hold may have been freed. */
    const struct hold *last_finished;
    struct lw_job **start; /* jobs that the next call of run_flush() gives to the handlers */
    size_t n_start, cap_start;
    size_t in_handler; /* number of runs that were given to the handlers and have not come back */
    /* `n_resend` is the number of dead letters that their topic has refused and that will be sent
     * again */
    size_t n_resend;
    uint64_t max_fence;
    /* `given_back` is an array. All lanes whose tags are equal modulo BACK_SLOTS share one element.
     * It counts how often handlers gave back messages of these lanes under a live lease. */
    struct given_back {
        uint32_t times; /* number of times in a row that a handler gave a message back */
        int64_t at_ms;
    } * given_back;
    struct run *free;
};

/* Returns the number of runs that finished since the last call of this function, and sets the
 * number to 0. Runs of one hold that ended as done in direct succession count as one. */
size_t runs_finished(struct lw_worker *w);
struct run *run_new(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries);
/* Takes the message out of a run, so that run_free() does not free it. */
struct msg *run_take_msg(struct run *r);
/* Makes r the follower of the run `before`, if that is still possible: the thread that runs
 * `before` then starts r next. */
void run_link(struct run *before, struct run *r);
/* Starts a run. No earlier run of its hold may be running. */
void run_start(struct lw_worker *w, struct run *r);
void run_free(struct lw_worker *w, struct run *r);
void run_finish(struct lw_worker *w, struct run *r, enum lw_outcome v);
void run_flush(struct lw_worker *w); /* passes started runs to the handlers */
/* Sends refused dead letters again, and passes started runs to the handlers. */
void run_step(struct lw_worker *w);
/* Gives back the runs of a revoked partition that were not given to a handler. */
void run_leave(struct lw_worker *w, const struct part *p);
/* Handles the loss of the epoch of a run. Returns true if nothing will report the end of the run,
 * because its dead letter is not in flight. */
bool run_lost(struct lw_worker *w, struct run *r);
void late_remove(struct lw_worker *w, struct run *r);

/* Asserts that the fields of a run agree with each other. The run must be in its hold and have its
 * message. */
static inline void check_run(const struct run *r) {
    assert(r->hold && r->msg);
    assert(!r->linked || r->state == AHEAD);
    assert(!r->submitted || r->state == RUNNING);
    assert(!r->resend_ms || r->state == SENDING);
    assert(!r->in_repair || r->late);
}

static inline void check_runs(const struct runs *all) { assert(all->n_start <= all->cap_start); }

#endif
