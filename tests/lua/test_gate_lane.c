/* SPDX-License-Identifier: Apache-2.0 */
/* Tests calls of gate with several messages of a lane. The first unfinished message of a lane
 * decides what happens to all of them, and they keep their order. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static void busy(struct lt *l, const char *lane) {
    lt_text(l, "SET " LT_TAG "lock:%s other:1 PX %d", lane, LT_TTL_MS);
}
static bool in_lanes(struct lt *l, const char *lane) {
    return strcmp(lt_text(l, "ZSCORE " LT_TAG "lanes %s", lane), "(nil)") != 0;
}

static void a_free_lane_runs_all_of_them(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {message(1), message(2), message(3), lt_msg(0, 4, "j", "t1"),
                               lt_msg(1, 9, "j", "t1")};
    assert_string_equal(lt_gate(l, m, 5), "RAARA");
    /* In each lane, the fences of the messages are consecutive, beginning with the first fence that
     * the call reserved. */
    for (int i = 0; i < 5; i++)
        assert_true(lt_fence(l, i) == l->fence + (uint64_t)(i < 3 ? i : i - 3));
    char value[64];
    snprintf(value, sizeof value, "t1:%" PRIu64, l->fence);
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:j"), value);
    for (int i = 0; i < 5; i++) assert_int_equal(lt_state(l, m[i]), 0);
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "lanes"), 0);
}

static void attempts_are_numbered_over_all_grants(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 2 %s 4 %s", "3 5 0", "7 5 0");
    lt_int(l, "HSET " LT_TAG "tries:orders:1:1 16384 %s", "1 5 0");
    lt_set_state(l, message(1), 2);
    busy(l, "i");
    const struct lt_msg m[] = {message(1),
                               message(2),
                               message(3),
                               lt_msg(0, 5, "i", "t1"),
                               lt_msg(1, 4, "j", "t1"),
                               lt_msg(1, 16384, "j", "t1"),
                               lt_msg(0, 4, "j", "t1")};
    assert_string_equal(lt_gate(l, m, 7), "DRAWRAA");
    const int want[] = {0, 3, 0, 0, 0, 1, 7};
    for (int i = 0; i < 7; i++) assert_int_equal(lt_attempts(l, i), want[i]);
    const redisReply *tries = l->reply->element[2];
    assert_int_equal(tries->elements, 9);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tries->element[3 * i]->integer, i ? 3 + i : 1);
        assert_int_equal(tries->element[3 * i + 2]->integer, 5);
    }
}

static void finished_ones_are_told_wherever_they_stand(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {message(1), message(2), message(3), message(4), message(5)};
    lt_set_state(l, m[0], 2);
    lt_set_state(l, m[2], 3);
    lt_int(l, "HSET " LT_TAG "floor orders:0 0");
    assert_string_equal(lt_gate(l, m, 5), "DRDAA");
    /* Message 4 is the second one granted and has the second fence, because finished messages use
     * none. */
    assert_true(lt_fence(l, 3) == l->fence + 1);
    lt_free_lock(l, m[0]);
    lt_floor(l, "orders:0", 5, 0);
    assert_string_equal(lt_gate(l, m, 5), "DDDDR");
}

static void all_finished_locks_nothing(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {message(1), message(2)};
    lt_set_state(l, m[0], 2);
    lt_set_state(l, m[1], 2);
    assert_string_equal(lt_gate(l, m, 2), "DD");
    assert_string_equal(lt_lock(l, m[0]), "(nil)");
}

static bool pushed_once(struct lt *l) {
    redisReply *r = redisCommand(l->admin, "INFO commandstats");
    assert_non_null(r);
    bool once = strstr(r->str, "cmdstat_lpush:calls=1,") != NULL;
    freeReplyObject(r);
    return once;
}

static void a_busy_lane_parks_in_order(void **state) {
    struct lt *l = *state;
    busy(l, "k");
    const struct lt_msg m[] = {message(1), message(2), lt_msg(1, 1, "k", "t1"), message(3)};
    lt_set_state(l, m[1], 2);
    lt_text(l, "CONFIG RESETSTAT");
    assert_string_equal(lt_gate(l, m, 4), "WDWW");
    assert_true(pushed_once(l));
    assert_string_equal(lt_waiting(l, m[0]), "0/1 1/1 0/3");
    assert_int_equal(lt_state(l, m[0]), 1);
    assert_int_equal(lt_state(l, m[1]), 2);
    assert_int_equal(lt_state(l, m[2]), 1);
    assert_true(in_lanes(l, "k"));
    int64_t due = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")), now = lt_now_ms(l);
    assert_true(due > now && due <= now + LT_TTL_MS);
    const struct lt_msg more[] = {message(4), message(5)};
    assert_string_equal(lt_gate(l, more, 2), "WW");
    assert_string_equal(lt_waiting(l, m[0]), "0/1 1/1 0/3 0/4 0/5");
}

static void one_that_waits_sends_the_rest_behind_it(void **state) {
    struct lt *l = *state;
    busy(l, "k");
    const struct lt_msg m[] = {message(1), message(2), message(3)};
    assert_string_equal(lt_gate(l, m, 1), "W");
    /* Delete the lock and the entry in `lanes`, so that the lane looks free, although message 1
     * still waits. */
    lt_int(l, "DEL " LT_TAG "lock:k " LT_TAG "lanes");
    assert_string_equal(lt_gate(l, m, 3), "WWW");
    assert_string_equal(lt_waiting(l, m[0]), "0/1 0/2 0/3");
    assert_string_equal(lt_lock(l, m[0]), "(nil)");
    assert_true(in_lanes(l, "k"));
}

static struct lt_msg bare(struct lt_msg m) {
    m.bare = true;
    return m;
}

static void without_envelopes_the_first_asks_for_them(void **state) {
    struct lt *l = *state;
    busy(l, "k");
    const struct lt_msg m[] = {bare(message(1)), bare(message(2)), bare(message(3))};
    lt_set_state(l, m[0], 2);
    lt_set_state(l, m[2], 2);
    assert_string_equal(lt_gate(l, m, 3), "DED");
    assert_int_equal(lt_state(l, m[1]), 0);
    assert_false(in_lanes(l, "k"));
    const struct lt_msg mixed[] = {bare(message(2)), bare(message(6)), lt_msg(0, 4, "j", "t1"),
                                   lt_msg(0, 5, "j", "t1")};
    /* In one call, the messages of one lane have envelopes, and those of the other lane have
     * none. */
    assert_string_equal(lt_gate(l, mixed, 4), "EGRA");
    const struct lt_msg again[] = {message(2), message(6)};
    assert_string_equal(lt_gate(l, again, 2), "WW");
    assert_string_equal(lt_waiting(l, again[0]), "0/2 0/6");
}

/* Makes the most frequent kind of call: one message per lane, without envelopes. In such a call the
 * argument with the number of messages per lane is empty. */
static void one_each_without_envelopes(void **state) {
    struct lt *l = *state;
    busy(l, "k");
    const struct lt_msg m[] = {bare(message(1)), bare(lt_msg(0, 2, "j", "t1"))};
    assert_string_equal(lt_gate(l, m, 2), "ER");
    assert_int_equal(l->args.size[7], 0);
    assert_int_equal(lt_state(l, m[0]), 0);
}

static void a_bare_one_that_waits_is_told_and_those_behind_it_ask(void **state) {
    struct lt *l = *state;
    busy(l, "k");
    const struct lt_msg m[] = {message(1)},
                        bares[] = {bare(message(1)), bare(message(2)), bare(message(3))};
    lt_gate(l, m, 1);
    assert_string_equal(lt_gate(l, bares, 3), "WEG");
    assert_string_equal(lt_waiting(l, m[0]), "0/1");
}

static void a_paused_lane_parks_all(void **state) {
    struct lt *l = *state;
    lt_int(l, "SADD " LT_TAG "paused k");
    const struct lt_msg m[] = {message(1), message(2)};
    assert_string_equal(lt_gate(l, m, 2), "WW");
    assert_string_equal(lt_waiting(l, m[0]), "0/1 0/2");
    assert_string_equal(lt_lock(l, m[0]), "(nil)");
    const struct lt_msg bares[] = {bare(message(3)), bare(message(4))};
    assert_string_equal(lt_gate(l, bares, 2), "EG");
}

/* A call takes the lane, and its answer is lost. Then other workers park messages in the lane. When
 * the call is sent again, its messages are granted again. */
static void my_own_lane_with_waiters_runs_again(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {message(1), message(2)}, other[] = {message(7), message(8)};
    other[0].token = other[1].token = "x1";
    assert_string_equal(lt_gate(l, m, 2), "RA");
    assert_string_equal(lt_gate(l, other, 2), "WW");
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 1000");
    uint64_t fence = l->fence_seen;
    assert_string_equal(lt_gate(l, m, 2), "RA");
    assert_true(l->fence > fence);
    assert_true(lt_int(l, "PTTL " LT_TAG "lock:k") > 1000);
    char value[64];
    snprintf(value, sizeof value, "t1:%" PRIu64, l->fence);
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    /* Even if the lane is paused before the call is sent again, its messages are granted. */
    lt_int(l, "SADD " LT_TAG "paused k");
    assert_string_equal(lt_gate(l, m, 2), "RA");
    assert_string_equal(lt_gate(l, other, 2), "WW");
    assert_string_equal(lt_waiting(l, m[0]), "0/7 0/8");
}

/* The answer of a call is lost, and the partition's new owner parks the second message of the call.
 * When the call is sent again, gate still grants that message, in the same order. */
static void mine_is_granted_though_another_parked_it(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {message(1), message(2), message(3)}, parked = message(2);
    parked.token = "x1";
    assert_string_equal(lt_gate(l, m, 3), "RAA");
    assert_string_equal(lt_gate(l, &parked, 1), "W");
    assert_string_equal(lt_gate(l, m, 3), "RAA");
    const struct lt_item item = {.done = m, .n_done = 3, .mode = 'n', .want = 1};
    /* When the second message is settled, its copy in the waiting list is removed as well. */
    assert_string_equal(lt_settle_items(l, &item, 1), "L");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "wait:k"), 0);
    assert_string_equal(lt_lock(l, m[0]), "(nil)");
}

static void a_token_that_mine_begins_with_is_not_mine(void **state) {
    struct lt *l = *state;
    static const char *const held[] = {"t12:5", "t1", "t:15", "backoff"};
    for (size_t i = 0; i < 4; i++) {
        lt_text(l, "SET " LT_TAG "lock:k %s PX 100000", held[i]);
        const struct lt_msg m[] = {bare(message(1)), bare(message(2))};
        char *before = lt_dump(l, false);
        assert_string_equal(lt_gate(l, m, 2), "EG");
        lt_assert_unchanged(l, before, false);
    }
}

/* Messages with business ids are granted one at a time. A message may be a duplicate of the message
 * before it, and gate can tell only when the message before it is done. */
static void with_business_ids_one_runs_at_a_time(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "dedup:id-1 orders:5:5");
    struct lt_msg m[] = {message(1),
                         message(2),
                         message(3),
                         message(4),
                         lt_msg(0, 5, "j", "t1"),
                         lt_msg(0, 6, "j", "t1")};
    for (int i = 0; i < 6; i++) m[i].dedup = "id-2";
    m[0].dedup = "id-1";
    m[4].dedup = m[5].dedup = "";
    lt_set_state(l, m[3], 2);
    assert_string_equal(lt_gate(l, m, 6), "URGDRG");
    assert_int_equal(lt_state(l, m[0]), 2);
    assert_int_equal(lt_state(l, m[2]), 0);
}

static void with_business_ids_a_busy_lane_parks_all(void **state) {
    struct lt *l = *state;
    busy(l, "k");
    lt_text(l, "SET " LT_TAG "dedup:id-1 orders:5:5");
    struct lt_msg m[] = {message(1), message(2), message(3)};
    m[0].dedup = m[2].dedup = "id-2";
    m[1].dedup = "id-1";
    assert_string_equal(lt_gate(l, m, 3), "WUW");
    assert_string_equal(lt_waiting(l, m[0]), "0/1 0/3");
}

static void a_broken_name_is_bad_for_that_lane_only(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "lock:b x");
    lt_text(l, "SET " LT_TAG "wait:c x");
    busy(l, "c");
    const struct lt_msg m[] = {lt_msg(0, 1, "a", "t1"), lt_msg(0, 2, "a", "t1"),
                               lt_msg(0, 3, "b", "t1"), lt_msg(0, 4, "b", "t1"),
                               lt_msg(0, 5, "c", "t1"), lt_msg(0, 6, "c", "t1"),
                               lt_msg(0, 7, "d", "t1")};
    assert_string_equal(lt_gate(l, m, 7), "RABGBBR");
    for (int i = 0; i < 7; i++) assert_int_equal(lt_state(l, m[i]), 0);
    assert_false(in_lanes(l, "c"));
    /* Add lane b to the zset `lanes`, because gate executes different code for lanes in this
     * zset. */
    lt_int(l, "ZADD " LT_TAG "lanes 5 b");
    assert_string_equal(lt_gate(l, m + 2, 2), "BG");
}

/* Calls gate with the largest batch, in which every lane has several messages. gate must not
 * mistake envelopes and ids of one lane for those of the next. */
static void a_full_batch(void **state) {
    struct lt *l = *state;
    enum { EACH = 4, N = LT_BATCH_MAX * EACH };
    static struct lt_msg m[N];
    static char want[N + 1], waits[64];
    lt_full_batch(m, EACH);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        if (i % 3 == 0) busy(l, m[i * EACH].lane.p);
        for (int k = 0; k < EACH; k++) m[i * EACH + k].bare = i % 2;
        lt_set_state(l, m[i * EACH + 1], 2);
        memcpy(want + i * EACH, i % 3 ? "RDAA" : i % 2 ? "EDGG" : "WDWW", EACH);
    }
    assert_string_equal(lt_gate(l, m, N), want);
    for (int i = 0; i < LT_BATCH_MAX; i += 6) {
        int64_t first = m[i * EACH].offset;
        snprintf(waits, sizeof waits, "%d/%" PRId64 " %d/%" PRId64 " %d/%" PRId64, i / 32, first,
                 i / 32, first + 2, i / 32, first + 3);
        assert_string_equal(lt_waiting(l, m[i * EACH]), waits);
    }
}

/* Tests a call with 127 messages of one lane, the largest number that fits into the byte for the
 * count. */
static void many_messages_of_a_lane(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[127];
    l->reserve = 127;
    for (int i = 0; i < 127; i++) m[i] = message(1000 + i);
    lt_gate(l, m, 127);
    assert_int_equal(l->answers[0], 'R');
    assert_int_equal(strspn(l->answers + 1, "A"), 126);
    assert_true(lt_fence(l, 126) == l->fence + 126);
    lt_text(l, "SET " LT_TAG "lock:k other:1 PX %d", LT_TTL_MS);
    lt_gate(l, m, 127);
    assert_int_equal(strspn(l->answers, "W"), 127);
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "wait:k"), 127);
    assert_int_equal(lt_int(l, "BITCOUNT " LT_TAG "state:orders:0:0"), 127);
    lt_gate(l, m, 127);
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "wait:k"), 127);
}

/* Tests that fences grow when a lock is released and when it expires. The test support checks that
 * no two calls get the same fence. */
static void fences_grow_over_release_and_expiry(void **state) {
    struct lt *l = *state;
    const struct lt_msg m[] = {message(1), message(2), message(3)};
    const struct lt_item back = {
        .done = (struct lt_msg[]){lt_with(message(1), "back", "drop")}, .n_done = 1, .mode = '-'};
    static const int reserves[] = {1, 61, 2, 255};
    for (int i = 0; i < 4; i++) {
        l->reserve = reserves[i];
        size_t n = l->reserve > 2 ? 3 : (size_t)l->reserve;
        assert_int_equal(strlen(lt_gate(l, m, n)), n);
        assert_int_equal(l->answers[0], 'R');
        assert_true(l->fence_seen == l->fence + (uint64_t)l->reserve - 1);
        if (i % 2) {
            assert_string_equal(lt_settle_items(l, &back, 1), "L");
            assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
            lt_int(l, "DEL " LT_TAG "wait:k " LT_TAG "lanes");
            lt_text(l, "SETRANGE " LT_TAG "state:orders:0:0 0 %b", "\0", (size_t)1);
        }
        lt_free_lock(l, m[0]);
    }
}

static void a_wiped_server_goes_on_above(void **state) {
    struct lt *l = *state;
    const struct lt_msg m = message(1);
    for (int i = 0; i < 3; i++) {
        lt_text(l, "FLUSHALL");
        lt_int(l, "HSET " LT_TAG "epoch id %s not_before 0", l->epoch);
        /* lt_gate() checks that each fence is larger than all earlier fences, even after a wipe. */
        assert_string_equal(lt_gate(l, &m, 1), "R");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(a_free_lane_runs_all_of_them),
        LT(attempts_are_numbered_over_all_grants),
        LT(finished_ones_are_told_wherever_they_stand),
        LT(all_finished_locks_nothing),
        LT(a_busy_lane_parks_in_order),
        LT(one_that_waits_sends_the_rest_behind_it),
        LT(without_envelopes_the_first_asks_for_them),
        LT(one_each_without_envelopes),
        LT(a_bare_one_that_waits_is_told_and_those_behind_it_ask),
        LT(a_paused_lane_parks_all),
        LT(my_own_lane_with_waiters_runs_again),
        LT(mine_is_granted_though_another_parked_it),
        LT(a_token_that_mine_begins_with_is_not_mine),
        LT(with_business_ids_one_runs_at_a_time),
        LT(with_business_ids_a_busy_lane_parks_all),
        LT(a_broken_name_is_bad_for_that_lane_only),
        LT(a_full_batch),
        LT(many_messages_of_a_lane),
        LT(fences_grow_over_release_and_expiry),
        LT(a_wiped_server_goes_on_above),
    };
    return LT_RUN(tests, LT_PLAIN | LT_FLUSHED | LT_TWICE);
}
