/* SPDX-License-Identifier: Apache-2.0 */
/* Tests Redlock with clocks that jump, servers that lose their data, and many processes that
 * contend for one lock. */
#include "tests/lock/five.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, THREADS = 2, TURNS = 15 };

/* --- clocks, and servers without memory ------------------------------------------------------- */

static void a_minority_of_clocks_may_jump(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all(), *other = open_all();
    struct latchwork_lock *l = open_red(r, 60000, 0), *l2 = open_red(other, 60000, 0);
    struct latchwork_hold *h = take(l, 0), *h2;
    wait_for_keys(NODES);
    jump_clock(0, 3600);
    jump_clock(1, 3600);
    /* The clocks of two servers have jumped, so the lock has expired on these servers. */
    wait_for_keys(3);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l2, 300, &h2, &error));
    assert_ok(latchwork_hold_check(h, &error));
    assert_ok(latchwork_hold_renew(h, 0, &error));
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_lock_close(l2);
    latchwork_redlock_close(r);
    latchwork_redlock_close(other);
}

/* The clocks of a majority jump, so two clients hold the lock at the same time. No Redlock can
 * prevent this, as lock.h says. The fence tells the store which hold is the later one. */
static void where_most_jump_the_fence_decides(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all(), *other = open_all();
    struct latchwork_lock *l = open_red(r, 60000, 0), *l2 = open_red(other, 60000, 0);
    struct latchwork_hold *h = take(l, 0);
    wait_for_keys(NODES);
    for (int i = 0; i < 3; i++) jump_clock(i, 3600);
    struct latchwork_hold *h2 = take(l2, 20000);
    /* The first holder cannot know yet that another client has the lock. */
    assert_false(latchwork_hold_lost(h));
    assert_true(latchwork_hold_fence(h2) > latchwork_hold_fence(h));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_check(h, &error));
    /* The clocks jump back, but fences must still grow. */
    for (int i = 0; i < 3; i++) jump_clock(i, 0);
    uint64_t last = latchwork_hold_fence(h2);
    assert_ok(latchwork_hold_release(h2, &error));
    latchwork_hold_forget(h);
    for (int i = 0; i < NODES; i++) on_node(i, "DEL " KEY);
    h = take(l, 20000);
    assert_true(latchwork_hold_fence(h) > last);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_lock_close(l2);
    latchwork_redlock_close(r);
    latchwork_redlock_close(other);
}

static void wait_for_age(int i, int64_t seconds) {
    int64_t until = lw_boot_ms() + 60000;
    for (;;) {
        const char *at = strstr(on_node(i, "INFO server"), "uptime_in_seconds:");
        if (strtoll(at + 18, NULL, 10) > seconds || lw_boot_ms() > until) return;
        lw_sleep_ms(50);
    }
}

/* Redis reports its uptime in whole seconds: it subtracts the second in which it started from the
 * current second. Server 2 starts late in a second, so that its reported uptime is almost a second
 * too long. Without servers 0 and 1 it is needed for a majority. A client that does not know the
 * server must nevertheless leave it out for a whole TTL. */
static void a_restarted_server_does_not_vote_a_second_early(void **state) {
    (void)state;
    enum { TTL = 3000 };
    for (int i = 0; i < NODES; i++) wait_for_age(i, TTL / 1000 + 1);
    kill_node(0), kill_node(1);
    while (lw_wall_ms() % 1000 < 850 || lw_wall_ms() % 1000 > 900) lw_sleep_ms(5);
    int64_t begun_ms = lw_boot_ms();
    restart_node(2);
    enum latchwork_result result;
    do {
        struct latchwork_redlock *r = open_urls(all_urls, NODES, 0);
        struct latchwork_lock *l = open_red(r, TTL, 0);
        struct latchwork_hold *h = NULL;
        lw_sleep_ms(20);
        result = latchwork_lock_try(l, &h, &error);
        if (result == LATCHWORK_LOCK_OK) {
            assert_true(lw_boot_ms() - begun_ms >= TTL);
            assert_ok(latchwork_hold_release(h, &error));
        }
        latchwork_lock_close(l);
        latchwork_redlock_close(r);
    } while (result != LATCHWORK_LOCK_OK && lw_boot_ms() - begun_ms < 60000);
    assert_result(LATCHWORK_LOCK_OK, result);
}

/* Client a holds the lock on servers 0, 1 and 2, and cannot reach the others. Server 2 is restarted
 * and loses the lock. Now servers 2, 3 and 4 would be a majority for another client, unless that
 * client leaves out server 2. */
static void a_restarted_server_is_kept_out(void **state) {
    (void)state;
    enum { TTL = 6000 };
    const char *partitioned[NODES] = {urls[0], urls[1], urls[2], "unix:///nowhere/3",
                                      "unix:///nowhere/4"};
    for (int i = 0; i < NODES; i++) wait_for_age(i, TTL / 1000 + 1);
    struct latchwork_redlock *a = open_urls(partitioned, NODES, 0),
                             *b = open_urls(all_urls, NODES, 0), *c, *careless;
    struct latchwork_lock *la = open_red(a, TTL, LATCHWORK_FLAG_RENEW), *lb = open_red(b, TTL, 0);
    /* Client b connects to the servers before server 2 is restarted. */
    assert_ok(latchwork_hold_release(take(lb, 0), &error));
    struct latchwork_hold *ha = take(la, 0), *h;
    restart_node(2);
    /* Client b recognizes the restart of server 2 by its new run_id. */
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(lb, &h, &error));
    c = open_urls(all_urls, NODES, 0);
    struct latchwork_lock *lc = open_red(c, TTL, 0);
    /* Client c is new. It recognizes the restart of server 2 by the server's short uptime. */
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(lc, &h, &error));
    careless = open_urls(all_urls, NODES, -1);
    struct latchwork_lock *ld = open_red(careless, TTL, 0);
    /* With restart_ms = -1 a client does not leave out restarted servers, and gets the lock
     * although client a holds it. */
    h = take(ld, 0);
    assert_true(latchwork_hold_fence(h) > latchwork_hold_fence(ha));
    assert_ok(latchwork_hold_release(h, &error));

    latchwork_hold_forget(ha);
    /* Without servers 0 and 1, server 2 is needed for a majority. It counts again when a TTL has
     * passed since its restart. */
    kill_node(0), kill_node(1);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_try(lb, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_MAJORITY);
    assert_ok(latchwork_hold_release(take(lb, 60000), &error));
    struct latchwork_lock *close[] = {la, lb, lc, ld};
    for (int i = 0; i < 4; i++) latchwork_lock_close(close[i]);
    struct latchwork_redlock *red[] = {a, b, c, careless};
    for (int i = 0; i < 4; i++) latchwork_redlock_close(red[i]);
}

/* --- many ------------------------------------------------------------------------------------- */

struct shared {
    _Atomic int inside, overlaps, failures;
    _Atomic uint64_t fence;
    volatile long count;
};
static struct shared *shared;

static void *work(void *arg) {
    struct latchwork_lock *l = arg;
    for (int i = 0; i < TURNS; i++) {
        struct latchwork_error why = {0};
        struct latchwork_hold *h;
        enum latchwork_result r = latchwork_lock_acquire(l, 200000, &h, &why);
        if (r == LATCHWORK_LOCK_OK) {
            if (atomic_fetch_add(&shared->inside, 1)) shared->overlaps++;
            if (atomic_exchange(&shared->fence, latchwork_hold_fence(h)) >= latchwork_hold_fence(h))
                shared->overlaps++;
            long count = shared->count;
            lw_sleep_ms(1);
            shared->count = count + 1;
            atomic_fetch_sub(&shared->inside, 1);
            r = latchwork_hold_release(h, &why);
        }
        /* While servers are frozen, it can happen that no majority answers a release. This is no
         * failure of the test, because the lock then expires. */
        if (r != LATCHWORK_LOCK_OK && why.code != LATCHWORK_E_MAJORITY) {
            fprintf(stderr, "redlock: %s: %s\n", latchwork_result_name(r), why.text);
            shared->failures++;
        }
    }
    return NULL;
}

static int one_process(void) {
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, work, l);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
    return 0;
}

static void everybody(bool with_freezes) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0) _exit(one_process());
    for (int left = PROCESSES, turn = 0; left; turn++) {
        int status, sick = turn % NODES;
        if (with_freezes) freeze(sick);
        lw_sleep_ms(100);
        if (with_freezes) thaw(sick);
        if (waitpid(-1, &status, WNOHANG) <= 0) continue;
        assert_int_equal(status, 0);
        left--;
    }
    assert_int_equal(shared->failures, 0);
    assert_int_equal(shared->overlaps, 0);
    assert_int_equal(shared->count, PROCESSES * THREADS * TURNS);
    munmap(shared, sizeof *shared);
}
static void contention(void **state) { (void)state, everybody(false); }
static void contention_with_servers_that_freeze(void **state) { (void)state, everybody(true); }

int main(void) {
#define TEST(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        TEST(a_minority_of_clocks_may_jump),
        TEST(where_most_jump_the_fence_decides),
        TEST(a_restarted_server_is_kept_out),
        TEST(a_restarted_server_does_not_vote_a_second_early),
        TEST(contention),
        TEST(contention_with_servers_that_freeze),
    };
    return cmocka_run_group_tests_name("redlock_chaos", tests, start_nodes, stop_nodes);
}
