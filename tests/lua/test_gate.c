/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script gate, which decides whether a message runs at once, waits, or is finished
 * already. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t far_offset = INT64_C(1) << 40;

static const char *gate1(struct lt *l, struct lt_msg m) { return lt_gate(l, &m, 1); }
static struct lt_msg lone(int64_t offset, const char *lane) {
    struct lt_msg m = lt_msg(0, offset, lane, "t1");
    m.bare = true;
    return m;
}
static bool in_lanes(struct lt *l, const char *lane) {
    return strcmp(lt_text(l, "ZSCORE " LT_TAG "lanes %s", lane), "(nil)") != 0;
}

static void a_free_lane_runs(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "t1");
    assert_string_equal(gate1(l, m), "R");
    assert_int_equal(lt_attempts(l, 0), 0);
    char value[64];
    snprintf(value, sizeof value, "t1:%" PRIu64, lt_fence(l, 0));
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    int64_t left = lt_int(l, "PTTL " LT_TAG "lock:k");
    assert_true(left > 0 && left <= LT_TTL_MS);
    assert_int_equal(lt_state(l, m), 0);
    assert_false(in_lanes(l, "k"));
}

static void the_fence_is_the_time_in_us_at_least(void **state) {
    struct lt *l = *state;
    uint64_t before_us = (uint64_t)lt_now_ms(l) * 1000;
    gate1(l, lt_msg(0, 1, "k", "t1"));
    assert_true(l->fence >= before_us);
    /* The next fence is larger than the last one, even if the clock is behind the last fence. */
    lt_text(l, "SET " LT_TAG "fence 8000000000000000");
    l->reserve = 5;
    gate1(l, lt_msg(0, 2, "j", "t2"));
    assert_true(l->fence == UINT64_C(8000000000000000) + (l->variant == LT_TWICE ? 6 : 1));
    assert_string_equal(lt_text(l, "GET " LT_TAG "fence"),
                        l->variant == LT_TWICE ? "8000000000000010" : "8000000000000005");
}

static void a_locked_lane_parks(void **state) {
    struct lt *l = *state;
    gate1(l, lt_msg(0, 1, "k", "t1"));
    struct lt_msg m = lt_msg(0, 2, "k", "t2");
    assert_string_equal(gate1(l, m), "W");
    assert_string_equal(lt_waiting(l, m), "0/2");
    assert_int_equal(lt_state(l, m), 1);
    assert_string_equal(lt_lock(l, m), "t1");
    int64_t due = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")), now = lt_now_ms(l);
    /* The lane's score is the time at which the lease ends; tend looks at the lane then. */
    assert_true(due > now && due <= now + LT_TTL_MS);
    assert_string_equal(gate1(l, lt_msg(1, 7, "k", "t3")), "W");
    assert_string_equal(lt_waiting(l, m), "0/2 1/7");
    assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")) == due);
}

static void a_lane_with_waiters_parks(void **state) {
    struct lt *l = *state;
    struct lt_msg first = lt_msg(0, 1, "k", "t1"), second = lt_msg(0, 2, "k", "t2"),
                  third = lt_msg(0, 3, "k", "t3");
    gate1(l, first);
    gate1(l, second);
    lt_free_lock(l, first);
    assert_string_equal(gate1(l, third), "W");
    assert_string_equal(lt_waiting(l, first), "0/2 0/3");
    assert_string_equal(lt_lock(l, first), "(nil)");
}

static void a_paused_lane_parks(void **state) {
    struct lt *l = *state;
    lt_int(l, "SADD " LT_TAG "paused k");
    struct lt_msg m = lt_msg(0, 1, "k", "t1");
    assert_string_equal(gate1(l, m), "W");
    assert_string_equal(lt_lock(l, m), "(nil)");
    assert_true(in_lanes(l, "k"));
}

static void my_own_lock_runs_again(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "t12");
    gate1(l, m);
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 100000");
    assert_string_equal(gate1(l, m), "R");
    assert_true(lt_int(l, "PTTL " LT_TAG "lock:k") > 100000);
    /* Token t1 is a prefix of the holder's token t12, but not the same token. */
    assert_string_equal(gate1(l, lt_msg(0, 1, "k", "t1")), "W");
    assert_string_equal(lt_lock(l, m), "t12");
}

static void finished_is_finished(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {lt_msg(0, 4, "a", "t1"), lt_msg(0, 5, "b", "t1"),
                               lt_msg(0, 6, "c", "t1"), lt_msg(0, 7, "d", "t1")};
    lt_set_state(l, m[0], 2);
    lt_set_state(l, m[1], 3);
    lt_set_state(l, m[2], 1);
    lt_int(l, "LPUSH " LT_TAG "wait:c x");
    assert_string_equal(lt_gate(l, m, 4), "DDWR");
    assert_string_equal(lt_lock(l, m[0]), "(nil)");
    /* The message that is already marked as waiting is not parked a second time. */
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "wait:c"), 1);
}

/* A message is marked as waiting, but the waiting list was deleted by an operator or evicted by
 * Redis. gate treats the message as new. */
static void what_lost_its_list_is_new(void **state) {
    struct lt *l = *state;
    const struct lt_msg m = lt_msg(0, 6, "c", "t1");
    lt_set_state(l, m, 1);
    assert_string_equal(gate1(l, m), "R");
    assert_true(lt_int(l, "XLEN " LT_TAG "vanished") >= 1);
}

/* The caller says that the lane has waiting messages. gate parks a message and finds no other in
 * the waiting list, so it reports that the list vanished. */
static void a_list_made_anew_is_told(void **state) {
    struct lt *l = *state;
    gate1(l, lt_msg(0, 1, "c", "t1"));
    assert_string_equal(gate1(l, lt_msg(0, 2, "c", "t2")), "W");
    assert_string_equal(gate1(l, lt_msg(0, 3, "c", "t3")), "W");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "vanished"), 0);
    lt_int(l, "DEL " LT_TAG "wait:c");
    assert_string_equal(gate1(l, lt_msg(0, 4, "c", "t4")), "W");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "vanished"), 1);
    assert_true(lt_int(l, "PTTL " LT_TAG "vanished") > 0);
}

static void below_the_floor_is_finished(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "floor orders:0 1000 orders:1 %" PRId64, far_offset);
    const struct lt_msg m[] = {lt_msg(0, 999, "a", "t1"), lt_msg(0, 1000, "b", "t1"),
                               lt_msg(1, far_offset - 1, "c", "t1"),
                               lt_msg(1, far_offset, "d", "t1"), lt_msg(2, 0, "e", "t1")};
    /* A message below the floor is finished, so it is not parked even if its lane is busy. */
    gate1(l, lt_msg(3, 1, "a", "x1"));
    assert_string_equal(lt_gate(l, m, 5), "DRDRR");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "state:orders:0:0"), 0);
}

static void attempts_are_told(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 5 %s", "3 1000 0");
    const struct lt_msg m[] = {lt_msg(0, 5, "a", "t1"), lt_msg(0, 6, "b", "t1"),
                               lt_msg(1, 5, "c", "t1")};
    assert_string_equal(lt_gate(l, m, 3), "RRR");
    assert_int_equal(lt_attempts(l, 0), 3);
    assert_int_equal(lt_attempts(l, 1), 0);
    assert_int_equal(lt_attempts(l, 2), 0);
}

static void a_recorded_business_id_is_a_duplicate(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "dedup:id-1 orders:0:5");
    /* If the key of a business id has another Redis type, gate treats the id as not recorded. */
    lt_int(l, "LPUSH " LT_TAG "dedup:broken x");
    struct lt_msg m[] = {lt_msg(0, 6, "a", "t1"), lt_msg(0, 5, "b", "t1"), lt_msg(0, 7, "c", "t1"),
                         lt_msg(0, 8, "d", "t1")};
    /* Message m[1] has the same identity as the record of its business id, so it is not a
     * duplicate. */
    m[0].dedup = m[1].dedup = "id-1";
    m[2].dedup = "id-2";
    m[3].dedup = "broken";
    assert_string_equal(lt_gate(l, m, 4), "URRR");
    assert_int_equal(lt_state(l, m[0]), 2);
    assert_string_equal(lt_lock(l, m[0]), "(nil)");
}

static void segments_meet_at_their_borders(void **state) {
    struct lt *l = *state;
    const int64_t at[] = {0, 3, 4, 16383, 16384, far_offset - 1, far_offset, far_offset + 16383};
    struct lt_msg busy[8], m[8];
    char lanes[8][2];
    for (size_t i = 0; i < 8; i++) {
        snprintf(lanes[i], 2, "%c", (char)('a' + i));
        busy[i] = lt_msg(9, at[i], lanes[i], "b1");
        m[i] = lt_msg(0, at[i], lanes[i], "t1");
    }
    assert_string_equal(lt_gate(l, busy, 8), "RRRRRRRR");
    assert_string_equal(lt_gate(l, m, 8), "WWWWWWWW");
    for (size_t i = 0; i < 8; i++) assert_int_equal(lt_state(l, m[i]), 1);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:0"), 4);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:1"), 1);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:67108863"), 1);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:67108864"), 2);
    assert_int_equal(lt_int(l, "STRLEN " LT_TAG "state:orders:0:67108864"), 4096);
    assert_string_equal(lt_waiting(l, m[7]), "0/1099511644159");
}

/* gate reads the states of a segment with one command, from the lowest to the highest offset that
 * the batch has in this segment. The messages of the batch may come in any order. */
static void offsets_come_in_any_order(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {lt_msg(0, 500, "a", "t1"), lt_msg(0, 16000, "b", "t1"),
                               lt_msg(0, 7, "c", "t1"), lt_msg(0, 501, "d", "t1")};
    lt_set_state(l, m[0], 2);
    lt_set_state(l, m[1], 3);
    lt_set_state(l, m[2], 2);
    assert_string_equal(lt_gate(l, m, 4), "DDDR");
}

/* Calls gate with the largest batch: 256 messages of 8 partitions, in two segments per partition.
 * Every third lane is busy, and some messages are finished. */
static void a_full_batch(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[LT_BATCH_MAX];
    char want[LT_BATCH_MAX + 1] = "";
    lt_full_batch(m, 1);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        if (i % 3 == 0) lt_text(l, "SET " LT_TAG "lock:%s other:1 PX %d", m[i].lane.p, LT_TTL_MS);
        if (i % 16 == 5) lt_set_state(l, m[i], i % 32 == 5 ? 2 : 3);
        want[i] = i % 16 == 5 ? 'D' : i % 3 == 0 ? 'W' : 'R';
    }
    assert_string_equal(lt_gate(l, m, LT_BATCH_MAX), want);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        assert_int_equal(lt_state(l, m[i]), want[i] == 'D'   ? (i % 32 == 5 ? 2 : 3)
                                            : want[i] == 'W' ? 1
                                                             : 0);
        assert_string_equal(lt_lock(l, m[i]), i % 3 == 0       ? "other"
                                              : want[i] == 'D' ? "(nil)"
                                                               : "t1");
    }
}

static void keys_are_any_bytes(void **state) {
    struct lt *l = *state;
    static char kilo[512];
    memset(kilo, 'x', sizeof kilo);
    const struct lw_bytes lanes[] = {lw_bytes("", 0),           lw_bytes("a\0b", 3),
                                     lw_bytes("a\0c", 3),       lw_bytes_of("{t.1}:x"),
                                     lw_bytes_of("}:lock:{"),   lw_bytes_of("\xc3\xa4\xff\xe2\x82"),
                                     lw_bytes_of("a b\r\n*%$"), lw_bytes(kilo, 512)};
    struct lt_msg m[8], again[8];
    for (int i = 0; i < 8; i++) {
        m[i] = lt_msg_bytes(0, i, lanes[i], "t1");
        again[i] = lt_msg_bytes(1, i, lanes[i], "u1");
    }
    assert_string_equal(lt_gate(l, m, 8), "RRRRRRRR");
    assert_string_equal(lt_gate(l, again, 8), "WWWWWWWW");
    char want[16];
    for (int i = 0; i < 8; i++) {
        snprintf(want, sizeof want, "1/%d", i);
        assert_string_equal(lt_waiting(l, m[i]), want);
        assert_string_equal(lt_lock(l, m[i]), "t1");
        assert_string_not_equal(lt_text(l, "ZSCORE " LT_TAG "lanes %b", lanes[i].p, lanes[i].n),
                                "(nil)");
    }
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "lanes"), 8);
}

static void a_broken_name_is_bad_for_that_message_only(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "lock:b x");
    lt_text(l, "SET " LT_TAG "wait:c x");
    lt_text(l, "SET " LT_TAG "lock:c other:1");
    const struct lt_msg m[] = {lt_msg(0, 1, "a", "t1"), lt_msg(0, 2, "b", "t1"),
                               lt_msg(0, 3, "c", "t1"), lt_msg(0, 4, "d", "t1")};
    assert_string_equal(lt_gate(l, m, 4), "RBBR");
    assert_int_equal(lt_state(l, m[1]), 0);
    assert_int_equal(lt_state(l, m[2]), 0);
    assert_false(in_lanes(l, "c"));
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "lock:b"), 1);
    assert_string_equal(lt_text(l, "GET " LT_TAG "wait:c"), "x");
}

static void assert_refused(struct lt *l, const char *why) {
    const struct lt_msg m[] = {lt_msg(0, 5, "a", "t1"), lt_msg(0, 6, "b", "t1")};
    char *before = lt_dump(l, true);
    assert_string_equal(lt_gate(l, m, 2), why);
    lt_assert_unchanged(l, before, true);
}

static void another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    gate1(l, lt_msg(0, 1, "a", "x1"));
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_refused(l, "LOST");
    lt_text(l, "FLUSHALL");
    assert_refused(l, "LOST");
}

static void an_unexpected_time_is_a_jump(void **state) {
    struct lt *l = *state;
    gate1(l, lt_msg(0, 1, "a", "x1"));
    for (int sign = -1; sign <= 1; sign += 2) {
        l->off_ms = sign * (LT_TTL_MS / 4 + 5000);
        assert_refused(l, "JUMP");
    }
    l->off_ms = LT_TTL_MS / 4 - 5000;
    assert_string_equal(gate1(l, lt_msg(0, 5, "b", "t1")), "R");
}

static void the_quarantine_admits_nothing(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    assert_refused(l, "QUARANTINE");
    /* gate answers JUMP before QUARANTINE if both apply. */
    l->off_ms = LT_TTL_MS;
    assert_refused(l, "JUMP");
    l->off_ms = 0;
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l));
    assert_string_equal(gate1(l, lt_msg(0, 5, "a", "t1")), "R");
}

/* A lone message without an envelope is decided by the short way at the top of the script, unless
 * there is something that only the rest of the script looks at. */
static void a_lone_message_runs_at_once(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lone(5, "k");
    lt_set_state(l, lone(4, "k"), 2);
    lt_set_state(l, lone(6, "k"), 3);
    assert_string_equal(gate1(l, m), "R");
    char value[64];
    snprintf(value, sizeof value, "t1:%" PRIu64, lt_fence(l, 0));
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    int64_t left = lt_int(l, "PTTL " LT_TAG "lock:k");
    assert_true(left > 0 && left <= LT_TTL_MS);
    assert_int_equal(lt_state(l, m), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lanes"), 0);
    assert_int_equal(lt_attempts(l, 0), 0);
    uint64_t before = l->fence;
    lt_free_lock(l, m);
    gate1(l, m);
    assert_true(l->fence > before);
    lt_text(l, "SET " LT_TAG "fence 8000000000000000");
    gate1(l, lone(7, "j"));
    assert_true(l->fence > UINT64_C(8000000000000000));
}

static void a_lone_message_is_held_up(void **state) {
    struct lt *l = *state;
    lt_set_state(l, lone(4, "k"), 2);
    lt_set_state(l, lone(5, "k"), 3);
    assert_string_equal(gate1(l, lone(4, "k")), "D");
    assert_string_equal(gate1(l, lone(5, "k")), "D");
    lt_int(l, "HSET " LT_TAG "floor orders:0 1000");
    assert_string_equal(gate1(l, lone(999, "k")), "D");
    assert_string_equal(lt_lock(l, lone(999, "k")), "(nil)");
    assert_string_equal(gate1(l, lone(1000, "k")), "R");
    struct lt_msg other = lone(1001, "k");
    other.token = "t2";
    assert_string_equal(gate1(l, other), "E");
    assert_string_equal(lt_lock(l, other), "t1");
    other.bare = false;
    assert_string_equal(gate1(l, other), "W");
    lt_free_lock(l, other);
    /* A message waits, so the next one must wait although the lock is free. */
    assert_string_equal(gate1(l, lone(1002, "k")), "E");
    assert_string_equal(gate1(l, lone(1002, "j")), "R");
    lt_int(l, "DEL " LT_TAG "lanes " LT_TAG "wait:k");
    lt_int(l, "SADD " LT_TAG "paused i");
    assert_string_equal(gate1(l, lone(1003, "i")), "E");
    lt_int(l, "DEL " LT_TAG "paused");
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1004 %s", "3 1000 0");
    assert_string_equal(gate1(l, lone(1004, "i")), "R");
    assert_int_equal(lt_attempts(l, 0), 3);
    lt_int(l, "LPUSH " LT_TAG "lock:bad x");
    assert_string_equal(gate1(l, lone(1100, "bad")), "B");
}

static void a_lone_message_is_refused(void **state) {
    struct lt *l = *state;
    l->off_ms = LT_TTL_MS / 4 + 5000;
    assert_string_equal(gate1(l, lone(1, "k")), "JUMP");
    l->off_ms = -l->off_ms;
    assert_string_equal(gate1(l, lone(1, "k")), "JUMP");
    l->off_ms = 0;
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    assert_string_equal(gate1(l, lone(1, "k")), "QUARANTINE");
    lt_int(l, "HSET " LT_TAG "epoch not_before 0 first 1");
    assert_string_equal(gate1(l, lone(1, "k")), "QUARANTINE");
    lt_int(l, "HDEL " LT_TAG "epoch first");
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_string_equal(gate1(l, lone(1, "k")), "LOST");
    assert_string_equal(lt_lock(l, lone(1, "k")), "(nil)");
}

static void maxmemory_refuses_all_of_it(void **state) {
    struct lt *l = *state;
    lt_text(l, "CONFIG SET maxmemory 1");
    assert_refused(l, "-OOM");
    lt_text(l, "CONFIG SET maxmemory 0");
    assert_string_equal(gate1(l, lt_msg(0, 5, "a", "t1")), "R");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(a_free_lane_runs),
        LT(the_fence_is_the_time_in_us_at_least),
        LT(a_locked_lane_parks),
        LT(a_lane_with_waiters_parks),
        LT(a_paused_lane_parks),
        LT(my_own_lock_runs_again),
        LT(finished_is_finished),
        LT(a_list_made_anew_is_told),
        LT(below_the_floor_is_finished),
        LT(attempts_are_told),
        LT(a_recorded_business_id_is_a_duplicate),
        LT(segments_meet_at_their_borders),
        LT(offsets_come_in_any_order),
        LT(a_full_batch),
        LT(keys_are_any_bytes),
        LT(a_broken_name_is_bad_for_that_message_only),
        LT(another_epoch_is_lost),
        LT(an_unexpected_time_is_a_jump),
        LT(the_quarantine_admits_nothing),
        LT(a_lone_message_runs_at_once),
        LT(a_lone_message_is_held_up),
        LT(a_lone_message_is_refused),
        LT(maxmemory_refuses_all_of_it),
    };
    /* This test does not run in the variant in which each call is sent twice, because the second
     * call would report the vanished list again. */
    const struct CMUnitTest once[] = {LT(what_lost_its_list_is_new)};
    /* These tests do not run in the variant in which Redis has reached maxmemory, because Redis
     * then refuses gate. The test maxmemory_refuses_all_of_it checks that. */
    return LT_RUN(tests, LT_PLAIN | LT_FLUSHED | LT_TWICE) + LT_RUN(once, LT_PLAIN | LT_FLUSHED);
}
