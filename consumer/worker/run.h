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

/* Describes a granted message and what became of it. */
struct run {
    /* this must be the first member, because a job that comes back is cast to its run */
    struct lw_job job;
    struct hold *hold;
    struct msg *msg;
    enum run_state state;
    /* outcome of the message: the handler's answer (job.outcome), or dead if no attempts are
     * left */
    enum lw_outcome outcome;
    int tries;
    /* in state AHEAD: the thread of the run before may start this run at any time */
    bool linked;
    bool submitted; /* the handlers have the job */
    bool accounted; /* the run's outcome was counted */
    /* the run ended as done, but only after its epoch was lost; it blocks its lane until repair
     * records it or gives up */
    bool late;
    bool in_repair;
    /* place of the run in its shard's row of unanswered outcomes (board.h), counted from 1; 0:
     * none */
    int unsure;
    /* time for which the lane rests, because the handler gave the message back under a live
     * lease */
    int64_t rest_ms;
    /* in state SENDING: time when the dead letter is sent again; 0 while its answer is awaited */
    int64_t resend_ms;
    /* the next run of the same hold, in order, or the next one on the free list */
    struct run *next;
    struct run *next_alone; /* next run that is held up behind a suspect */
};

struct runs {         /* only run.c changes this struct */
    size_t in_flight; /* number of runs that have started and are not finished */
    /* number of runs that finished since the last turn and left their place free; the window adapts
     * to it */
    size_t finished_since;
    struct lw_job **start; /* jobs to give to the handlers at the end of this step */
    size_t n_start, cap_start;
    size_t in_handler; /* number of runs that the handlers have */
    /* runs held up because a suspect must run alone: the suspect, and the runs granted after it */
    struct run *waiting, **waiting_tail;
    bool running_alone;
    /* number of dead letters that their topic refused and that will be sent again */
    size_t n_resend;
    uint64_t max_fence;
    /* by tag: lanes whose handlers recently gave messages back under a live lease */
    struct given_back {
        uint32_t times; /* how often in a row a handler gave back a message */
        int64_t at_ms;
    } * given_back;
    int64_t told_back_ms;
    struct run *free;
};

void runs_open(struct lw_worker *w);
/* forgets the runs that wait behind a suspect, so that they never start */
void runs_forget(struct lw_worker *w);
/* returns how many runs finished since its last call, without those whose next run took their
 * place */
size_t runs_finished(struct lw_worker *w);
struct run *run_new(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries);
/* starts a run; no earlier run of its hold may be running */
void run_start(struct lw_worker *w, struct run *r);
void run_free(struct lw_worker *w, struct run *r);
void run_finish(struct lw_worker *w, struct run *r, enum lw_outcome v);
void run_flush(struct lw_worker *w); /* passes started runs to the handlers */
/* sends dead letters again, starts suspects when due, and passes started runs to the handlers */
void run_step(struct lw_worker *w);
/* Called when the partition is revoked; gives back those of the partition's runs that no handler
 * has. */
void run_leave(struct lw_worker *w, const struct part *p);
/* takes the run out of the list of runs held up behind a suspect; returns false if it is not in the
 * list */
bool run_leave_line(struct lw_worker *w, struct run *r);
/* called when the epoch is lost; true if no thread or topic will answer for the run */
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

static inline void check_runs(const struct runs *all) {
    assert(all->n_start <= all->cap_start);
    assert(all->waiting_tail && (all->waiting || all->waiting_tail == &all->waiting));
    assert(!all->running_alone || all->in_handler > 0);
}

#endif
