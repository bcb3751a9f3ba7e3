/* SPDX-License-Identifier: Apache-2.0 */
/* Tests Redlock on five servers: votes, dead and slow servers, lost answers, renewal, and wrong use
 * of the library. */
#include "tests/lock/five.h"
#include "tests/lock/proxy.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the algorithm ---------------------------------------------------------------------------- */

static void one_value_on_all(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all(), *other = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0), *l2 = open_red(other, 20000, 0);
    struct latchwork_hold *h2;
    uint64_t last = 0;
    for (int i = 0; i < 3; i++) {
        int64_t before = lw_boot_ms();
        struct latchwork_hold *h = take(l, 0);
        /* An acquire returns when a majority has granted the lock. The other servers grant it soon
         * after. */
        wait_for_keys(NODES);
        assert_int_equal(holding(latchwork_hold_token(h)), NODES);
        /* The lock is valid for its TTL of 20 s, counted from before the acquire, minus the clock
         * drift of 1 % + 2 ms. */
        int64_t deadline = latchwork_hold_deadline_ms(h);
        assert_in_range(deadline, before + 20000 - 202, lw_boot_ms() + 20000 - 202);
        assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l2, &h2, &error));
        assert_int_equal(error.code, LATCHWORK_E_BUSY);
        /* The failed attempt has not changed the lock on any server. */
        assert_int_equal(holding(latchwork_hold_token(h)), NODES);
        assert_true(latchwork_hold_fence(h) > last);
        last = latchwork_hold_fence(h);
        assert_ok(latchwork_hold_check(h, &error));
        assert_ok(latchwork_hold_renew(h, 60000, &error));
        assert_true(latchwork_hold_left_ms(h) > 20000);
        assert_ok(latchwork_hold_release(h, &error));
        wait_for_keys(0);
    }
    assert_ok(latchwork_hold_release(take(l2, 0), &error));
    latchwork_lock_close(l);
    latchwork_lock_close(l2);
    latchwork_redlock_close(r);
    latchwork_redlock_close(other);
}

/* Each server counts fences independently. A large fence counter that only one server has must not
 * be forgotten when the majority changes. */
static void fences_grow_over_changing_majorities(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0);
    on_node(0, "SET lwl:{a}:fence 4000000000000000");
    uint64_t last = 4000000000000000;
    /* Freeze two of the five servers, so that every majority includes server 0, whose counter is
     * large. */
    freeze(3), freeze(4);
    struct latchwork_hold *h = take(l, 20000);
    assert_true(latchwork_hold_fence(h) > last);
    last = latchwork_hold_fence(h);
    assert_ok(latchwork_hold_release(h, &error));
    thaw(3), thaw(4);
    for (int i = 0; i < NODES; i++) {
        /* Each iteration freezes another pair of servers and uses a new client, which has seen no
         * fence yet. */
        struct latchwork_redlock *anew = open_all();
        struct latchwork_lock *l2 = open_red(anew, 20000, 0);
        freeze(i), freeze((i + 1) % NODES);
        h = take(l2, 20000);
        assert_true(latchwork_hold_fence(h) > last);
        last = latchwork_hold_fence(h);
        assert_ok(latchwork_hold_release(h, &error));
        thaw(i), thaw((i + 1) % NODES);
        latchwork_lock_close(l2);
        latchwork_redlock_close(anew);
    }
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

static void plain_and_reentrant(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, LATCHWORK_FLAG_PLAIN);
    struct latchwork_hold *h = take(l, 0), *again;
    assert_true(holding_key("a", latchwork_hold_token(h)) >= MAJORITY);
    assert_int_equal(strlen(latchwork_hold_token(h)), 32);
    assert_ok(latchwork_hold_release(h, &error));
    assert_true(holding_key("a", "nil") >= MAJORITY);
    latchwork_lock_close(l);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_REENTRANT};
    l = latchwork_redlock_lock_open(r, "a", &o, &error);
    assert_non_null(l);
    h = take(l, 0);
    assert_ok(latchwork_lock_try(l, &again, &error));
    assert_ptr_equal(h, again);
    assert_ok(latchwork_hold_release(again, &error));
    assert_true(holding(latchwork_hold_token(h)) >= MAJORITY);
    assert_ok(latchwork_hold_release(h, &error));
    wait_for_keys(0);
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

/* --- servers that are missing ----------------------------------------------------------------- */

static void a_minority_may_be_down(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0);
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    kill_node(1), kill_node(3);
    /* The client does not know yet that two of its connections are dead. */
    struct latchwork_hold *h = take(l, 0);
    assert_int_equal(holding(latchwork_hold_token(h)), 3);
    assert_ok(latchwork_hold_renew(h, 0, &error));
    assert_ok(latchwork_hold_check(h, &error));
    assert_ok(latchwork_hold_release(h, &error));
    wait_for_keys(0);
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

static void a_majority_may_not(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0);
    struct latchwork_hold *h;
    kill_node(0), kill_node(2), kill_node(4);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_MAJORITY);
    wait_for_keys(0);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_acquire(l, 100, &h, &error));
    wait_for_keys(0);
    restart_node(2);
    /* The client reconnects to the restarted server automatically. */
    assert_ok(latchwork_hold_release(take(l, 20000), &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

static void slow_servers(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0);
    struct latchwork_hold *h;
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    freeze(0), freeze(1);
    for (int i = 0; i < 10; i++) {
        h = take(l, 0);
        assert_ok(latchwork_hold_renew(h, 0, &error));
        assert_ok(latchwork_hold_release(h, &error));
    }
    freeze(2);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_MAJORITY);
    for (int i = 0; i < 3; i++) thaw(i);
    /* Each thawed server executes the acquire first and the release of the failed attempt second,
     * so no server keeps the lock. */
    wait_for_keys(0);
    h = take(l, 20000);
    wait_for_keys(NODES);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

/* Tests that a call returns when a majority has answered, without waiting for a frozen server. The
 * timeout node_ms is so long that waiting for it would be noticed. */
static void a_slow_server_costs_little(void **state) {
    (void)state;
    struct latchwork_redlock_options o = {QUICK};
    o.node_ms = 600000;
    struct latchwork_redlock *r = latchwork_redlock_open(all_urls, NODES, &o, &error);
    struct latchwork_lock *l = open_red(r, 600000, 0);
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    freeze(4);
    struct latchwork_hold *h = take(l, 0);
    assert_ok(latchwork_hold_check(h, &error));
    assert_ok(latchwork_hold_renew(h, 0, &error));
    latchwork_hold_forget(h);
    /* Number of servers on which the lock's key exists. The frozen server cannot be asked. */
    int have = 0;
    for (int i = 0; i < 4; i++) have += (int)number_on(i, "EXISTS " KEY);
    assert_true(have >= MAJORITY);
    thaw(4);
    wait_for_keys(NODES);
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

/* Tests that a release goes to all servers, including a server whose answer to the acquire was
 * lost, and a server that answered the acquire with an error. */
static void released_everywhere(void **state) {
    (void)state;
    struct lw_proxy proxy;
    assert_true(lw_proxy_start(&proxy, lw_test_redis_path(node[0])));
    char through[256];
    snprintf(through, sizeof through, "unix://%s", proxy.path);
    const char *which[NODES] = {through, urls[1], urls[2], urls[3], urls[4]};
    struct latchwork_redlock *r = open_urls(which, NODES, -1);
    struct latchwork_lock *l = open_red(r, 60000, 0);
    on_node(1, "CONFIG SET maxmemory 1");
    /* Lose the second reply of server 0, which is its answer to the acquire. The library does not
     * send the acquire again. */
    lw_proxy_lose(&proxy, 2);
    struct latchwork_hold *h = take(l, 0);
    wait_for_keys(4);
    assert_int_equal(number_on(1, "EXISTS " KEY), 0);
    on_node(1, "CONFIG RESETSTAT");
    assert_ok(latchwork_hold_release(h, &error));
    wait_for_keys(0);
    int64_t until = lw_boot_ms() + COMES_MS;
    while (!strstr(on_node(1, "INFO commandstats"), "cmdstat_eval") && lw_boot_ms() < until)
        lw_sleep_ms(2);
    /* The server that had refused the lock has also received the release. */
    assert_non_null(strstr(on_node(1, "INFO commandstats"), "cmdstat_eval"));

    on_node(2, "CONFIG SET maxmemory 1");
    /* Now three servers refuse the lock, so no majority is possible. */
    on_node(3, "CONFIG SET maxmemory 1");
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_MAJORITY);
    wait_for_keys(0);
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
    lw_proxy_stop(&proxy);
}

/* --- losing it -------------------------------------------------------------------------------- */

struct told {
    atomic_int times, why;
};
static void on_lost(void *ctx, struct latchwork_hold *h, enum latchwork_loss why) {
    (void)h;
    ((struct told *)ctx)->why = (int)why;
    ((struct told *)ctx)->times++;
}
static void wait_until_told(struct told *t, enum latchwork_loss why) {
    int64_t until = lw_boot_ms() + 20000;
    while (!t->times && lw_boot_ms() < until) lw_sleep_ms(1);
    assert_int_equal(t->times, 1);
    assert_int_equal(t->why, why);
}
static struct latchwork_lock *open_renewed(struct latchwork_redlock *r, int64_t ttl_ms,
                                           int64_t max_hold_ms, struct told *t) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = ttl_ms,
                                       .max_hold_ms = max_hold_ms, .flags = LATCHWORK_FLAG_RENEW};
    o.lost = on_lost;
    o.lost_ctx = t;
    struct latchwork_lock *l = latchwork_redlock_lock_open(r, "a", &o, &error);
    assert_non_null(l);
    return l;
}

static void extended_by_a_majority(void **state) {
    (void)state;
    struct told told = {0};
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_renewed(r, 1000, 0, &told);
    struct latchwork_hold *h = take(l, 0), *h2;
    kill_node(0), kill_node(1);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 2500, &h2, &error));
    assert_false(latchwork_hold_lost(h));
    freeze(2);
    wait_until_told(&told, LATCHWORK_LOSS_UNCONFIRMED);
    assert_true(latchwork_hold_lost(h));
    thaw(2);
    latchwork_hold_forget(h);

    told.times = 0;
    h = take(l, 20000);
    on_node(2, "FLUSHALL");
    on_node(3, "FLUSHALL");
    on_node(4, "FLUSHALL");
    wait_until_told(&told, LATCHWORK_LOSS_NOT_OWNER);
    assert_int_equal(keys_anywhere(), 0); /* the renewer has not taken the lost lock again */
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

static void the_longest_hold(void **state) {
    (void)state;
    struct told told = {0};
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_renewed(r, 500, 1500, &told);
    int64_t before = lw_boot_ms();
    struct latchwork_hold *h = take(l, 0);
    int64_t most = lw_boot_ms() + 1500;
    wait_until_told(&told, LATCHWORK_LOSS_MAX_HOLD);
    assert_in_range(latchwork_hold_deadline_ms(h), before + 1500, most);
    latchwork_hold_forget(h);
    assert_ok(latchwork_hold_release(take(l, 20000), &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

static void a_killed_holder_is_followed(void **state) {
    (void)state;
    _Atomic uint64_t *fence =
        mmap(NULL, sizeof *fence, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct latchwork_redlock *mine = open_all();
        struct latchwork_hold *h;
        if (latchwork_lock_acquire(open_red(mine, 700, LATCHWORK_FLAG_RENEW), 20000, &h, &error) !=
            LATCHWORK_LOCK_OK)
            _exit(1);
        atomic_store(fence, latchwork_hold_fence(h));
        for (;;) pause();
    }
    int64_t until = lw_boot_ms() + 20000;
    while (!atomic_load(fence) && lw_boot_ms() < until) lw_sleep_ms(1);
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 20000, 0);
    struct latchwork_hold *h;
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 2000, &h, &error));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    h = take(l, 20000);
    assert_true(latchwork_hold_fence(h) > atomic_load(fence));
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
    munmap(fence, sizeof *fence);
}

/* --- the rest --------------------------------------------------------------------------------- */

static void *wait_for_it(void *arg) {
    struct latchwork_hold *h;
    struct latchwork_error why;
    latchwork_lock_acquire(arg, -1, &h, &why);
    return (void *)(intptr_t)why.code;
}
static void waiters_can_be_interrupted(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock *l = open_red(r, 60000, 0);
    struct latchwork_hold *h = take(l, 0);
    pthread_t t;
    void *code;
    pthread_create(&t, NULL, wait_for_it, l);
    lw_sleep_ms(20);
    latchwork_redlock_interrupt(r);
    pthread_join(t, &code);
    assert_int_equal((intptr_t)code, LATCHWORK_E_CLOSED);
    /* A release works even after latchwork_redlock_interrupt(). */
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

static void a_lock_without_ttl(void **state) {
    (void)state;
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_PLAIN,
                                       .give_ttl_ms = 50};
    struct latchwork_lock *l = open_red(r, 20000, LATCHWORK_FLAG_PLAIN),
                          *gives = latchwork_redlock_lock_open(r, "a", &o, &error);
    struct latchwork_hold *h;
    for (int i = 0; i < 3; i++) on_node(i, "SETNX a 1");
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_TTL);
    assert_ok(latchwork_hold_release(take(gives, 20000), &error));
    latchwork_lock_close(l);
    latchwork_lock_close(gives);
    latchwork_redlock_close(r);
}

static void wrong_calls(void **state) {
    (void)state;
    const char *twice[] = {urls[0], urls[0]}, *bad[] = {"nonsense"};
    assert_null(latchwork_redlock_open(NULL, 0, NULL, &error));
    assert_null(latchwork_redlock_open(twice, 2, NULL, &error));
    assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    assert_null(latchwork_redlock_open(bad, 1, NULL, &error));
    struct latchwork_redlock_options unset = {0},
                                     backwards = {LATCHWORK_REDLOCK_INIT, .retry_min_ms = 9,
                                                  .retry_max_ms = 8};
    assert_null(latchwork_redlock_open(all_urls, NODES, &unset, &error));
    assert_null(latchwork_redlock_open(all_urls, NODES, &backwards, &error));
    struct latchwork_redlock *r = open_all();
    struct latchwork_lock_options fair = {LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_FAIR};
    assert_null(latchwork_redlock_lock_open(r, "a", &fair, &error));
    assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    struct latchwork_lock *l = open_red(r, 1000, 0);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_break(l, NULL, &error));
    assert_int_equal(error.code, LATCHWORK_E_UNSUPPORTED);
    struct latchwork_hold *h = take(l, 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(latchwork_hold_release(h, &error) == LATCHWORK_LOCK_ERROR &&
                      error.code == LATCHWORK_E_FORK
                  ? 0
                  : 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_redlock_close(r);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup(f, setup)
    const struct CMUnitTest tests[] = {
        TEST(one_value_on_all),
        TEST(fences_grow_over_changing_majorities),
        TEST(plain_and_reentrant),
        TEST(a_minority_may_be_down),
        TEST(a_majority_may_not),
        TEST(slow_servers),
        TEST(a_slow_server_costs_little),
        TEST(released_everywhere),
        TEST(extended_by_a_majority),
        TEST(the_longest_hold),
        TEST(a_killed_holder_is_followed),
        TEST(waiters_can_be_interrupted),
        TEST(a_lock_without_ttl),
        TEST(wrong_calls),
    };
    return cmocka_run_group_tests_name("redlock", tests, start_nodes, stop_nodes);
}
