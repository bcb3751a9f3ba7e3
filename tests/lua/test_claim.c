/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script claim, which takes the lanes named by hints. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *claim1(struct lt *l, const char *lane, const char *token) {
    struct lt_msg m = lt_msg(0, 0, lane, token);
    return lt_claim(l, &m, 1);
}
/* Parks a message in a lane whose lock nobody holds. */
static void park(struct lt *l, struct lt_msg m) {
    lt_text(l, "SET " LT_TAG "lock:%b other:1", m.lane.p, m.lane.n);
    assert_string_equal(lt_gate(l, &m, 1), "W");
    lt_free_lock(l, m);
}
static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static bool in_lanes(struct lt *l) { return lt_int(l, "ZCARD " LT_TAG "lanes") > 0; }
static int64_t score(struct lt *l) { return atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")); }

static void the_head_is_handed_over_and_stays(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    park(l, message(2));
    int64_t from = lt_now_ms(l);
    assert_string_equal(claim1(l, "k", "t9"), "N");
    assert_string_equal(lt_heads(l, 0), "0/1");
    assert_int_equal(lt_attempts(l, 0), 0);
    assert_int_equal(lt_duplicates(l), 0);
    assert_string_equal(lt_waiting(l, message(1)), "0/1 0/2");
    char value[64];
    snprintf(value, sizeof value, "t9:%" PRIu64, lt_fence(l, 0));
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    int64_t left = lt_int(l, "PTTL " LT_TAG "lock:k");
    assert_true(left > LT_TTL_MS - 60000 && left <= LT_TTL_MS);
    assert_true(score(l) >= from + LT_TTL_MS && score(l) <= lt_now_ms(l) + LT_TTL_MS);
}

static void the_envelope_is_handed_over_whole(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg_bytes(3, INT64_C(1) << 40, lw_bytes("k\0\xff", 3), "t1");
    m.dedup = "id";
    park(l, m);
    assert_string_equal(lt_claim(l, &m, 1), "N");
    struct lw_buf want = {0};
    lt_encode(&m, &want);
    assert_true(lw_bytes_eq(lt_head_bytes(l, 0, 0), lw_bytes(want.p, want.n)));
    lw_buf_free(&want);
}

static void attempts_are_told(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s", "4 5 0");
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_int_equal(lt_attempts(l, 0), 4);
}

static void another_holder_is_busy(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    static const char *const held[] = {"other:5", "backoff", "t1", "t12:5", "t:15"};
    for (size_t i = 0; i < 5; i++) {
        lt_text(l, "SET " LT_TAG "lock:k %s", held[i]);
        char *before = lt_dump(l, true);
        assert_string_equal(claim1(l, "k", "t1"), "B");
        lt_assert_unchanged(l, before, true);
    }
    assert_string_equal(lt_heads(l, 0), "");
}

static void my_own_claim_is_handed_over_again(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    assert_string_equal(claim1(l, "k", "t1"), "N");
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 1000");
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/1");
    assert_true(lt_int(l, "PTTL " LT_TAG "lock:k") > 1000);
    assert_string_equal(lt_waiting(l, message(1)), "0/1");
}

/* Tests that claim releases a lane whose messages are all finished, even if the caller itself holds
 * the lane. */
static void my_own_empty_lane_is_let_go(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    claim1(l, "k", "t1");
    lt_set_state(l, message(1), 2);
    assert_string_equal(claim1(l, "k", "t1"), "E");
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
}

static void an_empty_lane_is_no_more(void **state) {
    struct lt *l = *state;
    assert_string_equal(claim1(l, "k", "t1"), "E");
    lt_int(l, "ZADD " LT_TAG "lanes 5 k");
    assert_string_equal(claim1(l, "k", "t1"), "E");
    assert_false(in_lanes(l));
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
    /* claim has used no fence, because it granted nothing */
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "fence"), 0);
}

static void finished_heads_are_dropped(void **state) {
    struct lt *l = *state;
    for (int64_t o = 16381; o < 16387; o++) park(l, message(o));
    lt_set_state(l, message(16381), 3);
    lt_set_state(l, message(16382), 2);
    lt_set_state(l, message(16384), 2);
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/16383");
    lt_free_lock(l, message(1));
    lt_floor(l, "orders:0", 16386, 0);
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/16386");
    lt_free_lock(l, message(1));
    lt_floor(l, "orders:0", 16387, 0);
    assert_string_equal(claim1(l, "k", "t1"), "E");
    assert_false(in_lanes(l));
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "wait:k"), 0);
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
}

static void waiting_duplicates_are_dropped_and_counted(void **state) {
    struct lt *l = *state;
    struct lt_msg a = message(1), b = message(2), c = lt_msg(0, 3, "j", "t1");
    a.dedup = b.dedup = c.dedup = "id-1";
    park(l, a);
    park(l, b);
    park(l, c);
    /* The business id was recorded by message b itself, so b is not a duplicate. */
    lt_text(l, "SET " LT_TAG "dedup:id-1 orders:0:2");
    struct lt_msg claims[] = {message(0), c};
    assert_string_equal(lt_claim(l, claims, 2), "NE");
    assert_string_equal(lt_heads(l, 0), "0/2");
    assert_int_equal(lt_duplicates(l), 2);
    assert_int_equal(lt_state(l, a), 2);
    assert_int_equal(lt_state(l, c), 2);
    assert_int_equal(lt_state(l, b), 1);
}

static void a_paused_lane_is_not_claimed(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    lt_int(l, "SADD " LT_TAG "paused k");
    char *before = lt_dump(l, true);
    assert_string_equal(claim1(l, "k", "t1"), "B");
    lt_assert_unchanged(l, before, true);
    lt_int(l, "SREM " LT_TAG "paused k");
    assert_string_equal(claim1(l, "k", "t1"), "N");
}

static void due_at(struct lt *l, int64_t offset, int64_t ms) {
    char value[64];
    snprintf(value, sizeof value, "1 5 %" PRId64, ms);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 %" PRId64 " %s", offset, value);
}

static void skip_takes_the_first_that_is_due(void **state) {
    struct lt *l = *state;
    l->skip = true;
    for (int64_t o = 1; o < 5; o++) park(l, message(o));
    due_at(l, 1, lt_now_ms(l) + 400000);
    due_at(l, 2, lt_now_ms(l) + 300000);
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
    assert_string_equal(lt_waiting(l, message(1)), "0/3 0/4 0/1 0/2");
}

static void skip_with_none_due_waits_for_the_earliest(void **state) {
    struct lt *l = *state;
    l->skip = true;
    park(l, message(1));
    park(l, message(2));
    int64_t earliest = lt_now_ms(l) + 300000;
    due_at(l, 1, earliest + 90000);
    due_at(l, 2, earliest);
    assert_string_equal(claim1(l, "k", "t1"), "B");
    assert_string_equal(lt_lock(l, message(1)), "backoff");
    int64_t left = lt_int(l, "PTTL " LT_TAG "lock:k");
    assert_true(left > 200000 && left <= 300000);
    assert_int_equal(score(l), earliest);
    assert_string_equal(lt_waiting(l, message(1)), "0/1 0/2");
    /* Set retry.order to `block`, with which claim ignores due times. */
    l->skip = false;
    lt_free_lock(l, message(1));
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/1");
}

/* A message that comes while none of those that wait is due need not wait for them. But the backoff
 * that a handler asked for the lane itself holds for all its messages. */
static void skip_lets_a_new_message_pass_those_not_due(void **state) {
    struct lt *l = *state;
    l->skip = true;
    park(l, message(1));
    due_at(l, 1, lt_now_ms(l) + 300000);
    assert_string_equal(claim1(l, "k", "t1"), "B");
    struct lt_msg m[2] = {message(2), message(3)};
    assert_string_equal(lt_gate(l, &m[0], 1), "W");
    assert_true(score(l) <= lt_now_ms(l));
    assert_string_equal(claim1(l, "k", "t2"), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
    lt_text(l, "SET " LT_TAG "lock:k backoff:300000 PX 300000");
    assert_string_equal(lt_gate(l, &m[1], 1), "W");
    assert_string_equal(claim1(l, "k", "t3"), "B");
    assert_string_equal(lt_lock(l, message(1)), "backoff");
}

/* A call examines a part of a long list. One of the others may be due, so the lane does not rest
 * until the earliest of those that it has seen. */
static void skip_looks_on_in_a_long_list(void **state) {
    struct lt *l = *state;
    l->skip = true;
    for (int64_t o = 1; o <= 300; o++) park(l, message(o));
    for (int64_t o = 1; o < 300; o++) due_at(l, o, lt_now_ms(l) + 300000);
    assert_string_equal(claim1(l, "k", "t1"), "B");
    assert_true(score(l) <= lt_now_ms(l) + 1000);
    lt_free_lock(l, message(1));
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/300");
}

/* If Redis' clock was set back, the due time of a message may be too far ahead. claim detects this
 * by the stored length of the backoff, and ignores such a due time. */
static void skip_knows_how_long_a_message_was_to_wait(void **state) {
    struct lt *l = *state;
    l->skip = true;
    park(l, message(1));
    park(l, message(2));
    due_at(l, 1, lt_now_ms(l) + 3600000);
    due_at(l, 2, lt_now_ms(l) + 3600000);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1+ 3600000 2+ 200");
    assert_string_equal(claim1(l, "k", "t1"), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
    assert_string_equal(lt_waiting(l, message(1)), "0/2 0/1");
    struct lt_msg m = lt_with(message(2), "done", "next");
    m.token = "t1";
    lt_settle(l, &m, 1);
    /* claim has removed the number of attempts of the finished head together with the head. */
    assert_int_equal(lt_int(l, "HLEN " LT_TAG "tries:orders:0:0"), 2);
}

/* Tests a lane with more finished heads than one call may remove: the remaining heads are removed
 * when the lane's next hint is claimed. */
static void dropping_has_a_bound(void **state) {
    struct lt *l = *state;
    struct lt_msg m = message(5);
    struct lw_buf e = {0};
    lt_encode(&m, &e);
    lt_text(l, "EVAL %s 0 %b",
            "local t = {} for i = 1, 1024 do t[i] = ARGV[1] end for _ = 1, 5 do "
            "redis.call('LPUSH', '" LT_TAG "wait:k', unpack(t)) end",
            e.p, e.n);
    lw_buf_free(&e);
    lt_floor(l, "orders:0", 6, 0);
    assert_string_equal(claim1(l, "k", "t1"), "B");
    /* claim has removed only a limited number of the finished heads. */
    assert_in_range(lt_int(l, "LLEN " LT_TAG "wait:k"), 1024 - 64, 1024);
    assert_string_equal(lt_lock(l, m), "(nil)");
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "ready 0"), "k");
    assert_true(in_lanes(l));
    assert_string_equal(claim1(l, "k", "t1"), "E");
}

static void hints_leave_claimed(void **state) {
    struct lt *l = *state;
    lt_int(l, "RPUSH " LT_TAG "claimed:w new mid old1 old2");
    park(l, message(1));
    /* claim removes the two oldest hints, which are at the right end of the list `claimed`. */
    l->taken = 2;
    claim1(l, "k", "t1");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "claimed:w"), 2);
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "claimed:w 1"), "mid");
    int64_t left = lt_int(l, "PTTL " LT_TAG "claimed:w");
    assert_true(left > 0 && left <= 4 * (int64_t)LT_TTL_MS);
    l->taken = 9;
    assert_string_equal(lt_claim(l, NULL, 0), "");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "claimed:w"), 0);
}

static void a_full_batch(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[LT_BATCH_MAX];
    static struct lt_msg parked[LT_BATCH_MAX];
    size_t n_parked = 0;
    char want[LT_BATCH_MAX + 1] = "";
    lt_full_batch(m, 1);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        lt_text(l, "SET " LT_TAG "lock:%s other:1", m[i].lane.p);
        if (i % 5) {
            parked[n_parked] = m[i];
            parked[n_parked++].token = "p1";
        }
        want[i] = i % 7 == 0 ? 'B' : i % 5 ? 'N' : 'E';
    }
    lt_gate(l, parked, n_parked);
    for (int i = 0; i < LT_BATCH_MAX; i++)
        if (want[i] != 'B') lt_free_lock(l, m[i]);
    assert_string_equal(lt_claim(l, m, LT_BATCH_MAX), want);
    char head[32];
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        snprintf(head, sizeof head, "%d/%d", m[i].partition, (int)m[i].offset);
        assert_string_equal(lt_heads(l, i), want[i] == 'N' ? head : "");
        assert_string_equal(lt_lock(l, m[i]), want[i] == 'N'   ? "t1"
                                              : want[i] == 'B' ? "other"
                                                               : "(nil)");
    }
}

/* Tests a call that names the same lane twice, which workers never do. When claim reaches the lane
 * the second time, it finds the caller's own lock, and grants the same head again, as after a lost
 * reply. */
static void a_doubled_hint_is_harmless(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    const struct lt_msg m[] = {lt_msg(0, 0, "k", "t1"), lt_msg(0, 0, "k", "t1")};
    assert_string_equal(lt_claim(l, m, 2), "NN");
    assert_string_equal(lt_heads(l, 0), "0/1");
    assert_string_equal(lt_heads(l, 1), "0/1");
    assert_string_equal(lt_lock(l, message(1)), "t1");
    assert_string_equal(claim1(l, "k", "t2"), "B");
}

static void a_broken_name_is_busy_for_that_lane_only(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 1, "a", "t1"), lt_msg(0, 2, "b", "t1"), lt_msg(0, 3, "c", "t1"),
                         lt_msg(0, 4, "d", "t1")};
    park(l, m[0]);
    park(l, m[1]);
    park(l, m[3]);
    lt_int(l, "LPUSH " LT_TAG "lock:b x");
    lt_text(l, "SET " LT_TAG "wait:c x");
    assert_string_equal(lt_claim(l, m, 4), "NBBN");
    assert_string_equal(lt_heads(l, 3), "0/4");
    assert_string_equal(lt_lock(l, m[2]), "(nil)");
    assert_string_equal(lt_text(l, "GET " LT_TAG "wait:c"), "x");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "lock:b"), 1);
}

static void assert_refused(struct lt *l, const char *why) {
    const struct lt_msg m[] = {lt_msg(0, 0, "k", "t1"), lt_msg(0, 0, "j", "t1")};
    l->taken = 1;
    char *before = lt_dump(l, true);
    assert_string_equal(lt_claim(l, m, 2), why);
    lt_assert_unchanged(l, before, true);
}

static void is_refused_as_a_whole(void **state) {
    struct lt *l = *state;
    park(l, message(1));
    lt_int(l, "LPUSH " LT_TAG "claimed:w k");
    l->off_ms = LT_TTL_MS / 4 + 5000;
    assert_refused(l, "JUMP");
    l->off_ms = -l->off_ms;
    assert_refused(l, "JUMP");
    l->off_ms = 0;
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    assert_refused(l, "QUARANTINE");
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_refused(l, "LOST");
    lt_setup(state);
    park(l, message(1));
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l));
    assert_string_equal(claim1(l, "k", "t1"), "N");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(the_head_is_handed_over_and_stays),
        LT(the_envelope_is_handed_over_whole),
        LT(attempts_are_told),
        LT(another_holder_is_busy),
        LT(my_own_claim_is_handed_over_again),
        LT(my_own_empty_lane_is_let_go),
        LT(an_empty_lane_is_no_more),
        LT(finished_heads_are_dropped),
        LT(waiting_duplicates_are_dropped_and_counted),
        LT(a_paused_lane_is_not_claimed),
        LT(skip_takes_the_first_that_is_due),
        LT(skip_with_none_due_waits_for_the_earliest),
        LT(skip_lets_a_new_message_pass_those_not_due),
        LT(skip_looks_on_in_a_long_list),
        LT(skip_knows_how_long_a_message_was_to_wait),
        LT(a_full_batch),
        LT(a_doubled_hint_is_harmless),
        LT(a_broken_name_is_busy_for_that_lane_only),
        LT(is_refused_as_a_whole),
    };
    /* These tests do not run in the variant in which each call is sent twice, because the second
     * call changes more: it continues where a limit stopped the first call, or removes further
     * hints. Removing them is harmless, because tend makes lost hints again. */
    const struct CMUnitTest once[] = {LT(dropping_has_a_bound), LT(hints_leave_claimed)};
    return LT_RUN(tests, LT_ALL) + LT_RUN(once, LT_ALL & ~LT_TWICE);
}
