/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script tend, which makes new hints for lanes whose hints were lost. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t n_hints(struct lt *l) { return lt_int(l, "LLEN " LT_TAG "ready"); }
static const char *hint_at(struct lt *l, int i) {
    return lt_text(l, "LINDEX " LT_TAG "ready %d", i);
}
static void score(struct lt *l, const char *lane, int64_t ms) {
    lt_int(l, "ZADD " LT_TAG "lanes %" PRId64 " %s", ms, lane);
}
/* Checks that tend will look at the lane again wait_ms after the last call of tend, which was made
 * between from_ms and now. */
static void assert_again_in(struct lt *l, const char *lane, int64_t from_ms, int64_t wait_ms) {
    int64_t at = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes %s", lane));
    if (at < from_ms + wait_ms || at > lt_now_ms(l) + wait_ms)
        fail_msg("%s: look again at %" PRId64 ", from %" PRId64 " in %" PRId64, lane, at, from_ms,
                 wait_ms);
}
static void waiter(struct lt *l, const char *lane) { lt_int(l, "LPUSH " LT_TAG "wait:%s x", lane); }

static void a_due_lane_is_hinted(void **state) {
    struct lt *l = *state;
    waiter(l, "k");
    score(l, "k", 5);
    int64_t from = lt_now_ms(l);
    assert_string_equal(lt_tend(l), "1");
    assert_int_equal(n_hints(l), 1);
    assert_string_equal(hint_at(l, 0), "k");
    assert_again_in(l, "k", from, LT_HANDOFF_MS);
}

static void what_is_not_due_is_left(void **state) {
    struct lt *l = *state;
    waiter(l, "k");
    score(l, "k", lt_now_ms(l) + 100000);
    char *before = lt_dump(l, true);
    assert_string_equal(lt_tend(l), "0");
    lt_assert_unchanged(l, before, true);
}

static void a_locked_lane_is_looked_at_when_the_lease_ends(void **state) {
    struct lt *l = *state;
    static const struct {
        const char *lane, *px;
        int64_t wait_ms;
    } cases[] = {{"a", "200000", 0}, {"b", "9000000", LT_TTL_MS}};
    for (size_t i = 0; i < 2; i++) {
        waiter(l, cases[i].lane);
        score(l, cases[i].lane, 5);
        lt_text(l, "SET " LT_TAG "lock:%s t:1 PX %s", cases[i].lane, cases[i].px);
    }
    waiter(l, "c");
    score(l, "c", 5);
    lt_text(l, "SET " LT_TAG "lock:c foreign"); /* a lock without a TTL */
    int64_t from = lt_now_ms(l);
    assert_string_equal(lt_tend(l), "3");
    assert_int_equal(n_hints(l), 0);
    int64_t at = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes a")),
            left = lt_int(l, "PTTL " LT_TAG "lock:a");
    assert_true(at >= from + left && at <= from + 200000);
    /* Leases last no longer than the TTL, so tend looks at lanes b and c again after a TTL. */
    assert_again_in(l, "b", from, LT_TTL_MS);
    assert_again_in(l, "c", from, LT_TTL_MS);
}

/* If Redis' clock was set back, a lock may last longer than it should. Then tend shortens the
 * TTL of the lock. */
static void a_lock_that_lasts_too_long_is_cut(void **state) {
    struct lt *l = *state;
    static const struct {
        const char *lane, *value;
        int64_t left_ms;
    } cases[] = {{"a", "t.1:1", LT_TTL_MS},
                 {"b", "backoff:70000", 70000},
                 /* The value of a backoff's lock contains the length of the backoff, in ms. */
                 {"c", "backoff:90000000", 90000000},
                 /* Earlier versions of Latchwork did not store the length of a backoff. */
                 {"d", "backoff", 90000000},
                 {"e", "backoff-host.1:5", LT_TTL_MS}};
    enum { CASES = sizeof cases / sizeof cases[0] };
    for (size_t i = 0; i < CASES; i++) {
        waiter(l, cases[i].lane);
        score(l, cases[i].lane, lt_now_ms(l) + 90000000);
        lt_text(l, "SET " LT_TAG "lock:%s %s PX 90000000", cases[i].lane, cases[i].value);
    }
    int64_t from = lt_now_ms(l);
    assert_string_equal(lt_tend(l), "5");
    for (size_t i = 0; i < CASES; i++) {
        int64_t left = lt_int(l, "PTTL " LT_TAG "lock:%s", cases[i].lane);
        if (left > cases[i].left_ms || left < cases[i].left_ms - 60000)
            fail_msg("%s: %" PRId64 " ms left", cases[i].lane, left);
    }
    int64_t at = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes b"));
    assert_true(at <= lt_now_ms(l) + 70000 && at >= from + 10000);
    assert_again_in(l, "a", from, LT_TTL_MS);
    assert_int_equal(n_hints(l), 0);
}

static void a_lane_without_waiters_is_removed(void **state) {
    struct lt *l = *state;
    score(l, "k", 5);
    assert_string_equal(lt_tend(l), "1");
    assert_int_equal(n_hints(l), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lanes"), 0);
    /* The waiting list of the lane was deleted by an operator or evicted by Redis, and tend has
     * reported this. */
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "vanished"), 1);
}

static void a_held_lane_whose_list_vanished_is_told(void **state) {
    struct lt *l = *state;
    score(l, "k", 5);
    lt_text(l, "SET " LT_TAG "lock:k t:1 PX 200000");
    assert_string_equal(lt_tend(l), "1");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lanes"), 0);
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "vanished"), 1);
}

static void a_paused_lane_is_not_hinted(void **state) {
    struct lt *l = *state;
    waiter(l, "k");
    score(l, "k", 5);
    lt_int(l, "SADD " LT_TAG "paused k");
    int64_t from = lt_now_ms(l);
    assert_string_equal(lt_tend(l), "1");
    assert_int_equal(n_hints(l), 0);
    assert_again_in(l, "k", from, LT_TTL_MS);
}

static void scores_too_far_ahead_are_looked_at(void **state) {
    struct lt *l = *state;
    waiter(l, "k");
    score(l, "k", lt_now_ms(l) + 3 * (int64_t)LT_TTL_MS + 100000);
    waiter(l, "j");
    score(l, "j", lt_now_ms(l) + 3 * (int64_t)LT_TTL_MS - 100000);
    assert_string_equal(lt_tend(l), "1");
    assert_int_equal(n_hints(l), 1);
    assert_string_equal(hint_at(l, 0), "k");
}

static void a_call_has_a_bound(void **state) {
    struct lt *l = *state;
    char lane[16];
    for (int i = 0; i < 25; i++) {
        snprintf(lane, sizeof lane, "l%02d", i);
        waiter(l, lane);
        /* the last lane has the lowest score, so it has been due longest */
        score(l, lane, 100 - i);
    }
    l->most = 10;
    assert_string_equal(lt_tend(l), "10");
    assert_string_equal(hint_at(l, -1), "l24");
    assert_string_equal(lt_tend(l), "10");
    /* The third call handles the last 5 of the 25 lanes, fewer than the limit of 10. */
    assert_string_equal(lt_tend(l), "5");
    assert_int_equal(n_hints(l), 25);
    assert_string_equal(lt_tend(l), "0");
}

static void hints_have_a_bound(void **state) {
    struct lt *l = *state;
    lt_text(l, "EVAL %s 0", "for i = 1, 1022 do redis.call('LPUSH', '" LT_TAG "ready', i) end");
    for (int i = 0; i < 5; i++) {
        char lane[2] = {(char)('a' + i), 0};
        waiter(l, lane);
        score(l, lane, 5 + i);
    }
    /* The list `ready` is full, so tend makes no more hints, and answers as if no lane were due. */
    assert_string_equal(lt_tend(l), "0");
    assert_int_equal(n_hints(l), 1024);
    assert_string_equal(hint_at(l, 0), "b");
    assert_string_equal(lt_text(l, "ZSCORE " LT_TAG "lanes c"), "7");
    lt_int(l, "DEL " LT_TAG "ready");
    assert_string_equal(lt_tend(l), "3");
    assert_int_equal(n_hints(l), 3);
}

/* Tests that a lane continues when its holder has died without releasing it: tend makes a hint. */
static void a_dead_holders_lane_moves_on(void **state) {
    struct lt *l = *state;
    struct lt_msg a = lt_msg(0, 1, "k", "t1"), b = lt_msg(0, 2, "k", "t2");
    lt_gate(l, &a, 1);
    lt_gate(l, &b, 1);
    lt_free_lock(l, a);
    score(l, "k", lt_now_ms(l));
    assert_string_equal(lt_tend(l), "1");
    assert_string_equal(lt_hints(l), "k");
    assert_string_equal(lt_claim(l, &b, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
}

static void silent_workers_are_forgotten_with_their_hints(void **state) {
    struct lt *l = *state;
    int64_t silent = lt_now_ms(l) - 10 * LT_TTL_MS - 60000;
    lt_int(l, "ZADD " LT_TAG "workers %" PRId64 " dead %" PRId64 " slow", silent, silent + 30000);
    lt_int(l, "LPUSH " LT_TAG "claimed:dead k");
    lt_int(l, "LPUSH " LT_TAG "claimed:slow k");
    assert_string_equal(lt_tend(l), "0");
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "workers"), 1);
    assert_int_equal(lt_int(l, "ZRANK " LT_TAG "workers slow"), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "claimed:dead"), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "claimed:slow"), 1);
}

static void broken_names_do_not_stop_it(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "lock:a x");
    waiter(l, "a");
    lt_text(l, "SET " LT_TAG "wait:b x");
    waiter(l, "c");
    lt_text(l, "SET " LT_TAG "workers x");
    score(l, "a", 5), score(l, "b", 6), score(l, "c", 7);
    assert_string_equal(lt_tend(l), "3");
    assert_string_equal(hint_at(l, 0), "c");
}

static void lanes_are_any_bytes(void **state) {
    struct lt *l = *state;
    static const char odd[] = "\0}{\xff";
    struct lt_msg a = lt_msg_bytes(0, 1, lw_bytes(odd, 4), "t1"),
                  b = lt_msg_bytes(0, 2, a.lane, "t2");
    lt_gate(l, &a, 1);
    lt_gate(l, &b, 1);
    lt_free_lock(l, a);
    lt_int(l, "ZADD " LT_TAG "lanes 5 %b", odd, (size_t)4);
    assert_string_equal(lt_tend(l), "1");
    assert_int_equal(n_hints(l), 1);
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "lanes"), 1);
}

static void is_refused_as_a_whole(void **state) {
    struct lt *l = *state;
    waiter(l, "k");
    score(l, "k", 5);
    score(l, "gone", 5);
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    char *before = lt_dump(l, true);
    assert_string_equal(lt_tend(l), "QUARANTINE");
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_string_equal(lt_tend(l), "LOST");
    lt_assert_unchanged(l, before, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(a_due_lane_is_hinted),
        LT(what_is_not_due_is_left),
        LT(a_locked_lane_is_looked_at_when_the_lease_ends),
        LT(a_lock_that_lasts_too_long_is_cut),
        LT(a_lane_without_waiters_is_removed),
        LT(a_held_lane_whose_list_vanished_is_told),
        LT(a_paused_lane_is_not_hinted),
        LT(scores_too_far_ahead_are_looked_at),
        LT(hints_have_a_bound),
        LT(a_dead_holders_lane_moves_on),
        LT(silent_workers_are_forgotten_with_their_hints),
        LT(broken_names_do_not_stop_it),
        LT(lanes_are_any_bytes),
        LT(is_refused_as_a_whole),
    };
    /* This test does not run in the variant in which each call is sent twice, because the second
     * call would handle the next lanes. */
    const struct CMUnitTest once[] = {LT(a_call_has_a_bound)};
    return LT_RUN(tests, LT_ALL) + LT_RUN(once, LT_ALL & ~LT_TWICE);
}
