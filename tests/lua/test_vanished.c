/* SPDX-License-Identifier: Apache-2.0 */
/* Tests waiting lists that vanish: which scripts report this in the stream `vanished`, and when no
 * script may report anything. Also tests the script unpark. */
#include "tests/support/lanes.h"
#include "tests/support/lanes_build.h"
#include "ops/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static int64_t signs(struct lt *l) { return lt_int(l, "XLEN " LT_TAG "vanished"); }
static void delete_list(struct lt *l) { assert_int_equal(lt_int(l, "DEL " LT_TAG "wait:k"), 1); }

static void assert_one_sign(struct lt *l) {
    assert_int_equal(signs(l), 1);
    redisReply *r = redisCommand(l->admin, "XRANGE " LT_TAG "vanished - +");
    assert_string_equal(r->element[0]->element[1]->element[0]->str, "lane");
    assert_string_equal(r->element[0]->element[1]->element[1]->str, "k");
    freeReplyObject(r);
    int64_t left = lt_int(l, "PTTL " LT_TAG "vanished");
    assert_true(left > 0 && left <= 100 * (int64_t)LT_TTL_MS);
}
static void assert_lane_is_gone(struct lt *l) {
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lanes " LT_TAG "wait:k"), 0);
}

/* Parks messages 1 to n in lane k, and then removes the lock of the lane. */
static void park(struct lt *l, int n) {
    struct lt_msg m[16];
    lt_text(l, "SET " LT_TAG "lock:k other:1");
    for (int i = 0; i < n; i++) m[i] = message(i + 1);
    lt_gate(l, m, (size_t)n);
    assert_int_equal(strspn(l->answers, "W"), n);
    lt_free_lock(l, *m);
}
/* Parks n messages, and grants the first `want` of them with claim. */
static void claim(struct lt *l, int n, int want) {
    park(l, n);
    l->want = want;
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
}
/* Settles the first n heads: the last one with `outcome`, and the others as done. `mode` says how
 * the lane goes on. */
static const char *settle(struct lt *l, int n, char mode, int want, const char *outcome) {
    static struct lt_msg m[16];
    for (int i = 0; i < n; i++) m[i] = message(i + 1);
    m[n - 1].outcome = outcome;
    const struct lt_item it = {
        .done = m, .n_done = (size_t)n, .mode = mode, .want = want, .before = n};
    return lt_settle_items(l, &it, 1);
}

/* --- signs ------------------------------------------------------------------------------------ */

static void claim_of_a_deleted_list_is_told(void **state) {
    struct lt *l = *state;
    park(l, 3);
    delete_list(l);
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "E");
    assert_one_sign(l);
    assert_lane_is_gone(l);
    /* The first claim has reported that the list vanished, so the second claim has nothing to
     * report. */
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "E");
    assert_int_equal(signs(l), 1);
}

static void settle_whose_list_was_deleted_is_told(void **state) {
    struct lt *l = *state;
    static const struct {
        const char *outcome;
        char mode;
        int want;
        const char *answer;
    } cases[] = {{"done", 'n', 1, "L"},
                 {"done", '-', 0, "L"},
                 {"dead", 'n', 1, "L"},
                 {"retry", 'n', 1, "L"},
                 {"back", 'n', 1, "L"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lt_setup(state);
        claim(l, 4, 2);
        delete_list(l);
        assert_string_equal(settle(l, 2, cases[i].mode, cases[i].want, cases[i].outcome),
                            cases[i].answer);
        assert_one_sign(l);
        assert_int_equal(lt_state(l, message(1)), 2);
        /* Message 3 is still marked as waiting. The owner of its partition will change that when it
         * reads the stream. */
        assert_int_equal(lt_state(l, message(3)), 1);
        bool again =
            strcmp(cases[i].outcome, "retry") == 0 || strcmp(cases[i].outcome, "back") == 0;
        assert_string_equal(lt_waiting(l, message(1)), again ? "0/2" : "");
        assert_int_equal(lt_int(l, "ZCARD " LT_TAG "lanes"), again);
    }
}

static void a_running_hold_whose_list_was_deleted_is_told(void **state) {
    struct lt *l = *state;
    claim(l, 4, 2);
    delete_list(l);
    struct lt_msg first = message(1), last = message(2);
    const struct lt_item it = {.done = &first,
                               .n_done = 1,
                               .mode = 'h',
                               .named = &last,
                               .n_named = 1,
                               .want = 2,
                               .before = 2};
    assert_string_equal(lt_settle_items(l, &it, 1), "K");
    assert_string_equal(lt_heads(l, 0), "");
    assert_one_sign(l);
    assert_string_equal(lt_lock(l, first), "t1");
}

static const char *put(struct lt *l, int64_t offset, int64_t replay) {
    static const char *const names[] = {"epoch", "lanes", "floor", "ready", "dead"};
    lt_begin(l, &lw_op_put);
    for (size_t i = 0; i < 5; i++) lt_addf(&l->keys, LT_TAG "%s", names[i]);
    lt_addf(&l->keys, LT_TAG "lock:k");
    lt_addf(&l->args, "%d", LT_HANDOFF_MS), lt_add_text(&l->args, "any"), lt_add_text(&l->args, "");
    lt_addf(&l->args, "1 orders 0 %" PRId64 " %" PRId64 " 5 5 1 0 0 2\nk{}", offset, replay);
    lt_add_text(&l->args, ""), lt_add_text(&l->args, "");
    return lt_run(l);
}

static void put_beside_a_deleted_list_is_told(void **state) {
    struct lt *l = *state;
    park(l, 3);
    delete_list(l);
    assert_string_equal(put(l, 9, 7), "P");
    assert_one_sign(l);
    assert_string_equal(lt_waiting(l, message(0)), "0/9");
    /* The list has vanished only once, so the second call of the script `put` reports nothing. */
    assert_string_equal(put(l, 10, 7), "P");
    assert_int_equal(signs(l), 1);
    assert_string_equal(put(l, 10, 7), "A");
    assert_int_equal(signs(l), 1);
}

/* --- no signs --------------------------------------------------------------------------------- */

/* In each iteration, two replay jobs put messages into a lane, and all these messages are done
 * before the next iteration. So the waiting list is deleted and created again, which must not be
 * reported as a vanished list. */
static void puts_into_a_lane_that_is_drained_are_not_told(void **state) {
    struct lt *l = *state;
    for (int round = 1; round <= 3; round++) {
        assert_string_equal(put(l, 1, 2 * round), "P");
        assert_string_equal(put(l, 1, 2 * round + 1), "P");
        l->want = 2;
        assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "N");
        /* Mark the message with offset 1 as done in the replays of both jobs. */
        lt_int(l, "SETBIT " LT_TAG "state:orders:0#%d:0 2 1", 2 * round);
        lt_int(l, "SETBIT " LT_TAG "state:orders:0#%d:0 2 1", 2 * round + 1);
        lt_free_lock(l, message(0));
        assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "E");
        assert_lane_is_gone(l);
    }
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "vanished"), 0);
}

static void lanes_that_are_drained_are_not_told(void **state) {
    struct lt *l = *state;
    static const struct {
        const char *bounds, *outcome;
        char mode;
        int want;
    } cases[] = {{"", "done", 'n', 1},
                 {"", "done", '-', 0},
                 {"", "dead", 'n', 1},
                 {"", "sent", 'n', 1},
                 {"1 1 0", "done", 'n', 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lt_setup(state);
        claim(l, 3, 3);
        assert_string_equal(lt_heads(l, 0), "0/1 0/2 0/3");
        if (*cases[i].bounds) snprintf(l->bounds, sizeof l->bounds, "%s", cases[i].bounds);
        settle(l, 3, cases[i].mode, cases[i].want, cases[i].outcome);
        lt_claim(l, (struct lt_msg[]){message(0)}, 1);
        assert_lane_is_gone(l);
        assert_int_equal(lt_int(l, "EXISTS " LT_TAG "vanished"), 0);
    }
}

/* The reply of a settle was lost, so the settle is sent again. The first settle has removed the
 * heads and the waiting list, which must not be reported as a vanished list. */
static void a_settle_sent_again_is_not_told(void **state) {
    struct lt *l = *state;
    claim(l, 2, 2);
    settle(l, 2, 'n', 1, "done");
    lt_call_again(l);
    assert_lane_is_gone(l);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "vanished"), 0);
}

/* --- unpark ----------------------------------------------------------------------------------- */

static const char *unpark(struct lt *l, const char *tp, const int64_t *offsets, size_t n) {
    lt_begin(l, &lw_script_unpark);
    lt_addf(&l->keys, LT_TAG "epoch"), lt_addf(&l->keys, LT_TAG "floor");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, tp);
    for (size_t i = 0; i < n; i++) lt_addf(&l->args, "%" PRId64, offsets[i]);
    return lt_run(l);
}

static void only_what_waits_is_unparked(void **state) {
    struct lt *l = *state;
    static const int64_t offsets[] = {5, 6, 7, 8, 9, 16383, 16384};
    lt_int(l, "HSET " LT_TAG "floor orders:0 6");
    lt_set_state(l, message(5), 1); /* an offset below the floor */
    lt_set_state(l, message(6), 1);
    lt_set_state(l, message(7), 2);
    lt_set_state(l, message(8), 3);
    lt_set_state(l, message(10), 1); /* an offset that the call of unpark does not name */
    lt_set_state(l, message(16383), 1);
    lt_set_state(l, message(16384), 1);
    lt_set_state(l, lt_msg(1, 6, "k", "t1"), 1); /* a message of another partition */
    assert_string_equal(unpark(l, "orders:0", offsets, 7), "3");
    static const int64_t of[] = {5, 6, 7, 8, 9, 10, 16383, 16384};
    static const int want[] = {1, 0, 2, 3, 0, 1, 0, 0};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_int_equal(lt_state(l, message(of[i])), want[i]);
    assert_int_equal(lt_state(l, lt_msg(1, 6, "k", "t1")), 1);
    char *before = lt_dump(l, true);
    /* The same call sent again, as after a lost answer, changes nothing. */
    assert_string_equal(lt_call_again(l), "0");
    lt_assert_unchanged(l, before, true);
}

static void what_is_unparked_comes_as_new(void **state) {
    struct lt *l = *state;
    park(l, 2);
    delete_list(l);
    assert_string_equal(lt_claim(l, (struct lt_msg[]){message(0)}, 1), "E");
    assert_string_equal(unpark(l, "orders:0", (int64_t[]){1, 2}, 2), "2");
    assert_string_equal(lt_gate(l, (struct lt_msg[]){message(1), message(2)}, 2), "RA");
    assert_int_equal(signs(l), 1);
}

static void unpark_of_another_epoch_is_lost(void **state) {
    struct lt *l = *state;
    lt_set_state(l, message(6), 1);
    snprintf(l->epoch, sizeof l->epoch, "other");
    char *before = lt_dump(l, true);
    assert_string_equal(unpark(l, "orders:0", (int64_t[]){6}, 1), "LOST");
    lt_assert_unchanged(l, before, true);
    lt_text(l, "FLUSHALL");
    assert_string_equal(unpark(l, "orders:0", (int64_t[]){6}, 1), "LOST");
}

/* Tests that unpark also works during a quarantine. This is safe, because unpark lets no message
 * run. */
static void unpark_goes_on_in_the_quarantine(void **state) {
    struct lt *l = *state;
    lt_set_state(l, message(6), 1);
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    assert_string_equal(unpark(l, "orders:0", (int64_t[]){6}, 1), "1");
    assert_int_equal(lt_state(l, message(6)), 0);
}

int main(void) {
    const struct CMUnitTest of_workers[] = {
        LT(claim_of_a_deleted_list_is_told),
        LT(settle_whose_list_was_deleted_is_told),
        LT(a_running_hold_whose_list_was_deleted_is_told),
        LT(lanes_that_are_drained_are_not_told),
        LT(a_settle_sent_again_is_not_told),
        LT(unpark_of_another_epoch_is_lost),
    };
    const struct CMUnitTest once[] = {
        /* These tests do not run in the variant in which each call is sent twice, because the
         * second call gets another answer than the first. */
        LT(only_what_waits_is_unparked),
        LT(what_is_unparked_comes_as_new),
        LT(unpark_goes_on_in_the_quarantine),
    };
    const struct CMUnitTest of_operators[] = {
        /* These tests do not run in the variant in which Redis has reached maxmemory, because Redis
         * then refuses the script `put`. */
        LT(put_beside_a_deleted_list_is_told),
        LT(puts_into_a_lane_that_is_drained_are_not_told),
    };
    return LT_RUN(of_workers, LT_ALL) + LT_RUN(once, LT_ALL & ~LT_TWICE) +
           LT_RUN(of_operators, LT_PLAIN | LT_FLUSHED);
}
