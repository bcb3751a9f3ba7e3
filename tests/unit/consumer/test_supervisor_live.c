/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the supervisor with real processes: workers that crash, exit, hang and are killed;
 * signals, reload and drain. */
#include "consumer/fleet/supervisor.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* --- real processes --------------------------------------------------------------------------- */

enum { PATIENCE_MS = 20000, WORKERS = 3 };

/* The shared memory in which the test, the supervisor and the workers report to each other. */
struct shared {
    atomic_int starts[WORKERS], terms, said[WORKERS], max_away, away, quick_seen, go, reloads,
        wanted;
    _Atomic int32_t pids[WORKERS];
    char names[WORKERS][32]; /* config.name, as the last process of each worker saw it */
};
static struct shared *shared;
static struct lw_board *in_worker;
static volatile sig_atomic_t got_term;
static void on_term(int sig) { (void)sig, got_term++; }

static void listen_for_term(void) {
    struct sigaction sa = {.sa_handler = on_term};
    sigaction(SIGTERM, &sa, NULL);
}

/* Behaves as a healthy worker: reports that it is ready, sends heartbeats, and ends on SIGTERM. */
static int live_until_term(struct lw_board *b, int i) {
    atomic_store(&b->workers[i].ready, true);
    while (!got_term) {
        atomic_store(&b->workers[i].heartbeat_ms, lw_boot_ms());
        lw_sleep_ms(5);
    }
    atomic_fetch_add(&shared->terms, 1);
    return LW_EXIT_OK;
}

static int begin(const struct lw_config *c, struct lw_board *b, int i) {
    in_worker = b;
    listen_for_term();
    atomic_store(&shared->pids[i], getpid());
    snprintf(shared->names[i], sizeof shared->names[i], "%s", c->name);
    return atomic_fetch_add(&shared->starts[i], 1) + 1;
}

static int good_worker(const struct lw_config *c, struct lw_board *b, int i) {
    begin(c, b, i);
    return live_until_term(b, i);
}

/* The first process of worker 0 has a message and dies by calling `death`, or ends with
 * LW_EXIT_FAILED if `death` is NULL. The second process reports what the board says about the
 * message. */
static void (*death)(void);
static int dying_worker(const struct lw_config *c, struct lw_board *b, int i) {
    if (begin(c, b, i) == 1 && i == 0) {
        atomic_fetch_add(&b->workers[i].counts.done, 5);
        lw_seat_take(&b->workers[i].seats[0], "t/0/1", lw_bytes_of("k"), lw_boot_ms());
        if (!death) return LW_EXIT_FAILED;
        death();
        for (;;) lw_sleep_ms(1000);
    }
    if (i == 0) {
        atomic_fetch_add(&b->workers[i].counts.done, 2);
        atomic_store(&shared->said[0], 1 + (int)lw_board_is_suspect(b, "t/0/1"));
    }
    return live_until_term(b, i);
}
static void die_of(int sig) {
    signal(sig, SIG_DFL); /* a sanitizer may have set a handler of its own for this signal */
    raise(sig);
}
static void by_segv(void) { die_of(SIGSEGV); }
static void by_abort(void) { die_of(SIGABRT); }
static void by_kill(void) { die_of(SIGKILL); }
static void by_exit(void) { exit(0); }
static void by_hanging(void) {
    atomic_store(&in_worker->workers[0].heartbeat_ms, 1);
    for (;;) lw_sleep_ms(1000);
}

static int refusing_worker(const struct lw_config *c, struct lw_board *b, int i) {
    begin(c, b, i);
    return i == 1 ? LW_EXIT_REFUSED : live_until_term(b, i);
}

/* Behaves as a worker that counts each SIGTERM and does not end. */
static int stubborn_worker(const struct lw_config *c, struct lw_board *b, int i) {
    begin(c, b, i);
    atomic_store(&b->workers[i].ready, true);
    for (int seen = 0;; lw_sleep_ms(2)) {
        if (got_term > seen) seen++, atomic_fetch_add(&shared->terms, 1);
        if (atomic_load(&b->quick)) atomic_store(&shared->quick_seen, 1);
    }
    return 0; /* the loop above never ends */
}

static struct lw_config live_config = {.name = (char *)"old",
                                       .workers = WORKERS,
                                       .shutdown.grace_ms = 60000,
                                       .log.level = LW_LOG_WARN};
static struct lw_supervise_options live;

static struct {
    pid_t pid;
    int out, log;
} child;

static int open_live(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    live_config.workers = WORKERS;
    live_config.shutdown.grace_ms = 60000;
    live = (struct lw_supervise_options){
        .worker_main = good_worker,
        .runs_in_worker = true,
        .times = {.backoff_ms = 10, .backoff_max_ms = 20, .tick_ms = 10, .quick_ms = 10}};
    death = by_segv;
    return shared == MAP_FAILED ? -1 : 0;
}

static int close_live(void **state) {
    (void)state;
    if (child.pid > 0) kill(child.pid, SIGKILL), waitpid(child.pid, NULL, 0);
    child.pid = 0;
    close(child.out), close(child.log);
    munmap(shared, sizeof *shared);
    return 0;
}

static void launch(void) {
    child.out = memfd_create("out", 0), child.log = memfd_create("log", 0);
    fflush(NULL);
    child.pid = fork();
    assert_int_not_equal(child.pid, -1);
    if (child.pid != 0) return;
    dup2(child.out, STDOUT_FILENO), dup2(child.log, STDERR_FILENO);
    lw_log_setup(LW_LOG_INFO, false, "supervisor");
    _exit(lw_supervise(&live_config, &live));
}

static bool says(int fd, const char *text) {
    static char all[1 << 20];
    ssize_t n = pread(fd, all, sizeof all - 1, 0);
    all[n > 0 ? n : 0] = 0;
    return strstr(all, text) != NULL;
}

static void wait_until(atomic_int *what, int at_least) {
    for (int64_t until = lw_boot_ms() + PATIENCE_MS; atomic_load(what) < at_least; lw_sleep_ms(2))
        if (lw_boot_ms() > until) fail_msg("still %d, waiting for %d", atomic_load(what), at_least);
}

static void wait_for_starts(int each) {
    for (int i = 0; i < live_config.workers; i++) wait_until(&shared->starts[i], each);
}

static int end_status(void) {
    int status;
    for (int64_t until = lw_boot_ms() + PATIENCE_MS;
         waitpid(child.pid, &status, WNOHANG) != child.pid; lw_sleep_ms(2))
        if (lw_boot_ms() > until) fail_msg("the supervisor does not end");
    child.pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_stops_when_asked(void **state) {
    (void)state;
    static const int sigs[] = {SIGTERM, SIGINT};
    for (int k = 0; k < 2; k++) {
        atomic_store(&shared->terms, 0);
        launch();
        wait_for_starts(k + 1);
        kill(child.pid, sigs[k]);
        assert_int_equal(end_status(), 0);
        assert_int_equal(shared->terms, WORKERS);
    }
}

/* Runs dying_worker(). Returns what the worker's second process read on the board about the
 * message. */
static bool suspected_after_death(void) {
    live.worker_main = dying_worker;
    launch();
    wait_until(&shared->said[0], 1);
    wait_for_starts(1);
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 0);
    assert_true(says(child.log, "started again in 0 ms"));
    /* the log must show the sum of what both processes of the worker counted */
    assert_true(says(child.log, "done 7 dead 0"));
    for (int i = 1; i < WORKERS; i++) assert_int_equal(shared->starts[i], 1);
    return atomic_load(&shared->said[0]) - 1;
}

static void test_crash_makes_a_suspect(void **state) {
    (void)state;
    assert_true(suspected_after_death());
    assert_true(says(child.log, "died of signal 11 (Segmentation fault)"));
}
static void test_abort_makes_a_suspect(void **state) {
    (void)state;
    death = by_abort;
    assert_true(suspected_after_death());
}
static void test_exit_in_a_handler_makes_a_suspect(void **state) {
    (void)state;
    death = by_exit;
    assert_true(suspected_after_death());
    assert_true(says(child.log, "exited unasked with status 0"));
}
static void test_kill_makes_a_suspect(void **state) {
    (void)state;
    death = by_kill;
    assert_true(suspected_after_death());
}
static void test_own_failure_makes_a_suspect(void **state) {
    (void)state;
    death = NULL;
    assert_true(suspected_after_death());
}
static void test_hang_makes_a_suspect(void **state) {
    (void)state;
    death = by_hanging;
    live.times.heartbeat_ms = 1000;
    assert_true(suspected_after_death());
    assert_true(says(child.log, "main loop stood still"));
}
/* The worker did messages before it died, so its restart must not wait for the backoff, which is
 * longer here than this test. */
static void test_restart_after_progress_waits_no_backoff(void **state) {
    (void)state;
    live.times.backoff_ms = live.times.backoff_max_ms = INT64_C(10) * PATIENCE_MS;
    assert_true(suspected_after_death());
}
static void test_handlers_elsewhere_make_no_suspects(void **state) {
    (void)state;
    live.runs_in_worker = false;
    assert_false(suspected_after_death());
}

static void test_refusal_ends_the_run(void **state) {
    (void)state;
    live.worker_main = refusing_worker;
    launch();
    /* 78 is EX_CONFIG of sysexits.h, after which the systemd unit does not restart the program */
    assert_int_equal(end_status(), 78);
    assert_int_equal(shared->starts[1], 1);
    assert_true(says(child.log, "worker 1 refused"));
}

static void test_stubborn_worker_is_killed(void **state) {
    (void)state;
    live.worker_main = stubborn_worker;
    live_config.shutdown.grace_ms = 1;
    live.times.margin_ms = 300;
    launch();
    wait_for_starts(1);
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 1);
    assert_true(says(child.log, "did not end in time"));
}

static void test_second_signal_ends_at_once(void **state) {
    (void)state;
    live.worker_main = stubborn_worker;
    live.times.quick_ms = 500;
    launch();
    wait_for_starts(1);
    kill(child.pid, SIGTERM);
    wait_until(&shared->terms, WORKERS);
    kill(child.pid, SIGINT);
    /* shutdown.grace_ms is a minute, so only the second signal can have ended the workers */
    assert_int_equal(end_status(), 0);
    assert_int_equal(shared->quick_seen, 1);
}

static void test_workers_end_with_the_supervisor(void **state) {
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    live.worker_main = stubborn_worker;
    launch();
    wait_for_starts(1);
    kill(child.pid, SIGKILL);
    assert_int_equal(end_status(), 1000 + SIGKILL);
    int64_t until = lw_boot_ms() + PATIENCE_MS;
    for (int gone = 0; gone < WORKERS; lw_sleep_ms(2)) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) assert_int_equal(WTERMSIG(status), SIGKILL);
        gone += pid > 0;
        if (lw_boot_ms() > until) fail_msg("workers outlive their supervisor");
    }
}

/* --- reload ----------------------------------------------------------------------------------- */

static int rolled_worker(const struct lw_config *c, struct lw_board *b, int i) {
    bool again = begin(c, b, i) > 1;
    /* The second process of a worker takes 20 ms to become ready. Until then the supervisor must
     * not restart the next worker. */
    if (again) lw_sleep_ms(20);
    if (again) atomic_fetch_sub(&shared->away, 1);
    int status = live_until_term(b, i);
    int away = atomic_fetch_add(&shared->away, 1) + 1;
    if (away > atomic_load(&shared->max_away)) atomic_store(&shared->max_away, away);
    return status;
}
static struct lw_config new_config;
static struct lw_config *reload_new(void *ctx) {
    (void)ctx;
    new_config = live_config;
    new_config.name = (char *)"new";
    if (atomic_load(&shared->wanted)) new_config.workers = atomic_load(&shared->wanted);
    atomic_fetch_add(&shared->reloads, 1);
    return &new_config;
}
static struct lw_config *reload_bad(void *ctx) {
    (void)ctx;
    atomic_fetch_add(&shared->reloads, 1);
    return NULL;
}

static void wait_for_log(const char *text) {
    for (int64_t until = lw_boot_ms() + PATIENCE_MS; !says(child.log, text); lw_sleep_ms(5))
        if (lw_boot_ms() > until) fail_msg("the log never says: %s", text);
}

static void test_reload_rolls_one_at_a_time(void **state) {
    (void)state;
    live.worker_main = rolled_worker;
    live.reload = reload_new;
    live_config.log.level = LW_LOG_INFO;
    launch();
    wait_for_starts(1);
    kill(child.pid, SIGHUP);
    wait_for_log("reload: done");
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(shared->starts[i], 2);
        assert_string_equal(shared->names[i], "new");
    }
    assert_int_equal(shared->max_away, 1);
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 0);
}

/* Behaves as a worker that records why the supervisor ends it (enum lw_ending). The reason decides
 * whether the worker keeps its place in the group. */
static int ending_worker(const struct lw_config *c, struct lw_board *b, int i) {
    begin(c, b, i);
    int status = live_until_term(b, i);
    atomic_store(&shared->said[i], 1 + atomic_load(&b->workers[i].ending));
    return status;
}

static void reload_to(int workers) {
    atomic_store(&shared->wanted, workers);
    int before = atomic_load(&shared->reloads);
    kill(child.pid, SIGHUP);
    wait_until(&shared->reloads, before + 1);
}

/* A reload adds and removes workers. A removed worker must give up its place in the group, and a
 * worker that is only restarted must keep it. */
static void test_reload_changes_the_number_of_workers(void **state) {
    (void)state;
    live.worker_main = ending_worker;
    live.reload = reload_new;
    live_config.workers = 2;
    live_config.log.level = LW_LOG_INFO;
    launch();
    wait_for_starts(1);
    reload_to(3);
    wait_for_log("reload: done; 3 workers");
    for (int i = 0; i < 3; i++) assert_int_equal(shared->starts[i], i < 2 ? 2 : 1);
    for (int i = 0; i < 2; i++) assert_int_equal(shared->said[i], 1 + LW_END_REPLACED);
    reload_to(1);
    wait_for_log("reload: done; 1 workers");
    for (int i = 1; i < 3; i++) {
        wait_until(&shared->said[i], 1);
        for (int64_t until = lw_boot_ms() + PATIENCE_MS; !kill(shared->pids[i], 0); lw_sleep_ms(2))
            if (lw_boot_ms() > until) fail_msg("worker %d does not end", i);
        assert_int_equal(shared->said[i], 1 + LW_END_LEAVES);
    }
    reload_to(3);
    wait_until(&shared->starts[2], 2);
    wait_until(&shared->starts[1], 3);
    for (int i = 0; i < 3; i++) atomic_store(&shared->said[i], 0);
    lw_sleep_ms(50);
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(shared->said[i], 1 + LW_END_STOPPED);
}

static void test_reload_with_errors_changes_nothing(void **state) {
    (void)state;
    live.reload = reload_bad;
    launch();
    wait_for_starts(1);
    kill(child.pid, SIGHUP);
    wait_until(&shared->reloads, 1);
    wait_for_log("the old one stays");
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(shared->starts[i], 1);
}

/* --- drain ------------------------------------------------------------------------------------ */

static int two_ends(const struct lw_config *c, int64_t timeout_ms,
                    void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                    void *fn_ctx, struct lw_err *err) {
    (void)c, (void)timeout_ms, (void)err;
    fn(fn_ctx, "t", 0, 10);
    fn(fn_ctx, "t", 1, 0);
    fn(fn_ctx, "u", 0, 5);
    return 0;
}
static int no_ends(const struct lw_config *c, int64_t timeout_ms,
                   void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                   void *fn_ctx, struct lw_err *err) {
    (void)c, (void)timeout_ms, (void)fn, (void)fn_ctx;
    return lw_fail(err, "no broker answers");
}
static int draining_worker(const struct lw_config *c, struct lw_board *b, int i) {
    begin(c, b, i);
    if (i == 0)
        atomic_fetch_add(&b->workers[0].counts.done, 9),
            atomic_fetch_add(&b->workers[0].counts.dead, 1);
    if (i == 1) atomic_fetch_add(&b->workers[1].counts.done, 5);
    if (i == 0) lw_board_committed(b, "t", 0, 10);
    while (!atomic_load(&shared->go) && !got_term) lw_sleep_ms(2);
    if (i == 1) lw_board_committed(b, "u", 0, 5);
    return live_until_term(b, i);
}

static void launch_drain_with(int (*worker)(const struct lw_config *c, struct lw_board *b, int i),
                              bool json) {
    live.worker_main = worker;
    live.drain = true;
    live.json = json;
    live.ends = two_ends;
    launch();
}

static void launch_drain(bool json) { launch_drain_with(draining_worker, json); }

static void test_drain_ends_with_a_summary(void **state) {
    (void)state;
    for (int json = 0; json < 2; json++) {
        atomic_store(&shared->go, 0);
        launch_drain(json);
        wait_for_starts(1 + json);
        lw_sleep_ms(50);
        /* the drain goes on, because one partition is not committed up to its end yet */
        assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0);
        atomic_store(&shared->go, 1);
        assert_int_equal(end_status(), 0);
        assert_true(
            says(child.out,
                 json ? "{\"done\":14,\"dead\":1,\"dropped\":0,"
                      : "done 14 dead 1 dropped 0 skipped 0 parked 0 drained 0 retried 0  in "));
    }
}

/* Stands in for the process that reads the group's commits. The first such process dies, so the
 * supervisor must start another. */
static int follow_group(const struct lw_config *c, struct lw_board *b) {
    (void)c;
    if (atomic_fetch_add(&shared->reloads, 1) == 0) return 1;
    lw_board_committed(b, "t", 0, 10);
    while (!atomic_load(&shared->go)) lw_sleep_ms(2);
    lw_board_committed(b, "u", 0, 5);
    for (;;) lw_sleep_ms(1000);
    return 0; /* the loop above never ends */
}

/* All partitions belong to the workers of another supervisor in the same group, so the workers of
 * the tested supervisor commit nothing. */
static void test_drain_ends_by_what_the_group_commits(void **state) {
    (void)state;
    live.follow = follow_group;
    launch_drain_with(good_worker, false);
    wait_for_starts(1);
    wait_until(&shared->reloads, 2);
    lw_sleep_ms(50);
    assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0);
    atomic_store(&shared->go, 1);
    assert_int_equal(end_status(), 0);
    assert_true(says(child.log, "reads the group's commits ended; restarting it"));
}

static void test_drain_that_is_stopped_fails(void **state) {
    (void)state;
    launch_drain(false);
    wait_for_starts(1);
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 1);
}

static void test_drain_without_ends_fails(void **state) {
    (void)state;
    live.drain = true;
    live.ends = no_ends;
    launch();
    assert_int_equal(end_status(), 1);
    assert_true(says(child.log, "no broker answers"));
    assert_int_equal(shared->starts[0], 0);
}

static int ends_that_hang(const struct lw_config *c, int64_t timeout_ms,
                          void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                          void *fn_ctx, struct lw_err *err) {
    (void)c, (void)timeout_ms, (void)fn, (void)fn_ctx, (void)err;
    atomic_store(&shared->go, 1);
    for (;;) lw_sleep_ms(1000);
    return 0; /* the loop above never ends */
}

static void test_drain_whose_ends_hang(void **state) {
    (void)state;
    live.drain = true;
    live.ends = ends_that_hang;
    launch();
    wait_until(&shared->go, 1);
    kill(child.pid, SIGTERM);
    assert_int_equal(end_status(), 1);
    close(child.out), close(child.log);
    live.times.ends_ms = 10, live.times.margin_ms = 10;
    launch();
    assert_int_equal(end_status(), 1);
    assert_true(says(child.log, "did not come within"));
}

static int one_paused(void *ctx, struct lw_buf *names) {
    (void)ctx;
    lw_buf_addf(names, "c-17");
    return 1;
}

static void test_drain_names_paused_lanes(void **state) {
    (void)state;
    live.paused = one_paused;
    live.times.stuck_ms = 50;
    launch_drain(false);
    assert_int_equal(end_status(), 1);
    assert_true(says(child.log, "only paused lanes are left (1): c-17"));
}

#define L(f) cmocka_unit_test_setup_teardown(f, open_live, close_live)
int main(void) {
    const struct CMUnitTest tests[] = {
        L(test_stops_when_asked),
        L(test_crash_makes_a_suspect),
        L(test_abort_makes_a_suspect),
        L(test_exit_in_a_handler_makes_a_suspect),
        L(test_kill_makes_a_suspect),
        L(test_own_failure_makes_a_suspect),
        L(test_hang_makes_a_suspect),
        L(test_restart_after_progress_waits_no_backoff),
        L(test_handlers_elsewhere_make_no_suspects),
        L(test_refusal_ends_the_run),
        L(test_stubborn_worker_is_killed),
        L(test_second_signal_ends_at_once),
        L(test_workers_end_with_the_supervisor),
        L(test_reload_rolls_one_at_a_time),
        L(test_reload_changes_the_number_of_workers),
        L(test_reload_with_errors_changes_nothing),
        L(test_drain_ends_with_a_summary),
        L(test_drain_ends_by_what_the_group_commits),
        L(test_drain_that_is_stopped_fails),
        L(test_drain_without_ends_fails),
        L(test_drain_whose_ends_hang),
        L(test_drain_names_paused_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
