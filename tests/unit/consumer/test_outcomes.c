/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the rings in which workers keep outcomes: which outcomes are kept, what a reader gets while
 * another process writes, and what is left after a crash. */
#include "consumer/board.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct lw_board *board;
static struct lw_outcome_rings *rings;

static int open_board(void **state) {
    (void)state;
    struct lw_err err = {0};
    board = lw_board_open(2, &err);
    rings = board ? &board->workers[1].outcomes : NULL;
    return board ? 0 : -1;
}

static int close_board(void **state) {
    (void)state;
    lw_board_close(board);
    return 0;
}

static void add_attempt(uint32_t attempt, enum lw_end end, int64_t offset, const char *key,
                        const char *reason) {
    struct lw_outcome_record r = {.at_ms = 1000 + offset,
                                  .offset = offset,
                                  .fence = 7,
                                  .took_us = 9,
                                  .attempt = attempt,
                                  .end = (uint8_t)end};
    lw_outcome_texts(&r, lw_bytes_of(key), reason);
    lw_outcome_add(rings, &r, false);
}

static void add(enum lw_end end, int64_t offset, const char *key, const char *reason) {
    add_attempt(1, end, offset, key, reason);
}

static void check_text(const struct lw_outcome_record *r, const char *key, const char *reason) {
    char got[512], want[512];
    snprintf(got, sizeof got, "%.*s|%.*s", r->n_key, r->text, r->n_reason, r->text + r->n_key);
    snprintf(want, sizeof want, "%s|%s", key, reason);
    assert_string_equal(got, want);
}

static void test_a_record_comes_back(void **state) {
    struct lw_outcome_record r;
    (void)state;
    assert_false(lw_outcome_get(rings, false, 0, &r));
    add(LW_END_DONE, 5, "c-17", "");
    add(LW_END_RETRY, 6, "c-18", "try later");
    add(LW_END_SKIPPED, 7, "", "it has no key");
    assert_int_equal(lw_outcome_count(rings, false), 2);
    assert_int_equal(lw_outcome_count(rings, true), 1);
    assert_true(lw_outcome_get(rings, false, 0, &r));
    check_text(&r, "c-17", "");
    assert_int_equal(r.offset, 5);
    assert_int_equal(r.fence, 7);
    assert_int_equal(r.took_us, 9);
    assert_int_equal(r.attempt, 1);
    assert_true(lw_outcome_get(rings, true, 0, &r));
    check_text(&r, "c-18", "try later");
    assert_int_equal(r.end, LW_END_RETRY);
    assert_true(lw_outcome_get(rings, false, 1, &r));
    check_text(&r, "", "it has no key");
    assert_false(lw_outcome_get(rings, false, 2, &r));
    assert_false(lw_outcome_get(&board->workers[0].outcomes, false, 0, &r));
}

static void test_texts_are_cut(void **state) {
    struct lw_outcome_record r = {0};
    char key[200], reason[300];
    (void)state;
    memset(key, 'k', sizeof key);
    memset(reason, 'r', sizeof reason - 1);
    reason[sizeof reason - 1] = 0;
    lw_outcome_texts(&r, lw_bytes(key, LW_OUTCOME_KEY), "short");
    assert_int_equal(r.n_key, LW_OUTCOME_KEY);
    assert_int_equal(r.key_hash, 0);
    assert_false(r.cut);
    assert_true(lw_outcome_has_key(&r, lw_bytes(key, LW_OUTCOME_KEY)));
    lw_outcome_texts(&r, lw_bytes(key, 200), reason);
    assert_int_equal(r.n_key, LW_OUTCOME_KEY);
    assert_int_equal(r.n_reason, LW_OUTCOME_REASON);
    assert_true(r.cut);
    assert_true(lw_outcome_has_key(&r, lw_bytes(key, 200)));
    /* another key that begins with the same bytes must not match */
    assert_false(lw_outcome_has_key(&r, lw_bytes(key, 199)));
    assert_false(lw_outcome_has_key(&r, lw_bytes(key, LW_OUTCOME_KEY)));
    /* the maximum length falls inside a character of three bytes, so the key must be cut before
     * this character */
    memcpy(key + 62, "\xe2\x80\xa2", 3);
    lw_outcome_texts(&r, lw_bytes(key, 200), "");
    assert_int_equal(r.n_key, 62);
    assert_true(lw_outcome_has_key(&r, lw_bytes(key, 200)));
}

static void test_successes_do_not_push_out_failures(void **state) {
    struct lw_outcome_record r;
    (void)state;
    add(LW_END_DEAD, 1, "bad", "why");
    add_attempt(2, LW_END_DONE, 2, "mended", "");
    for (int i = 0; i < 3 * LW_OUTCOMES; i++) add(LW_END_DONE, i, "good", "");
    assert_true(lw_outcome_get(rings, true, 0, &r));
    check_text(&r, "bad", "why");
    assert_true(lw_outcome_get(rings, true, 1, &r));
    check_text(&r, "mended", "");
    assert_false(lw_outcome_get(rings, false, 2 * LW_OUTCOMES - 1, &r));
    for (uint64_t n = 2 * LW_OUTCOMES; n < 3 * LW_OUTCOMES; n++) {
        assert_true(lw_outcome_get(rings, false, n, &r));
        assert_int_equal(r.offset, n);
    }
}

/* If a worker dies while it writes a record, no reader may get the record, and the worker's next
 * process must overwrite it. */
static void test_a_half_written_record(void **state) {
    struct lw_outcome_record r;
    (void)state;
    for (int i = 0; i < LW_OUTCOMES + 3; i++) add(LW_END_DONE, i, "a", "");
    uint64_t n = lw_outcome_count(rings, false);
    atomic_store(&rings->outcomes[n % LW_OUTCOMES].version, 2 * n + 1);
    atomic_store(&rings->outcomes[n % LW_OUTCOMES].word[1], 99);
    assert_false(lw_outcome_get(rings, false, n, &r));
    assert_false(lw_outcome_get(rings, false, n - LW_OUTCOMES, &r));
    assert_true(lw_outcome_get(rings, false, n - 1, &r));
    add(LW_END_DONE, 4711, "b", "");
    assert_true(lw_outcome_get(rings, false, n, &r));
    assert_int_equal(r.offset, 4711);
}

/* Writes records until the process is killed. All fields of a record are computed from its number,
 * so that a reader can check them. */
static void write_for_ever(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails must not leave this process behind */
    for (int64_t i = 0;; i++) {
        char key[40];
        snprintf(key, sizeof key, "%lld", (long long)i);
        struct lw_outcome_record r = {.at_ms = i,
                                      .offset = i,
                                      .fence = (uint64_t)i,
                                      .took_us = i,
                                      .attempt = 1, /* the ring of first attempts */
                                      .end = LW_END_DONE};
        lw_outcome_texts(&r, lw_bytes_of(key), "");
        lw_outcome_add(rings, &r, false);
    }
}

static void check_whole(const struct lw_outcome_record *r, uint64_t n) {
    char key[40];
    snprintf(key, sizeof key, "%llu", (unsigned long long)n);
    assert_int_equal(r->offset, n);
    assert_int_equal(r->at_ms, n);
    assert_int_equal(r->fence, n);
    assert_int_equal(r->took_us, n);
    check_text(r, key, "");
}

static void test_readers_see_whole_records_only(void **state) {
    enum { ENOUGH = 3000000, TRIES_MAX = 50000000 };
    struct lw_outcome_record r;
    int good = 0, torn = 0, tries = 0;
    (void)state;
    pid_t child = fork();
    if (!child) write_for_ever();
    /* The loop reads the oldest records, because the writer is about to overwrite them. */
    for (; (good < ENOUGH || !torn) && tries < TRIES_MAX; tries++) {
        uint64_t n = lw_outcome_count(rings, false);
        if (n < LW_OUTCOMES) continue;
        uint64_t at = n - LW_OUTCOMES + (uint64_t)(tries & 3);
        if (lw_outcome_get(rings, false, at, &r)) {
            check_whole(&r, at);
            good++;
        } else {
            torn++;
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(good > 0);
    uint64_t n = lw_outcome_count(rings, false);
    for (uint64_t at = n - LW_OUTCOMES + 1; at < n; at++) {
        assert_true(lw_outcome_get(rings, false, at, &r));
        check_whole(&r, at);
    }
    add(LW_END_DONE, 1, "after the crash", "");
    assert_true(lw_outcome_get(rings, false, n, &r));
    check_text(&r, "after the crash", "");
}

static void test_an_outcome_and_its_end_have_one_word(void **state) {
    (void)state;
    static const enum lw_outcome outcomes[] = {LW_DONE, LW_RETRY, LW_DEAD, LW_BACK};
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++)
        assert_string_equal(lw_end_name[lw_end_of(outcomes[i])], lw_outcome_word(outcomes[i]));
    assert_int_equal(lw_end_of(LW_DEAD_SENT), LW_END_DEAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_record_comes_back, open_board, close_board),
        cmocka_unit_test_setup_teardown(test_texts_are_cut, open_board, close_board),
        cmocka_unit_test_setup_teardown(test_successes_do_not_push_out_failures, open_board,
                                        close_board),
        cmocka_unit_test_setup_teardown(test_a_half_written_record, open_board, close_board),
        cmocka_unit_test_setup_teardown(test_readers_see_whole_records_only, open_board,
                                        close_board),
        cmocka_unit_test(test_an_outcome_and_its_end_have_one_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
