/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `lift`, which ends a quarantine early if the consumer group has no commit. Even
 * after that, gate and tend do nothing until a worker has reported a commit of the group. */
#include "tests/support/lanes.h"
#include "tests/support/lanes_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *lift(struct lt *l, const char *committed, const char *empty) {
    lt_begin(l, &lw_script_lift);
    lt_add_text(&l->keys, LT_TAG "epoch");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, committed), lt_add_text(&l->args, empty);
    return lt_run(l);
}

static void assert_lift(struct lt *l, const char *committed, const char *empty, bool quiet,
                        bool first) {
    lift(l, committed, empty);
    assert_int_equal(l->reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(l->reply->elements, 2);
    int64_t left = l->reply->element[0]->integer;
    assert_true(quiet ? left > 0 && left <= LT_TTL_MS : left == 0);
    assert_int_equal(l->reply->element[1]->integer, first);
}

static void begin_first_run(struct lt *l) {
    lt_int(l, "HSET " LT_TAG "epoch first 1 not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
}

static const char *gate_one(struct lt *l) {
    struct lt_msg m = lt_msg(0, 5, "a", "t1");
    return lt_gate(l, &m, 1);
}

static void a_question_changes_nothing(void **state) {
    struct lt *l = *state;
    begin_first_run(l);
    char *before = lt_dump(l, true);
    assert_lift(l, "0", "0", true, true);
    lt_assert_unchanged(l, before, true);
}

static void a_commit_leaves_the_quarantine(void **state) {
    struct lt *l = *state;
    begin_first_run(l);
    assert_lift(l, "1", "0", true, false);
    assert_string_equal(lt_text(l, "HGET " LT_TAG "epoch first"), "(nil)");
    assert_string_equal(gate_one(l), "QUARANTINE");
}

static void an_empty_group_still_needs_a_commit(void **state) {
    struct lt *l = *state;
    begin_first_run(l);
    assert_lift(l, "0", "1", false, true);
    assert_string_equal(gate_one(l), "QUARANTINE");
    assert_lift(l, "1", "0", false, false);
    assert_string_equal(gate_one(l), "R");
}

static void without_a_commit_nothing_is_given_even_later(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "epoch first 1 not_before 0");
    assert_string_equal(gate_one(l), "QUARANTINE");
    assert_string_equal(lt_tend(l), "QUARANTINE");
    assert_lift(l, "1", "1", false, false);
    assert_string_equal(gate_one(l), "R");
}

static void another_epoch_is_left_alone(void **state) {
    struct lt *l = *state;
    begin_first_run(l);
    char *before = lt_dump(l, true);
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_string_equal(lift(l, "1", "1"), "LOST");
    lt_assert_unchanged(l, before, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(a_question_changes_nothing),          LT(a_commit_leaves_the_quarantine),
        LT(an_empty_group_still_needs_a_commit), LT(without_a_commit_nothing_is_given_even_later),
        LT(another_epoch_is_left_alone),
    };
    return LT_RUN(tests, LT_ALL);
}
