/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how gate, settle and claim read and write the states of messages: two bits per offset, four
 * states per byte, 16,384 offsets per segment. A call reads the bytes that the caller names, and
 * more if a waiting list contains other offsets. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t far_offset = INT64_C(1) << 40;

static void park(struct lt *l, struct lt_msg m) {
    m.token = "x1";
    lt_text(l, "SET " LT_TAG "lock:%b other:1", m.lane.p, m.lane.n);
    assert_string_equal(lt_gate(l, &m, 1), "W");
    lt_free_lock(l, m);
}

/* Reads and writes, in one call, the states at both ends of segments and of pages (64 bytes), for
 * small and for very large offsets. The result must not depend on which bytes of a segment the
 * script reads at once. */
static void both_ends_of_a_segment(void **state) {
    struct lt *l = *state;
    const int64_t at[] = {0,
                          1,
                          3,
                          4,
                          255,
                          256,
                          511,
                          512,
                          16379,
                          16380,
                          16383,
                          16384,
                          32767,
                          far_offset,
                          far_offset + 3,
                          far_offset + 16383,
                          far_offset - 1,
                          far_offset - 16384,
                          far_offset + 8191,
                          far_offset + 16384};
    enum { N = sizeof at / sizeof *at };
    struct lt_msg m[N];
    char lanes[N][16], want[N + 1] = "";
    for (int narrow = 0; narrow < 3; narrow++) {
        lt_setup(state);
        l->narrow = narrow;
        for (int i = 0; i < N; i++) {
            snprintf(lanes[i], sizeof lanes[i], "k%d", i);
            m[i] = lt_msg(0, at[i], lanes[i], "t1");
            want[i] = 'R';
        }
        assert_string_equal(lt_gate(l, m, N), want);
        for (int i = 0; i < N; i++) m[i].outcome = i % 2 ? "done" : "dead", want[i] = 'L';
        assert_string_equal(lt_settle(l, m, N), want);
        int64_t ones = 0;
        for (int i = 0; i < N; i++) {
            assert_int_equal(lt_state(l, m[i]), i % 2 ? 2 : 3);
            ones += i % 2 ? 1 : 2;
            want[i] = 'D';
        }
        static const int64_t segments[] = {0, 1, 67108862, 67108863, 67108864, 67108865};
        for (size_t i = 0; i < 6; i++)
            ones -= lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:%" PRId64, segments[i]);
        assert_int_equal(ones, 0); /* no other bits than those of the messages are set */
        assert_string_equal(lt_gate(l, m, N), want);
    }
}

/* Tests that a call which sets one of the four states in a byte does not change the other three,
 * for each position in the byte and each value of the other states. */
static void neighbours_in_a_byte_stay(void **state) {
    struct lt *l = *state;
    for (int mine = 0; mine < 4; mine++)
        for (int others = 0; others < 4; others++)
            /* The states are set in three ways: by parking a message, and by the outcomes done and
             * dead. */
            for (int way = 0; way < 3; way++) {
                lt_setup(state);
                struct lt_msg m = lt_msg(0, 400 + mine, "k", "t1");
                for (int i = 0; i < 4; i++)
                    if (i != mine) lt_set_state(l, lt_msg(0, 400 + i, "", ""), others);
                lt_set_state(l, lt_msg(0, 399, "", ""), others);
                lt_set_state(l, lt_msg(0, 404, "", ""), others);
                if (way == 0) {
                    park(l, m);
                } else {
                    assert_string_equal(lt_gate(l, &m, 1), "R");
                    m.outcome = way == 1 ? "done" : "dead";
                    assert_string_equal(lt_settle(l, &m, 1), "L");
                }
                for (int i = -1; i < 5; i++)
                    assert_int_equal(lt_state(l, lt_msg(0, 400 + i, "", "")),
                                     i == mine ? way + 1 : others);
            }
}

static void several_in_a_byte_at_once(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "lock:b other:1");
    struct lt_msg m[] = {lt_msg(0, 400, "a", "t1"), lt_msg(0, 401, "b", "t1"),
                         lt_msg(0, 402, "c", "t1"), lt_msg(0, 403, "d", "t1")};
    assert_string_equal(lt_gate(l, m, 4), "RWRR");
    m[1] = m[2], m[2] = m[3];
    m[1].outcome = "dead";
    assert_string_equal(lt_settle(l, m, 3), "LLL");
    const struct lt_look look = {"orders:0", 0, 100, 100};
    lt_watch(l, &look, 1);
    assert_memory_equal(lt_states(l, 0).p, "\x9e", 1); /* 2 1 3 2 */
}

/* Tests every outcome in every earlier state. An unseen or waiting message must get the state that
 * belongs to the outcome. A message that is done or dead must keep its state. */
static void a_state_only_rises(void **state) {
    struct lt *l = *state;
    for (int was = 0; was < 4; was++) {
        static const char *const outcomes[] = {"done", "dead", "sent", "back", "retry"};
        static const int to[] = {2, 3, 3, 1, 1};
        for (int i = 0; i < 5; i++) {
            lt_setup(state);
            struct lt_msg m = lt_with(lt_msg(0, 777, "k", "t1"), outcomes[i], "next");
            assert_string_equal(lt_gate(l, &m, 1), "R");
            lt_set_state(l, m, was);
            assert_string_equal(lt_settle(l, &m, 1), "L");
            assert_int_equal(lt_state(l, m), was >= 2 ? was : to[i]);
        }
    }
}

static void topics_and_partitions_do_not_meet(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 5, "a", "t1"),  lt_msg(1, 5, "b", "t1"),
                         lt_msg(0, 5, "c", "t1"),  lt_msg(1, 5, "d", "t1"),
                         lt_msg(10, 5, "e", "t1"), lt_msg(1, 5 + 16384, "f", "t1")};
    m[2].topic = m[3].topic = "bills.eu-1_x";
    assert_string_equal(lt_gate(l, m, 6), "RRRRRR");
    m[1].outcome = m[2].outcome = "dead";
    m[5].outcome = "sent";
    assert_string_equal(lt_settle(l, m, 6), "LLLLLL");
    static const int want[] = {2, 3, 3, 2, 2, 3};
    for (int i = 0; i < 6; i++) assert_int_equal(lt_state(l, m[i]), want[i]);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:bills.eu-1_x:0:0"), 2);
    /* Raise the floor of partition orders:1, and of no other partition. */
    lt_floor(l, "orders:1", 6, 0);
    assert_string_equal(lt_gate(l, m, 6), "DDDDDD");
    for (int i = 0; i < 6; i++) m[i].offset--;
    assert_string_equal(lt_gate(l, m, 6), "RDRRRR");
}

/* The waiting list of a lane contains messages of two topics, in segments that the call names and
 * in other segments. */
static void heads_of_any_segment_and_topic(void **state) {
    struct lt *l = *state;
    struct lt_msg w[8];
    const int64_t at[] = {16000, 40, 16383, 16384, far_offset, 100000, 3, 16001};
    for (int i = 0; i < 8; i++) {
        w[i] = lt_msg(i % 2, at[i], "k", "x1");
        if (i % 3 == 0) w[i].topic = "bills";
        park(l, w[i]);
    }
    for (int i = 0; i < 8; i += 2) lt_set_state(l, w[i], 2 + i / 2 % 2);
    struct lt_msg m = lt_msg(0, 12, "j", "t1"), k = lt_msg(0, 9, "k", "t1");
    assert_string_equal(lt_gate(l, &m, 1), "R");
    lt_text(l, "SET " LT_TAG "lock:k t1:1");
    struct lt_msg both[] = {m, k};
    struct lt_item items[] = {{.done = &both[0], .n_done = 1, .mode = 'n', .want = 1},
                              {.done = &both[1], .n_done = 1, .mode = 'n', .want = 8}};
    l->reserve = 8;
    assert_string_equal(lt_settle_items(l, items, 2), "LN");
    assert_string_equal(lt_heads(l, 1), "1/40 1/16384 1/100000 1/16001");
    assert_int_equal(lt_state(l, m), 2);
    assert_int_equal(lt_state(l, k), 2);
}

/* One call writes to a segment, reads more of the same segment, and writes again. No write may be
 * lost or undone. */
static void a_window_is_widened_after_it_was_written(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    lt_text(l, "SET " LT_TAG "dedup:id orders:5:5");
    struct lt_msg w[3];
    /* The offsets of the waiting messages are in the same segment as those of the settled messages,
     * but each in a page of its own. */
    const int64_t at[] = {16383, 8000, 0};
    for (int i = 0; i < 3; i++) {
        w[i] = lt_msg(0, at[i], "k", "x1");
        park(l, w[i]);
    }
    lt_int(l, "DEL " LT_TAG "wait:k");
    for (int i = 0; i < 3; i++) {
        w[i].dedup = i < 2 ? "id" : "";
        struct lw_buf e = {0};
        lt_encode(&w[i], &e);
        lt_int(l, "LPUSH " LT_TAG "wait:k %b", e.p, e.n);
        lw_buf_free(&e);
    }
    for (int64_t o = 0; o < 16000; o += 1000) lt_set_state(l, lt_msg(0, o + 500, "", ""), 3);
    lt_text(l, "SET " LT_TAG "lock:k t1:1");
    lt_text(l, "SET " LT_TAG "lock:j t1:1");
    struct lt_msg m[] = {lt_msg(0, 4000, "j", "t1"), lt_msg(0, 4001, "k", "t1"),
                         lt_msg(0, 4002, "i", "t1")};
    lt_text(l, "SET " LT_TAG "lock:i t1:1");
    m[2].outcome = "dead";
    l->narrow = 2;
    assert_string_equal(lt_settle(l, m, 3), "LNL");
    assert_string_equal(lt_heads(l, 1), "0/0");
    assert_int_equal(lt_duplicates(l), 2);
    assert_int_equal(lt_state(l, m[0]), 2);
    assert_int_equal(lt_state(l, m[1]), 2);
    assert_int_equal(lt_state(l, m[2]), 3);
    assert_int_equal(lt_state(l, w[0]), 2);
    assert_int_equal(lt_state(l, w[1]), 2);
    assert_int_equal(lt_state(l, w[2]), 1);
    /* These bits of the segment are 1: 4 bits in the states of the messages in m, 3 bits in the
     * states of the messages in w, and 2 bits in each of the 16 states that were set before. */
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:0"), 4 + 3 + 2 * 16);
}

static void claim_looks_at_its_heads_wherever_they_are(void **state) {
    struct lt *l = *state;
    const int64_t at[] = {511, 512, 16383, 0, 5000, far_offset + 511, far_offset + 9000};
    for (int i = 0; i < 7; i++) park(l, lt_msg(0, at[i], "k", "x1"));
    for (int i = 0; i < 6; i++) {
        struct lt_msg k = lt_msg(0, at[i], "k", "t1");
        lt_set_state(l, k, 2 + i % 2);
        assert_string_equal(lt_claim(l, &k, 1), "N");
        char want[32];
        snprintf(want, sizeof want, "0/%" PRId64, at[i + 1]);
        assert_string_equal(lt_heads(l, 0), want);
        lt_free_lock(l, k);
    }
}

/* Every message below the floor is finished. No state is written below the floor, because the
 * segments there are deleted. */
static void nothing_is_written_below_the_floor(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 16383, "a", "t1"), lt_msg(0, 16384, "b", "t1"),
                         lt_msg(0, 20000, "c", "t1"), lt_msg(0, 20001, "d", "t1"),
                         lt_msg(0, 100, "e", "t1")};
    assert_string_equal(lt_gate(l, m, 5), "RRRRR");
    lt_floor(l, "orders:0", 20001, 0);
    m[1].outcome = "dead", m[2].outcome = "retry", m[4].outcome = "sent";
    assert_string_equal(lt_settle(l, m, 5), "LLLLL");
    assert_int_equal(
        lt_int(l, "EXISTS " LT_TAG "state:orders:0:0 " LT_TAG "dead " LT_TAG "tries:orders:0:1"),
        0);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:1"), 1);
    /* A settle without a lease writes no state below the floor either. */
    struct lt_msg late = lt_msg(0, 100, "a", "t7");
    assert_string_equal(lt_settle(l, &late, 1), "S");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "state:orders:0:0"), 0);
}

/* Uses 250 segments in one call, close to the largest number that fits into one byte. */
static void many_segments(void **state) {
    struct lt *l = *state;
    enum { N = 250 };
    static struct lt_msg m[N];
    static char lanes[N][16], topics[N][16];
    for (int i = 0; i < N; i++) {
        snprintf(lanes[i], sizeof lanes[i], "k%d", i);
        snprintf(topics[i], sizeof topics[i], "topic%d", i % 50);
        m[i] = lt_msg(i % 7, (int64_t)i * 16384 + i * 60, lanes[i], "t1");
        m[i].topic = topics[i];
        if (i % 5 == 0) lt_set_state(l, m[i], 2);
    }
    lt_gate(l, m, N);
    for (int i = 0; i < N; i++) assert_int_equal(l->answers[i], i % 5 ? 'R' : 'D');
    for (int i = 0; i < N; i++) m[i].outcome = i % 2 ? "dead" : "done";
    lt_settle(l, m, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(l->answers[i], i % 5 ? 'L' : 'S');
        assert_int_equal(lt_state(l, m[i]), i % 5 && i % 2 ? 3 : 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(both_ends_of_a_segment),
        LT(neighbours_in_a_byte_stay),
        LT(several_in_a_byte_at_once),
        LT(a_state_only_rises),
        LT(topics_and_partitions_do_not_meet),
        LT(heads_of_any_segment_and_topic),
        LT(a_window_is_widened_after_it_was_written),
        LT(claim_looks_at_its_heads_wherever_they_are),
        LT(nothing_is_written_below_the_floor),
        LT(many_segments),
    };
    return LT_RUN(tests, LT_ALL);
}
