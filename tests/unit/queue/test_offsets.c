/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the offsets tracker with a simple model, which has one cell per offset and computes
 * every result from the cells. */
#include "queue/offsets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SPAN = 300, BASE = 1000, ROUNDS = 3000, STEPS = 150 };

struct model {
    enum lw_offset_state state[SPAN]; /* UNKNOWN if the record was not delivered */
    /* `ahead` is used for offsets from `next` on, and is true if the record is known to be done */
    bool ahead[SPAN];
    int next;
};

static uint64_t rng;
static uint32_t rnd(uint32_t below) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % below;
}

static int model_watermark(const struct model *m) {
    for (int i = 0; i < m->next; i++)
        if (m->state[i] == LW_OFF_IN || m->state[i] == LW_OFF_WAITING) return i;
    return m->next;
}

static enum lw_offset_state model_get(const struct model *m, int i) {
    if (i < model_watermark(m) || (i >= m->next && m->ahead[i])) return LW_OFF_DONE;
    return i < m->next ? m->state[i] : LW_OFF_UNKNOWN;
}

static enum lw_offset_state model_deliver(struct model *m, int i) {
    enum lw_offset_state before = model_get(m, i);
    if (i >= m->next) {
        m->state[i] = before == LW_OFF_DONE ? LW_OFF_DONE : LW_OFF_IN;
        m->next = i + 1;
    } else if (before == LW_OFF_UNKNOWN) {
        m->state[i] = LW_OFF_IN;
    }
    return before;
}

static bool model_mark(struct model *m, int i, enum lw_offset_state s) {
    if (i >= m->next || i < model_watermark(m) || m->state[i] == LW_OFF_UNKNOWN || m->state[i] >= s)
        return false;
    m->state[i] = s;
    return true;
}

static bool keeps(int64_t offset, enum lw_offset_state s) {
    return s != LW_OFF_DONE || (offset * 7) % 3 != 0;
}
struct asked {
    int64_t last;
    const struct model *m;
    size_t n;
};
static bool keep_fn(void *ctx, int64_t offset, enum lw_offset_state s, uint32_t tag) {
    struct asked *a = ctx;
    assert_int_equal(tag, (uint32_t)offset);
    assert_true(offset > a->last);
    assert_int_equal(s, a->m->state[offset - BASE]);
    a->last = offset;
    a->n++;
    return keeps(offset, s);
}

static void rewind_both(struct lw_offsets *t, struct model *m) {
    struct model before = *m;
    struct asked a = {.last = -1, .m = &before};
    int w = model_watermark(m);
    size_t records = 0;
    for (int i = 0; i < SPAN; i++) {
        bool delivered = i >= w && i < m->next && m->state[i] != LW_OFF_UNKNOWN;
        records += delivered;
        if (delivered) m->ahead[i] = m->state[i] == LW_OFF_DONE && keeps(BASE + i, LW_OFF_DONE);
        if (i >= w && i < m->next && !delivered) m->ahead[i] = false;
        if (i >= m->next) m->ahead[i] = false;
    }
    for (int i = w; i < SPAN; i++) m->state[i] = LW_OFF_UNKNOWN;
    m->next = w;
    assert_int_equal(lw_offsets_rewind(t, keep_fn, &a), BASE + w);
    assert_int_equal(a.n, records);
}

struct seen {
    struct lw_range want;
    const struct model *m;
    enum lw_offset_state state;
    size_t n, stop_at;
    int64_t last;
};
static bool each_fn(void *ctx, int64_t offset, uint32_t tag) {
    struct seen *s = ctx;
    assert_int_equal(tag, (uint32_t)offset);
    assert_true(offset > s->last && offset >= s->want.lo && offset < s->want.hi);
    assert_int_equal(s->m->state[offset - BASE], s->state);
    s->last = offset;
    return ++s->n != s->stop_at;
}

static void compare_each(const struct lw_offsets *t, const struct model *m) {
    int64_t lo = BASE + rnd(SPAN), hi = lo + rnd(SPAN);
    enum lw_offset_state state = LW_OFF_IN + rnd(3);
    size_t want = 0;
    for (int i = model_watermark(m); i < m->next; i++)
        want += m->state[i] == state && BASE + i >= lo && BASE + i < hi;
    struct seen s = {{lo, hi}, m, state, 0, 0, -1};
    lw_offsets_each(t, state, lo, hi, each_fn, &s);
    assert_int_equal(s.n, want);
    s = (struct seen){{lo, hi}, m, state, 0, 2, -1};
    lw_offsets_each(t, state, lo, hi, each_fn, &s);
    assert_int_equal(s.n, want < 2 ? want : 2);
}

static void compare(const struct lw_offsets *t, const struct model *m) {
    size_t queued = 0, in = 0;
    int w = model_watermark(m);
    for (int i = w; i < m->next; i++)
        queued += m->state[i] == LW_OFF_WAITING, in += m->state[i] == LW_OFF_IN;
    assert_int_equal(lw_offsets_watermark(t), BASE + w);
    assert_int_equal(lw_offsets_next(t), BASE + m->next);
    assert_int_equal(lw_offsets_waiting(t), queued);
    assert_int_equal(lw_offsets_unfinished(t), queued + in);
    for (int i = 0; i < SPAN; i++) assert_int_equal(lw_offsets_get(t, BASE + i), model_get(m, i));
    compare_each(t, m);
}

static void deliver_one(struct lw_offsets *t, struct model *m) {
    /* most records come in the order of offsets, some of them after a gap */
    int i = rnd(20) == 0 ? (int)rnd(SPAN) : m->next + (rnd(4) == 0 ? (int)rnd(5) : 0);
    if (i >= SPAN || (i > m->next + 5 && rnd(10))) return;
    enum lw_offset_state want = model_deliver(m, i);
    assert_int_equal(lw_offsets_deliver(t, BASE + i, (uint32_t)(BASE + i)), want);
}

static void mark_some(struct lw_offsets *t, struct model *m) {
    for (uint32_t k = rnd(6); k; k--) {
        int w = model_watermark(m), i = rnd(3) == 0 ? w
                                        : rnd(2)    ? w + (int)rnd(12)
                                                    : (int)rnd(SPAN);
        if (i >= SPAN) continue;
        enum lw_offset_state s = LW_OFF_IN + rnd(3);
        bool want = model_mark(m, i, s);
        assert_int_equal(lw_offsets_mark(t, BASE + i, s), want);
    }
}

static void step(struct lw_offsets *t, struct model *m) {
    switch (rnd(24)) {
    case 0: {
        int lo = (int)rnd(SPAN), hi = lo + (int)rnd(rnd(8) ? 8 : 60);
        if (hi > SPAN) hi = SPAN;
        for (int i = lo; i < hi; i++) m->ahead[i] = m->ahead[i] || i >= m->next;
        lw_offsets_ahead(t, (struct lw_range){BASE + lo, BASE + hi});
        break;
    }
    case 1: {
        int e = m->next + (int)rnd(6) - 2;
        if (e < 0 || e >= SPAN) return;
        if (e > m->next) m->next = e;
        lw_offsets_end(t, BASE + e);
        break;
    }
    case 2:
        if (rnd(4) == 0) rewind_both(t, m);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
    case 11: mark_some(t, m); break;
    default: deliver_one(t, m); break;
    }
    for (int i = 0; i < m->next; i++) m->ahead[i] = false;
}

static void test_random_against_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        rng = seed * 0x9e3779b97f4a7c15u;
        struct model m = {.next = 0};
        struct lw_offsets *t = lw_offsets_open(BASE);
        for (int k = 0; k < STEPS; k++) {
            step(t, &m);
            if (k % 7 == 0) compare(t, &m);
        }
        compare(t, &m);
        lw_offsets_free(t);
    }
}

/* Finishes records in random orders. At each step the watermark must be the lowest unfinished
 * offset. When all records are finished, it must be the offset after the last record. */
static void test_random_orders(void **state) {
    (void)state;
    enum { N = 5000 };
    static int order[N];
    static bool done[N];
    for (uint64_t seed = 1; seed <= 10; seed++) {
        rng = seed;
        memset(done, 0, sizeof done);
        struct lw_offsets *t = lw_offsets_open(7);
        for (int i = 0; i < N; i++) {
            order[i] = i;
            /* the two offsets between a record and the next have no record */
            assert_int_equal(
                lw_offsets_deliver(t, 7 + 3 * (int64_t)i, (uint32_t)(7 + 3 * (int64_t)i)),
                LW_OFF_UNKNOWN);
        }
        for (int i = N - 1; i > 0; i--) {
            int k = (int)rnd((uint32_t)i + 1), x = order[i];
            order[i] = order[k], order[k] = x;
        }
        int low = 0;
        for (int i = 0; i < N; i++) {
            assert_true(lw_offsets_mark(t, 7 + 3 * (int64_t)order[i], LW_OFF_DONE));
            assert_false(lw_offsets_mark(t, 7 + 3 * (int64_t)order[i], LW_OFF_DONE));
            done[order[i]] = true;
            while (low < N && done[low]) low++;
            assert_int_equal(lw_offsets_watermark(t),
                             low < N ? 7 + 3 * (int64_t)low : 7 + 3 * (int64_t)(N - 1) + 1);
        }
        assert_int_equal(lw_offsets_unfinished(t), 0);
        lw_offsets_free(t);
    }
}

static void test_states_never_go_down(void **state) {
    (void)state;
    struct lw_offsets *t = lw_offsets_open(0);
    lw_offsets_deliver(t, 0, (uint32_t)(0));
    lw_offsets_deliver(t, 1, (uint32_t)(1));
    assert_true(lw_offsets_mark(t, 1, LW_OFF_WAITING));
    assert_false(lw_offsets_mark(t, 1, LW_OFF_IN));
    assert_false(lw_offsets_mark(t, 1, LW_OFF_WAITING));
    assert_int_equal(lw_offsets_waiting(t), 1);
    assert_true(lw_offsets_mark(t, 1, LW_OFF_DONE));
    assert_false(lw_offsets_mark(t, 1, LW_OFF_WAITING));
    assert_int_equal(lw_offsets_waiting(t), 0);
    assert_int_equal(lw_offsets_watermark(t), 0);
    /* a mark of a record that was not delivered must not be kept */
    assert_false(lw_offsets_mark(t, 2, LW_OFF_DONE));
    assert_int_equal(lw_offsets_deliver(t, 2, (uint32_t)(2)), LW_OFF_UNKNOWN);
    lw_offsets_free(t);
}

static bool mark_three_fn(void *ctx, int64_t offset, uint32_t tag) {
    (void)tag;
    assert_int_equal(offset % 3, 0);
    for (int i = 0; i < 3; i++) assert_true(lw_offsets_mark(ctx, offset + i, LW_OFF_DONE));
    return true;
}

/* The callback may mark records as done during the walk. The walk must then leave out the marked
 * records that it has not reached yet, and visit all others. */
static void test_each_may_mark(void **state) {
    (void)state;
    struct lw_offsets *t = lw_offsets_open(0);
    for (int i = 0; i < 3000; i++) lw_offsets_deliver(t, i, (uint32_t)(i));
    lw_offsets_each(t, LW_OFF_IN, 0, 2991, mark_three_fn, t);
    assert_int_equal(lw_offsets_watermark(t), 2991);
    assert_int_equal(lw_offsets_unfinished(t), 9);
    lw_offsets_free(t);
}

/* A search examines a limited number of records, and the next search begins after them. Together
 * the searches must find each record of a given state once, across gaps of any size. */
static void test_find_walks_all(void **state) {
    (void)state;
    for (size_t most = 1; most < 40; most += 3) {
        struct lw_offsets *t = lw_offsets_open(5);
        int64_t offset = 5, last = -1, at = 0;
        int parked = 0, found = 0;
        for (int i = 0; i < 300; i++, offset += 1 + (int64_t)rnd(3) * (1 << 21)) {
            lw_offsets_deliver(t, offset, 0);
            if (i % 7 == 3) lw_offsets_mark(t, offset, LW_OFF_WAITING), parked++;
            if (i % 7 == 4) lw_offsets_mark(t, offset, LW_OFF_DONE);
        }
        assert_int_equal(lw_offsets_held(t), 300);
        for (int calls = 0; at < lw_offsets_next(t); calls++) {
            assert_true(calls < 1000);
            size_t budget = most;
            if (!lw_offsets_find(t, LW_OFF_WAITING, &at, &budget)) continue;
            assert_true(at > last && lw_offsets_get(t, at) == LW_OFF_WAITING);
            last = at++;
            found++;
        }
        assert_int_equal(found, parked);
        lw_offsets_free(t);
    }
}

static void test_long_queue_wraps_and_shrinks(void **state) {
    (void)state;
    struct lw_offsets *t = lw_offsets_open(0);
    int64_t next = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 5000; i++) lw_offsets_deliver(t, next++, 0);
        while (lw_offsets_unfinished(t) > 40)
            assert_true(lw_offsets_mark(t, lw_offsets_watermark(t), LW_OFF_DONE));
        assert_int_equal(lw_offsets_watermark(t), next - 40);
        assert_int_equal(lw_offsets_get(t, next - 40), LW_OFF_IN);
        assert_int_equal(lw_offsets_get(t, next - 1), LW_OFF_IN);
        assert_int_equal(lw_offsets_get(t, next), LW_OFF_UNKNOWN);
    }
    lw_offsets_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_against_model),         cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_states_never_go_down),         cmocka_unit_test(test_each_may_mark),
        cmocka_unit_test(test_long_queue_wraps_and_shrinks), cmocka_unit_test(test_find_walks_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
