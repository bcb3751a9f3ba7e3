/* SPDX-License-Identifier: Apache-2.0 */
/* lane: a key's place in memory: its messages, and the hold under which some of them are granted.
 *
 * A lane is in memory as long as it has a message, a hold or an unanswered call. A hold is one
 * acquisition of the lane. Its messages run one after the other:
 *
 *     granted: AHEAD → RUNNING → FINISHED → settled
 *
 * If the next message was linked in time (handlers/handler.h), the thread that ran one message
 * starts the next one at once. So between two messages the lane waits neither for Redis nor for the
 * main thread.
 *
 * This file does not know what Redis is asked (gate.c, claim.c, settle.c), nor how a message is
 * handled (run.c). */
#include "consumer/worker/private.h"

#include <xxhash.h>

/* --- messages -------------------------------------------------------------------------------- */

void msgs_open(struct lw_worker *w) { w->memory.big = w->bytes.lane; }

struct msg *msg_new(struct lw_worker *w, struct part *p) {
    struct msg *m = w->memory.free;
    if (m)
        w->memory.free = m->next;
    else
        m = lw_alloc(sizeof *m);
    *m = (struct msg){.part = p};
    p->n_msgs++;
    return m;
}

void msg_count(struct lw_worker *w, struct msg *m, size_t n) {
    assert(!m->bytes);
    n += sizeof *m;
    /* if there is a `raw` envelope, n already includes the bytes of the headers */
    for (size_t i = 0; i < m->n_headers; i++)
        n += sizeof m->headers[i] + (m->raw.p ? 0 : m->headers[i].name.n + m->headers[i].value.n);
    m->bytes = n;
    w->memory.held += n;
    if (m->raw.p) w->memory.heads += n;
    w->memory.big -= w->memory.big / 256;
    if (n > w->memory.big) w->memory.big = n;
}

void msg_group(struct msg *m, struct group *g) {
    assert(!m->group);
    m->group = g;
    if (g) group_message(g, 1);
}

bool heads_fit(const struct lw_worker *w) { return w->memory.heads < w->bytes.heads; }

void msg_free(struct lw_worker *w, struct msg *m) {
    assert(m->part->n_msgs);
    if (!--m->part->n_msgs && m->part->replay) part_idle(w, m->part);
    assert(w->memory.held >= m->bytes);
    w->memory.held -= m->bytes;
    if (m->raw.p) w->memory.heads -= m->bytes;
    if (m->group) group_message(m->group, -1);
    if (m->origin) w->io->release(w->ctx, m->origin);
    free(m->own);
    free(m->headers);
    free(m->dedup_own);
    free(m->dead_reason);
    m->origin = NULL;
    m->next = w->memory.free;
    w->memory.free = m;
}

void msg_envelope(const struct msg *m, struct lw_buf *out) {
    if (m->raw.p) {
        lw_buf_add(out, m->raw.p, m->raw.n);
        return;
    }
    lw_envelope_encode(&(struct lw_envelope){.topic = lw_bytes_of(m->part->topic),
                                             .key = m->key,
                                             .dedup = m->dedup,
                                             .payload = m->payload,
                                             .partition = m->part->partition,
                                             .offset = m->offset,
                                             .replay = m->part->replay,
                                             .first_ms = m->first_ms,
                                             .timestamp_ms = m->timestamp_ms,
                                             .headers = m->headers,
                                             .n_headers = m->n_headers},
                       out);
}

/* --- lanes ----------------------------------------------------------------------------------- */

struct lane *lane_get(struct lw_worker *w, struct lw_bytes id) {
    assert(id.n <= LW_LANE_MAX);
    uint32_t tag;
    int s = lw_lane_shard(id, w->n_shards, &tag);
    struct shard *sh = &w->shards[s];
    /* strangers choose the names, so the hash has a seed */
    unsigned place = (unsigned)XXH3_64bits_withSeed(id.p, id.n, w->lanes_seed);
    struct lane *l;
    HASH_FIND_BYHASHVALUE(hh, sh->lanes, id.p, id.n, place, l);
    if (l) return l;
    l = w->free_lanes;
    if (l)
        w->free_lanes = l->gate_next;
    else
        l = lw_alloc(sizeof *l);
    *l = (struct lane){.shard = s, .tag = tag};
    char *to = id.n <= sizeof l->small ? l->small : (l->own = lw_alloc(id.n));
    if (id.n) memcpy(to, id.p, id.n);
    l->id = lw_bytes(to, id.n);
    l->tail = &l->head;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, sh->lanes, l->id.p, l->id.n, place, l);
    return l;
}

void lane_maybe_free(struct lw_worker *w, struct lane *l) {
    if (l->head || l->hold || l->lost || l->in_call || l->listed) return;
    check_lane(l);
    struct shard *sh = &w->shards[l->shard];
    HASH_DELETE(hh, sh->lanes, l);
    free(l->own);
    l->gate_next = w->free_lanes;
    w->free_lanes = l;
}

void lane_push(struct lw_worker *w, struct lane *l, struct msg *m) {
    check_msg(m);
    assert(m->tag == l->tag);
    m->next = NULL;
    *l->tail = m;
    l->tail = &m->next;
    l->n++;
    w->held++;
}

void lane_push_front(struct lw_worker *w, struct lane *l, struct msg *m) {
    assert(m->tag == l->tag);
    m->next = l->head;
    l->head = m;
    if (!m->next) l->tail = &m->next;
    l->n++;
    w->held++;
}

struct msg *lane_pop(struct lw_worker *w, struct lane *l) {
    struct msg *m = l->head;
    assert(m && l->n && w->held);
    l->head = m->next;
    if (!l->head) l->tail = &l->head;
    l->n--;
    w->held--;
    return m;
}

static void filter(struct lw_worker *w, struct lane *l, const struct part *only) {
    struct msg *m = l->head;
    l->head = NULL;
    l->tail = &l->head;
    l->n = 0;
    while (m) {
        struct msg *next = m->next;
        w->held--;
        if (!only || m->part == only)
            msg_free(w, m);
        else
            lane_push(w, l, m);
        m = next;
    }
}

void lane_drop_pending(struct lw_worker *w, const struct part *only) {
    for (int s = 0; s < w->n_shards; s++) {
        struct lane *l, *tmp;
        HASH_ITER(hh, w->shards[s].lanes, l, tmp) {
            if (!l->head) continue;
            filter(w, l, only);
            lane_maybe_free(w, l);
        }
    }
}

struct msg *lane_first_of(struct lw_worker *w, struct lane *l) {
    while (l->head) {
        struct msg *m = l->head;
        struct msg *same = l->hold ? hold_msg(l->hold, m->part, m->offset) : NULL;
        if (same) {
            /* this worker has already granted the message, and that grant's settle covers this
             * delivery as well */
            if (l->hold->kind == LANE) part_mark(m->part, m->offset, LW_OFF_WAITING);
            same->pass = m->pass;
        } else if (msg_current(m)) {
            return m;
        }
        msg_free(w, lane_pop(w, l));
    }
    return NULL;
}

/* Returns true if gate must be asked about messages that came after the lane's hold. After a
 * claimed hold gate is asked, and parks the messages. After a hold of the fast path the messages
 * stay in memory, as the local chain. */
static bool asks_behind(const struct lane *l) { return l->hold->kind == LANE; }

bool lane_may_gate(struct lw_worker *w, struct lane *l, int64_t now) {
    assert(!l->listed);
    if (l->in_call || l->lost || l->not_before_ms > now) return false;
    if (!lane_first(w, l)) return false;
    if (!l->hold) return true;
    if (!asks_behind(l)) return false;
    return l->hold->n_open && !l->hold->stale &&
           atomic_load(&l->hold->lease.held.deadline_ms) > now;
}

void lane_wake(struct lw_worker *w, struct lane *l) {
    if (l->listed || l->in_call || !l->head) {
        lane_maybe_free(w, l);
        return;
    }
    if (l->hold && (!asks_behind(l) || l->hold->stale)) return;
    gate_list(w, &w->shards[l->shard], l, now_ms(w));
}

/* --- holds ----------------------------------------------------------------------------------- */

struct hold *hold_new(struct lw_worker *w, struct lane *l, enum hold_kind kind, uint64_t token,
                      uint64_t fence, int64_t deadline_ms) {
    struct hold *h = w->free_holds;
    if (h)
        w->free_holds = h->next;
    else
        h = lw_alloc(sizeof *h);
    /* the memory of the lease is not cleared, because a renewal under way may still read it
     * (lock/lane/lease.h) */
    h->lane = l;
    h->kind = kind;
    h->fence = fence;
    h->first = NULL;
    h->tail = &h->first;
    h->n = h->n_finished = h->n_open = h->n_in_call = 0;
    h->failed = h->more = h->stale = h->lost = h->listed = false;
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

static bool may_link(const struct lw_worker *w, const struct run *before, const struct msg *m) {
    if (w->c->queue.on_busy == LW_BUSY_LATEST) return false;
    if (before->state == RUNNING ? !before->submitted || before->job.suspect
                                 : before->state != AHEAD || !before->linked)
        return false;
    return !m->dead_reason && (!w->set.board || atomic_load(&w->set.board->n_suspects) == 0);
}

void hold_grant(struct lw_worker *w, struct hold *h, struct msg *m, uint64_t fence,
                struct tried tried) {
    assert(!h->lost && !h->stale && !h->failed);
    struct run *r = run_new(w, h, m, fence, tried), *before = h->first;
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
    if (!r) return;
    assert(r->state == AHEAD);
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
        if (settle_at_once(w, h)) settle_urge(sh);
        return;
    }
    settle_list(sh, h);
    if ((h->kind == LANE || h->lane->head || h->failed) && settle_at_once(w, h)) settle_urge(sh);
}

void hold_more(const struct lw_worker *w, struct hold *h, bool more) {
    h->more = more && w->c->queue.on_busy == LW_BUSY_LATEST;
}

struct msg *hold_msg(const struct hold *h, const struct part *p, int64_t offset) {
    for (struct run *r = h->first; r; r = r->next)
        if (r->msg && r->msg->part == p && r->msg->offset == offset) return r->msg;
    return NULL;
}

/* Notes in this worker's memory which messages of a lost hold are done, because Redis was not told
 * before the epoch ended. Under a live lease no other worker can have run these messages. If the
 * lease has ended, the rule "first done only" applies, as in a settle. */
static void note_dones(struct lw_worker *w, struct hold *h) {
    bool live = atomic_load(&h->lease.held.deadline_ms) > now_ms(w);
    for (struct run *r = h->first; r && r->state == FINISHED && !h->stale; r = r->next) {
        if (r->outcome == LW_DONE) part_mark(r->msg->part, r->msg->offset, LW_OFF_DONE);
        if (!live) return;
    }
}

/* Moves a hold whose epoch is lost to the lost list of its lane. This worker notes which messages
 * are done, and the rewind decides which of them stay known as done. A handler continues until it
 * notices that its lease is cancelled. While the hold has a run, this worker starts no message of
 * the key. */
void hold_to_lost(struct lw_worker *w, struct hold *h) {
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
    assert(!h->lost);
    settle_unlist(&w->shards[h->lease.shard], h);
    h->stale = true;
    atomic_store(&h->lease.held.cancelled, true);
}

/* Ends a stale hold when none of its messages runs any more. The outcomes that are left in it are
 * not recorded, and its messages of the fast path ask gate again. */
static void end_stale(struct lw_worker *w, struct hold *h) {
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

static void holds_free(struct lw_worker *w, struct lane *l) {
    while (l->lost) {
        struct hold *h = l->lost;
        l->lost = h->next;
        hold_free(w, h);
    }
    if (l->hold) hold_free(w, l->hold);
}

void lanes_free(struct lw_worker *w, struct shard *sh) {
    assert(!sh->pipe.open);
    struct lane *l, *tmp;
    HASH_ITER(hh, sh->lanes, l, tmp) {
        holds_free(w, l);
        HASH_DELETE(hh, sh->lanes, l);
        free(l->own);
        free(l);
    }
}
