/* SPDX-License-Identifier: Apache-2.0 */
/* hold: the part of the worker that handles one acquisition of a lane, and the messages granted
 * under it, which run one after the other.
 *
 *     granted: AHEAD → RUNNING → FINISHED → settled
 *
 * If the next message was linked in time (handlers/handler.h), the thread that ran one message
 * starts the next one at once. So between two messages the lane waits neither for Redis nor for the
 * main thread. */
#include "consumer/worker/private.h"

/* Returns true if several messages of a lane may be granted at once and linked. For that,
 * lock.run_ahead must be greater than 1, and retry.order and dedup must allow it. */
bool runs_ahead(const struct lw_worker *w) {
    assert(w->c->lock.run_ahead >= 1);
    return w->c->lock.run_ahead > 1 && w->c->retry.order == LW_ORDER_BLOCK && !w->c->dedup.business;
}

size_t wanted_heads(const struct lw_worker *w) {
    assert(w->c->lock.run_ahead >= 1 && w->c->lock.run_ahead <= AHEAD_MAX);
    if (!runs_ahead(w)) return 1;
    return (size_t)w->c->lock.run_ahead;
}

struct hold *hold_new(struct lw_worker *w, struct lane *l, enum hold_kind kind, uint64_t token,
                      uint64_t fence, int64_t deadline_ms) {
    struct hold *h = w->free_holds;
    if (h)
        w->free_holds = h->next;
    else
        h = lw_alloc(sizeof *h);
    /* the memory of the lease is not cleared, because a renewal under way may still read it
     * (consumer/worker/lease.h) */
    h->lane = l;
    h->kind = kind;
    h->fence = fence;
    h->first = NULL;
    h->tail = &h->first;
    h->n = h->n_finished = h->n_open = h->n_in_call = 0;
    h->failed = h->stale = h->lost = h->listed = false;
    h->next = NULL;
    assert(!l->hold && !l->lost && fence);
    l->hold = h;
    h->lease.shard = l->shard;
    h->lease.lane = l->id;
    h->lease.token = token;
    lw_leases_add(w->leases, &h->lease, deadline_ms);
    return h;
}

void hold_free(struct lw_worker *w, struct hold *h) {
    assert(h->lane);
    if (h->lane->hold == h) h->lane->hold = NULL;
    if (h->listed) settle_unlist(&w->shards[h->lease.shard], h);
    lw_leases_remove(w->leases, &h->lease);
    hold_drop_runs(w, h, h->n_finished + h->n_open);
    h->next = w->free_holds;
    w->free_holds = h;
}

void holds_free(struct lw_worker *w, struct lane *l) {
    while (l->lost) {
        struct hold *h = l->lost;
        l->lost = h->next;
        hold_free(w, h);
    }
    if (l->hold) hold_free(w, l->hold);
}

static bool may_link(const struct lw_worker *w, const struct run *before, const struct msg *m) {
    assert(before && before->hold);
    if (before->state == RUNNING ? !before->submitted || before->job.suspect
                                 : before->state != AHEAD || !before->linked)
        return false;
    return !m->dead_reason && (!w->set.board || atomic_load(&w->set.board->n_suspects) == 0);
}

void hold_grant(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence, int tries) {
    assert(h->tail && !*h->tail);
    assert(!h->lost && !h->stale && !h->failed);
    struct run *r = run_new(w, h, m, fence, tries), *before = h->first;
    while (before && before->next) before = before->next;
    *h->tail = r;
    h->tail = &r->next;
    h->n_open++;
    h->n++;
    if (!before || before->state == FINISHED)
        run_start(w, r);
    else if (may_link(w, before, m))
        run_link(before, r);
}

/* Links the grants behind a run that starts now. hold_grant() links a grant only if the run before
 * it is with the handlers or is linked itself. If this function did not link the other grants, the
 * messages of the lane would pass through the main thread one by one, and batch handlers would get
 * batches of one. */
void hold_link(struct lw_worker *w, struct run *r) {
    for (struct run *next = r->next; next && may_link(w, r, next->msg);
         r = next, next = next->next) {
        assert(next->state == AHEAD && !next->linked);
        run_link(r, next);
    }
}

void hold_drop_runs(struct lw_worker *w, struct hold *h, int n) {
    assert(n >= 0 && n <= h->n_finished + h->n_open);
    while (n-- > 0) {
        struct run *r = h->first;
        assert(r);
        h->first = r->next;
        if (!h->first) h->tail = &h->first;
        if (r->state == FINISHED)
            h->n_finished--;
        else
            h->n_open--;
        run_free(w, r);
    }
}

void hold_remove(struct lw_worker *w, struct hold *h, struct run *r) {
    assert(h->lost && h->n_open > 0);
    struct run **at = &h->first;
    while (*at && *at != r) at = &(*at)->next;
    assert(*at == r);
    *at = r->next;
    if (!*at) h->tail = at;
    h->n_open--;
    run_free(w, r);
}

/* Withdraws the grant `r`, which has not started. First withdraws the grants behind `r`. A message
 * of the fast path goes back to the front of its lane in memory. A head is only freed, because it
 * is still in its waiting list. */
static void take_back(struct lw_worker *w, struct hold *h, struct run *r) {
    assert(!r || r->state == AHEAD);
    if (!r) return;
    take_back(w, h, r->next);
    struct msg *m = run_take_msg(r);
    h->n_open--;
    if (h->kind == FAST && !h->lost && msg_current(m))
        lane_push_front(w, h->lane, m);
    else
        msg_free(w, m);
    run_free(w, r);
}

void hold_cut(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    struct run **at = &h->first, *before = NULL;
    while (*at && (*at)->state != AHEAD) before = *at, at = &(*at)->next;
    while (*at && (*at)->linked) {
        struct run *r = *at;
        assert(before);
        if (before->state == SENDING || (before->state == FINISHED && before->outcome != LW_DONE))
            break; /* `before` did not end as done, so the thread does not start its follower */
        if (before->state != FINISHED && lw_job_unthen(&before->job, &r->job)) break;
        before = r; /* the follower has started or is about to start, so its end will be reported */
        at = &r->next;
    }
    struct run *first = *at;
    *at = NULL;
    h->tail = at;
    take_back(w, h, first);
    check_hold(h);
}

void hold_to_settle(struct lw_worker *w, struct hold *h) {
    struct shard *sh = &w->shards[h->lane->shard];
    if (h->lost) return;
    assert(h->lane->hold == h && !h->stale);
    if (h->listed) { /* a settle for this hold is already due */
        if (settle_due(w, h, 0)) settle_urge(sh);
        return;
    }
    settle_list(sh, h);
    if ((h->kind == LANE || h->lane->head || h->failed) && settle_due(w, h, 0)) settle_urge(sh);
}

bool hold_has(const struct hold *h, const struct part *p, int64_t offset, struct msg **m) {
    assert(m && p);
    for (struct run *r = h->first; r; r = r->next)
        if (r->msg && r->msg->part == p && r->msg->offset == offset) {
            *m = r->msg;
            return true;
        }
    return false;
}

/* Notes in this worker's memory which messages of a lost hold are done, because Redis was not told
 * before the epoch ended. Under a live lease no other worker can have run these messages. If the
 * lease has ended, the rule "first done only" applies, as in a settle. */
static void note_dones(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    assert(h->lost);
    bool live = atomic_load(&h->lease.held.deadline_ms) > now_ms(w);
    for (struct run *r = h->first; r && r->state == FINISHED && !h->stale; r = r->next) {
        if (r->outcome == LW_DONE) part_mark(w, r->msg->part, r->msg->offset, LW_OFF_DONE);
        if (!live) return;
    }
}

/* Moves a hold whose epoch is lost to the lost list of its lane. This worker notes which messages
 * are done, and the rewind decides which of them stay known as done. A handler continues until it
 * notices that its lease is cancelled. While the hold has a run, this worker starts no message of
 * the key. */
void hold_to_lost(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    struct lane *l = h->lane;
    assert(l->hold == h && !h->lost);
    settle_unlist(&w->shards[h->lease.shard], h);
    atomic_store(&h->lease.held.cancelled, true);
    h->lost = true;
    hold_cut(w, h);
    note_dones(w, h);
    h->n_in_call = 0;
    hold_drop_runs(w, h, h->n_finished);
    l->hold = NULL;
    lw_leases_remove(w->leases, &h->lease);
    atomic_store(&h->lease.held.cancelled, true);
    if (h->first && run_lost(w, h->first)) hold_drop_runs(w, h, 1);
    if (h->first) {
        h->next = l->lost;
        l->lost = h;
    } else {
        hold_free(w, h);
        lane_wake(w, l);
    }
}

/* Stops settling a hold whose lease no longer belongs to this worker. If a later message were
 * recorded as done and an earlier one were not, the earlier one would run again after the later
 * one. */
void hold_to_stale(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    assert(!h->lost);
    settle_unlist(&w->shards[h->lease.shard], h);
    h->stale = true;
    atomic_store(&h->lease.held.cancelled, true);
}

/* Ends a stale hold when none of its messages runs any more. The outcomes that are left in it are
 * not recorded, and its messages of the fast path ask gate again. */
static void end_stale(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    assert(h->stale && !h->lost);
    struct lane *l = h->lane;
    if (h->n_open || h->n_in_call) return;
    struct msg *again[4 * AHEAD_MAX];
    size_t n = 0;
    for (struct run *r = h->first; r; r = r->next) {
        count(&w->counts->stale);
        tell_end(w, r, LW_LOG_INFO, "was not recorded: its lease had gone to another");
        if (h->kind == LANE || !msg_current(r->msg)) continue;
        assert(n < sizeof again / sizeof again[0]);
        again[n++] = run_take_msg(r);
    }
    while (n) lane_push_front(w, l, again[--n]);
    hold_free(w, h);
    lane_wake(w, l);
}

static void end_lost(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    assert(h->lost && h->lane->hold != h);
    struct lane *l = h->lane;
    if (h->first) return;
    for (struct hold **at = &l->lost; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    hold_free(w, h);
    lane_wake(w, l);
}

void hold_maybe_end(struct lw_worker *w, struct hold *h) {
    check_hold(h);
    if (h->lost)
        end_lost(w, h);
    else if (h->stale)
        end_stale(w, h);
}
