/* SPDX-License-Identifier: Apache-2.0 */
/* lane: the part of the worker that handles everything about one key, and its messages in
 * memory. */
#ifndef LW_CONSUMER_WORKER_LANE_H
#define LW_CONSUMER_WORKER_LANE_H

#include "base/bytes.h"

#include <assert.h>
#include <uthash.h>

struct hold;
struct lw_worker;
struct msg;
struct part;
struct shard;

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
    bool listed;  /* true: the lane is in its shard's list of lanes that wait to ask gate */
    /* `settled` is true if the lane's last call was a settle. If messages of the lane then wait for
     * gate, the lane's next call is a gate. */
    bool settled;
    /* `not_before_ms` is the time before which gate is not asked, because a Redis key of the lane
     * has the wrong type */
    int64_t not_before_ms;
    struct lane *gate_next;
};

struct lane *lane_get(struct lw_worker *w, struct lw_bytes id);
struct lane *lane_find(struct lw_worker *w, struct shard *sh, struct lw_bytes id);
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
int shard_of(const struct lw_worker *w, struct lw_bytes lane, uint32_t *tag);

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
 * or given up. */
static inline void lane_call(struct lane *l) {
    assert(!l->in_call);
    l->in_call = true;
}

/* Notes that the call that named the lane was answered or given up. */
static inline void lane_answered(struct lane *l) {
    assert(l->in_call);
    l->in_call = false;
}

/* Notes whether the lane's last call was a settle. */
static inline void lane_settled(struct lane *l, bool settled) { l->settled = settled; }

/* Forbids the lane to ask gate before this time. */
static inline void lane_hold_off(struct lane *l, int64_t until_ms) { l->not_before_ms = until_ms; }

#endif
