/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the scripts `repair` and `floor`: `repair` writes back what workers know to be done, and
 * `floor` raises floors to committed offsets and deletes the segments below them. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char tp[] = "orders:3";
static const int64_t far_offset = INT64_C(1) << 40; /* the first offset of a segment */

static void quarantine(struct lt *l) {
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
}
static int state_at(struct lt *l, int64_t offset) {
    return lt_state(l, lt_msg(3, offset, "k", "t"));
}
static void set_state(struct lt *l, int64_t offset, int state) {
    lt_set_state(l, lt_msg(3, offset, "k", "t"), state);
}
static const char *floor_now(struct lt *l) { return lt_text(l, "HGET " LT_TAG "floor %s", tp); }
static bool has_segment(struct lt *l, const char *kind, int64_t segment) {
    return lt_int(l, "EXISTS " LT_TAG "%s:%s:%" PRId64, kind, tp, segment) == 1;
}
static void fill_segment(struct lt *l, int64_t segment) {
    set_state(l, segment * 16384, 2);
    lt_int(l, "HSET " LT_TAG "tries:%s:%" PRId64 " %" PRId64 " x", tp, segment, segment * 16384);
}

static void repair_writes_ranges_in_the_quarantine(void **state) {
    struct lt *l = *state;
    quarantine(l);
    const struct lt_range ranges[] = {{tp, 16380, 16388}, {tp, far_offset - 1, far_offset + 1}};
    assert_string_equal(lt_repair(l, tp, 16370, 0, ranges, 2), "OK");
    assert_string_equal(floor_now(l), "16370");
    for (int64_t o = 16370; o < 16400; o++)
        assert_int_equal(state_at(l, o), o >= 16380 && o < 16388 ? 2 : 0);
    for (int64_t o = far_offset - 3; o < far_offset + 3; o++)
        assert_int_equal(state_at(l, o), o == far_offset - 1 || o == far_offset ? 2 : 0);
}

static void repair_takes_as_much_as_its_bound(void **state) {
    struct lt *l = *state;
    quarantine(l);
    const struct lt_range range = {tp, 14384, 14384 + 4096};
    assert_string_equal(lt_repair(l, tp, 0, 0, &range, 1), "OK");
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:3:0"), 2000);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:3:1"), 2096);
}

static void repair_raises_states_and_never_lowers_them(void **state) {
    struct lt *l = *state;
    quarantine(l);
    set_state(l, 20, 1);
    set_state(l, 21, 3);
    set_state(l, 22, 2);
    const struct lt_range range = {tp, 20, 24};
    assert_string_equal(lt_repair(l, tp, 0, 0, &range, 1), "OK");
    assert_int_equal(state_at(l, 20), 2);
    assert_int_equal(state_at(l, 21), 3);
    assert_int_equal(state_at(l, 22), 2);
    assert_int_equal(state_at(l, 23), 2);
}

static void repair_writes_nothing_below_the_floor(void **state) {
    struct lt *l = *state;
    quarantine(l);
    const struct lt_range range = {tp, 95, 105};
    assert_string_equal(lt_repair(l, tp, 100, 0, &range, 1), "OK");
    for (int64_t o = 90; o < 110; o++)
        assert_int_equal(state_at(l, o), o >= 100 && o < 105 ? 2 : 0);
    assert_string_equal(lt_repair(l, tp, 50, 0, &range, 1), "OK");
    assert_string_equal(floor_now(l), "100");
    assert_int_equal(state_at(l, 99), 0);
}

static void repair_deletes_what_the_floor_passed(void **state) {
    struct lt *l = *state;
    quarantine(l);
    for (int64_t s = 0; s < 4; s++) fill_segment(l, s);
    assert_string_equal(lt_repair(l, tp, 2 * 16384 + 5, 0, NULL, 0), "OK");
    for (int64_t s = 0; s < 4; s++) {
        assert_int_equal(has_segment(l, "state", s), s >= 2);
        assert_int_equal(has_segment(l, "tries", s), s >= 2);
    }
}

static void repair_after_the_quarantine_takes_floors_only(void **state) {
    struct lt *l = *state;
    const struct lt_range range = {tp, 60, 70};
    assert_string_equal(lt_repair(l, tp, 50, 0, &range, 1), "LATE");
    assert_string_equal(floor_now(l), "50");
    assert_int_equal(state_at(l, 60), 0);
    assert_string_equal(lt_repair(l, tp, 49, 0, &range, 1), "LATE");
    assert_string_equal(floor_now(l), "50");
}

static void another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    const struct lt_range range = {tp, 60, 70};
    lt_floor(l, tp, 5, 0);
    snprintf(l->epoch, sizeof l->epoch, "other");
    char *before = lt_dump(l, true);
    assert_string_equal(lt_floor(l, tp, 500, 0), "LOST");
    assert_string_equal(lt_repair(l, tp, 50, 0, &range, 1), "LOST");
    quarantine(l);
    free(before);
    before = lt_dump(l, true);
    assert_string_equal(lt_repair(l, tp, 50, 0, &range, 1), "LOST");
    assert_string_equal(lt_floor(l, tp, 500, 0), "LOST");
    lt_assert_unchanged(l, before, true);
}

static void floors_rise_and_never_sink(void **state) {
    struct lt *l = *state;
    assert_string_equal(lt_floor(l, tp, 0, 0), "OK");
    assert_string_equal(floor_now(l), "0"); /* Redis has recorded the floor 0. */
    assert_string_equal(lt_floor(l, tp, 100, 0), "OK");
    assert_string_equal(lt_floor(l, tp, 99, 0), "OK");
    assert_string_equal(floor_now(l), "100");
    /* Floors also rise during a quarantine, because workers go on committing. */
    quarantine(l);
    assert_string_equal(lt_floor(l, tp, 101, 0), "OK");
    assert_string_equal(floor_now(l), "101");
    assert_string_equal(lt_floor(l, "orders:4", far_offset, 0), "OK");
    assert_string_equal(lt_floor(l, "orders:4", far_offset + 1, 0), "OK");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "floor orders:4"), "1099511627777");
}

static void floors_delete_passed_segments(void **state) {
    struct lt *l = *state;
    for (int64_t s = 0; s < 5; s++) fill_segment(l, s);
    lt_floor(l, tp, 16383, 0);
    assert_true(has_segment(l, "state", 0));
    lt_floor(l, tp, 16384, 0);
    assert_false(has_segment(l, "state", 0));
    assert_false(has_segment(l, "tries", 0));
    assert_true(has_segment(l, "state", 1));
    lt_floor(l, tp, 4 * 16384 + 1, 0);
    for (int64_t s = 0; s < 5; s++) {
        assert_int_equal(has_segment(l, "state", s), s == 4);
        assert_int_equal(has_segment(l, "tries", s), s == 4);
    }
    assert_int_equal(state_at(l, 4 * 16384), 2);
}

static void floors_of_a_log_that_begins_late(void **state) {
    struct lt *l = *state;
    int64_t first = far_offset / 16384;
    fill_segment(l, first);
    fill_segment(l, first + 1);
    lt_floor(l, tp, far_offset + 16384, far_offset + 7);
    assert_false(has_segment(l, "state", first));
    assert_true(has_segment(l, "state", first + 1));
}

static void deleting_has_a_bound(void **state) {
    struct lt *l = *state;
    const int64_t end = far_offset / 16384;
    fill_segment(l, end - 4097);
    fill_segment(l, end - 4096);
    fill_segment(l, end - 1);
    lt_floor(l, tp, far_offset, 0);
    assert_true(has_segment(l, "state", end - 4097));
    assert_false(has_segment(l, "state", end - 4096));
    assert_false(has_segment(l, "state", end - 1));
}

static void repairs_of_a_log_that_begins_late(void **state) {
    struct lt *l = *state;
    const int64_t first = far_offset / 16384;
    /* This segment is below the first offset of the log, so the script `repair` does not access
     * it. */
    fill_segment(l, first - 1);
    fill_segment(l, first);
    lt_repair(l, tp, far_offset + 16384, far_offset + 7, NULL, 0);
    assert_true(has_segment(l, "state", first - 1));
    assert_false(has_segment(l, "state", first));
}

/* Checks that all segments below a floor are deleted, no matter how far the floor rises, and that
 * each call deletes only a limited number of segments. */
static void floors_that_leap(bool by_repair, struct lt *l) {
    static const int64_t some[] = {0, 1, 4095, 4096, 8191, 8192, 9998};
    lt_floor(l, tp, 1, 0);
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) fill_segment(l, some[i]);
    fill_segment(l, 9999);
    const int64_t to = INT64_C(9999) * 16384 + 5;
    if (by_repair) assert_string_equal(lt_repair(l, tp, to, 0, NULL, 0), "LATE");
    int calls = by_repair;
    for (bool again = true; again; calls++) {
        again = strcmp(lt_floor(l, tp, to, 0), "OK") != 0;
        assert_true(again || has_segment(l, "state", 9999));
        assert_true(calls < 5);
        if (calls == 0) assert_true(has_segment(l, "state", 4096));
    }
    assert_int_equal(calls, 3);
    assert_string_equal(floor_now(l), "163823621");
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        assert_false(has_segment(l, "state", some[i]));
        assert_false(has_segment(l, "tries", some[i]));
    }
    assert_true(has_segment(l, "state", 9999));
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "sweep"), 0);
}
static void a_floor_leaps(void **state) { floors_that_leap(false, *state); }
static void a_repair_leaps(void **state) { floors_that_leap(true, *state); }

static void floors_of_several_partitions(void **state) {
    struct lt *l = *state;
    lt_floor(l, "orders:1", 7, 0);
    lt_floor(l, "a.b-c_d:12", 8, 0);
    assert_string_equal(lt_text(l, "HGET " LT_TAG "floor orders:1"), "7");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "floor a.b-c_d:12"), "8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(repair_writes_ranges_in_the_quarantine),
        LT(repair_takes_as_much_as_its_bound),
        LT(repair_raises_states_and_never_lowers_them),
        LT(repair_writes_nothing_below_the_floor),
        LT(repair_deletes_what_the_floor_passed),
        LT(repair_after_the_quarantine_takes_floors_only),
        LT(another_epoch_is_lost),
        LT(floors_rise_and_never_sink),
        LT(floors_delete_passed_segments),
        LT(floors_of_a_log_that_begins_late),
        LT(deleting_has_a_bound),
        LT(a_floor_leaps),
        LT(a_repair_leaps),
        LT(repairs_of_a_log_that_begins_late),
        LT(floors_of_several_partitions),
    };
    return LT_RUN(tests, LT_ALL);
}
