/* SPDX-License-Identifier: Apache-2.0 */
/* lane: the part of the worker that handles lanes, and their messages in memory. A lane is in
 * memory as long as it has a message, a run or an unanswered call. */

#include "consumer/worker/private.h"

#include <xxhash.h>

int shard_of(const struct lw_worker *w, struct lw_bytes lane, uint32_t *tag) {
    assert(w->n_shards > 0 && tag);
    return lw_lane_shard(lane, w->n_shards, tag);
}

/* Returns a lane's place in the table. Strangers choose the names, so the hash has a seed. */
static unsigned place_of(const struct lw_worker *w, struct lw_bytes id) {
    return (unsigned)XXH3_64bits_withSeed(id.p, id.n, w->lanes_seed);
}

static struct lane *find(struct shard *sh, struct lw_bytes id, unsigned place) {
    assert(id.p || !id.n);
    struct lane *l = NULL;
    HASH_FIND_BYHASHVALUE(hh, sh->lanes, id.p, id.n, place, l);
    return l;
}

struct lane *lane_find(struct lw_worker *w, struct shard *sh, struct lw_bytes id) {
    assert(id.n <= LW_LANE_MAX);
    return find(sh, id, place_of(w, id));
}

struct lane *lane_get(struct lw_worker *w, struct lw_bytes id) {
    assert(id.p || !id.n);
    assert(id.n <= LW_LANE_MAX);
    uint32_t tag;
    int s = shard_of(w, id, &tag);
    struct shard *sh = &w->shards[s];
    unsigned place = place_of(w, id);
    struct lane *l = find(sh, id, place);
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
    assert(!*l->tail);
    check_msg(m);
    assert(m->part && m->tag == l->tag);
    m->next = NULL;
    *l->tail = m;
    l->tail = &m->next;
    l->n++;
    w->held++;
}

void lane_push_front(struct lw_worker *w, struct lane *l, struct msg *m) {
    check_lane(l);
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
    check_lane(l);
    assert(l->head);
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
    check_lane(l);
}

void lane_drop_pending(struct lw_worker *w, const struct part *only) {
    check_worker(w);
    for (int s = 0; s < w->n_shards; s++) {
        struct lane *l, *tmp;
        HASH_ITER(hh, w->shards[s].lanes, l, tmp) {
            if (!l->head) continue;
            filter(w, l, only);
            lane_maybe_free(w, l);
        }
    }
}

/* Removes messages that no longer need gate from the front of the lane: they are finished, belong
 * to an earlier delivery, or are granted in this worker already. Returns the first message that is
 * left, or NULL. */
struct msg *lane_first_of(struct lw_worker *w, struct lane *l) {
    while (l->head) {
        struct msg *m = l->head;
        struct msg *same;
        if (l->hold && hold_has(l->hold, m->part, m->offset, &same)) {
            /* this worker has already granted the message, and that grant's settle covers this
             * delivery as well */
            if (l->hold->kind == LANE) part_mark(w, m->part, m->offset, LW_OFF_WAITING);
            same->gen = m->gen;
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
    gate_list(&w->shards[l->shard], l, now_ms(w));
}

void lanes_free(struct lw_worker *w, struct shard *sh) {
    assert(!pipe_in_flight(sh));
    struct lane *l, *tmp;
    HASH_ITER(hh, sh->lanes, l, tmp) {
        holds_free(w, l);
        HASH_DELETE(hh, sh->lanes, l);
        free(l->own);
        free(l);
    }
}
