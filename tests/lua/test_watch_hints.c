/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `watch`, which reads the states of parked messages, and the script `hints`,
 * which pops several hints from the list `ready` at once, even at maxmemory, when Redis refuses
 * BRPOPLPUSH. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t far_offset = INT64_C(1) << 40;

static void assert_states(struct lt *l, int i, const char *want, size_t n) {
    struct lw_bytes got = lt_states(l, i);
    assert_int_equal(got.n, n);
    assert_memory_equal(got.p, want, n);
}

static void watch_reads_floors_and_ranges(void **state) {
    struct lt *l = *state;
    lt_set_state(l, lt_msg(3, 0, "k", ""), 1);
    lt_set_state(l, lt_msg(3, 3, "k", ""), 3);
    lt_set_state(l, lt_msg(3, 4, "k", ""), 2);
    lt_set_state(l, lt_msg(3, 16383, "k", ""), 2);
    lt_set_state(l, lt_msg(4, far_offset, "k", ""), 2);
    lt_int(l, "HSET " LT_TAG "floor orders:3 7 orders:4 %" PRId64, far_offset);
    const struct lt_look looks[] = {{"orders:3", 0, 0, 1},
                                    {"orders:3", 0, 4095, 4095},
                                    {"orders:3", 1, 0, 4095},
                                    {"orders:5", 0, 0, 4095},
                                    {"orders:4", far_offset / 16384, 0, 9}};
    assert_string_equal(lt_watch(l, looks, 5), "7 7 7 - 1099511627776");
    assert_states(l, 0, "\x43\x80", 2); /* 1 0 0 3, 2 0 0 0 */
    assert_states(l, 1, "\x02", 1);
    /* nothing was written to this segment, so all its states are unseen */
    assert_states(l, 2, "", 0);
    assert_states(l, 3, "", 0);
    assert_states(l, 4, "\x80", 1);
}

static void watch_sees_what_gate_and_settle_wrote(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {lt_msg(0, 16380, "a", "t1"), lt_msg(0, 16381, "b", "t1"),
                               lt_msg(0, 16382, "c", "t1")};
    lt_gate(l, m, 3);
    const struct lt_msg parked = lt_msg(0, 16383, "a", "t4");
    lt_gate(l, &parked, 1);
    const struct lt_msg settled[] = {lt_with(m[1], "done", "next"), lt_with(m[2], "sent", "next")};
    lt_settle(l, settled, 2);
    const struct lt_look look = {"orders:0", 0, 4095, 4095};
    assert_string_equal(lt_watch(l, &look, 1), "-");
    assert_states(l, 0, "\x2d", 1); /* 0 2 3 1 */
}

static void watch_goes_on_in_the_quarantine(void **state) {
    struct lt *l = *state;
    lt_set_state(l, lt_msg(3, 0, "k", ""), 2);
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    const struct lt_look look = {"orders:3", 0, 0, 0};
    assert_string_equal(lt_watch(l, &look, 1), "-");
    assert_states(l, 0, "\x80", 1);
    assert_string_equal(lt_watch(l, NULL, 0), "");
}

static void watch_of_another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    snprintf(l->epoch, sizeof l->epoch, "other");
    const struct lt_look look = {"orders:3", 0, 0, 0};
    assert_string_equal(lt_watch(l, &look, 1), "LOST");
    lt_text(l, "FLUSHALL");
    assert_string_equal(lt_watch(l, &look, 1), "LOST");
}

static void hints_are_popped_oldest_first(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "ready a b c d e");
    l->most = 3;
    assert_string_equal(lt_hints(l), "a b c");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "ready"), 2);
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "claimed:w"), 3);
    /* The oldest hint is at the right end of the list `claimed`, where claim removes hints. */
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "claimed:w -1"), "a");
    int64_t left = lt_int(l, "PTTL " LT_TAG "claimed:w");
    assert_true(left > LT_TTL_MS && left <= 4 * (int64_t)LT_TTL_MS);
    assert_string_equal(lt_hints(l), "d e");
    assert_string_equal(lt_hints(l), "");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "claimed:w"), 5);
}

static void hints_and_claim_belong_together(void **state) {
    struct lt *l = *state;
    struct lt_msg a = lt_msg(0, 1, "k", "t1"), b = lt_msg(0, 2, "k", "t2");
    lt_gate(l, &a, 1);
    lt_gate(l, &b, 1);
    a.mode = "drop";
    lt_settle(l, &a, 1);
    assert_string_equal(lt_hints(l), "k");
    l->taken = 1;
    assert_string_equal(lt_claim(l, &b, 1), "N");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "claimed:w"), 0);
}

static void no_hints_leave_nothing(void **state) {
    struct lt *l = *state;
    char *before = lt_dump(l, true);
    assert_string_equal(lt_hints(l), "");
    lt_assert_unchanged(l, before, true);
    lt_int(l, "LPUSH " LT_TAG "ready k");
    l->most = 0;
    assert_string_equal(lt_hints(l), "");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "ready"), 1);
}

static void hints_of_another_epoch_are_lost(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "ready k");
    snprintf(l->epoch, sizeof l->epoch, "other");
    char *before = lt_dump(l, true);
    assert_string_equal(lt_hints(l), "LOST");
    lt_assert_unchanged(l, before, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(watch_reads_floors_and_ranges),   LT(watch_sees_what_gate_and_settle_wrote),
        LT(watch_goes_on_in_the_quarantine), LT(watch_of_another_epoch_is_lost),
        LT(hints_are_popped_oldest_first),   LT(hints_and_claim_belong_together),
        LT(no_hints_leave_nothing),          LT(hints_of_another_epoch_are_lost),
    };
    return LT_RUN(tests, LT_ALL);
}
