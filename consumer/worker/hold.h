/* SPDX-License-Identifier: Apache-2.0 */
/* hold: one acquisition of a lane, and the messages granted under it. */
#ifndef LW_CONSUMER_WORKER_HOLD_H
#define LW_CONSUMER_WORKER_HOLD_H

#include "consumer/worker/lease.h"

struct lane;
struct lw_worker;
struct msg;
struct part;
struct run;

enum hold_kind { FAST, LANE }; /* gate said run; or heads handed over by claim or settle */

/* One acquisition of a lane, under one lease: its messages run one after the other. What is finished stands first, then at most one that
 * runs, then what is granted ahead. The first that is not done is the last to run: what was granted behind it is taken back. */
struct hold {
    struct lw_lease lease;
    struct lane *lane;
    enum hold_kind kind;
    uint64_t fence; /* as the lock's value names it */
    struct run *first, **tail;
    int n;          /* messages granted since the lane was last looked at for others (max_run) */
    int n_finished; /* how many runs, from the first on, are FINISHED */
    int n_open;     /* behind them: RUNNING, SENDING or AHEAD */
    int n_in_call;  /* how many runs, from the first on, are in the settle that is under way */
    bool failed;    /* the last finished one is not done: nothing more runs */
    bool stale;     /* settle said so (S), its lease is another's: nothing more is recorded, and the lane waits until what runs has ended */
    bool lost;      /* its epoch is (LOST) */
    bool listed;    /* in its shard's list of those to settle */
    int64_t done_ms; /* when the first of the finished came */
    struct hold *next;
};

struct hold *hold_new(struct lw_worker *w, struct lane *l, enum hold_kind kind, uint64_t token, uint64_t fence, int64_t deadline_ms);
void hold_free(struct lw_worker *w, struct hold *h);                                            /* its runs must have gone */
void hold_grant(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries); /* starts it when its turn has come */
void hold_cut(struct lw_worker *w, struct hold *h);                                             /* takes back what has not started */
void hold_drop_runs(struct lw_worker *w, struct hold *h, int n);                                /* the first n, which are finished */
void hold_to_settle(struct lw_worker *w, struct hold *h);
bool hold_has(const struct hold *h, const struct part *p, int64_t offset, struct msg **m);
void hold_to_lost(struct lw_worker *w, struct hold *h);   /* its epoch is lost */
void hold_to_stale(struct lw_worker *w, struct hold *h);  /* its lease is: nothing more of it is settled */
void hold_maybe_end(struct lw_worker *w, struct hold *h); /* stale or lost: over once nothing runs */
size_t wanted_heads(const struct lw_worker *w);
bool drops_busy(const struct lw_worker *w); /* true with queue.on_busy drop */
bool runs_ahead(const struct lw_worker *w);

#endif
