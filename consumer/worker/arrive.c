/* SPDX-License-Identifier: Apache-2.0 */
/* arrive: the step in which Kafka delivers a record. The record becomes a message in the memory of
 * this worker, behind the other messages of its lane. There are two exceptions: the record was
 * delivered before, or it has no key and key.missing says to skip such records. */
#include "consumer/worker/private.h"

/* HELD_MAX is the maximum number of records in memory that are neither in a call nor running. */
enum { HELD_MAX = 20000 };

/* Sets the text under which Redis stores the message's business id: the lane and the id or, if they
 * are too long, a hash of both, as for a lane's name. */
static void set_dedup(struct lw_worker *w, struct msg *m, const struct lw_record *r,
                      struct lw_bytes lane) {
    assert(!m->dedup_own && !m->dedup.n);
    struct lw_bytes id;
    if (!w->c->dedup.business ||
        lw_key_find(&w->c->dedup.id, r, &w->scratch2, &id, NULL) != LW_KEY_OK)
        return;
    struct lw_buf b = {0};
    lw_buf_addf(&b, "%zu:", lane.n);
    lw_buf_add(&b, lane.p, lane.n);
    lw_buf_add(&b, id.p, id.n);
    char room[LW_LANE_ROOM];
    struct lw_bytes name = lw_lane_id(lw_bytes(b.p, b.n), room, sizeof room);
    if (name.p == room) {
        b.n = 0;
        lw_buf_add(&b, name.p, name.n);
    }
    m->dedup_own = b.p;
    m->dedup = lw_bytes(b.p, b.n);
}

/* Holds the key and the lane of a record, or the reason why it has no key. */
struct found {
    enum lw_key_result how;
    /* the key, and the id of the lane; each record without a key gets a lane of its own */
    struct lw_bytes key, lane;
    uint32_t tag;
    struct lw_err err; /* the reason why the record has no key */
    char room[LW_IDENTITY_MAX];
};

static void find_lane(struct lw_worker *w, const struct part *p, const struct lw_arrival *a,
                      struct found *f) {
    assert(a->offset >= 0);
    f->key = lw_bytes("", 0);
    f->err = (struct lw_err){0};
    const struct lw_record_at at = {lw_bytes_of(p->topic), p->partition, a->offset};
    f->how = lw_key_of(w->c, &a->record, &at, &w->scratch, &f->key, &f->err);
    f->lane = f->how == LW_KEY_OK
                  ? lw_lane_id(f->key, f->room, sizeof f->room)
                  : lw_lane_without_key(p->name, a->offset, f->room, sizeof f->room);
    shard_of(w, f->lane, &f->tag);
    assert(f->lane.n <= LW_LANE_MAX);
}

/* Notes the record's offset as delivered. Returns true if nothing else is to be done, because the
 * record was delivered before or is skipped. */
static bool is_over(struct lw_worker *w, struct part *p, const struct lw_arrival *a,
                    const struct found *f) {
    assert(p->gen && p->offsets);
    bool skip = f->how == LW_KEY_MISSING && w->c->key.missing == LW_MISSING_SKIP;
    enum lw_offset_state was = lw_offsets_deliver(p->offsets, a->offset, f->tag);
    if (skip) {
        lw_offsets_mark(p->offsets, a->offset, LW_OFF_DONE);
        count(&w->counts->skipped);
        outcome_of_record(w, p, a->offset, lw_bytes("", 0), LW_END_SKIPPED, f->err.text);
    } else if (was != LW_OFF_UNKNOWN) {
        count(&w->counts->redelivered);
    }
    return skip || was != LW_OFF_UNKNOWN;
}

static void set_key(struct lw_worker *w, struct msg *m, const struct lw_arrival *a,
                    const struct found *f) {
    assert(!m->own && !m->dead_reason);
    m->key = f->key;
    if (f->how != LW_KEY_OK) {
        m->dead_reason = lw_strdup(f->err.text);
        m->key = a->record.key;
    } else if (f->key.n && f->key.p == w->scratch.p) {
        /* The key was decoded into the scratch buffer, so its bytes are not part of the record, and
         * the message needs its own copy. */
        m->own = lw_memdup(f->key.p, f->key.n);
        m->key = lw_bytes(m->own, f->key.n);
    }
}

static struct msg *message_of(struct lw_worker *w, struct part *p, const struct lw_arrival *a,
                              const struct found *f) {
    assert(p->gen && p->offsets);
    assert(a->record.headers || !a->record.n_headers);
    struct msg *m = msg_new(w, p);
    assert(p->gen && p->offsets);
    m->gen = p->gen;
    m->pass = p->pass;
    m->tag = f->tag;
    m->offset = a->offset;
    m->timestamp_ms = a->timestamp_ms;
    m->first_ms = w->io->wall_ms(w->ctx);
    m->payload = a->record.payload;
    m->origin = a->origin;
    if (a->record.n_headers) {
        m->headers = (struct lw_header *)(void *)lw_memdup(
            a->record.headers, a->record.n_headers * sizeof m->headers[0]);
        m->n_headers = a->record.n_headers;
    }
    set_key(w, m, a, f);
    msg_count(w, m, a->record.payload.n + a->record.key.n);
    if (f->how == LW_KEY_OK) set_dedup(w, m, &a->record, f->lane);
    return m;
}

void lw_worker_arrived(struct lw_worker *w, uint32_t gen, const struct lw_arrival *a) {
    assert(a->offset >= 0 && gen);
    struct part *p = part_of_gen(w, gen);
    struct found f;
    assert(a->offset >= 0);
    if (p) {
        count(&w->counts->received);
        find_lane(w, p, a, &f);
    }
    if (!p || is_over(w, p, a, &f)) {
        /* the record needs no handler, or it belongs to an earlier assignment of the partition */
        w->io->release(w->ctx, a->origin);
        return;
    }
    struct msg *m = message_of(w, p, a, &f);
    if (p->n_meta) part_look_in_meta(w, p, m);
    struct lane *l = lane_get(w, f.lane);
    lane_push(w, l, m);
    lane_wake(w, l);
}

size_t lw_worker_wants(const struct lw_worker *w) {
    check_worker(w);
    assert(w->memory.big > 0);
    if (w->stopping || w->held >= HELD_MAX || w->memory.held >= w->bytes.held) return 0;
    size_t fit = (w->bytes.held - w->memory.held) / w->memory.big + 1;
    return fit < HELD_MAX - w->held ? fit : HELD_MAX - w->held;
}
