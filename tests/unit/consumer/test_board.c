/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the board: seats keep their contents when a worker dies, messages become suspects and are
 * blamed by the rules, and full tables replace their oldest entries. */
#include "base/clock.h"
#include "consumer/board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct lw_board *board;

static int open_board(void **state) {
    (void)state;
    struct lw_err err = {0};
    board = lw_board_open(3, &err);
    return board ? 0 : -1;
}

static int close_board(void **state) {
    (void)state;
    lw_board_close(board);
    return 0;
}

static void die(int worker, const char *identity) {
    lw_seat_take(&board->workers[worker].seats[0], identity, lw_bytes_of("k"), 1);
    lw_board_suspect(board, worker);
}

static void test_bounds_of_open(void **state) {
    (void)state;
    struct lw_err err = {0};
    assert_null(lw_board_open(0, &err));
    assert_non_null(strstr(err.text, "expected 1 to 256"));
    assert_null(lw_board_open(LW_BOARD_WORKERS + 1, &err));
    struct lw_board *b = lw_board_open(LW_BOARD_WORKERS, &err);
    assert_non_null(b);
    lw_seat_take(&b->workers[LW_BOARD_WORKERS - 1].seats[LW_BOARD_SEATS - 1], "t/0/1",
                 lw_bytes_of("k"), 1);
    lw_board_close(b);
}

static void test_seat_outlives_a_crash(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        lw_seat_take(&board->workers[1].seats[7], "orders/3/1042", lw_bytes_of("k"), 5);
        lw_seat_take(&board->workers[1].seats[8], "orders/3/1043", lw_bytes_of("k"), 5);
        lw_seat_leave(&board->workers[1].seats[8]);
        atomic_fetch_add(&board->workers[1].counts.done, 41);
        _exit(3);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 3);
    assert_true(atomic_load(&board->workers[1].seats[7].busy));
    lw_board_suspect(board, 1);
    assert_true(lw_board_is_suspect(board, "orders/3/1042"));
    /* message 1043 is not a suspect, because it left its seat before the worker died */
    assert_false(lw_board_is_suspect(board, "orders/3/1043"));
    /* the next process of the worker starts with empty seats */
    assert_false(atomic_load(&board->workers[1].seats[7].busy));
    /* the worker's counts survive its death */
    assert_int_equal(atomic_load(&board->workers[1].counts.done), 41);
}

static void test_life_of_a_suspicion(void **state) {
    (void)state;
    die(0, "t/0/1");
    die(0, "t/0/2");
    die(2, "t/0/1"); /* changes nothing */
    assert_true(lw_board_is_suspect(board, "t/0/1"));
    assert_true(lw_board_is_suspect(board, "t/0/2"));
    assert_false(lw_board_is_suspect(board, "t/0/11"));
    assert_int_equal(board->n_suspects, 2);
    lw_board_forget(board, "t/0/1");
    lw_board_forget(board, "t/0/1");
    lw_board_forget(board, "t/9/9");
    assert_false(lw_board_is_suspect(board, "t/0/1"));
    assert_int_equal(board->n_suspects, 1);
    die(2, "t/0/1");
    assert_true(lw_board_is_suspect(board, "t/0/1"));
}

/* A suspicion also ends after some time, because a worker of another supervisor may finish the
 * message, and this board does not show the outcomes of such a worker. */
static void test_suspicions_end(void **state) {
    (void)state;
    die(0, "a/0/1");
    die(0, "a/0/2");
    int64_t now = lw_boot_ms();
    lw_board_forget_old(board, now + LW_SUSPECT_MS / 2);
    assert_int_equal(board->n_suspects, 2);
    lw_board_forget_old(board, now + LW_SUSPECT_MS + 1);
    assert_int_equal(board->n_suspects, 0);
    assert_false(lw_board_is_suspect(board, "a/0/2"));
    die(0, "a/0/2");
    assert_true(lw_board_is_suspect(board, "a/0/2"));
}

static void test_full_table_replaces_the_oldest_suspect(void **state) {
    (void)state;
    char id[LW_IDENTITY_MAX];
    for (int i = 0; i < LW_BOARD_SUSPECTS; i++) {
        snprintf(id, sizeof id, "t/0/%d", i);
        die(0, id);
    }
    assert_int_equal(board->n_suspects, LW_BOARD_SUSPECTS);
    die(0, "t/0/0"); /* is the youngest from now on */
    die(0, "new/0/1");
    assert_true(lw_board_is_suspect(board, "t/0/0"));
    assert_false(lw_board_is_suspect(board, "t/0/1"));
    assert_true(lw_board_is_suspect(board, "t/0/2"));
    assert_true(lw_board_is_suspect(board, "new/0/1"));
    assert_int_equal(board->n_suspects, LW_BOARD_SUSPECTS);
    /* frees one entry, which must be used before another suspect is replaced */
    lw_board_forget(board, "t/0/700");
    die(0, "new/0/2");
    assert_true(lw_board_is_suspect(board, "t/0/2"));
    assert_true(lw_board_is_suspect(board, "new/0/2"));
    for (int i = 0; i < 3 * LW_BOARD_SUSPECTS; i++) {
        snprintf(id, sizeof id, "b/0/%d", i);
        die(0, id);
    }
    assert_int_equal(board->n_suspects, LW_BOARD_SUSPECTS);
    assert_true(lw_board_is_suspect(board, id));
}

static void test_all_seats_busy(void **state) {
    (void)state;
    char id[LW_IDENTITY_MAX];
    for (int w = 0; w < 3; w++)
        for (int s = 0; s < LW_BOARD_SEATS; s++) {
            snprintf(id, sizeof id, "t/%d/%d", w, s);
            lw_seat_take(&board->workers[w].seats[s], id, lw_bytes_of("k"), 1);
        }
    lw_board_suspect(board, 1);
    assert_int_equal(board->n_suspects, LW_BOARD_SEATS);
    assert_true(lw_board_is_suspect(board, "t/1/255"));
    /* this message is in a seat of another worker, which did not die */
    assert_false(lw_board_is_suspect(board, "t/0/255"));
}

static void test_long_texts_are_cut(void **state) {
    (void)state;
    char id[2 * LW_IDENTITY_MAX];
    memset(id, 'i', sizeof id), id[sizeof id - 1] = 0;
    lw_seat_take(&board->workers[0].seats[0], id, lw_bytes_of("k"), 1);
    /* simulates a crash that has overwritten the NUL at the end of the identity */
    memset(board->workers[0].seats[0].identity, 'i', LW_IDENTITY_MAX);
    lw_board_suspect(board, 0);
    id[LW_IDENTITY_MAX - 1] = 0;
    assert_true(lw_board_is_suspect(board, id));
}

/* Repeatedly asks about the oldest suspects, which are the next to be replaced. If forget_every is
 * not 0, removes the suspects whose offset is a multiple of it. Returns 1 if a message that never
 * was in a handler is a suspect, or 0 when board->quick is set. */
static int ask_the_oldest(int forget_every) {
    char id[LW_IDENTITY_MAX];
    for (uint64_t n = 0; !atomic_load(&board->quick); n++) {
        uint64_t i = atomic_load(&board->workers[0].counts.received) + n % 3 - LW_BOARD_SUSPECTS;
        snprintf(id, sizeof id, "t/0/%lluX", (unsigned long long)i);
        if (lw_board_is_suspect(board, id)) return 1;
        id[strlen(id) - 1] = '\0';
        if (forget_every && i % (uint64_t)forget_every == 0) lw_board_forget(board, id);
    }
    return 0;
}

/* Workers ask about suspects and remove them while the supervisor replaces suspects. The number of
 * suspects must be correct. */
static void test_readers_against_the_writer(void **state) {
    (void)state;
    pid_t pid[2];
    for (int k = 0; k < 2; k++) {
        pid[k] = fork();
        if (pid[k] == 0) _exit(ask_the_oldest(k * 5));
    }
    char id[LW_IDENTITY_MAX];
    for (int i = 0; i < 30000; i++) {
        atomic_store(&board->workers[0].counts.received, (uint64_t)i);
        snprintf(id, sizeof id, "t/0/%d", i);
        die(0, id);
    }
    atomic_store(&board->quick, true);
    for (int k = 0; k < 2; k++) {
        int status;
        waitpid(pid[k], &status, 0);
        assert_int_equal(status, 0);
    }
    int used = 0;
    for (int i = 0; i < LW_BOARD_SUSPECTS; i++) used += atomic_load(&board->suspects[i].word) & 1;
    assert_int_equal(board->n_suspects, used);
}

static void drain_partition(const char *topic, int32_t partition, int64_t end) {
    struct lw_drain_partition *p = &board->drain[board->n_drain++];
    snprintf(p->topic, sizeof p->topic, "%s", topic);
    p->partition = partition, p->end = end;
    atomic_store(&p->committed, -1);
}

static void test_drained(void **state) {
    (void)state;
    assert_true(lw_board_drained(board));
    drain_partition("a", 0, 0); /* an empty partition must not delay the drain */
    assert_true(lw_board_drained(board));
    drain_partition("a", 1, 10);
    drain_partition("b", 1, 20);
    lw_board_committed(board, "a", 1, 10);
    lw_board_committed(board, "c", 1, 99);
    lw_board_committed(board, "b", 0, 99);
    assert_false(lw_board_drained(board));
    /* The commit may be above the end that was read at the start of the drain, because more records
     * may have come since. */
    lw_board_committed(board, "b", 1, 25);
    assert_true(lw_board_drained(board));
    /* the recorded commit must never go down, although a new owner may report an older commit */
    lw_board_committed(board, "b", 1, 3);
    assert_true(lw_board_drained(board));
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_board, close_board)
int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_bounds_of_open),
        T(test_seat_outlives_a_crash),
        T(test_life_of_a_suspicion),
        T(test_suspicions_end),
        T(test_full_table_replaces_the_oldest_suspect),
        T(test_all_seats_busy),
        T(test_long_texts_are_cut),
        T(test_readers_against_the_writer),
        T(test_drained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
