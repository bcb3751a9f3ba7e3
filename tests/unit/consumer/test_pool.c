/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the pool with handlers that are part of the test: order, stealing, batches, seats, leases,
 * the journal, closing with a stuck thread, and speed. */
#include "tests/support/pool_fixture.h"

#include "consumer/process/journal.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- tests ------------------------------------------------------------------------------------ */

static void test_all_run_once(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 4, 1, NULL);
    enum { N = 50000, BURST = 64 };
    struct many m = make_many(N, "go");
    for (size_t from = 0; from < N; from += BURST) {
        size_t n = N - from < BURST ? N - from : BURST;
        lw_pool_submit(x.p, m.jobs + from, n);
        if (from % (BURST * 7) == 0) lw_sleep_ms(from % 3 ? 0 : 1);
    }
    reap(&x, m.out, N);
    char *seen = lw_alloc(N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(m.out[i]->outcome, LW_DONE);
        assert_int_equal(m.out[i]->give_up_ms == INT64_MAX, 1);
        assert_int_equal(seen[m.out[i]->offset]++, 0);
    }
    assert_int_equal(x.h.runs, N);
    assert_int_equal(lw_pool_reap(x.p, m.out, 1), 0);
    free(seen);
    free_many(&m);
    close_fx(&x);
}

static void test_one_thread_keeps_the_order(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 1, 1, NULL);
    struct many m = make_many(1000, "go");
    for (size_t i = 0; i < 1000; i += 50) lw_pool_submit(x.p, m.jobs + i, 50);
    reap(&x, m.out, 1000);
    for (size_t i = 0; i < 1000; i++) assert_int_equal(m.out[i]->offset, i);
    free_many(&m);
    close_fx(&x);
}

/* If a handler is fast, a thread takes several jobs at once. If the first of these jobs then
 * blocks, the jobs behind it must still run. */
static void test_blocked_job_delays_nobody(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 3, 1, NULL);
    struct many m = make_many(2000, "go"), more = make_many(64, "go");
    lw_pool_submit(x.p, m.jobs, 2000);
    reap(&x, m.out, 2000);
    for (int round = 0; round < 30; round++) {
        x.h.gate = false;
        /* the job that blocks is the first, second or third that the test submits */
        int at = round % 3;
        for (int i = 0; i < 64; i++) fx_job(&more.j[i], i, "k", i == at ? "wait" : "go");
        lw_pool_submit(x.p, more.jobs, 64);
        reap(&x, more.out, 63); /* reaps all jobs except the blocked one */
        for (int i = 0; i < 63; i++) assert_int_not_equal(more.out[i]->offset, at);
        x.h.gate = true;
        reap(&x, more.out, 1);
        assert_int_equal(more.out[0]->offset, at);
    }
    free_many(&m);
    free_many(&more);
    close_fx(&x);
}

static void test_slow_jobs_use_all_threads(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 8, 1, NULL);
    struct many m = make_many(8, "wait");
    lw_pool_submit(x.p, m.jobs, 8);
    wait_for(x.h.waiting == 8);
    x.h.gate = true;
    reap(&x, m.out, 8);
    free_many(&m);
    close_fx(&x);
}

static void test_batches(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 2, 16, NULL);
    struct many w = make_many(2, "wait"), m = make_many(100, "go");
    lw_pool_submit(x.p, w.jobs, 1);
    wait_for(x.h.waiting == 1);
    lw_pool_submit(x.p, w.jobs + 1, 1);
    wait_for(x.h.waiting == 2); /* both threads are busy, so further jobs stay in the queue */
    lw_pool_submit(x.p, m.jobs, 100);
    x.h.gate = true;
    struct lw_job *out[102];
    reap(&x, out, 102);
    assert_int_equal(x.h.biggest, 16);
    assert_int_equal(x.h.runs, 2 + 7);
    free_many(&w);
    free_many(&m);
    close_fx(&x);
}

static void test_ended_leases_do_not_run(void **state) {
    (void)state;
    for (size_t batch = 1; batch <= 8; batch += 7) {
        struct fx x;
        open_fx(&x, &type, 2, batch, NULL);
        struct many m = make_many(6, "go");
        m.jobs[1]->lease->cancelled = true;
        m.jobs[4]->lease->deadline_ms = lw_boot_ms() - 1;
        lw_pool_submit(x.p, m.jobs, 6);
        reap(&x, m.out, 6);
        for (int i = 0; i < 6; i++)
            assert_int_equal(m.jobs[i]->outcome, i == 1 || i == 4 ? LW_BACK : LW_DONE);
        free_many(&m);
        close_fx(&x);
    }
}

static void test_timeout_is_set_at_the_start(void **state) {
    (void)state;
    struct fx x = {.h = {.batch_max = 1}, .fd = eventfd(0, EFD_NONBLOCK)};
    x.p = lw_pool_open(&type, &x.h, 1, 5000, NULL, x.fd, NULL);
    struct many m = make_many(1, "go");
    int64_t before = lw_boot_ms();
    lw_pool_submit(x.p, m.jobs, 1);
    reap(&x, m.out, 1);
    assert_true(m.jobs[0]->give_up_ms >= before + 5000 &&
                m.jobs[0]->give_up_ms <= lw_boot_ms() + 5000);
    free_many(&m);
    close_fx(&x);
}

static void test_seats(void **state) {
    (void)state;
    struct lw_board_worker *board = lw_alloc(sizeof *board);
    for (size_t batch = 1; batch <= 32; batch += 31) {
        struct fx x;
        open_fx(&x, &type, 60 / (int)batch, batch, board);
        struct many m = make_many(40, "seat");
        m.jobs[7]->suspect = true;
        lw_pool_submit(x.p, m.jobs, 40);
        reap(&x, m.out, 40);
        for (int i = 0; i < 40; i++) {
            assert_true(x.h.seen_busy[i]); /* each job of a batch has its own seat */
            assert_int_equal(x.h.seen_suspect[i], i == 7);
        }
        for (int i = 0; i < LW_BOARD_SEATS; i++) assert_false(board->seats[i].busy);
        free_many(&m);
        close_fx(&x);
    }
    struct fx x;
    open_fx(&x, &blameless, 2, 1, board);
    struct many m = make_many(4, "seat");
    lw_pool_submit(x.p, m.jobs, 4);
    reap(&x, m.out, 4);
    /* Seats are filled even if the handler type never blames a message, because a seat shows which
     * message hangs. */
    for (int i = 0; i < 4; i++) assert_true(x.h.seen_busy[i]);
    free_many(&m);
    close_fx(&x);
    free(board);
}

static void test_journal(void **state) {
    (void)state;
    char *folder = fx_folder(), path[256];
    snprintf(path, sizeof path, "%s/journal", folder);
    setenv("LATCHWORK_JOURNAL", path, 1);
    struct fx x;
    open_fx(&x, &type, 1, 1, NULL);
    struct many m = make_many(3, "go");
    m.jobs[1]->payload = lw_bytes_of("retry");
    m.jobs[1]->key = lw_bytes("\x00\xff", 2);
    m.jobs[1]->attempt = 3;
    /* a job whose lease is cancelled must not run, and must have no line in the journal */
    m.jobs[2]->lease->cancelled = true;
    lw_pool_submit(x.p, m.jobs, 3);
    reap(&x, m.out, 3);
    close_fx(&x);
    char *text = fx_read(path), expected[200];
    long long at[4];
    int pid = getpid(), n = 0;
    snprintf(expected, sizeof expected,
             "start %%lld %d t/0/0 6b 1000 1\nend %%lld %d t/0/0 6b 1000 1 done\nstart %%lld %d "
             "t/0/1 00ff 1001 3\n"
             "end %%lld %d t/0/1 00ff 1001 3 retry\n%%n",
             pid, pid, pid, pid);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    assert_int_equal(sscanf(text, expected, &at[0], &at[1], &at[2], &at[3], &n), 4);
#pragma GCC diagnostic pop
    assert_int_equal(n, strlen(text));
    assert_true(at[0] <= at[1] && at[1] <= at[2] && at[2] <= at[3]);
    free(text);
    setenv("LATCHWORK_JOURNAL", "/no/such/folder/journal", 1);
    struct lw_err err = {0};
    assert_null(lw_pool_open(&type, &x.h, 1, 0, NULL, 0, &err));
    assert_contains(err.text, "LATCHWORK_JOURNAL: /no/such/folder/journal: No such file");
    unsetenv("LATCHWORK_JOURNAL");
    free_many(&m);
    fx_remove(folder);
}

static void test_slot_that_does_not_open(void **state) {
    (void)state;
    struct lw_handler h = {.batch_max = 1};
    struct lw_err err = {0};
    assert_null(lw_pool_open(&type, &h, 64, 0, NULL, 0, &err));
    assert_string_equal(err.text, "no slot 63");
    assert_int_equal(h.slots_open, 0);
}

static void test_close(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 1, 1, NULL);
    struct many m = make_many(3, "wait");
    lw_pool_submit(x.p, m.jobs, 3);
    wait_for(x.h.waiting == 1);
    /* fork() does not copy the pool's thread. So in the child, lw_pool_close() waits for a thread
     * that never reports its end, and must return false. */
    pid_t pid = fork();
    if (pid == 0) _exit(lw_pool_close(x.p, 50) ? 1 : 0);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    x.h.gate = true;
    /* The handler no longer blocks the first of the three jobs. Whether or not the second and the
     * third job have begun, lw_pool_close() must not hang, and must close the slot. */
    close_fx(&x);
    free_many(&m);
}

/* Submits 300,000 jobs that do nothing, in the same way as the worker submits jobs. Prints the
 * speed and asserts nothing about it. */
static void test_speed(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, &type, 4, 1, NULL);
    enum { N = 300000, BURST = 256 };
    struct many m = make_many(BURST, "go");
    struct rusage a, b;
    int64_t t = lw_boot_us();
    getrusage(RUSAGE_SELF, &a);
    for (int done = 0; done < N; done += BURST) {
        /* unlinks each job from its chain, because the same jobs are submitted again */
        for (int i = 0; i < BURST; i++) m.jobs[i]->then = NULL;
        lw_pool_submit(x.p, m.jobs, BURST);
        reap(&x, m.out, BURST);
    }
    getrusage(RUSAGE_SELF, &b);
    t = lw_boot_us() - t;
    int64_t cpu = (b.ru_utime.tv_sec - a.ru_utime.tv_sec + b.ru_stime.tv_sec - a.ru_stime.tv_sec) *
                      1000000LL +
                  b.ru_utime.tv_usec - a.ru_utime.tv_usec + b.ru_stime.tv_usec - a.ru_stime.tv_usec;
    print_message("pool: %lld jobs/s, %.2f us of CPU a job\n", (long long)N * 1000000 / (t ? t : 1),
                  (double)cpu / N);
    free_many(&m);
    close_fx(&x);
}

int main(void) {
    lw_log_setup(LW_LOG_ERROR, false, "test");
    unsetenv("LATCHWORK_JOURNAL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_run_once),
        cmocka_unit_test(test_one_thread_keeps_the_order),
        cmocka_unit_test(test_blocked_job_delays_nobody),
        cmocka_unit_test(test_slow_jobs_use_all_threads),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_ended_leases_do_not_run),
        cmocka_unit_test(test_timeout_is_set_at_the_start),
        cmocka_unit_test(test_seats),
        cmocka_unit_test(test_journal),
        cmocka_unit_test(test_slot_that_does_not_open),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
