/* SPDX-License-Identifier: Apache-2.0 */
/* Tests calls of settle that contain several messages of a lane, name further messages, or ask for
 * several heads. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static int64_t n_hints(struct lt *l) { return lt_int(l, "LLEN " LT_TAG "ready"); }
static int64_t lease_left(struct lt *l) { return lt_int(l, "PTTL " LT_TAG "lock:k"); }
static bool in_lanes(struct lt *l) { return lt_int(l, "ZCARD " LT_TAG "lanes") > 0; }
static int64_t score(struct lt *l) { return atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")); }
static const char *tries(struct lt *l, int64_t offset) {
    return lt_text(l, "HGET " LT_TAG "tries:orders:0:0 %" PRId64, offset);
}

enum { MOST = 80 };
/* run_of() makes n messages with consecutive offsets, of which `first` is the smallest. It stores
 * them in the array runs[slot], and the next call with the same `slot` overwrites them. */
enum { DONE, NAMED, CALLED };
static struct lt_msg runs[3][MOST];
static struct lt_msg *run_of(int slot, int64_t first, int n) {
    assert_true(n <= MOST);
    for (int i = 0; i < n; i++) runs[slot][i] = message(first + i);
    return runs[slot];
}
static void gate_run(struct lt *l, int64_t first, int n) {
    const struct lt_msg *m = run_of(CALLED, first, n);
    lt_gate(l, m, (size_t)n);
    assert_int_equal(l->answers[0], 'R');
    assert_int_equal(strspn(l->answers, "RA"), n);
    /* Shorten the TTL, so that the test can see whether settle extends it. */
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 60000");
}
static void park_run(struct lt *l, int64_t first, int n) {
    struct lt_msg *m = run_of(CALLED, first, n);
    bool was_free = strcmp(lt_lock(l, *m), "(nil)") == 0;
    if (was_free) lt_text(l, "SET " LT_TAG "lock:k other:1");
    for (int i = 0; i < n; i++) m[i].token = "x1";
    lt_gate(l, m, (size_t)n);
    assert_int_equal(strspn(l->answers, "W"), n);
    if (was_free) lt_free_lock(l, *m);
}
static const char *settle(struct lt *l, struct lt_item item) {
    return lt_settle_items(l, &item, 1);
}
/* Makes an item that reports n messages from offset `first` on. The last message has the given
 * outcome, and the others are done. */
static struct lt_item item(int64_t first, int n, const char *outcome, char mode) {
    struct lt_item it = {
        .done = run_of(DONE, first, n), .n_done = (size_t)n, .mode = mode, .want = 1};
    if (n) run_of(DONE, first, n)[n - 1].outcome = outcome;
    return it;
}
static struct lt_item naming(struct lt_item it, int64_t first, int n) {
    it.named = run_of(NAMED, first, n);
    it.n_named = (size_t)n;
    return it;
}
static struct lt_item wanting(struct lt_item it, int want, int before) {
    it.want = want;
    it.before = before;
    return it;
}

/* --- several finished ------------------------------------------------------------------------- */

static void all_done(void **state) {
    struct lt *l = *state;
    gate_run(l, 1, 5);
    assert_string_equal(settle(l, item(1, 5, "done", 'n')), "L");
    for (int64_t o = 1; o <= 5; o++) assert_int_equal(lt_state(l, message(o)), 2);
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
    assert_int_equal(n_hints(l), 0);
}

static void the_last_one_fails(void **state) {
    struct lt *l = *state;
    static const struct {
        const char *outcome;
        int state;
        const char *waits, *tries;
    } cases[] = {
        {"retry", 1, "0/3", "1"}, {"back", 1, "0/3", ""}, {"dead", 3, "", ""}, {"sent", 3, "", ""}};
    for (size_t i = 0; i < 4; i++) {
        lt_setup(state);
        gate_run(l, 1, 3);
        assert_string_equal(settle(l, item(1, 3, cases[i].outcome, 'n')), "L");
        assert_int_equal(lt_state(l, message(1)), 2);
        assert_int_equal(lt_state(l, message(2)), 2);
        assert_int_equal(lt_state(l, message(3)), cases[i].state);
        assert_string_equal(lt_waiting(l, message(1)), cases[i].waits);
        assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), strcmp(cases[i].outcome, "dead") == 0);
        assert_string_equal(lt_lock(l, message(1)), "(nil)");
        assert_int_equal(strncmp(tries(l, 3), *cases[i].tries ? cases[i].tries : "(nil)", 1), 0);
        assert_int_equal(n_hints(l), cases[i].state == 1);
    }
}

static void the_last_of_the_heads_fails(void **state) {
    struct lt *l = *state;
    park_run(l, 1, 4);
    l->want = 3;
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/1 0/2 0/3");
    struct lt_item it = item(1, 2, "retry", 'n');
    runs[DONE][1].backoff_ms = 100000;
    assert_string_equal(settle(l, it), "L");
    /* Message 2 was put back once, to its place before messages 3 and 4. */
    assert_string_equal(lt_waiting(l, message(1)), "0/2 0/3 0/4");
    assert_string_equal(lt_lock(l, message(1)), "backoff");
    assert_int_equal(lt_state(l, message(1)), 2);
    assert_int_equal(lt_state(l, message(3)), 1);
}

static void the_last_one_is_finished_already(void **state) {
    struct lt *l = *state;
    static const char *const outcomes[] = {"retry", "back", "dead", "sent"};
    for (size_t i = 0; i < 4; i++) {
        lt_setup(state);
        gate_run(l, 1, 2);
        lt_set_state(l, message(2), 2);
        lt_set_state(l, message(1), 3);
        assert_string_equal(settle(l, item(1, 2, outcomes[i], 'n')), "L");
        /* A state never goes down, and a dead message does not become done. */
        assert_int_equal(lt_state(l, message(1)), 3);
        assert_int_equal(lt_state(l, message(2)), 2);
        assert_string_equal(lt_waiting(l, message(1)), "");
        assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dead " LT_TAG "tries:orders:0:0"), 0);
    }
}

/* If the lease was lost, settle records only the first message as done. The present holder runs the
 * other messages again, in order, so that an older effect is never the last effect of a key. */
static void without_the_lease_only_the_first_is_recorded(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    gate_run(l, 1, 1);
    lt_text(l, "SET " LT_TAG "lock:k other:1");
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s 2 %s", "1 5 0", "1 5 0");
    struct lt_item it = naming(item(1, 3, "done", 'k'), 4, 2);
    for (int i = 0; i < 3; i++) runs[DONE][i].dedup = (const char *[]){"a", "b", "c"}[i];
    assert_string_equal(settle(l, it), "S");
    assert_string_equal(l->named, "GG");
    assert_int_equal(lt_state(l, message(1)), 2);
    assert_int_equal(lt_state(l, message(2)), 0);
    assert_int_equal(lt_state(l, message(3)), 0);
    assert_string_equal(tries(l, 1), "(nil)");
    assert_string_equal(tries(l, 2), "1 5 0");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:a"), 1);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:b " LT_TAG "dedup:c"), 0);
    assert_string_equal(lt_lock(l, message(1)), "other");
    lt_setup(state);
    assert_string_equal(settle(l, item(1, 1, "dead", 'n')), "S");
    assert_int_equal(lt_state(l, message(1)), 0);
    /* The second message is dead, but the first one was done and is recorded. */
    assert_string_equal(settle(l, item(1, 2, "dead", 'n')), "S");
    assert_int_equal(lt_state(l, message(1)), 2);
    assert_int_equal(lt_state(l, message(2)), 0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dead"), 0);
}

/* If the value of the lock differs from the caller's only in the fence, the lock belongs to the
 * caller's hold, because the call of gate that granted the hold was sent twice. A lock with another
 * token belongs to another hold. */
static void the_value_of_the_lock_decides(void **state) {
    struct lt *l = *state;
    static const struct {
        const char *lock, *value, *answer;
    } cases[] = {{"t1:5", "t1:5", "L"},       {"t1:9", "t1:5", "L"},       {"t12:5", "t1:5", "S"},
                 {"t1", "t1:5", "S"},         {"t:15", "t1:5", "S"},       {"backoff", "t1:5", "S"},
                 {"a:b:7:5", "a:b:7:6", "L"}, {"a:b:8:5", "a:b:7:5", "S"}, {"t1:5x", "t1:5", "L"},
                 {"1", "1:5", "S"},           {"%d+:5", "%d+:6", "L"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lt_setup(state);
        lt_text(l, "SET " LT_TAG "lock:k %s", cases[i].lock);
        struct lt_item it = item(1, 1, "done", 'n');
        it.value = cases[i].value;
        assert_string_equal(settle(l, it), cases[i].answer);
        it = naming(item(1, 1, "done", 'k'), 2, 1);
        it.value = cases[i].value;
        lt_text(l, "SET " LT_TAG "lock:k %s", cases[i].lock);
        assert_string_equal(settle(l, it), *cases[i].answer == 'L' ? "K" : "S");
        /* The lane is kept, and the value of its lock has not changed. */
        assert_string_equal(lt_text(l, "GET " LT_TAG "lock:k"), cases[i].lock);
    }
}

static void items_have_values_of_their_own(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[6];
    static const char *const lanes[] = {"a", "b", "c", "d", "e", "f"}, *const tokens[] = {
                                                                           "t1", "t2", "t1",
                                                                           "t3", "t2", "t1"};
    struct lt_item items[6];
    for (int i = 0; i < 6; i++) {
        m[i] = lt_msg(i % 2, 10 + i, lanes[i], tokens[i]);
        lt_gate(l, &m[i], 1);
        items[i] = (struct lt_item){.done = &m[i], .n_done = 1, .mode = 'n', .want = 1};
    }
    /* Item 3 gets a value with the token t1, but the lock of its lane has the token t3, so the
     * lease of item 3 is stale. */
    items[3].value = "t1:77";
    assert_string_equal(lt_settle_items(l, items, 6), "LLLSLL");
    assert_string_equal(lt_lock(l, m[3]), "t3");
}

/* --- what is named ---------------------------------------------------------------------------- */

static void several_named_run_behind_each_other(void **state) {
    struct lt *l = *state;
    gate_run(l, 1, 2);
    lt_set_state(l, message(4), 2);
    lt_set_state(l, message(6), 3);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 5 %s", "2 5 0");
    assert_string_equal(settle(l, naming(item(1, 2, "done", 'k'), 3, 5)), "K");
    assert_string_equal(l->named, "APAPA");
    assert_int_equal(lt_attempts_of(l, 0, 0), 0);
    assert_int_equal(lt_attempts_of(l, 0, 1), 2);
    assert_int_equal(lt_attempts_of(l, 0, 2), 0);
    assert_true(lease_left(l) > 60000);
    assert_false(in_lanes(l));
}

static void named_ones_below_the_floor_are_finished(void **state) {
    struct lt *l = *state;
    gate_run(l, 10, 1);
    lt_floor(l, "orders:0", 12, 0);
    assert_string_equal(settle(l, naming(item(10, 1, "done", 'k'), 11, 2)), "K");
    assert_string_equal(l->named, "PA");
}

static void keep_alone_keeps_where_nobody_waits(void **state) {
    struct lt *l = *state;
    gate_run(l, 1, 1);
    assert_string_equal(settle(l, naming(item(1, 1, "done", 'K'), 2, 2)), "K");
    assert_string_equal(l->named, "AA");
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 60000");
    /* Park two later messages, and then mark them as finished. */
    park_run(l, 7, 2);
    lt_floor(l, "orders:0", 2, 0);
    lt_set_state(l, message(7), 2);
    lt_set_state(l, message(8), 2);
    assert_string_equal(settle(l, naming(item(2, 1, "done", 'K'), 3, 1)), "K");
    assert_string_equal(l->named, "A");
    assert_true(lease_left(l) > 60000);
    assert_false(in_lanes(l));
    assert_string_equal(lt_lock(l, message(1)), "t1");
}

static void keep_alone_gives_way(void **state) {
    struct lt *l = *state;
    gate_run(l, 1, 1);
    park_run(l, 7, 2);
    assert_string_equal(settle(l, naming(item(1, 1, "done", 'K'), 2, 2)), "L");
    assert_string_equal(l->named, "GG");
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
    assert_int_equal(n_hints(l), 1);
    assert_true(score(l) > lt_now_ms(l) + LT_HANDOFF_MS - 60000 &&
                score(l) <= lt_now_ms(l) + LT_HANDOFF_MS);
    assert_string_equal(lt_waiting(l, message(1)), "0/7 0/8");
    assert_int_equal(lt_state(l, message(2)), 0);
}

static void keep_keeps_though_others_wait(void **state) {
    struct lt *l = *state;
    gate_run(l, 1, 1);
    park_run(l, 7, 2);
    assert_string_equal(settle(l, naming(item(1, 1, "done", 'k'), 2, 2)), "K");
    assert_string_equal(l->named, "AA");
    assert_int_equal(l->item[0].n_heads, 0);
    assert_true(score(l) > lt_now_ms(l) + LT_TTL_MS - 60000);
}

static void nothing_named_is_granted_where_the_lane_is_let_go(void **state) {
    struct lt *l = *state;
    static const char *const outcomes[] = {"retry", "back"};
    for (size_t i = 0; i < 2; i++) {
        lt_setup(state);
        gate_run(l, 1, 1);
        assert_string_equal(settle(l, naming(item(1, 1, outcomes[i], 'k'), 2, 2)), "L");
        assert_string_equal(l->named, "GG");
        assert_string_equal(lt_waiting(l, message(1)), "0/1");
    }
    for (int waiters = 0; waiters < 2; waiters++)
        for (int i = 0; i < 2; i++) {
            /* The answer to a settle in the mode `keep` was lost, so the settle is sent again in
             * the mode `drop`. */
            lt_setup(state);
            gate_run(l, 1, 1);
            if (waiters) park_run(l, 9, 1);
            struct lt_msg other = lt_msg(0, 30, "j", "t1");
            assert_string_equal(lt_gate(l, &other, 1), "R");
            const struct lt_item items[] = {naming(item(1, 1, "done", "-n"[i]), 2, 2),
                                            {.done = &other, .n_done = 1, .mode = 'n'}};
            assert_string_equal(lt_settle_items(l, items, 2), waiters && i ? "NL" : "LL");
            assert_string_equal(l->named, "GG");
            assert_int_equal(lt_state(l, message(2)), 0);
            /* settle has read the place of the message in the second item correctly. */
            assert_int_equal(lt_state(l, other), 2);
        }
}

/* --- while something runs --------------------------------------------------------------------- */

static void more_never_releases(void **state) {
    struct lt *l = *state;
    for (int waiters = 0; waiters < 2; waiters++)
        for (int paused = 0; paused < 2; paused++) {
            lt_setup(state);
            /* Messages 1 to 3 are granted, and message 3 still runs when 1 and 2 are settled. */
            gate_run(l, 1, 3);
            if (waiters) park_run(l, 9, 2);
            if (paused) lt_int(l, "SADD " LT_TAG "paused k");
            assert_string_equal(settle(l, naming(item(1, 2, "done", 'm'), 4, 2)), "K");
            assert_string_equal(l->named, paused ? "GG" : "AA");
            assert_string_equal(lt_lock(l, message(1)), "t1");
            assert_true(lease_left(l) > 60000);
            assert_int_equal(n_hints(l), 0);
            assert_int_equal(lt_state(l, message(2)), 2);
            assert_int_equal(lt_state(l, message(3)), 0);
            if (waiters) assert_true(score(l) > lt_now_ms(l) + LT_TTL_MS - 60000);
            assert_int_equal(in_lanes(l), waiters);
        }
}

/* Calls settle although no message has finished, to ask for more messages behind the one that
 * runs. */
static void more_without_any_finished(void **state) {
    struct lt *l = *state;
    gate_run(l, 1, 1);
    assert_string_equal(settle(l, naming(item(0, 0, "done", 'm'), 2, 3)), "K");
    assert_string_equal(l->named, "AAA");
    lt_free_lock(l, message(1));
    assert_string_equal(settle(l, naming(item(0, 0, "done", 'm'), 2, 3)), "S");
    assert_string_equal(l->named, "GGG");
    for (int64_t o = 1; o < 5; o++) assert_int_equal(lt_state(l, message(o)), 0);
}

static void claim_heads(struct lt *l, int waiting, int want) {
    park_run(l, 1, waiting);
    l->want = want;
    l->reserve = 64;
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
    assert_int_equal(l->item[0].n_heads, want < waiting ? want : waiting);
    lt_int(l, "PEXPIRE " LT_TAG "lock:k 60000");
}

static void more_heads_come_behind_the_last(void **state) {
    struct lt *l = *state;
    claim_heads(l, 8, 3);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 5 %s", "4 5 0");
    /* Messages 1 and 2 are settled while message 3 of this hold still runs. */
    assert_string_equal(settle(l, wanting(naming(item(1, 2, "done", 'h'), 3, 1), 3, 3)), "K");
    assert_string_equal(lt_heads(l, 0), "0/4 0/5 0/6");
    assert_string_equal(l->named, "G");
    assert_int_equal(lt_attempts_of(l, 0, 0), 0);
    assert_int_equal(lt_attempts_of(l, 0, 1), 4);
    assert_string_equal(lt_waiting(l, message(1)), "0/3 0/4 0/5 0/6 0/7 0/8");
    assert_true(lease_left(l) > 60000);
    assert_true(score(l) > lt_now_ms(l) + LT_TTL_MS - 60000);
    assert_string_equal(settle(l, wanting(naming(item(0, 0, "done", 'h'), 6, 1), 5, 4)), "K");
    assert_string_equal(lt_heads(l, 0), "0/7 0/8");
    /* No message waits behind the named message 8, so no heads are handed over. */
    assert_string_equal(settle(l, wanting(naming(item(3, 3, "done", 'h'), 8, 1), 5, 6)), "K");
    assert_string_equal(lt_heads(l, 0), "");
    assert_true(in_lanes(l));
    assert_string_equal(settle(l, wanting(item(6, 3, "done", 'n'), 5, 3)), "L");
    assert_false(in_lanes(l));
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "wait:k " LT_TAG "lock:k"), 0);
}

/* A repeated settle, or one of a worker that stops, asks for no heads. It gets none, but its lease
 * is extended, because messages of the hold still run. */
static void no_heads_where_none_is_wanted(void **state) {
    struct lt *l = *state;
    claim_heads(l, 6, 2);
    lt_int(l, "ZADD " LT_TAG "lanes XX 5 k");
    assert_string_equal(settle(l, wanting(item(1, 1, "done", 'h'), 0, 0)), "K");
    assert_string_equal(lt_heads(l, 0), "");
    assert_true(lease_left(l) > 60000);
    assert_true(score(l) > lt_now_ms(l) + LT_TTL_MS - 60000);
    assert_string_equal(settle(l, wanting(naming(item(0, 0, "done", 'h'), 2, 1), 0, 0)), "K");
    assert_string_equal(l->named, "G");
    assert_string_equal(lt_heads(l, 0), "");
    assert_string_equal(lt_waiting(l, message(1)), "0/2 0/3 0/4 0/5 0/6");
}

static void no_heads_where_the_last_is_not_in_its_place(void **state) {
    struct lt *l = *state;
    claim_heads(l, 6, 2);
    assert_string_equal(settle(l, wanting(naming(item(1, 1, "done", 'h'), 77, 1), 3, 3)), "K");
    assert_string_equal(lt_heads(l, 0), "");
    /* Delete the waiting list, as if an operator had deleted it or Redis had evicted it. */
    lt_int(l, "DEL " LT_TAG "wait:k");
    assert_string_equal(settle(l, wanting(naming(item(0, 0, "done", 'h'), 2, 1), 3, 3)), "K");
    assert_string_equal(lt_heads(l, 0), "");
    assert_string_equal(lt_lock(l, message(1)), "t1");
    assert_false(in_lanes(l));
    /* The lane is no longer in `lanes` either, so nothing shows that messages wait. */
    assert_string_equal(settle(l, wanting(naming(item(0, 0, "done", 'h'), 2, 1), 3, 3)), "K");
    assert_string_equal(lt_heads(l, 0), "");
}

/* Another worker has finished the named message. The message behind it in the waiting list is
 * perhaps not the next message of the lane, so settle hands over no heads. */
static void no_heads_where_the_last_is_finished(void **state) {
    struct lt *l = *state;
    claim_heads(l, 6, 2);
    lt_set_state(l, message(2), 2);
    assert_string_equal(settle(l, wanting(naming(item(1, 1, "done", 'h'), 2, 1), 3, 3)), "K");
    assert_string_equal(lt_heads(l, 0), "");
}

static void no_heads_of_a_paused_lane(void **state) {
    struct lt *l = *state;
    claim_heads(l, 6, 2);
    lt_int(l, "SADD " LT_TAG "paused k");
    assert_string_equal(settle(l, wanting(naming(item(1, 1, "done", 'h'), 2, 1), 3, 2)), "K");
    assert_string_equal(lt_heads(l, 0), "");
    assert_true(lease_left(l) > 60000);
}

static void heads_without_the_lease(void **state) {
    struct lt *l = *state;
    claim_heads(l, 6, 2);
    lt_free_lock(l, message(1));
    assert_string_equal(settle(l, wanting(naming(item(1, 1, "done", 'h'), 2, 1), 3, 2)), "S");
    assert_string_equal(l->named, "G");
    assert_string_equal(lt_heads(l, 0), "");
}

/* --- heads ------------------------------------------------------------------------------------ */

static void next_hands_many_heads_over(void **state) {
    struct lt *l = *state;
    l->reserve = 64;
    gate_run(l, 1, 1);
    park_run(l, 2, 70);
    assert_string_equal(settle(l, wanting(item(1, 1, "done", 'n'), 64, 0)), "N");
    assert_int_equal(l->item[0].n_heads, 64);
    assert_string_equal(settle(l, wanting(item(2, 64, "done", 'n'), 64, 64)), "N");
    assert_string_equal(lt_heads(l, 0), "0/66 0/67 0/68 0/69 0/70 0/71");
    assert_string_equal(lt_waiting(l, message(1)), "0/66 0/67 0/68 0/69 0/70 0/71");
    assert_string_equal(settle(l, wanting(item(66, 6, "done", 'n'), 64, 6)), "L");
    assert_string_equal(lt_lock(l, message(1)), "(nil)");
}

/* The caller estimates how many finished messages are at the front of the waiting list. If the
 * estimate is too low, the caller gets fewer heads, but never wrong heads, and at least one if
 * there are any. */
static void how_many_stand_before_is_a_guess(void **state) {
    struct lt *l = *state;
    l->reserve = 64;
    gate_run(l, 1, 1);
    park_run(l, 2, 40);
    for (int64_t o = 2; o < 22; o++) lt_set_state(l, message(o), 2);
    assert_string_equal(settle(l, wanting(item(1, 1, "done", 'n'), 4, 18)), "N");
    assert_string_equal(lt_heads(l, 0), "0/22 0/23");
    for (int64_t o = 22; o < 32; o++) lt_set_state(l, message(o), 2);
    assert_string_equal(settle(l, wanting(item(22, 2, "done", 'n'), 4, 255)), "N");
    assert_string_equal(lt_heads(l, 0), "0/32 0/33 0/34 0/35");
    for (int64_t o = 32; o < 41; o++) lt_set_state(l, message(o), 3);
    assert_string_equal(settle(l, wanting(item(32, 1, "done", 'n'), 4, 0)), "N");
    assert_string_equal(lt_heads(l, 0), "0/41");
}

/* A message may be in the waiting list several times, because one owner of its partition has put it
 * back and the next owner has parked it. Such a message must be handed over only once. */
static void a_head_that_stands_twice_is_handed_over_once(void **state) {
    struct lt *l = *state;
    l->reserve = 64;
    park_run(l, 1, 3);
    struct lt_msg copy = message(1);
    struct lw_buf e = {0};
    lt_encode(&copy, &e);
    lt_int(l, "LPUSH " LT_TAG "wait:k %b", e.p, e.n);
    lt_int(l, "RPUSH " LT_TAG "wait:k %b", e.p, e.n);
    lw_buf_free(&e);
    l->want = 10;
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/1 0/2 0/3");
    assert_string_equal(settle(l, wanting(item(1, 3, "done", 'n'), 10, 5)), "L");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "wait:k"), 0);
}

static void a_strange_head_behind_others_ends_what_is_taken(void **state) {
    struct lt *l = *state;
    park_run(l, 1, 2);
    lt_int(l, "LPUSH " LT_TAG "wait:k %s", "2 what is this");
    park_run(l, 3, 1);
    l->want = 8;
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/1 0/2");
    assert_string_equal(settle(l, wanting(item(1, 2, "done", 'n'), 8, 2)), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 1);
}

static void skip_hands_one_head_over(void **state) {
    struct lt *l = *state;
    l->skip = true;
    park_run(l, 1, 5);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 1 %s", "1 5 99999999999999");
    l->want = 4;
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/2");
    assert_string_equal(settle(l, wanting(item(2, 1, "done", 'n'), 4, 1)), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
    assert_string_equal(lt_waiting(l, message(1)), "0/3 0/4 0/5 0/1");
}

static void long_lists_of_finished_heads(void **state) {
    struct lt *l = *state;
    l->reserve = 64;
    gate_run(l, 1, 1);
    for (int i = 0; i < 50; i++) park_run(l, 100 + 80 * i, 80); /* 4,000 */
    lt_floor(l, "orders:0", 4080, 0);
    assert_string_equal(settle(l, wanting(item(1, 1, "done", 'n'), 4, 0)), "N");
    assert_string_equal(lt_heads(l, 0), "0/4080 0/4081 0/4082 0/4083");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "wait:k"), 20);
}

static void more_finished_than_the_bound(void **state) {
    struct lt *l = *state;
    static const char modes[] = "nkKm-h";
    for (size_t i = 0; modes[i]; i++) {
        lt_setup(state);
        gate_run(l, 1, 2);
        for (int k = 0; k < 60; k++) park_run(l, 100 + 80 * k, 80); /* 4,800 */
        lt_floor(l, "orders:0", 4899, 0);
        struct lt_item it = item(4899, 1, "done", modes[i]);
        if (strchr("kKm", modes[i])) it = naming(it, 5000, 1);
        bool kept = strchr("kmh", modes[i]) != NULL;
        assert_string_equal(settle(l, it), kept ? "K" : "L");
        if (kept && modes[i] != 'h') assert_string_equal(l->named, "A");
        assert_string_equal(lt_lock(l, message(1)), kept ? "t1" : "(nil)");
        assert_int_equal(n_hints(l), !kept); /* the lane has a hint only if it is not kept */
        assert_true(in_lanes(l));
        int64_t left = lt_int(l, "LLEN " LT_TAG "wait:k");
        assert_true(left > 0 && left <= 4800 - 4096);
    }
}

/* --- business ids ----------------------------------------------------------------------------- */

static void ids_of_all_that_is_done_are_recorded(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    gate_run(l, 1, 3);
    struct lt_item it = naming(item(1, 3, "dead", 'k'), 4, 3);
    struct lt_msg *done = runs[DONE], *named = runs[NAMED];
    done[0].dedup = "a", done[2].dedup = "c";
    done[2].reason = "why";
    named[0].dedup = "a", named[1].dedup = "c";
    assert_string_equal(settle(l, it), "K");
    /* The business id "a" was recorded, because its message is done. The business id "c" was not
     * recorded, because its message is dead. Empty business ids are ignored. */
    assert_string_equal(l->named, "PAA");
    assert_int_equal(lt_duplicates(l), 1);
    assert_int_equal(lt_state(l, message(4)), 2);
    assert_string_equal(lt_text(l, "GET " LT_TAG "dedup:a"), "orders:0:1");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:c"), 0);
}

static void a_waiting_duplicate_of_what_was_just_done(void **state) {
    struct lt *l = *state;
    l->window_s = 1000;
    gate_run(l, 1, 1);
    struct lt_msg copies[] = {message(7), message(8), message(9)};
    for (int i = 0; i < 3; i++) copies[i].token = "x1", copies[i].dedup = i == 1 ? "b" : "a";
    assert_string_equal(lt_gate(l, copies, 3), "WWW");
    struct lt_item it = item(1, 1, "done", 'n');
    runs[DONE]->dedup = "a";
    assert_string_equal(settle(l, wanting(it, 1, 0)), "N");
    assert_string_equal(lt_heads(l, 0), "0/8");
    assert_int_equal(lt_duplicates(l), 1);
    assert_int_equal(lt_state(l, message(7)), 2);
}

/* --- many of everything ----------------------------------------------------------------------- */

/* Calls settle with the largest batch: 256 lanes whose items use every feature of an item. settle
 * must not mistake arguments and places of one item for those of the next. */
static void a_full_batch(void **state) {
    struct lt *l = *state;
    enum { EACH = 3 };
    static struct lt_msg m[LT_BATCH_MAX * EACH], named[LT_BATCH_MAX * 2], waiter[LT_BATCH_MAX];
    static struct lt_item items[LT_BATCH_MAX];
    static char want[LT_BATCH_MAX + 1], want_named[2 * LT_BATCH_MAX + 1];
    static const char *const outcomes[] = {"done", "retry", "back", "dead", "sent"};
    static const int states[] = {2, 1, 1, 3, 3};
    size_t n_named = 0;
    l->window_s = 1000;
    lt_full_batch(m, EACH);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        const char *lane = m[i * EACH].lane.p;
        m[i * EACH + EACH - 1].outcome = outcomes[i % 5];
        m[i * EACH + EACH - 1].reason = "reason";
        waiter[i] = lt_msg(9, i, lane, "x1");
        for (int k = 0; k < 2; k++)
            named[2 * i + k] = lt_msg(i / 32, 40000 + i % 32 * 2 + k, lane, "t1");
    }
    lt_gate(l, m, LT_BATCH_MAX * EACH);
    assert_int_equal(strspn(l->answers, "RA"), LT_BATCH_MAX * EACH);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        bool waits = i % 2, put_back = i % 5 == 1 || i % 5 == 2;
        if (waits) assert_string_equal(lt_gate(l, &waiter[i], 1), "W");
        char mode = "nkK-"[i % 4];
        items[i] = (struct lt_item){
            .done = &m[i * EACH], .n_done = EACH, .mode = mode, .want = 2, .before = i % 3};
        if (strchr("kK", mode)) items[i].named = &named[2 * i], items[i].n_named = 2;
        bool kept = !put_back && (mode == 'k' || (mode == 'K' && !waits));
        want[i] = put_back ? 'L' : kept ? 'K' : mode == 'n' && waits ? 'N' : 'L';
        for (size_t k = 0; k < items[i].n_named; k++) want_named[n_named++] = kept ? 'A' : 'G';
        if (i % 7 == 0) {
            lt_free_lock(l, waiter[i]);
            want[i] = 'S';
            if (items[i].n_named) memset(want_named + n_named - 2, 'G', 2);
        }
        m[i * EACH].dedup = m[i * EACH].lane.p;
    }
    want_named[n_named] = '\0';
    assert_string_equal(lt_settle_items(l, items, LT_BATCH_MAX), want);
    assert_string_equal(l->named, want_named);
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        bool stale = want[i] == 'S';
        assert_int_equal(lt_state(l, m[i * EACH]), 2);
        assert_int_equal(lt_state(l, m[i * EACH + 1]), stale ? 0 : 2);
        assert_int_equal(lt_state(l, m[i * EACH + 2]), stale ? 0 : states[i % 5]);
        assert_string_equal(lt_lock(l, m[i * EACH]), strchr("KN", want[i]) ? "t1" : "(nil)");
        assert_int_equal(lt_int(l, "EXISTS " LT_TAG "dedup:%s", m[i * EACH].lane.p), 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(all_done),
        LT(the_last_one_fails),
        LT(the_last_of_the_heads_fails),
        LT(the_last_one_is_finished_already),
        LT(without_the_lease_only_the_first_is_recorded),
        LT(the_value_of_the_lock_decides),
        LT(items_have_values_of_their_own),
        LT(several_named_run_behind_each_other),
        LT(named_ones_below_the_floor_are_finished),
        LT(keep_alone_keeps_where_nobody_waits),
        LT(keep_alone_gives_way),
        LT(keep_keeps_though_others_wait),
        LT(nothing_named_is_granted_where_the_lane_is_let_go),
        LT(more_never_releases),
        LT(more_without_any_finished),
        LT(more_heads_come_behind_the_last),
        LT(no_heads_where_none_is_wanted),
        LT(no_heads_where_the_last_is_not_in_its_place),
        LT(no_heads_where_the_last_is_finished),
        LT(no_heads_of_a_paused_lane),
        LT(heads_without_the_lease),
        LT(next_hands_many_heads_over),
        LT(how_many_stand_before_is_a_guess),
        LT(a_head_that_stands_twice_is_handed_over_once),
        LT(a_strange_head_behind_others_ends_what_is_taken),
        LT(skip_hands_one_head_over),
        LT(long_lists_of_finished_heads),
        LT(ids_of_all_that_is_done_are_recorded),
        LT(a_waiting_duplicate_of_what_was_just_done),
        LT(a_full_batch),
    };
    /* This test does not run in the variant in which each call is sent twice. The first call
     * removes only a limited number of finished messages from the waiting list, so the second call
     * would remove more of them. */
    const struct CMUnitTest once[] = {LT(more_finished_than_the_bound)};
    return LT_RUN(tests, LT_ALL) + LT_RUN(once, LT_ALL & ~LT_TWICE);
}
