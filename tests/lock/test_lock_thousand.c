/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a lock with a thousand waiters in eight processes: counts what each hand-over to the next
 * waiter costs Redis, and checks that each waiter gets the lock. */
#include "tests/lock/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8, THREADS = 125, WAITERS = PROCESSES * THREADS, STACK = 256 * 1024 };
/* Maximum number of commands per hand-over of the lock to the next waiter. A release, a PUBLISH and
 * an attempt are necessary. Waking too many waiters would cause many failing attempts and needless
 * PUBLISH commands. */
enum { EVALSHA_MOST = 4, PUBLISH_MOST = 2 };

struct shared {
    _Atomic int waiting, inside, overlaps, failures, served, hand_overs, stop, go_on;
    _Atomic int turns[WAITERS];
};
static struct shared *shared;

struct waiter {
    struct latchwork_lock *lock;
    int number;
    bool once;
};

/* Takes and releases the lock until every thread has had it at least once. For each acquire, the
 * thread stands in line behind the waiting threads. If `once` is true, takes the lock only once,
 * and holds it until `go_on` is set. */
static void *wait_and_wait(void *arg) {
    const struct waiter *w = arg;
    struct latchwork_error why;
    struct latchwork_hold *h;
    shared->waiting++;
    do {
        if (latchwork_lock_acquire(w->lock, -1, &h, &why) != LATCHWORK_LOCK_OK) {
            shared->failures++;
            return NULL;
        }
        if (atomic_fetch_add(&shared->inside, 1)) shared->overlaps++;
        if (!shared->stop) {
            shared->hand_overs++;
            if (shared->turns[w->number]++ == 0 && ++shared->served == WAITERS) shared->stop = 1;
        }
        while (w->once && !shared->go_on) lw_sleep_ms(5);
        atomic_fetch_sub(&shared->inside, 1);
        if (latchwork_hold_release(h, &why) != LATCHWORK_LOCK_OK) shared->failures++;
    } while (!shared->stop && !w->once);
    return NULL;
}

static int one_process(int number, bool once) {
    static struct waiter w[THREADS];
    static pthread_t t[THREADS];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct latchwork_client *c = latchwork_client_open(url, NULL, &error);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 120000};
    struct latchwork_lock *l = latchwork_lock_open(c, "a", &o, &error);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct waiter){l, number * THREADS + i, once};
        if (pthread_create(&t[i], &small, wait_and_wait, &w[i])) return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    latchwork_lock_close(l);
    latchwork_client_close(c);
    return 0;
}

static void start_all(pid_t *pid, bool once) {
    for (int i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0) _exit(one_process(i, once));
}
static void wait_for_all(const pid_t *pid) {
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(shared->failures, 0);
    assert_int_equal(shared->overlaps, 0);
}

static int64_t calls_of(const char *command) {
    char field[64];
    snprintf(field, sizeof field, "\ncmdstat_%s:calls=", command);
    const char *info = redis_says("INFO commandstats"), *at = strstr(info, field);
    return at ? strtoll(at + strlen(field), NULL, 10) : 0;
}

/* Waits until all threads have started to acquire the lock and each process is in Redis' list of
 * waiting clients. By then, most threads sleep, which makes the figures of the test vary less. */
static void wait_until_all_wait(void) {
    int64_t until = lw_boot_ms() + 120000;
    while ((shared->waiting < WAITERS || redis_number("ZCARD lwl:{a}:wait") < PROCESSES) &&
           lw_boot_ms() < until)
        lw_sleep_ms(5);
    assert_int_equal(shared->waiting, WAITERS);
    assert_int_equal(redis_number("ZCARD lwl:{a}:wait"), PROCESSES);
    lw_sleep_ms(500);
    redis_says("CONFIG RESETSTAT");
}

static struct latchwork_hold *take_first(struct latchwork_client **c, struct latchwork_lock **l,
                                         int64_t ttl_ms) {
    *c = open_client(NULL);
    *l = open_kind(*c, "a", LATCHWORK_KIND_MUTEX, ttl_ms);
    return take(*l, 0);
}

static void nobody_storms_and_nobody_starves(void **state) {
    (void)state;
    pid_t pid[PROCESSES];
    struct latchwork_client *c;
    struct latchwork_lock *l;
    struct latchwork_hold *h = take_first(&c, &l, 120000);
    start_all(pid, false);
    wait_until_all_wait();
    assert_ok(latchwork_hold_release(h, &error));
    wait_for_all(pid);
    /* Count the last hand-overs as well: each thread that still waits gets the lock once more
     * before it ends. */
    int64_t n = shared->hand_overs + WAITERS, evalsha = calls_of("evalsha"),
            publish = calls_of("publish");
    int most = 0;
    for (int i = 0; i < WAITERS; i++) most = shared->turns[i] > most ? shared->turns[i] : most;
    print_message("%d waiters: all had it after %d hand-overs, nobody more than %d times; %.2f "
                  "EVALSHA and %.2f PUBLISH each\n",
                  WAITERS, shared->hand_overs, most, (double)evalsha / (double)n,
                  (double)publish / (double)n);
    assert_int_equal(shared->served, WAITERS);
    /* The lock promises no order, but it must not pass over a waiter again and again. */
    assert_true(shared->hand_overs <= 2 * WAITERS);
    assert_true(evalsha <= EVALSHA_MOST * n);
    assert_true(publish <= PUBLISH_MOST * n);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* The holder dies without releasing the lock, so no waiter is notified. Only one waiter of each
 * process tries to take the lock: now and then, and once more when the lease has surely ended. */
static void a_lease_that_ends_wakes_few(void **state) {
    (void)state;
    pid_t pid[PROCESSES];
    struct latchwork_client *c;
    struct latchwork_lock *l;
    struct latchwork_hold *h = take_first(&c, &l, 120000);
    start_all(pid, true);
    wait_until_all_wait();
    latchwork_hold_forget(h);
    /* The next command shortens the lease. Clients learn of this, because the first waiter of each
     * process tries to take the lock about every five seconds. */
    redis_says("PEXPIRE lwl:{a}:lock 7000");
    int64_t until = lw_boot_ms() + 120000;
    while (!shared->inside && lw_boot_ms() < until) lw_sleep_ms(2);
    assert_int_equal(shared->inside, 1);
    int64_t evalsha = calls_of("evalsha");
    print_message("a lease that ended: %lld EVALSHA until the next had it\n", (long long)evalsha);
    assert_true(evalsha <= 5 * PROCESSES);
    shared->go_on = 1;
    wait_for_all(pid);
    assert_int_equal(shared->served, WAITERS);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

static int setup(void **state) {
    memset(shared, 0, sizeof *shared);
    return flush(state);
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nobody_storms_and_nobody_starves, setup),
        cmocka_unit_test_setup(a_lease_that_ends_wakes_few, setup)};
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
