/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the shares of groups on the board: what a reader gets of the last minute, which groups have
 * a share, and what is left of a worker that was killed. */
#include "consumer/shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct lw_shares shares;

static int clean(void **state) {
    (void)state;
    memset(&shares, 0, sizeof shares);
    return 0;
}

static struct lw_share *take(const char *name, int64_t now_ms) {
    return lw_share_take(&shares, lw_bytes_of(name), now_ms);
}

static struct lw_share_look look(const struct lw_share *s, int64_t now_ms) {
    struct lw_share_look l;
    assert_true(lw_share_look(s, now_ms, &l));
    return l;
}

enum { T = 1000000 }; /* the beginning of a step */

static void test_time_counts_while_it_runs(void **state) {
    (void)state;
    struct lw_share *s = take("acme", T);
    lw_share_run(s, 1, T);
    assert_int_equal(look(s, T + 700).busy_ms, 700);
    lw_share_run(s, 1, T + 1000);
    assert_int_equal(look(s, T + 2000).busy_ms, 3000);
    lw_share_run(s, -1, T + 2000);
    struct lw_share_look l = look(s, T + 4000);
    assert_int_equal(l.busy_ms, 5000);
    assert_int_equal(l.running, 1);
    assert_true(l.n_name == 4 && !memcmp(l.name, "acme", 4));
}

static void test_only_the_last_minute_counts(void **state) {
    (void)state;
    struct lw_share *s = take("acme", T);
    lw_share_run(s, 1, T);
    lw_share_run(s, -1, T + 1000);
    assert_int_equal(look(s, T + 64999).busy_ms, 1000);
    assert_int_equal(look(s, T + 65000).busy_ms, 0);
    /* one that runs for hours takes the whole minute, however late the next write is */
    lw_share_run(s, 1, T + 100000);
    assert_int_equal(look(s, T + 7200000).busy_ms, 60000);
    lw_share_run(s, -1, T + 7204000);
    assert_int_equal(look(s, T + 7204000).busy_ms, 64000);
    assert_int_equal(look(s, T + 9999999).busy_ms, 0);
}

static void test_starts_per_second(void **state) {
    (void)state;
    struct lw_share *s = take("acme", T);
    for (int i = 0; i < 100; i++) {
        lw_share_run(s, 1, T + 100 * i);
        lw_share_run(s, -1, T + 100 * i + 7);
    }
    assert_true(look(s, T + 10000).per_second > 9.9 && look(s, T + 10000).per_second < 10.1);
    assert_true(look(s, T + 15000).per_second > 4.9 && look(s, T + 15000).per_second < 5.1);
    assert_true(look(s, T + 20000).per_second == 0);
}

static void test_the_group_that_rested_longest_goes(void **state) {
    (void)state;
    char name[16];
    struct lw_share *first = take("g0", T);
    lw_share_run(first, 1, T);
    for (int i = 1; i < LW_SHARES; i++) {
        snprintf(name, sizeof name, "g%d", i);
        struct lw_share *s = take(name, T + i);
        lw_share_run(s, 1, T + i), lw_share_run(s, -1, T + i);
    }
    assert_ptr_equal(take("g7", T + 100), &shares.group[7]);
    /* g0 runs still, so that of g1 goes, with all that it said */
    assert_ptr_equal(take("new", T + 100), &shares.group[1]);
    assert_true(look(&shares.group[1], T + 100).per_second == 0);
    assert_ptr_equal(take("g0", T + 100), first);
    for (int i = 2; i < LW_SHARES; i++) lw_share_run(&shares.group[i], 1, T + 200);
    lw_share_run(&shares.group[1], 1, T + 200);
    assert_null(take("another", T + 200));
}

static void test_names_of_any_bytes(void **state) {
    (void)state;
    char longest[LW_LANE_ROOM];
    memset(longest, 'x', sizeof longest);
    struct lw_share *empty = lw_share_take(&shares, lw_bytes("", 0), T);
    struct lw_share *zero = lw_share_take(&shares, lw_bytes("\0", 1), T);
    struct lw_share *most = lw_share_take(&shares, lw_bytes(longest, sizeof longest), T);
    assert_true(empty != zero && zero != most && empty != most);
    assert_ptr_equal(lw_share_take(&shares, lw_bytes("", 0), T), empty);
    assert_ptr_equal(lw_share_take(&shares, lw_bytes(longest, sizeof longest), T), most);
    assert_int_equal(look(most, T).n_name, sizeof longest);
}

static void test_a_killed_worker_leaves_nothing_that_runs(void **state) {
    (void)state;
    struct lw_share_look l;
    struct lw_share *s = take("acme", T);
    lw_share_run(s, 1, T);
    atomic_fetch_add(&s->version, 1); /* it was killed while it wrote */
    assert_false(lw_share_look(s, T, &l));
    lw_shares_reset(&shares);
    assert_false(lw_share_look(s, T, &l));
    s = take("acme", T + 10);
    assert_int_equal(look(s, T + 1000).running, 0);
    assert_int_equal(look(s, T + 1000).busy_ms, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_time_counts_while_it_runs, clean),
        cmocka_unit_test_setup(test_only_the_last_minute_counts, clean),
        cmocka_unit_test_setup(test_starts_per_second, clean),
        cmocka_unit_test_setup(test_the_group_that_rested_longest_goes, clean),
        cmocka_unit_test_setup(test_names_of_any_bytes, clean),
        cmocka_unit_test_setup(test_a_killed_worker_leaves_nothing_that_runs, clean),
    };
    return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
