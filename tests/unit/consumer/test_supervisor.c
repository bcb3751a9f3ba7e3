/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every cell of the supervisor's table of states and events, with stand-ins for fork, kill
 * and the clock. */
#include "consumer/fleet/table.h"

#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { NOW = 1000000, PID = 4242 };
enum effect {
    NOTHING = 0,
    SPAWNED = 1,
    TERM = 2,
    KILL = 4,
    REFUSED = 8,
    FAILED = 16,
    SUSPECTED = 32,
    BACKOFF = 128,
    GRACE = 256,
    QUICK = 512
};

static struct lw_config config = {
    .workers = 1, .shutdown.grace_ms = 700, .handler.timeout_ms = 1000, .log.level = LW_LOG_OFF};
static struct lw_supervise_options options = {.runs_in_worker = true};
static struct lw_board *board;
static struct lw_sup *sup;
static int spawned, last_signal;
static int64_t fake_now;

static int64_t now_stand_in(void) { return fake_now; }
static pid_t spawn_stand_in(struct lw_sup *s, struct lw_sup_worker *w) {
    (void)s, (void)w;
    spawned++;
    return PID + 1;
}
static int signal_stand_in(pid_t pid, int sig) {
    assert_int_equal(pid, PID);
    last_signal = sig;
    return 0;
}

static int open_sup(void **state) {
    (void)state;
    lw_log_setup(LW_LOG_OFF, false, "test");
    board = lw_board_open(1, NULL);
    sup = lw_alloc(sizeof *sup);
    lw_sup_init(sup, &config, &options, board);
    sup->now = now_stand_in, sup->spawn = spawn_stand_in, sup->signal = signal_stand_in;
    fake_now = NOW;
    spawned = last_signal = 0;
    return 0;
}

static int close_sup(void **state) {
    (void)state;
    free(sup);
    lw_board_close(board);
    return 0;
}

struct expected {
    enum lw_sup_state next;
    int effects;
};
/* In the table of expectations, a cell that is not named expects no change: the zero value
 * stands for the same state and no effect. */
#define C(next, effects) \
    { LW_SUP_##next, (effects) }
/* clang-format off */
static const struct expected cells[LW_SUP_STATES][LW_SUP_EVENTS] = {
    [LW_SUP_IDLE] = {[LW_SUP_START] = C(RUNNING, SPAWNED), [LW_SUP_STOP] = C(GONE, 0)},
    [LW_SUP_RUNNING] = {
        [LW_SUP_EXIT_CLEAN] = C(WAITING, SUSPECTED | BACKOFF), [LW_SUP_EXIT_FAILED] = C(WAITING, SUSPECTED | BACKOFF),
        [LW_SUP_CRASHED] = C(WAITING, SUSPECTED | BACKOFF),       [LW_SUP_KILLED] = C(WAITING, SUSPECTED | BACKOFF),
        [LW_SUP_REFUSED] = C(GONE, REFUSED),                   [LW_SUP_STOP] = C(STOPPING, TERM | GRACE),
        [LW_SUP_RELOAD] = C(ROLLING, TERM | GRACE),            [LW_SUP_HUNG] = C(RUNNING, KILL)},
    [LW_SUP_WAITING] = {[LW_SUP_TIMER] = C(RUNNING, SPAWNED), [LW_SUP_STOP] = C(GONE, 0), [LW_SUP_RELOAD] = C(RUNNING, SPAWNED)},
    [LW_SUP_ROLLING] = {
        [LW_SUP_EXIT_CLEAN] = C(RUNNING, SPAWNED),             [LW_SUP_EXIT_FAILED] = C(WAITING, SUSPECTED | BACKOFF),
        [LW_SUP_CRASHED] = C(WAITING, SUSPECTED | BACKOFF),       [LW_SUP_KILLED] = C(WAITING, SUSPECTED | BACKOFF),
        [LW_SUP_REFUSED] = C(GONE, REFUSED),                   [LW_SUP_TIMER] = C(ROLLING, KILL),
        [LW_SUP_STOP] = C(STOPPING, TERM | GRACE),             [LW_SUP_HUNG] = C(ROLLING, KILL)},
    [LW_SUP_STOPPING] = {
        [LW_SUP_EXIT_CLEAN] = C(GONE, 0),                      [LW_SUP_EXIT_FAILED] = C(GONE, SUSPECTED | FAILED),
        [LW_SUP_CRASHED] = C(GONE, SUSPECTED | FAILED),           [LW_SUP_KILLED] = C(GONE, SUSPECTED | FAILED),
        [LW_SUP_REFUSED] = C(GONE, REFUSED),                   [LW_SUP_TIMER] = C(STOPPING, KILL),
        [LW_SUP_STOP] = C(STOPPING, TERM | QUICK)},
    /* a reload may ask again for a worker that was removed */
    [LW_SUP_GONE] = {[LW_SUP_START] = C(RUNNING, SPAWNED)},
};
/* clang-format on */

static bool lives(enum lw_sup_state s) {
    return s == LW_SUP_RUNNING || s == LW_SUP_ROLLING || s == LW_SUP_STOPPING;
}

static struct lw_sup_worker *put_in(enum lw_sup_state state) {
    struct lw_sup_worker *w = &sup->workers[0];
    w->state = state;
    atomic_store(&board->quick, true);
    w->pid = lives(state) ? PID : 0;
    w->started_ms = NOW;
    if (w->pid) lw_seat_take(&board->workers[0].seats[3], "t/0/1", lw_bytes_of("k"), 1);
    atomic_store(&board->workers[0].ready, w->pid != 0);
    return w;
}

static int effects_of(struct lw_sup_worker *w) {
    int e = (spawned ? SPAWNED : 0) | (last_signal == SIGTERM ? TERM : 0) |
            (last_signal == SIGKILL ? KILL : 0);
    e |= (sup->refused ? REFUSED : 0) | (sup->failed ? FAILED : 0) |
         (lw_board_is_suspect(board, "t/0/1") ? SUSPECTED : 0);
    if (w->deadline_ms == INT64_MAX) return e;
    return e | (w->deadline_ms == NOW + 200    ? BACKOFF
                : w->deadline_ms == NOW + 5700 ? GRACE
                : w->deadline_ms == NOW + 1000 ? QUICK
                                               : 4096);
}

static void check_cell(enum lw_sup_state state, enum lw_sup_event e) {
    const struct expected *x = &cells[state][e];
    bool unnamed = x->next == LW_SUP_IDLE && x->effects == NOTHING;
    struct lw_sup_worker *w = put_in(state);
    lw_sup_step(sup, w, e);
    enum lw_sup_state next = unnamed ? state : x->next;
    if (w->state != next || effects_of(w) != x->effects)
        fail_msg("%s + %s: became %s with effects %d, wanted %s with %d", lw_sup_state_name[state],
                 lw_sup_event_name[e], lw_sup_state_name[w->state], effects_of(w),
                 lw_sup_state_name[next], x->effects);
    assert_int_equal(w->pid, x->effects & SPAWNED ? PID + 1 : lives(next) ? PID : 0);
    /* a worker whose process has ended or was replaced must not count as ready */
    if (!lives(next) || x->effects & SPAWNED) assert_false(atomic_load(&board->workers[0].ready));
    if (x->effects & SPAWNED) assert_false(atomic_load(&board->workers[0].seats[3].busy));
}

static void test_every_cell(void **state) {
    for (int s = 0; s < LW_SUP_STATES; s++)
        for (int e = 0; e < LW_SUP_EVENTS; e++) {
            open_sup(state);
            check_cell((enum lw_sup_state)s, (enum lw_sup_event)e);
            close_sup(state);
        }
}

static void test_backoff_doubles_to_its_bound_and_resets(void **state) {
    (void)state;
    static const int64_t want[] = {200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    struct lw_sup_worker *w = &sup->workers[0];
    lw_sup_step(sup, w, LW_SUP_START);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        lw_sup_step(sup, w, LW_SUP_CRASHED);
        assert_int_equal(w->deadline_ms - fake_now, want[i]);
        fake_now = w->deadline_ms;
        lw_sup_step(sup, w, LW_SUP_TIMER);
        fake_now += 29999; /* 1 ms less than is needed to reset the backoff */
    }
    fake_now += 1;
    lw_sup_step(sup, w, LW_SUP_EXIT_FAILED);
    assert_int_equal(w->deadline_ms - fake_now, 200);
}

static pid_t no_spawn(struct lw_sup *s, struct lw_sup_worker *w) {
    (void)s, (void)w;
    errno = EAGAIN;
    return -1;
}

static void test_fork_that_fails_is_tried_again(void **state) {
    (void)state;
    sup->spawn = no_spawn;
    lw_sup_step(sup, &sup->workers[0], LW_SUP_START);
    assert_int_equal(sup->workers[0].state, LW_SUP_WAITING);
    sup->spawn = spawn_stand_in;
    lw_sup_step(sup, &sup->workers[0], LW_SUP_TIMER);
    assert_int_equal(sup->workers[0].state, LW_SUP_RUNNING);
}

/* Returns what wait(2) reports for a process that has ended with this exit status. */
static int exit_of(int status) { return status << 8; }

static void test_ends_are_told_apart(void **state) {
    (void)state;
    struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
    static const int crash[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP},
                     kill_[] = {SIGKILL, SIGTERM, SIGHUP, SIGINT, SIGXCPU};
    for (size_t i = 0; i < sizeof crash / sizeof *crash; i++)
        assert_int_equal(lw_sup_classify(sup, w, crash[i]), LW_SUP_CRASHED);
    for (size_t i = 0; i < sizeof kill_ / sizeof *kill_; i++)
        assert_int_equal(lw_sup_classify(sup, w, kill_[i]), LW_SUP_KILLED);
    static const int statuses[] = {0, 1, LW_EXIT_REFUSED, 255};
    /* if a process exits without the flag `returned`, a handler has called exit() */
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(lw_sup_classify(sup, w, exit_of(statuses[i])), LW_SUP_CRASHED);
    assert_non_null(strstr(w->why, "exited unasked with status 255"));
    atomic_store(&board->workers[0].returned, true);
    assert_int_equal(lw_sup_classify(sup, w, exit_of(0)), LW_SUP_EXIT_CLEAN);
    assert_int_equal(lw_sup_classify(sup, w, exit_of(1)), LW_SUP_EXIT_FAILED);
    assert_int_equal(lw_sup_classify(sup, w, exit_of(LW_EXIT_REFUSED)), LW_SUP_REFUSED);
    w->hung = true;
    assert_int_equal(lw_sup_classify(sup, w, SIGKILL), LW_SUP_CRASHED);
    w->hung = false, w->state = LW_SUP_STOPPING;
    /* SIGTERM may end a worker that has not installed its signal handlers yet. This must count as a
     * clean exit. */
    assert_int_equal(lw_sup_classify(sup, w, SIGTERM), LW_SUP_EXIT_CLEAN);
    assert_int_equal(lw_sup_classify(sup, w, SIGKILL), LW_SUP_KILLED);
}

static void test_killed_for_a_late_roll_starts_at_once(void **state) {
    (void)state;
    struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
    lw_sup_step(sup, w, LW_SUP_RELOAD);
    lw_sup_step(sup, w, LW_SUP_TIMER);
    assert_int_equal(last_signal, SIGKILL);
    lw_sup_step(sup, w, lw_sup_classify(sup, w, SIGKILL));
    assert_int_equal(w->state, LW_SUP_RUNNING);
    assert_true(lw_board_is_suspect(board, "t/0/1"));
}

/* The backoff grows only if a death makes no message a suspect that was none before. */
static void test_backoff_of_deaths_with_suspects(void **state) {
    (void)state;
    static const struct {
        const char *identity;
        int64_t wait_ms;
    } deaths[] = {{"t/0/1", 200}, {"t/0/2", 200}, {"t/0/2", 200}, {"t/0/2", 400}, {"t/0/3", 200}};
    for (size_t i = 0; i < sizeof deaths / sizeof *deaths; i++) {
        struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
        lw_seat_take(&board->workers[0].seats[3], deaths[i].identity, lw_bytes_of("k"), 1);
        lw_sup_step(sup, w, LW_SUP_CRASHED);
        assert_int_equal(w->deadline_ms, NOW + deaths[i].wait_ms);
    }
}

static void test_killed_after_a_second_signal_is_no_failure(void **state) {
    (void)state;
    struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
    lw_sup_step(sup, w, LW_SUP_STOP);
    atomic_store(&board->quick, true);
    lw_sup_step(sup, w, LW_SUP_STOP);
    lw_sup_step(sup, w, LW_SUP_TIMER);
    lw_sup_step(sup, w, lw_sup_classify(sup, w, SIGKILL));
    assert_int_equal(w->state, LW_SUP_GONE);
    assert_false(sup->failed);
}

/* Makes the supervisor stop a worker, writes `fenced` to the board as the worker would, and then
 * reports the event `end` of this worker to the supervisor. Returns true if the supervisor counts
 * this end as a failure. */
static bool fails_after(void **state, enum lw_fenced fenced, enum lw_sup_event end) {
    open_sup(state);
    struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
    atomic_store(&board->quick, false);
    lw_sup_step(sup, w, LW_SUP_STOP);
    atomic_store(&board->workers[0].fenced, fenced);
    lw_sup_step(sup, w, end);
    assert_int_equal(w->state, LW_SUP_GONE);
    assert_int_equal(w->pid, 0);
    assert_true(lw_board_is_suspect(board, "t/0/1"));
    bool failed = sup->failed;
    close_sup(state);
    return failed;
}

/* While a worker stops, another member joins under its id, so the worker is fenced. The supervisor
 * must not count the end of this worker as a failure, unless the worker crashes. */
static void test_fenced_while_it_stops_is_no_failure(void **state) {
    static const enum lw_sup_event ends[] = {LW_SUP_EXIT_FAILED, LW_SUP_KILLED};
    for (size_t i = 0; i < 2; i++) {
        assert_false(fails_after(state, LW_FENCED_NOW, ends[i]));
        /* the value LW_FENCED_BEFORE says that only an earlier process of the worker was fenced */
        assert_true(fails_after(state, LW_FENCED_BEFORE, ends[i]));
        assert_true(fails_after(state, LW_FENCED_NO, ends[i]));
    }
    assert_true(fails_after(state, LW_FENCED_NOW, LW_SUP_CRASHED));
}

/* Returns the number of ticks until the worker counts as hung, or -1 if 1,000 ticks are not
 * enough. */
static int ticks_until_hung(struct lw_sup_worker *w, bool beats) {
    for (int i = 1; i <= 1000; i++) {
        if (beats) atomic_fetch_add(&board->workers[0].heartbeat_ms, 1);
        if (lw_sup_stands_still(sup, w)) return i;
    }
    return -1;
}

static void test_hung_main_loop(void **state) {
    (void)state;
    struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
    lw_seat_leave(&board->workers[0].seats[3]);
    /* a worker that has sent no heartbeat yet is still connecting, and is not hung */
    assert_int_equal(ticks_until_hung(w, false), -1);
    assert_int_equal(ticks_until_hung(w, true), -1);
    assert_int_equal(ticks_until_hung(w, false), 91); /* the limit is 90.7 s, and a tick is 1 s */
    assert_non_null(strstr(w->why, "main loop"));
    /* a worker that is stopping is judged by its deadline, not by its heartbeat */
    w->state = LW_SUP_STOPPING;
    assert_int_equal(ticks_until_hung(w, false), -1);
}

static void test_hung_handler(void **state) {
    (void)state;
    struct lw_sup_worker *w = put_in(LW_SUP_RUNNING);
    struct lw_seat *seat = &board->workers[0].seats[3];
    for (int i = 0; i < 100; i++) { /* short jobs follow one another, so nothing hangs */
        lw_seat_take(seat, "t/0/1", lw_bytes_of("k"), i);
        assert_false(lw_sup_stands_still(sup, w));
    }
    /* A handler with a timeout of 1 s counts as hung after 7 s: twice its timeout, plus 5 s. The
     * supervisor notices this one tick later. */
    assert_int_equal(ticks_until_hung(w, true), 8);
    assert_non_null(strstr(w->why, "handler that hung"));
    lw_sup_step(sup, w, LW_SUP_HUNG);
    last_signal = 0;
    lw_sup_step(sup, w, LW_SUP_HUNG); /* a hung worker is killed only once */
    assert_int_equal(last_signal, 0);
    lw_sup_step(sup, w, lw_sup_classify(sup, w, SIGKILL));
    assert_true(lw_board_is_suspect(board, "t/0/1"));
    put_in(LW_SUP_RUNNING);
    config.handler.timeout_ms = 0; /* without a timeout, a handler may run forever */
    int without = ticks_until_hung(w, true);
    config.handler.timeout_ms = 1000, options.runs_in_worker = false;
    int elsewhere = ticks_until_hung(w, true);
    options.runs_in_worker = true;
    assert_int_equal(without, -1);
    assert_int_equal(elsewhere, -1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_sup, close_sup)
static void printed_summary(const struct lw_sup_report *r, int64_t now_ms, char *out, size_t size) {
    int file = memfd_create("out", 0), was = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    lw_sup_report_summary(r, sup, now_ms);
    dup2(was, STDOUT_FILENO);
    ssize_t n = pread(file, out, size - 1, 0);
    out[n > 0 ? n : 0] = 0;
    close(file), close(was);
}

/* The workers wait ten seconds for the end of a quarantine, and then finish 500 messages in one
 * second. The summary must report a rate of 500 per second. */
static void test_rate_leaves_the_quarantine_out(void **state) {
    (void)state;
    static struct lw_supervise_options drain = {.drain = true};
    sup->o = &drain;
    struct lw_sup_report r;
    lw_sup_report_init(&r, 1000);
    for (int64_t at = 2000; at <= 11000; at += 1000) lw_sup_report_tick(&r, sup, at);
    atomic_fetch_add(&board->workers[0].counts.done, 500);
    lw_sup_report_tick(&r, sup, 11500);
    char text[512];
    printed_summary(&r, 12000, text, sizeof text);
    assert_non_null(strstr(text, "done 500 "));
    assert_non_null(strstr(text, "in 11.0 s  (500 msg/s)"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cell),
        T(test_backoff_doubles_to_its_bound_and_resets),
        T(test_fork_that_fails_is_tried_again),
        T(test_ends_are_told_apart),
        T(test_killed_for_a_late_roll_starts_at_once),
        T(test_backoff_of_deaths_with_suspects),
        T(test_killed_after_a_second_signal_is_no_failure),
        cmocka_unit_test(test_fenced_while_it_stops_is_no_failure),
        T(test_hung_main_loop),
        T(test_hung_handler),
        T(test_rate_leaves_the_quarantine_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
