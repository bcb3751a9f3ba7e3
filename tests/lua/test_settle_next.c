/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what happens to a lane when settle has recorded a message: the lane is kept, handed over,
 * or released. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *gate1(struct lt *l, struct lt_msg m) { return lt_gate(l, &m, 1); }
static const char *settle1(struct lt *l, struct lt_msg m) { return lt_settle(l, &m, 1); }
static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static int64_t n_hints(struct lt *l) { return lt_int(l, "LLEN " LT_TAG "ready"); }
static bool in_lanes(struct lt *l) { return lt_int(l, "ZCARD " LT_TAG "lanes") > 0; }
static int64_t lease_left(struct lt *l) { return lt_int(l, "PTTL " LT_TAG "lock:k"); }

/* Lets message 1 run under the token t1, and parks a message for each of the `n` offsets behind it,
 * in the order of the array. */
static void run_with_waiters(struct lt *l, const int64_t *offsets, size_t n) {
    assert_string_equal(gate1(l, message(1)), "R");
    for (size_t i = 0; i < n; i++)
        assert_string_equal(gate1(l, lt_msg(0, offsets[i], "k", "x1")), "W");
    /* Shorten the TTL and the lane's score, so that the test can see whether settle changes
     * them. */
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 60000");
    lt_int(l, "ZADD " LT_TAG "lanes XX 5 k");
}
#define WAITERS(l, ...)                                 \
    run_with_waiters(l, (const int64_t[]){__VA_ARGS__}, \
                     sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void assert_released(struct lt *l, int64_t hints) {
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
    assert_int_equal(n_hints(l), hints);
}

static void next_hands_the_head_over(void **state) {
    struct lt *l = *state;
    WAITERS(l, 2, 3);
    assert_string_equal(settle1(l, message(1)), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
    assert_int_equal(lt_attempts(l, 0), 0);
    /* A head that was handed over stays in the waiting list until it is settled. */
    assert_string_equal(lt_waiting(l, message(1)), "0/2 0/3");
    assert_string_equal(lt_lock(l, message(1)), "t1");
    assert_true(lease_left(l) > 60000);
    assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")) > lt_now_ms(l) + LT_TTL_MS - 60000);
    assert_int_equal(n_hints(l), 0);
    assert_string_equal(settle1(l, message(2)), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
    assert_string_equal(settle1(l, message(3)), "L");
    assert_released(l, 0);
    assert_false(in_lanes(l));
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "wait:k"), 0);
}

static void next_tells_attempts(void **state) {
    struct lt *l = *state;
    WAITERS(l, 2);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 2 %s", "3 5 0");
    assert_string_equal(settle1(l, message(1)), "N");
    assert_int_equal(lt_attempts(l, 0), 3);
}

static void drop_releases_and_hints(void **state) {
    struct lt *l = *state;
    WAITERS(l, 2);
    int64_t from = lt_now_ms(l);
    assert_string_equal(settle1(l, lt_with(message(1), "done", "drop")), "L");
    assert_string_equal(lt_heads(l, 0), "");
    assert_released(l, 1);
    int64_t score = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k"));
    assert_true(score >= from + LT_HANDOFF_MS && score <= lt_now_ms(l) + LT_HANDOFF_MS);
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "ready 0"), "k");
}

/* The reply of a settle that handed over a head was lost. The settle is sent again in the mode
 * `drop`: it releases the lane, and makes a hint because of the head. */
static void a_lost_next_is_dropped(void **state) {
    struct lt *l = *state;
    WAITERS(l, 2);
    assert_string_equal(settle1(l, message(1)), "N");
    assert_string_equal(settle1(l, lt_with(message(1), "done", "drop")), "L");
    assert_released(l, 1);
    assert_string_equal(lt_waiting(l, message(1)), "0/2");
}

static void finished_heads_are_dropped(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "floor orders:0 0");
    WAITERS(l, 2, 3, 16384, 16385, 16386);
    lt_set_state(l, message(2), 2);
    lt_set_state(l, message(3), 3);
    lt_set_state(l, message(16384), 2);
    assert_string_equal(settle1(l, message(1)), "N");
    assert_string_equal(lt_heads(l, 0), "0/16385");
    assert_string_equal(lt_waiting(l, message(1)), "0/16385 0/16386");
    lt_floor(l, "orders:0", 16387, 0);
    assert_string_equal(settle1(l, message(16385)), "L");
    assert_released(l, 0);
    assert_false(in_lanes(l));
}

static void a_head_of_another_version_is_put_aside(void **state) {
    struct lt *l = *state;
    WAITERS(l, 2);
    lt_int(l, "RPUSH " LT_TAG "wait:k %s", "2 what is this");
    assert_string_equal(settle1(l, message(1)), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 1);
}

/* The business id is stored after the first line of the envelope, and may contain any bytes,
 * including line feeds. */
static void a_waiting_duplicate_is_dropped(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    struct lt_msg m = message(1), copy = message(2), other = message(3);
    m.dedup = copy.dedup = "id-1\nwith a line";
    other.dedup = "id-1";
    gate1(l, m);
    copy.token = other.token = "x1";
    gate1(l, copy);
    gate1(l, other);
    assert_string_equal(settle1(l, m), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
    assert_string_equal(lt_waiting(l, m), "0/3");
    assert_int_equal(lt_state(l, copy), 2);
}

static void duplicates_are_counted(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    struct lt_msg copy = lt_msg(0, 2, "k", "x1"), m = message(1);
    m.dedup = copy.dedup = "id-1";
    gate1(l, m);
    gate1(l, copy);
    copy.offset = 3;
    gate1(l, copy);
    assert_string_equal(settle1(l, m), "L");
    assert_int_equal(lt_duplicates(l), 2);
    assert_false(in_lanes(l));
}

static struct lt_msg keep(struct lt_msg m, const struct lt_msg *next) {
    m.mode = "keep";
    m.next = next;
    return m;
}
/* Settles message m in mode keep, and names the message `next`. Checks that the lane is kept, and
 * that the answer for `next` is `named`. */
static void kept(struct lt *l, struct lt_msg m, const struct lt_msg *next, const char *named) {
    assert_string_equal(settle1(l, keep(m, next)), "K");
    assert_string_equal(l->named, named);
}

static void keep_extends_for_the_chain(void **state) {
    struct lt *l = *state;
    WAITERS(l, 9);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:1 16384 %s", "2 5 0");
    const struct lt_msg second = message(2), third = message(16384);
    char value[64];
    snprintf(value, sizeof value, "%s", lt_text(l, "GET " LT_TAG "lock:k"));
    uint64_t fence = l->fence_seen;
    kept(l, message(1), &second, "A");
    assert_true(lt_fence(l, 0) > fence);
    assert_int_equal(lt_attempts(l, 0), 0);
    /* The value of the lock identifies the hold, so the value does not change when settle grants
     * further messages to the same hold. */
    assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), value);
    assert_true(lease_left(l) > 60000);
    assert_int_equal(lt_state(l, message(1)), 2);
    assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")) > lt_now_ms(l) + LT_TTL_MS - 60000);
    kept(l, second, &third, "A");
    assert_int_equal(lt_attempts(l, 0), 2);
    assert_string_equal(lt_waiting(l, message(1)), "0/9");
    assert_int_equal(n_hints(l), 0);
}

static void keep_after_a_dead_one(void **state) {
    struct lt *l = *state;
    gate1(l, message(1));
    const struct lt_msg second = message(2);
    assert_string_equal(settle1(l, keep(lt_with(message(1), "dead", "keep"), &second)), "K");
    assert_int_equal(lt_state(l, message(1)), 3);
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 1);
    assert_false(in_lanes(l));
}

static void a_finished_next_is_skipped(void **state) {
    struct lt *l = *state;
    const struct lt_msg second = message(2), other = lt_msg(7, 16384, "k", "t1");
    gate1(l, message(1));
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 60000");
    for (int as = 2; as <= 3; as++) {
        lt_set_state(l, second, as);
        kept(l, message(1), &second, "P");
        assert_string_equal(lt_lock(l, second), "t1");
        assert_true(lease_left(l) > 60000);
    }
    lt_floor(l, "orders:7", 16385, 0);
    kept(l, message(1), &other, "P");
    assert_int_equal(lt_state(l, other), 0);
}

static void a_duplicate_next_is_skipped_and_counted(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    lt_text(l, "SET " LT_TAG "dedup:id-1 orders:4:4");
    struct lt_msg second = message(2);
    second.dedup = "id-1";
    gate1(l, message(1));
    kept(l, message(1), &second, "P");
    assert_int_equal(lt_duplicates(l), 1);
    assert_int_equal(lt_state(l, second), 2);
}

/* A settle records the business id of a done message. If the next message has the same id, the same
 * call drops it as a duplicate. */
static void a_next_with_the_id_of_this_one_is_skipped(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    struct lt_msg first = message(1), second = message(2);
    first.dedup = second.dedup = "id-1";
    gate1(l, first);
    kept(l, first, &second, "P");
    assert_int_equal(lt_state(l, second), 2);
}

static void a_paused_lane_stops(void **state) {
    struct lt *l = *state;
    static const char *const modes[] = {"next", "keep"};
    const struct lt_msg second = message(2);
    for (size_t i = 0; i < 2; i++) {
        lt_setup(state);
        WAITERS(l, 9);
        lt_int(l, "SADD " LT_TAG "paused k");
        struct lt_msg m = keep(message(1), &second);
        m.mode = modes[i];
        assert_string_equal(settle1(l, m), "L");
        assert_int_equal(lt_state(l, m), 2);
        /* settle makes no hint for a paused lane, because the command `resume` makes one. */
        assert_released(l, 0);
        assert_string_equal(lt_waiting(l, m), "0/9");
        assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")) >
                    lt_now_ms(l) + LT_TTL_MS - 60000);
    }
    /* settle releases a paused lane even if no message waits. */
    lt_setup(state);
    gate1(l, message(1));
    lt_int(l, "SADD " LT_TAG "paused k");
    assert_string_equal(settle1(l, keep(message(1), &second)), "L");
    assert_released(l, 0);
    assert_false(in_lanes(l));
}

/* --- retry.order skip ------------------------------------------------------------------------- */

static void due_at(struct lt *l, int64_t offset, int64_t ms) {
    char value[64];
    snprintf(value, sizeof value, "1 5 %" PRId64, ms);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 %" PRId64 " %s", offset, value);
}

static void skip_sends_the_failed_one_to_the_tail(void **state) {
    struct lt *l = *state;
    l->skip = true;
    WAITERS(l, 2, 3);
    struct lt_msg m = lt_with(message(1), "retry", "next");
    m.backoff_ms = 200000;
    int64_t from = lt_now_ms(l);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/2 0/3 0/1");
    assert_released(l, 1);
    int n;
    int64_t first, due;
    assert_int_equal(sscanf(lt_text(l, "HGET " LT_TAG "tries:orders:0:0 1"),
                            "%d %" SCNd64 " %" SCNd64, &n, &first, &due),
                     3);
    assert_int_equal(n, 1);
    assert_true(due >= from + 200000 && due <= lt_now_ms(l) + 200000);
    /* Message 2 runs and fails as well, so it goes to the tail, and message 3 is next. */
    struct lt_msg claim = message(2);
    assert_string_equal(lt_claim(l, &claim, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
    m.offset = 2;
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/3 0/1 0/2");
}

static void skip_without_backoff_stays_first(void **state) {
    struct lt *l = *state;
    l->skip = true;
    WAITERS(l, 2);
    assert_string_equal(settle1(l, lt_with(message(1), "retry", "next")), "L");
    assert_string_equal(lt_waiting(l, message(1)), "0/1 0/2");
    assert_released(l, 1);
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/1");
}

static void heads_not_due_rotate(void **state) {
    struct lt *l = *state;
    l->skip = true;
    WAITERS(l, 2, 3, 4, 5);
    due_at(l, 2, lt_now_ms(l) + 400000);
    due_at(l, 3, lt_now_ms(l) + 300000);
    due_at(l, 4, lt_now_ms(l) - 1);
    assert_string_equal(settle1(l, message(1)), "N");
    assert_string_equal(lt_heads(l, 0), "0/4");
    assert_string_equal(lt_waiting(l, message(1)), "0/4 0/5 0/2 0/3");
}

static void all_undue_waits_for_the_earliest(void **state) {
    struct lt *l = *state;
    l->skip = true;
    WAITERS(l, 4, 2, 3);
    int64_t earliest = lt_now_ms(l) + 300000;
    due_at(l, 2, earliest + 90000);
    due_at(l, 3, earliest);
    lt_set_state(l, message(4), 2);
    assert_string_equal(settle1(l, message(1)), "L");
    assert_string_equal(lt_lock(l, message(1)), "backoff");
    assert_true(lease_left(l) > 200000 && lease_left(l) <= 300000);
    assert_int_equal(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")), earliest);
    assert_string_equal(lt_waiting(l, message(1)), "0/2 0/3");
    assert_int_equal(n_hints(l), 0);
}

/* If retry.order is `block`, due times are ignored. When settle keeps a lane for a named message,
 * the waiting messages of the lane keep their order. */
static void due_times_count_in_skip_only(void **state) {
    struct lt *l = *state;
    WAITERS(l, 2, 3);
    due_at(l, 2, lt_now_ms(l) + 300000);
    const struct lt_msg chained = message(7);
    l->skip = true;
    kept(l, message(1), &chained, "A");
    assert_string_equal(lt_waiting(l, message(1)), "0/2 0/3");
    l->skip = false;
    assert_string_equal(settle1(l, chained), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(next_hands_the_head_over),
        LT(next_tells_attempts),
        LT(drop_releases_and_hints),
        LT(a_lost_next_is_dropped),
        LT(finished_heads_are_dropped),
        LT(a_head_of_another_version_is_put_aside),
        LT(a_waiting_duplicate_is_dropped),
        LT(duplicates_are_counted),
        LT(keep_extends_for_the_chain),
        LT(keep_after_a_dead_one),
        LT(a_finished_next_is_skipped),
        LT(a_duplicate_next_is_skipped_and_counted),
        LT(a_next_with_the_id_of_this_one_is_skipped),
        LT(a_paused_lane_stops),
        LT(skip_sends_the_failed_one_to_the_tail),
        LT(skip_without_backoff_stays_first),
        LT(heads_not_due_rotate),
        LT(all_undue_waits_for_the_earliest),
        LT(due_times_count_in_skip_only),
    };
    return LT_RUN(tests, LT_ALL);
}
