/* SPDX-License-Identifier: Apache-2.0 */
/* lane: a key's place in memory, from the outside in:
 *
 *     lane ─┬─ messages about which gate has not decided yet, in order
 *           └─ hold: one acquisition ─── runs: granted messages, in order ─── message
 *
 * The functions are in lane.c, except those of runs (run.c). */
#ifndef LW_CONSUMER_WORKER_LANE_H
#define LW_CONSUMER_WORKER_LANE_H

#include "base/bytes.h"
#include "lock/lane/lease.h"
#include "consumer/worker/part.h"
#include "handlers/handler.h"
#include "queue/envelope.h"

#include <assert.h>
#include <uthash.h>

struct group;
/* Notes that there is one more (`by` is 1) or one less (-1) lane of a group in a call (group.c). */
void group_asked(struct group *g, int by);
struct hold;
struct lw_worker;
struct part;
struct run;
struct shard;

/* What a message has been through: its number of attempts, and the time of its first failure on the
 * clock of Redis; 0: it has not failed. */
struct tried {
    int n;
    int64_t first_ms;
};

/* --- messages -------------------------------------------------------------------------------- */

struct msg {
    struct msg *next;
    struct part *part;
    uint32_t pass; /* that of the partition at the delivery (part.h); 0: a head */
    uint32_t tag;
    int64_t offset, timestamp_ms, first_ms;
    struct lw_bytes key, payload, dedup;
    struct lw_header *headers; /* the headers, which the message owns */
    size_t n_headers;
    void *origin; /* Kafka record of the message, which is released through lw_io */
    char *own;    /* bytes that the message owns: a claimed envelope, or a decoded key */
    /* `raw` is the envelope as it is in its waiting list. If raw.p is NULL, the message has no
     * envelope yet, and msg_envelope() encodes one. */
    struct lw_bytes raw;
    char *dedup_own;
    /* `dead_reason` says why the record has no key. The message then becomes a dead letter with
     * this reason, and no handler gets it. NULL: the record has a key. */
    char *dead_reason;
    size_t bytes;        /* size of the message in memory, close to the size of its envelope */
    struct group *group; /* NULL: no limit of a group concerns the message */
};

/* Counts the memory that messages take, as records and as envelopes. */
struct memory {
    size_t held;  /* total size of all messages in memory, in bytes */
    size_t heads; /* total size of the messages that are heads, in bytes */
    /* `big` is the approximate size of the largest recent message, in bytes. It determines how many
     * messages are read at once. */
    size_t big;
    struct msg *free;
};

/* Assumes that messages are large (w->bytes.lane) until the sizes of real messages are known. */
void msgs_open(struct lw_worker *w);
struct msg *msg_new(struct lw_worker *w, struct part *p);
void msg_free(struct lw_worker *w, struct msg *m);
/* Adds the size of a new message to the counts: n bytes, and the bytes of the headers. */
void msg_count(struct lw_worker *w, struct msg *m, size_t n);
/* Returns true if the heads in memory are smaller in total than their limit (w->bytes.heads), so
 * that more heads may be claimed. */
bool heads_fit(const struct lw_worker *w);
/* Sets the group of a new message. */
void msg_group(struct msg *m, struct group *g);
/* Appends the message's envelope: the text in which it waits in Redis. */
void msg_envelope(const struct msg *m, struct lw_buf *out);

/* Returns true if the message belongs to the present delivery and is not finished. The function is
 * inline because every step calls it for every message. */
static inline bool msg_current(const struct msg *m) {
    assert(m && m->part);
    if (!m->pass || m->part->pass != m->pass) return false;
    enum lw_offset_state s = lw_offsets_get(m->part->offsets, m->offset);
    return s == LW_OFF_IN || s == LW_OFF_WAITING;
}

static inline void check_msg(const struct msg *m) {
    assert(m->part && m->part->n_msgs > 0);
    assert(m->offset >= 0 && m->bytes > 0);
    assert(!m->raw.p || m->own);
}

static inline void check_memory(const struct memory *mem) {
    assert(mem->heads <= mem->held);
    assert(mem->big > 0);
}

/* --- lanes ----------------------------------------------------------------------------------- */

/* Holds everything about one key. A lane is in memory as long as it has a message, a run or an
 * unanswered call. */
struct lane {
    UT_hash_handle hh;
    int shard;
    uint32_t tag;
    struct lw_bytes id; /* id of the lane; points to `own` or `small` */
    char small[48];
    char *own;
    /* The messages about which gate has not decided yet, in order; `head` is the first one. They
     * include the local chain behind a run of the fast path. */
    struct msg *head, **tail;
    size_t n;
    struct hold *hold;
    /* `lost` lists the holds of a lost epoch that have a run in a handler, or a run that ended as
     * done after the epoch and may still be written back by repair */
    struct hold *lost;
    bool in_call; /* true: an unanswered call names the lane */
    bool listed;  /* true: the lane is in a list of lanes that wait to ask gate */
    /* While the lane is listed, `waits` is the group in whose list it is. While a call asks for
     * the lane, `asks` is the group whose permit it needs. Otherwise both are NULL. */
    struct group *waits, *asks;
    /* `settled` is true if the lane's last call was a settle. If messages of the lane then wait for
     * gate, the lane's next call is a gate. */
    bool settled;
    /* `not_before_ms` is the time before which gate is not asked, because a Redis key of the lane
     * has the wrong type */
    int64_t not_before_ms;
    struct lane *gate_next;
};

struct lane_list { /* lanes that wait to ask gate, linked by gate_next */
    struct lane *head, *last;
};

struct lane *lane_get(struct lw_worker *w, struct lw_bytes id);
/* Adds the lane to the list of lanes that wait to ask gate, if its messages need gate. Frees the
 * lane if nothing is left in it. Call this function after each change of the lane. */
void lane_wake(struct lw_worker *w, struct lane *l);
bool lane_may_gate(struct lw_worker *w, struct lane *l, int64_t now);
/* Removes the messages in front of the first message that needs gate. Returns the message that
 * needs gate, or NULL if there is none. */
struct msg *lane_first_of(struct lw_worker *w, struct lane *l);
void lane_push(struct lw_worker *w, struct lane *l, struct msg *m);
void lane_push_front(struct lw_worker *w, struct lane *l, struct msg *m);
struct msg *lane_pop(struct lw_worker *w, struct lane *l);
/* Removes the messages of a partition that wait for gate. If `only` is NULL, removes those of all
 * partitions. */
void lane_drop_pending(struct lw_worker *w, const struct part *only);
void lane_maybe_free(struct lw_worker *w, struct lane *l);
void lanes_free(struct lw_worker *w, struct shard *sh);

/* Returns the first message that waits for gate, or NULL. The function is inline because most lanes
 * have no such message. */
static inline struct msg *lane_first(struct lw_worker *w, struct lane *l) {
    return l->head ? lane_first_of(w, l) : NULL;
}

/* Asserts that the fields of a lane agree with each other. */
static inline void check_lane(const struct lane *l) {
    assert(l->tail && l->shard >= 0);
    assert(l->head ? l->n > 0 : !l->n && l->tail == &l->head);
    assert(!l->hold || !l->lost);
}

/* Notes that a call names the lane. Nothing else about its key is sent until the call is answered
 * or given up. If `asks` is not NULL, the call may grant a message of this group. */
static inline void lane_call(struct lane *l, struct group *asks) {
    assert(!l->in_call);
    l->in_call = true;
    if (!asks) return;
    l->asks = asks;
    group_asked(asks, 1);
}

/* Notes that the call that named the lane was answered or given up. */
static inline void lane_answered(struct lane *l) {
    assert(l->in_call);
    l->in_call = false;
    if (!l->asks) return;
    group_asked(l->asks, -1);
    l->asks = NULL;
}

/* Notes whether the lane's last call was a settle. */
static inline void lane_settled(struct lane *l, bool settled) { l->settled = settled; }

/* Forbids the lane to ask gate before this time. */
static inline void lane_hold_off(struct lane *l, int64_t until_ms) { l->not_before_ms = until_ms; }

/* --- holds ----------------------------------------------------------------------------------- */

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
    /* `more` is true, with queue.on_busy `latest` only, if the last call gave as many heads as it
     * was asked for. Newer ones may wait, so the last run does not start before the settle that is
     * due has asked for them. */
    bool more;
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
void hold_grant(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence,
                struct tried tried);
/* Links the runs behind `r`, which starts now, up to the first run that only the main thread may
 * start. */
void hold_link(struct lw_worker *w, struct run *r);
/* Withdraws the grants that have not started. */
void hold_cut(struct lw_worker *w, struct hold *h);
/* Removes a run from a lost hold and frees the run, wherever it is in the list. */
void hold_remove(struct lw_worker *w, struct hold *h, struct run *r);
/* Removes and frees the first n runs of a hold. */
void hold_drop_runs(struct lw_worker *w, struct hold *h, int n);
void hold_to_settle(struct lw_worker *w, struct hold *h);
/* Notes whether newer heads may wait than those that the last call gave. */
void hold_more(const struct lw_worker *w, struct hold *h, bool more);
/* Returns the hold's message with this offset, or NULL. */
struct msg *hold_msg(const struct hold *h, const struct part *p, int64_t offset);
/* Handles the loss of the epoch: keeps the hold only as long as a handler runs one of its messages,
 * or repair may still write one of them back. */
void hold_to_lost(struct lw_worker *w, struct hold *h);
/* Handles the loss of the lease: nothing more of the hold is settled. */
void hold_to_stale(struct lw_worker *w, struct hold *h);
/* Ends a stale or lost hold when none of its messages runs any more. */
void hold_maybe_end(struct lw_worker *w, struct hold *h);

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

/* --- runs ------------------------------------------------------------------------------------ */

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
    struct tried tried;
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
    /* `dropped` is true if a newer message of the key is known, so no handler got this one */
    bool dropped;
    /* `rest_ms` is the time for which the lane rests, because the handler gave the message back
     * under a live lease; 0: no rest */
    int64_t rest_ms;
    /* `resend_ms` is the time at which the dead letter of a run in state SENDING is sent again; 0:
     * the letter is in flight */
    int64_t resend_ms;
    /* `next` is the next run of the same hold, in order, or the next run on the free list */
    struct run *next;
    /* handler time that its group was charged at the start, and time of the start (fair.c) */
    double charged_us;
    int64_t begun_ms;
};

struct runs {
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
struct run *run_new(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence,
                    struct tried tried);
/* Takes the message out of a run, so that run_free() does not free it. */
struct msg *run_take_msg(struct run *r);
/* Makes r the follower of the run `before`, if that is still possible: the thread that runs
 * `before` then starts r next. */
void run_link(struct run *before, struct run *r);
/* Starts a run. No earlier run of its hold may be running. */
void run_start(struct lw_worker *w, struct run *r);
void run_free(struct lw_worker *w, struct run *r);
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
