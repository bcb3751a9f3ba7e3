/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script settle: what happens to a message that is done, retried, given back or dead.
 * test_settle_next.c tests what happens to the lane of the message. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t far_offset = INT64_C(1) << 40;

static const char *gate1(struct lt *l, struct lt_msg m) { return lt_gate(l, &m, 1); }
static const char *settle1(struct lt *l, struct lt_msg m) { return lt_settle(l, &m, 1); }
static void run1(struct lt *l, struct lt_msg m) { assert_string_equal(gate1(l, m), "R"); }
static int64_t n_dead(struct lt *l) { return lt_int(l, "XLEN " LT_TAG "dead"); }
static int64_t n_hints(struct lt *l) { return lt_int(l, "LLEN " LT_TAG "ready"); }
static const char *tries(struct lt *l, int64_t offset) {
    return lt_text(l, "HGET " LT_TAG "tries:orders:0:0 %" PRId64, offset);
}
/* Checks that Redis has no lock, no waiting list and no tries of lane k, and no zset `lanes`. */
static void assert_idle(struct lt *l) {
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lock:k " LT_TAG "wait:k " LT_TAG "lanes " LT_TAG
                               "tries:orders:0:0"),
                     0);
}

static void done_is_done(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "t1");
    run1(l, m);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_heads(l, 0), "");
    assert_int_equal(lt_duplicates(l), 0);
    assert_int_equal(lt_state(l, m), 2);
    assert_int_equal(n_hints(l), 0);
    assert_idle(l);
    assert_string_equal(gate1(l, m), "D");
}

/* One message that is done, in a lane where nothing waits, is settled by the short way at the top
 * of the script. */
static void a_lone_done_leaves_no_trace_below_the_floor(void **state) {
    struct lt *l = *state;
    for (int64_t offset = 0; offset < 9; offset++) {
        struct lt_msg m = lt_msg(0, offset, "k", "t1");
        run1(l, m);
        assert_string_equal(settle1(l, m), "L");
        for (int64_t i = 0; i < 12; i++)
            assert_int_equal(lt_state(l, lt_msg(0, i, "k", "t1")), i <= offset ? 2 : 0);
        assert_idle(l);
    }
    struct lt_msg late = lt_msg(1, 5, "k", "t1");
    run1(l, late);
    lt_int(l, "HSET " LT_TAG "floor orders:1 6");
    assert_string_equal(settle1(l, late), "L");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "state:orders:1:0"), 0);
    assert_idle(l);
}

static void done_counts_without_the_lease(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "t1"), other = lt_msg(0, 2, "k", "t2");
    run1(l, m);
    lt_free_lock(l, m);
    run1(l, other);
    assert_string_equal(settle1(l, m), "S");
    assert_int_equal(lt_state(l, m), 2);
    assert_string_equal(lt_lock(l, m), "t2");
    lt_free_lock(l, m);
    /* The lock has expired, so the lease is stale, but the message is still recorded as done. */
    assert_string_equal(settle1(l, other), "S");
    assert_int_equal(lt_state(l, other), 2);
}

static void a_stale_lease_does_nothing_else(void **state) {
    struct lt *l = *state;
    static const char *const outcomes[] = {"retry", "back", "dead", "sent", "later"};
    struct lt_msg m = lt_msg(0, 1, "k", "t1"), other = lt_msg(0, 2, "k", "t1x1");
    run1(l, m);
    lt_free_lock(l, m);
    run1(l, other);
    for (size_t i = 0; i < 5; i++) {
        char *before = lt_dump(l, true);
        m = lt_with(m, outcomes[i], "next");
        m.backoff_ms = 1000;
        assert_string_equal(settle1(l, m), "S");
        lt_assert_unchanged(l, before, true);
    }
}

static void done_forgets_the_tries(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "retry", "next"),
                  again = lt_msg(0, 1, "k", "t2");
    run1(l, m);
    settle1(l, m);
    assert_string_not_equal(tries(l, 1), "(nil)");
    lt_claim(l, &again, 1);
    assert_string_equal(settle1(l, again), "L");
    assert_idle(l);
    /* The recorded number of a message's attempts is removed even if the lease was lost before the
     * message was done. */
    struct lt_msg late = lt_with(lt_msg(0, 2, "k", "t3"), "retry", "next");
    run1(l, late);
    settle1(l, late);
    lt_free_lock(l, late);
    assert_string_equal(settle1(l, lt_with(late, "done", "next")), "S");
    assert_string_equal(tries(l, 2), "(nil)");
    /* Store a number of attempts for a message that is done already, as if another worker had
     * finished the message. settle must remove this number. */
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 2 %s", "1 5 0");
    assert_string_equal(settle1(l, lt_with(late, "done", "next")), "S");
    assert_string_equal(tries(l, 2), "(nil)");
}

static void retry_counts_and_waits(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "retry", "next");
    m.backoff_ms = 200000;
    run1(l, m);
    int64_t from = lt_now_ms(l);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/1");
    assert_int_equal(lt_state(l, m), 1);
    /* During a backoff the lock has no holder, so its value has the word `backoff` in place of a
     * token. */
    assert_string_equal(lt_lock(l, m), "backoff");
    int64_t left = lt_int(l, "PTTL " LT_TAG "lock:k");
    assert_true(left > 0 && left <= 200000);
    int64_t score = atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k"));
    assert_true(score >= from + 200000 && score <= lt_now_ms(l) + 200000);
    assert_int_equal(n_hints(l), 0);
    int n = 0;
    int64_t first = 0, due = 0;
    assert_int_equal(sscanf(tries(l, 1), "%d %" SCNd64 " %" SCNd64, &n, &first, &due), 3);
    assert_int_equal(n, 1);
    assert_true(first >= from && first <= lt_now_ms(l));
    assert_int_equal(due, 0);
    assert_string_equal(gate1(l, m), "W");
    assert_string_equal(gate1(l, lt_msg(0, 2, "k", "t2")), "W");
    assert_string_equal(lt_waiting(l, m), "0/1 0/2");
}

static void retry_without_backoff_is_hinted_at_once(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "retry", "next");
    run1(l, m);
    int64_t from = lt_now_ms(l);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_lock(l, m), "(nil)");
    assert_int_equal(n_hints(l), 1);
    assert_true(atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")) >= from + LT_HANDOFF_MS);
}

static void retries_keep_their_first_failure(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s", "2 12345 0");
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "retry", "next");
    run1(l, m);
    assert_int_equal(lt_attempts(l, 0), 2);
    settle1(l, m);
    assert_string_equal(tries(l, 1), "3 12345 0");
    m.token = "t2";
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_int_equal(lt_attempts(l, 0), 3);
    /* A head that fails stays in the waiting list. */
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/1");
    assert_string_equal(tries(l, 1), "4 12345 0");
}

/* The retry `later` waits as any retry, and notes when the message first failed, but no attempt. */
static void later_counts_no_attempt(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "later", "next");
    m.backoff_ms = 200000;
    run1(l, m);
    int64_t from = lt_now_ms(l);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/1");
    assert_string_equal(lt_lock(l, m), "backoff");
    int64_t left = lt_int(l, "PTTL " LT_TAG "lock:k");
    assert_true(left > 0 && left <= 200000);
    int n = -1;
    int64_t first = 0, due = -1;
    assert_int_equal(sscanf(tries(l, 1), "%d %" SCNd64 " %" SCNd64, &n, &first, &due), 3);
    assert_int_equal(n, 0);
    assert_true(first >= from && first <= lt_now_ms(l));
    assert_int_equal(due, 0);
    /* who gets it next learns when it first failed, and that no attempt counts */
    lt_free_lock(l, m);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s", "0 12345 0");
    m.token = "t2";
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_int_equal(lt_attempts(l, 0), 0);
    assert_int_equal(lt_first_ms(l, 0), 12345);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(tries(l, 1), "0 12345 0");
    /* a retry that counts, and another one that does not */
    lt_free_lock(l, m);
    m.token = "t3";
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_string_equal(settle1(l, lt_with(m, "retry", "next")), "L");
    assert_string_equal(tries(l, 1), "1 12345 0");
    lt_free_lock(l, m);
    m.token = "t4";
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_int_equal(lt_attempts(l, 0), 1);
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(tries(l, 1), "1 12345 0");
    /* its tries go with its end */
    lt_free_lock(l, m);
    m.token = "t5";
    assert_string_equal(lt_claim(l, &m, 1), "N");
    assert_string_equal(settle1(l, lt_with(m, "done", "next")), "L");
    assert_string_equal(tries(l, 1), "(nil)");
}

/* With retry.order skip, it goes to the tail, and has a time before which it does not run. */
static void later_lets_others_go_first(void **state) {
    struct lt *l = *state;
    l->skip = true;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "later", "next");
    m.backoff_ms = 200000;
    run1(l, m);
    gate1(l, lt_msg(0, 2, "k", "t2"));
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/2 0/1");
    int n = -1;
    int64_t first = 0, due = 0;
    assert_int_equal(sscanf(tries(l, 1), "%d %" SCNd64 " %" SCNd64, &n, &first, &due), 3);
    assert_int_equal(n, 0);
    assert_int_equal(due, first + 200000);
}

static void a_failed_message_goes_before_the_waiters(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "retry", "next");
    run1(l, m);
    gate1(l, lt_msg(0, 2, "k", "t2"));
    gate1(l, lt_msg(1, 1, "k", "t3"));
    settle1(l, m);
    assert_string_equal(lt_waiting(l, m), "0/1 0/2 1/1");
}

static void back_counts_no_try(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "back", "next");
    run1(l, m);
    gate1(l, lt_msg(0, 2, "k", "t2"));
    assert_string_equal(settle1(l, m), "L");
    assert_string_equal(lt_waiting(l, m), "0/1 0/2");
    assert_int_equal(lt_state(l, m), 1);
    assert_string_equal(lt_lock(l, m), "(nil)");
    assert_string_equal(tries(l, 1), "(nil)");
    assert_int_equal(n_hints(l), 1);
}

/* If a handler gives its message back under a live lease, the lane rests. This is also true if
 * retry.order is `skip`, which lets later messages pass only if a message has failed. */
static void back_may_wait(void **state) {
    struct lt *l = *state;
    for (int skip = 0; skip < 2; skip++) {
        lt_setup(state);
        l->skip = skip;
        struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "back", "next");
        m.backoff_ms = 5000;
        run1(l, m);
        gate1(l, lt_msg(0, 2, "k", "t2"));
        assert_string_equal(settle1(l, m), "L");
        assert_string_equal(lt_waiting(l, m), "0/1 0/2");
        assert_string_equal(lt_lock(l, m), "backoff");
        assert_string_equal(tries(l, 1), "(nil)");
        assert_int_equal(n_hints(l), 0);
    }
}

static void assert_dead_letter(struct lt *l, const struct lt_msg *m, const char *reason,
                               const char *attempts) {
    redisReply *r = redisCommand(l->admin, "XRANGE " LT_TAG "dead - +");
    assert_int_equal(r->elements, 1);
    const redisReply *f = r->element[0]->element[1];
    assert_int_equal(f->elements, 10);
    static const char *const names[] = {"envelope", "reason", "attempts", "first_ms", "last_ms"};
    for (size_t i = 0; i < 5; i++) assert_string_equal(f->element[2 * i]->str, names[i]);
    struct lw_buf envelope = {0};
    lt_encode(m, &envelope);
    assert_true(lw_bytes_eq(lw_bytes(f->element[1]->str, f->element[1]->len),
                            lw_bytes(envelope.p, envelope.n)));
    lw_buf_free(&envelope);
    assert_string_equal(f->element[3]->str, reason);
    assert_string_equal(f->element[5]->str, attempts);
    assert_true(atoll(f->element[7]->str) > 0 &&
                atoll(f->element[7]->str) <= atoll(f->element[9]->str));
    assert_true(atoll(f->element[9]->str) <= lt_now_ms(l));
    freeReplyObject(r);
}

static void dead_is_written_once(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s", "4 12345 0");
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "dead", "next");
    m.reason = "no such\ncustomer: {x}";
    run1(l, m);
    assert_string_equal(settle1(l, m), "L");
    assert_int_equal(lt_state(l, m), 3);
    assert_dead_letter(l, &m, m.reason, "5");
    assert_idle(l);
    assert_string_equal(gate1(l, m), "D");
}

static void dead_at_the_first_failure(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_with(lt_msg(0, far_offset, "k", "t1"), "dead", "next");
    run1(l, m);
    assert_string_equal(settle1(l, m), "L");
    assert_dead_letter(l, &m, "", "1");
    assert_int_equal(lt_state(l, m), 3);
}

static void sent_is_dead_elsewhere(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s", "4 12345 0");
    struct lt_msg m = lt_with(lt_msg(0, 1, "k", "t1"), "sent", "next");
    run1(l, m);
    assert_string_equal(settle1(l, m), "L");
    assert_int_equal(lt_state(l, m), 3);
    assert_int_equal(n_dead(l), 0);
    assert_idle(l);
}

/* Checks that a finished message stays finished, no matter which outcome a later settle reports for
 * it: Redis replaces no recorded state by an earlier one (unseen, waiting, done, dead). */
static void assert_counts_as_done(struct lt *l, const char *outcome, int as, int want) {
    struct lt_msg m = lt_with(lt_msg(0, 50, "k", "t1"), outcome, "next");
    m.backoff_ms = 1000;
    run1(l, m);
    if (as)
        lt_set_state(l, m, as);
    else
        lt_floor(l, "orders:0", 51, 0);
    assert_string_equal(settle1(l, m), "L");
    assert_int_equal(lt_state(l, m), want);
    assert_int_equal(n_dead(l), 0);
    assert_idle(l);
}
static void finished_stays_finished(void **state) {
    struct lt *l = *state;
    static const char *const outcomes[] = {"done", "retry", "back", "dead", "sent"};
    for (size_t i = 0; i < 5; i++) {
        for (int as = 0; as <= 3; as++) {
            if (as == 1) continue;
            lt_setup(state);
            assert_counts_as_done(l, outcomes[i], as, as);
        }
    }
}

static void done_records_the_business_id(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    struct lt_msg m = lt_msg(0, 1, "k", "t1"), copy = lt_msg(0, 2, "k", "t2"),
                  other = lt_msg(0, 3, "k", "t3");
    m.dedup = copy.dedup = "id-1";
    run1(l, m);
    settle1(l, m);
    assert_string_equal(lt_text(l, "GET " LT_TAG "dedup:id-1"), "orders:0:1");
    int64_t left = lt_int(l, "TTL " LT_TAG "dedup:id-1");
    assert_true(left > 0 && left <= 1000);
    assert_string_equal(gate1(l, copy), "U");
    /* Run a message without a business id: settle must not record an empty id. */
    run1(l, other);
    settle1(l, other);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:"), 0);
}

static void no_window_no_business_id(void **state) {
    struct lt *l = *state;
    struct lt_msg m = lt_msg(0, 1, "k", "t1");
    m.dedup = "id-1";
    run1(l, m);
    settle1(l, m);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:id-1"), 0);
    l->window_s = 1000;
    /* A dead message was not done, so settle does not record its business id, and a later message
     * with the same id may run. */
    m = lt_with(lt_msg(0, 2, "k", "t2"), "dead", "next");
    m.dedup = "id-2";
    run1(l, m);
    settle1(l, m);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:id-2"), 0);
}

static void the_first_id_stays(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    struct lt_msg a = lt_msg(0, 1, "k", "t1"), b = lt_msg(0, 2, "j", "t2");
    a.dedup = b.dedup = "id-1";
    run1(l, a);
    run1(l, b);
    settle1(l, b);
    settle1(l, a);
    assert_string_equal(lt_text(l, "GET " LT_TAG "dedup:id-1"), "orders:0:2");
}

/* settle reads the states of a segment with one command, from the lowest to the highest offset that
 * the batch has in this segment. The messages of the batch may come in any order. */
static void offsets_come_in_any_order(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_msg(0, 500, "a", "t1"), lt_msg(0, 16000, "b", "t1"),
                         lt_msg(0, 7, "c", "t1"), lt_msg(0, 501, "d", "t1")};
    assert_string_equal(lt_gate(l, m, 4), "RRRR");
    for (size_t i = 0; i < 4; i++) {
        m[i].outcome = "dead";
        if (i < 3) lt_set_state(l, m[i], 2);
    }
    assert_string_equal(lt_settle(l, m, 4), "LLLL");
    for (size_t i = 0; i < 4; i++) assert_int_equal(lt_state(l, m[i]), i < 3 ? 2 : 3);
    assert_int_equal(n_dead(l), 1);
}

/* Calls settle with the largest batch: 256 lanes with messages of 8 partitions, in two segments per
 * partition, and with every outcome. */
static void a_full_batch(void **state) {
    struct lt *l = *state;
    static const char *const outcomes[] = {"done", "retry", "back", "dead", "sent"};
    static const int states[] = {2, 1, 1, 3, 3};
    static struct lt_msg m[LT_BATCH_MAX];
    static char lanes[LT_BATCH_MAX][24];
    char want[LT_BATCH_MAX + 1] = "";
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        snprintf(lanes[i], sizeof lanes[i], "lane %d", i);
        m[i] = lt_with(lt_msg(i / 32, far_offset - 16 + i % 32, lanes[i], "t1"), outcomes[i % 5],
                       "next");
        want[i] = 'L';
    }
    lt_gate(l, m, LT_BATCH_MAX);
    for (int i = 0; i < LT_BATCH_MAX; i += 7) lt_free_lock(l, m[i]), want[i] = 'S';
    assert_string_equal(lt_settle(l, m, LT_BATCH_MAX), want);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        assert_int_equal(lt_state(l, m[i]), want[i] == 'S' && i % 5 ? 0 : states[i % 5]);
        assert_string_equal(lt_lock(l, m[i]), "(nil)");
    }
}

static void keys_are_any_bytes(void **state) {
    struct lt *l = *state;
    static char half_kilo[512];
    memset(half_kilo, '}', sizeof half_kilo);
    const struct lw_bytes lanes[] = {lw_bytes("", 0), lw_bytes("a\0b", 3), lw_bytes("a\0c", 3),
                                     lw_bytes_of("{t.1}:\xc3\xa4\xff"), lw_bytes(half_kilo, 512)};
    struct lt_msg m[5], behind[5];
    for (int i = 0; i < 5; i++) {
        m[i] = lt_msg_bytes(0, i, lanes[i], "t1");
        behind[i] = lt_msg_bytes(1, i, lanes[i], "u1");
    }
    assert_string_equal(lt_gate(l, m, 5), "RRRRR");
    assert_string_equal(lt_gate(l, behind, 5), "WWWWW");
    assert_string_equal(lt_settle(l, m, 5), "NNNNN");
    assert_string_equal(lt_heads(l, 1), "1/1");
    for (int i = 0; i < 5; i++) {
        behind[i].token = "t1";
        behind[i].mode = "drop";
        if (i % 2) behind[i].outcome = "back";
    }
    assert_string_equal(lt_settle(l, behind, 5), "LLLLL");
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "lanes"), 2);
    assert_string_equal(lt_claim(l, behind, 5), "ENENE");
}

static void a_broken_list_is_bad_for_that_message_only(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {lt_with(lt_msg(0, 1, "a", "t1"), "retry", "next"),
                         lt_with(lt_msg(0, 2, "b", "t1"), "retry", "next"),
                         lt_with(lt_msg(0, 3, "c", "t1"), "back", "next"),
                         lt_msg(0, 4, "d", "t1"),
                         lt_msg(0, 5, "e", "t1"),
                         lt_msg(0, 6, "f", "t1")};
    assert_string_equal(lt_gate(l, m, 6), "RRRRRR");
    for (int i = 1; i < 4; i++) lt_text(l, "SET " LT_TAG "wait:%s x", m[i].lane.p);
    lt_int(l, "ZADD " LT_TAG "lanes 5 d 5 e");
    lt_int(l, "DEL " LT_TAG "lock:e");
    lt_int(l, "LPUSH " LT_TAG "lock:e x");
    assert_string_equal(lt_settle(l, m, 6), "LBBLSL");
    assert_int_equal(lt_state(l, m[0]), 1);
    assert_int_equal(lt_state(l, m[1]), 0);
    assert_int_equal(lt_state(l, m[2]), 0);
    for (int i = 3; i < 6; i++) assert_int_equal(lt_state(l, m[i]), 2);
    for (int i = 0; i < 4; i++) assert_string_equal(lt_lock(l, m[i]), "(nil)");
    assert_string_equal(lt_text(l, "GET " LT_TAG "wait:b"), "x");
}

static void assert_refused(struct lt *l, const char *why) {
    struct lt_msg m[] = {lt_with(lt_msg(0, 1, "a", "t1"), "dead", "next"), lt_msg(0, 2, "b", "t1")};
    char *before = lt_dump(l, true);
    assert_string_equal(lt_settle(l, m, 2), why);
    lt_assert_unchanged(l, before, true);
}

static void another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    run1(l, lt_msg(0, 1, "a", "t1"));
    run1(l, lt_msg(0, 2, "b", "t2"));
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    /* During a quarantine no lease of the epoch can exist, so settle is refused. */
    assert_refused(l, "QUARANTINE");
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_refused(l, "LOST");
    lt_text(l, "FLUSHALL");
    assert_refused(l, "LOST");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(done_is_done),
        LT(a_lone_done_leaves_no_trace_below_the_floor),
        LT(done_counts_without_the_lease),
        LT(a_stale_lease_does_nothing_else),
        LT(done_forgets_the_tries),
        LT(retry_counts_and_waits),
        LT(retry_without_backoff_is_hinted_at_once),
        LT(retries_keep_their_first_failure),
        LT(later_counts_no_attempt),
        LT(later_lets_others_go_first),
        LT(a_failed_message_goes_before_the_waiters),
        LT(back_counts_no_try),
        LT(back_may_wait),
        LT(dead_is_written_once),
        LT(dead_at_the_first_failure),
        LT(sent_is_dead_elsewhere),
        LT(finished_stays_finished),
        LT(done_records_the_business_id),
        LT(no_window_no_business_id),
        LT(the_first_id_stays),
        LT(offsets_come_in_any_order),
        LT(a_full_batch),
        LT(keys_are_any_bytes),
        LT(a_broken_list_is_bad_for_that_message_only),
        LT(another_epoch_is_lost),
    };
    return LT_RUN(tests, LT_ALL);
}
