/* SPDX-License-Identifier: Apache-2.0 */
/* The tracker consists of two parts: a ring of delivered records in order of offset, which starts
 * at the watermark, and `ahead`, sorted ranges of offsets that are known to be done before their
 * delivery. `next` is the end of the delivered offsets: no record at or above it was delivered.
 *
 * Invariants: the first record of the ring is unfinished, so its offset is the watermark; if the
 * ring is empty, the watermark equals `next`. The offset of every record is below `next`. Every
 * range of `ahead` is at or above `next`. Ranges neither touch nor overlap. */
#include "queue/offsets.h"

#include <assert.h>
#include <stdlib.h>

struct record {
    int64_t offset;
    uint32_t tag;
    uint32_t state; /* enum lw_offset_state as a 32-bit number, so that a record takes 16 bytes */
};

struct lw_offsets {
    struct record *ring;
    size_t cap, head, n; /* cap is the capacity of the ring, which is 0 or a power of two */
    /* number of records that have left the ring at the front; index + dropped is the position of a
     * record, which never changes */
    uint64_t dropped;
    int64_t next;
    size_t waiting, unfinished;
    struct lw_range *ahead;
    size_t n_ahead, cap_ahead;
};

enum { RING_MIN = 64, RING_SHRINK = 8 };

/* Asserts that waiting <= unfinished <= n <= cap, and that cap is 0 or a power of two. */
static inline void check_counts(const struct lw_offsets *t) {
    assert(t->n <= t->cap && (t->cap & (t->cap - 1)) == 0);
    assert(t->waiting <= t->unfinished && t->unfinished <= t->n);
}

/* Asserts the invariants stated at the top of this file, as far as they can be checked at the ends
 * of the ring and of the ranges. */
static inline void check_offsets(const struct lw_offsets *t) {
    check_counts(t);
    assert(!t->n || t->head < t->cap);
    assert(!t->n || t->ring[t->head].state != LW_OFF_DONE);
    assert(!t->n || t->ring[t->head].offset < t->next);
    assert(!t->n_ahead || t->ahead[0].lo >= t->next);
}

static struct record *at(const struct lw_offsets *t, size_t i) {
    assert(i < t->n);
    return &t->ring[(t->head + i) & (t->cap - 1)];
}

static void ring_resize(struct lw_offsets *t, size_t cap) {
    assert(cap >= RING_MIN && (cap & (cap - 1)) == 0);
    assert(cap > t->n);
    struct record *ring = lw_alloc(cap * sizeof *ring);
    for (size_t i = 0; i < t->n; i++) ring[i] = *at(t, i);
    free(t->ring);
    t->ring = ring;
    t->cap = cap;
    t->head = 0;
}

static void ring_push(struct lw_offsets *t, struct record r) {
    if (t->n == t->cap) ring_resize(t, t->cap ? t->cap * 2 : RING_MIN);
    t->n++;
    *at(t, t->n - 1) = r;
    assert(t->n <= t->cap);
}

/* Removes finished records from the front of the ring. The offset of the first remaining record is
 * the watermark. */
static void drop_finished(struct lw_offsets *t) {
    while (t->n && at(t, 0)->state == LW_OFF_DONE) {
        t->head = (t->head + 1) & (t->cap - 1);
        t->n--;
        t->dropped++;
    }
    if (t->cap > RING_MIN && t->n < t->cap / RING_SHRINK) ring_resize(t, t->cap / 2);
    check_counts(t);
}

/* Returns the index of the first record at or above `offset`. Offsets grow by at least one per
 * record, so the offsets of the first and last record bound the index. If there are no gaps, the
 * two bounds are equal. */
static size_t lower_bound(const struct lw_offsets *t, int64_t offset) {
    if (t->n == 0 || offset <= at(t, 0)->offset) return 0;
    int64_t last = at(t, t->n - 1)->offset;
    if (offset > last) return t->n;
    uint64_t from_first = (uint64_t)offset - (uint64_t)at(t, 0)->offset,
             from_last = (uint64_t)last - (uint64_t)offset;
    size_t lo = from_last >= t->n ? 0 : t->n - 1 - (size_t)from_last,
           hi = from_first >= t->n ? t->n - 1 : (size_t)from_first;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (at(t, mid)->offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct record *find(const struct lw_offsets *t, int64_t offset) {
    if (!t->n) return NULL;
    /* index of the record, if there is no gap before it */
    uint64_t straight = (uint64_t)offset - (uint64_t)at(t, 0)->offset;
    struct record *r = straight < t->n ? at(t, (size_t)straight) : NULL;
    if (r && r->offset == offset) return r;
    size_t i = lower_bound(t, offset);
    assert(i <= t->n);
    return i < t->n && at(t, i)->offset == offset ? at(t, i) : NULL;
}

/* Returns the index of the first range of `ahead` that ends above `offset`. */
static size_t ahead_above(const struct lw_offsets *t, int64_t offset) {
    assert(t->n_ahead <= t->cap_ahead);
    size_t lo = 0, hi = t->n_ahead;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->ahead[mid].hi <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool ahead_has(const struct lw_offsets *t, int64_t offset) {
    size_t i = ahead_above(t, offset);
    return i < t->n_ahead && t->ahead[i].lo <= offset;
}

static void ahead_add(struct lw_offsets *t, struct lw_range r) {
    assert(r.lo < r.hi && r.lo >= t->next);
    /* r touches or overlaps the ranges from first to last - 1 */
    size_t first = r.lo == INT64_MIN ? 0 : ahead_above(t, r.lo - 1), last = first;
    for (; last < t->n_ahead && t->ahead[last].lo <= r.hi; last++) {
        if (t->ahead[last].lo < r.lo) r.lo = t->ahead[last].lo;
        if (t->ahead[last].hi > r.hi) r.hi = t->ahead[last].hi;
    }
    size_t n = t->n_ahead - (last - first) + 1;
    t->ahead = lw_more(t->ahead, n - 1, &t->cap_ahead, sizeof *t->ahead);
    memmove(&t->ahead[first + 1], &t->ahead[last], (t->n_ahead - last) * sizeof r);
    t->ahead[first] = r;
    t->n_ahead = n;
    assert(n <= t->cap_ahead);
}

/* Raises t->next to `next`. Removes from t->ahead all offsets below `next`, because their records
 * are in the ring from now on, or do not exist. */
static void move_next(struct lw_offsets *t, int64_t next) {
    assert(next > t->next);
    t->next = next;
    size_t gone = ahead_above(t, next);
    if (gone) {
        t->n_ahead -= gone;
        memmove(t->ahead, t->ahead + gone, t->n_ahead * sizeof *t->ahead);
    }
    if (t->n_ahead && t->ahead[0].lo < next) t->ahead[0].lo = next;
    assert(!t->n_ahead || t->ahead[0].lo >= next);
}

struct lw_offsets *lw_offsets_open(int64_t committed) {
    struct lw_offsets *t = lw_alloc(sizeof *t);
    t->next = committed;
    check_offsets(t);
    return t;
}

void lw_offsets_free(struct lw_offsets *t) {
    if (!t) return;
    check_offsets(t);
    free(t->ring);
    free(t->ahead);
    free(t);
}

/* Inserts a record below `next` that had not been delivered before. Kafka delivers no record so
 * late, but a Kafka client may deliver records out of order (doc/design/traps.md), and no message
 * may be lost. */
static void insert_late(struct lw_offsets *t, int64_t offset, uint32_t tag) {
    assert(t->n && offset < t->next);
    size_t i = lower_bound(t, offset);
    ring_push(t, (struct record){.state = LW_OFF_DONE});
    for (size_t k = t->n - 1; k > i; k--) *at(t, k) = *at(t, k - 1);
    *at(t, i) = (struct record){offset, tag, LW_OFF_IN};
    t->unfinished++;
}

enum lw_offset_state lw_offsets_deliver(struct lw_offsets *t, int64_t offset, uint32_t tag) {
    if (offset < lw_offsets_watermark(t)) return LW_OFF_DONE;
    if (offset < t->next) {
        const struct record *r = find(t, offset);
        if (r) return (enum lw_offset_state)r->state;
        insert_late(t, offset, tag);
        return LW_OFF_UNKNOWN;
    }
    bool done = ahead_has(t, offset);
    move_next(t, offset + 1);
    if (!done || t->n) ring_push(t, (struct record){offset, tag, done ? LW_OFF_DONE : LW_OFF_IN});
    if (!done) t->unfinished++;
    check_counts(t);
    return done ? LW_OFF_DONE : LW_OFF_UNKNOWN;
}

void lw_offsets_end(struct lw_offsets *t, int64_t offset) {
    check_offsets(t);
    if (offset > t->next) move_next(t, offset);
}

bool lw_offsets_mark(struct lw_offsets *t, int64_t offset, enum lw_offset_state state) {
    check_counts(t);
    assert(state <= LW_OFF_DONE);
    struct record *r = find(t, offset);
    if (!r || state <= r->state) return false;
    if (r->state == LW_OFF_WAITING) t->waiting--;
    if (state == LW_OFF_WAITING) t->waiting++;
    if (state == LW_OFF_DONE) t->unfinished--;
    r->state = state;
    if (state == LW_OFF_DONE) drop_finished(t);
    return true;
}

void lw_offsets_ahead(struct lw_offsets *t, struct lw_range done) {
    check_offsets(t);
    if (done.lo < t->next) done.lo = t->next;
    if (done.lo < done.hi) ahead_add(t, done);
}

enum lw_offset_state lw_offsets_get(const struct lw_offsets *t, int64_t offset) {
    check_counts(t);
    if (offset >= t->next) return ahead_has(t, offset) ? LW_OFF_DONE : LW_OFF_UNKNOWN;
    const struct record *r = find(t, offset);
    if (!r && (!t->n || offset < at(t, 0)->offset)) return LW_OFF_DONE;
    return r ? (enum lw_offset_state)r->state : LW_OFF_UNKNOWN;
}

int64_t lw_offsets_watermark(const struct lw_offsets *t) {
    check_counts(t);
    return t->n ? at(t, 0)->offset : t->next;
}
int64_t lw_offsets_next(const struct lw_offsets *t) {
    check_counts(t);
    return t->next;
}
size_t lw_offsets_waiting(const struct lw_offsets *t) {
    check_counts(t);
    return t->waiting;
}
size_t lw_offsets_unfinished(const struct lw_offsets *t) {
    check_counts(t);
    return t->unfinished;
}

size_t lw_offsets_held(const struct lw_offsets *t) {
    check_counts(t);
    return t->n;
}

bool lw_offsets_find(const struct lw_offsets *t, enum lw_offset_state state, int64_t *offset,
                     size_t *budget) {
    check_offsets(t);
    for (size_t i = lower_bound(t, *offset); i < t->n; i++, --*budget) {
        *offset = at(t, i)->offset;
        if (!*budget) return false;
        if (at(t, i)->state == state) return true;
    }
    *offset = t->next;
    return false;
}

void lw_offsets_each(const struct lw_offsets *t, enum lw_offset_state state, int64_t lo, int64_t hi,
                     bool (*fn)(void *ctx, int64_t offset, uint32_t tag), void *ctx) {
    check_offsets(t);
    /* `pos` counts from the first record that was ever in the ring, including the records that have
     * left the ring. So `pos` stays valid if fn marks records and some of them leave the ring. */
    for (uint64_t pos = t->dropped + lower_bound(t, lo);; pos++) {
        if (pos < t->dropped) pos = t->dropped;
        if (pos - t->dropped >= t->n) return;
        struct record r = *at(t, (size_t)(pos - t->dropped));
        if (r.offset >= hi) return;
        if (r.state == state && !fn(ctx, r.offset, r.tag)) return;
    }
}

int64_t lw_offsets_rewind(struct lw_offsets *t, lw_offsets_keep_fn *keep, void *ctx) {
    check_offsets(t);
    t->n_ahead = 0;
    int64_t watermark = t->next = lw_offsets_watermark(t);
    for (size_t i = 0; i < t->n; i++) {
        struct record r = *at(t, i);
        if (keep && keep(ctx, r.offset, (enum lw_offset_state)r.state, r.tag) &&
            r.state == LW_OFF_DONE)
            ahead_add(t, (struct lw_range){r.offset, r.offset + 1});
    }
    free(t->ring);
    t->ring = NULL;
    t->cap = t->head = t->n = 0;
    t->waiting = t->unfinished = 0;
    check_offsets(t);
    return watermark;
}
