/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a few locks with many threads of several processes. A file shows whether two threads had
 * the same lock at the same time. */
#include "tests/lock/fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, THREADS = 6, TURNS = 25, NAMES = 2, PERMITS = 3 };

/* Memory that all processes of the test share. */
struct shared {
    _Atomic int inside[NAMES], writers[NAMES], overlaps, failures, arrivals;
    _Atomic uint64_t last_fence[NAMES];
    _Atomic int order[THREADS * PROCESSES], done;
};
static struct shared *shared;
/* Descriptor of a file with one number per lock, by which the test detects that two threads had the
 * same lock at the same time. */
static int witness;

static int setup(void **state) {
    memset(shared, 0, sizeof *shared);
    long zero[NAMES] = {0};
    return pwrite(witness, zero, sizeof zero, 0) == sizeof zero ? flush(state) : -1;
}

struct job {
    struct latchwork_client *client;
    enum latchwork_kind kind;
    int number;
    unsigned flags;
};

static struct latchwork_lock *open_name(struct latchwork_client *c, enum latchwork_kind kind,
                                        int name, unsigned flags) {
    char text[16];
    snprintf(text, sizeof text, "n%d", name);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kind, .flags = flags,
                                       .ttl_ms = 30000};
    o.permits = kind == LATCHWORK_KIND_SEMAPHORE ? PERMITS : 0;
    return latchwork_lock_open(c, text, &o, &error);
}

static void add_one(int name) {
    long n = 0;
    off_t at = (off_t)sizeof n * name;
    if (pread(witness, &n, sizeof n, at) != sizeof n) shared->failures++;
    lw_sleep_ms(0);
    n++;
    if (pwrite(witness, &n, sizeof n, at) != sizeof n) shared->failures++;
}

static void be_inside(const struct job *j, int name, uint64_t fence) {
    if (j->kind == LATCHWORK_KIND_SEMAPHORE) {
        if (atomic_fetch_add(&shared->inside[name], 1) >= PERMITS) shared->overlaps++;
        lw_sleep_ms(0);
        atomic_fetch_sub(&shared->inside[name], 1);
        return;
    }
    if (j->kind == LATCHWORK_KIND_READ) {
        atomic_fetch_add(&shared->inside[name], 1);
        if (shared->writers[name]) shared->overlaps++;
        lw_sleep_ms(0);
        if (shared->writers[name]) shared->overlaps++;
        atomic_fetch_sub(&shared->inside[name], 1);
        return;
    }
    if (atomic_fetch_add(&shared->writers[name], 1) || shared->inside[name]) shared->overlaps++;
    if (atomic_exchange(&shared->last_fence[name], fence) >= fence) shared->overlaps++;
    add_one(name);
    atomic_fetch_sub(&shared->writers[name], 1);
}

static void *work(void *arg) {
    struct job *j = arg;
    struct latchwork_lock *l[NAMES];
    for (int i = 0; i < NAMES; i++) l[i] = open_name(j->client, j->kind, i, j->flags);
    for (int i = 0; i < TURNS; i++) {
        struct latchwork_error why;
        struct latchwork_hold *h;
        int name = (i + j->number) % NAMES;
        enum latchwork_result r = latchwork_lock_acquire(l[name], 100000, &h, &why);
        if (r == LATCHWORK_LOCK_OK) {
            be_inside(j, name, latchwork_hold_fence(h));
            r = latchwork_hold_release(h, &why);
        }
        if (r != LATCHWORK_LOCK_OK) {
            fprintf(stderr, "kind %d: %s: %s\n", (int)j->kind, latchwork_result_name(r), why.text);
            shared->failures++;
        }
    }
    for (int i = 0; i < NAMES; i++) latchwork_lock_close(l[i]);
    return NULL;
}

static int one_process(enum latchwork_kind kind, unsigned flags, unsigned client_flags) {
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .connections = 3,
                                         .flags = client_flags};
    struct latchwork_client *c = latchwork_client_open(url, &o, &error);
    struct job job[THREADS];
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) {
        job[i] = (struct job){c, kind, i, flags};
        if (kind == LATCHWORK_KIND_READ && i % 3 == 0) job[i].kind = LATCHWORK_KIND_WRITE;
        pthread_create(&t[i], NULL, work, &job[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    latchwork_client_close(c);
    return 0;
}

static void wait_for_all(const pid_t *pid, int n) {
    for (int i = 0; i < n; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
}

static void everybody(enum latchwork_kind kind, unsigned flags, unsigned client_flags) {
    pid_t pid[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0) _exit(one_process(kind, flags, client_flags));
    wait_for_all(pid, PROCESSES);
    assert_int_equal(shared->failures, 0);
    assert_int_equal(shared->overlaps, 0);
    long count[NAMES], sum = 0;
    assert_int_equal(pread(witness, count, sizeof count, 0), sizeof count);
    for (int i = 0; i < NAMES; i++) sum += count[i];
    int per_process = kind == LATCHWORK_KIND_READ        ? THREADS / 3
                      : kind == LATCHWORK_KIND_SEMAPHORE ? 0
                                                         : THREADS;
    assert_int_equal(sum, per_process * PROCESSES * TURNS);
}

static void mutex(void **state) { (void)state, everybody(LATCHWORK_KIND_MUTEX, 0, 0); }
static void renewed_mutex(void **state) {
    (void)state, everybody(LATCHWORK_KIND_MUTEX, LATCHWORK_FLAG_RENEW, 0);
}
static void plain_mutex(void **state) {
    (void)state, everybody(LATCHWORK_KIND_MUTEX, LATCHWORK_FLAG_PLAIN, 0);
}
static void mutex_without_scripts(void **state) {
    (void)state, everybody(LATCHWORK_KIND_MUTEX, 0, LATCHWORK_FLAG_NO_SCRIPTS);
}
static void reentrant(void **state) { (void)state, everybody(LATCHWORK_KIND_REENTRANT, 0, 0); }
static void fair(void **state) { (void)state, everybody(LATCHWORK_KIND_FAIR, 0, 0); }
static void read_write(void **state) { (void)state, everybody(LATCHWORK_KIND_READ, 0, 0); }
static void semaphore(void **state) { (void)state, everybody(LATCHWORK_KIND_SEMAPHORE, 0, 0); }

/* --- kill -9 of holders ----------------------------------------------------------------------- */

/* Takes the lock again and again until this process is killed. inside[0] is the pid of the holder.
 * If the holder dies, its pid stays in inside[0] until the next holder writes another pid. */
static void victim(enum latchwork_kind kind) {
    struct latchwork_client *c = latchwork_client_open(url, NULL, &error);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kind, .ttl_ms = 300,
                                       .flags = LATCHWORK_FLAG_RENEW};
    struct latchwork_lock *l = latchwork_lock_open(c, "n0", &o, &error);
    for (;;) {
        struct latchwork_hold *h;
        if (latchwork_lock_acquire(l, -1, &h, &error) != LATCHWORK_LOCK_OK) _exit(1);
        int before = atomic_exchange(&shared->inside[0], (int)getpid());
        if (before && kill(before, 0) == 0) shared->overlaps++;
        shared->arrivals++;
        lw_sleep_ms(20);
        if (!latchwork_hold_lost(h) && shared->inside[0] != (int)getpid()) shared->overlaps++;
        if (latchwork_hold_lost(h)) shared->failures++;
        shared->inside[0] = 0;
        latchwork_hold_release(h, &error);
    }
}

/* Kills the holder and reaps it before its lease can have ended. The other processes must
 * continue. */
static void holders_killed(enum latchwork_kind kind) {
    enum { VICTIMS = 3, KILLS = 6 };
    pid_t pid[VICTIMS];
    int held = 0;
    for (int i = 0; i < VICTIMS; i++)
        if ((pid[i] = fork()) == 0) victim(kind);
    for (int k = 0; k < KILLS; k++) {
        int before = shared->arrivals;
        int64_t until = lw_boot_ms() + 20000;
        while (shared->arrivals < before + 4 && lw_boot_ms() < until) lw_sleep_ms(1);
        if (shared->arrivals < before + 4) fail_msg("nobody gets the lock after kill %d", k);
        int i = 0;
        while (i < VICTIMS - 1 && pid[i] != shared->inside[0]) i++;
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
        held += shared->inside[0] == (int)pid[i];
        if ((pid[i] = fork()) == 0) victim(kind);
    }
    for (int i = 0; i < VICTIMS; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    assert_int_equal(shared->failures, 0);
    assert_int_equal(shared->overlaps, 0);
    assert_true(held > 0);
}
static void killed_holders_of_a_mutex(void **state) {
    (void)state, holders_killed(LATCHWORK_KIND_MUTEX);
}
static void killed_holders_of_a_fair_lock(void **state) {
    (void)state, holders_killed(LATCHWORK_KIND_FAIR);
}

/* --- fairness --------------------------------------------------------------------------------- */

static struct latchwork_lock *fair_lock[PROCESSES];

static void *wait_in_order(void *arg) {
    int number = (int)(intptr_t)arg;
    struct latchwork_hold *h;
    struct latchwork_error why;
    if (latchwork_lock_acquire(fair_lock[number % 2], 60000, &h, &why) != LATCHWORK_LOCK_OK) {
        shared->failures++;
        return NULL;
    }
    shared->order[shared->done++] = number;
    latchwork_hold_release(h, &why);
    return NULL;
}

static void wait_for_queue(int n) {
    int64_t until = lw_boot_ms() + 10000;
    while (redis_number("ZCARD lwl:{n0}:queue") < n && lw_boot_ms() < until) lw_sleep_ms(1);
    assert_int_equal(redis_number("ZCARD lwl:{n0}:queue"), n);
}

/* Tests that a fair lock is granted in the order of requests: ten waiters of two clients get the
 * lock in order, although one process died while waiting and another is frozen. */
static void fair_is_first_come_first_served(void **state) {
    (void)state;
    enum { WAITERS = 10, DEAD_AT = 3, FROZEN_AT = 6 };
    pid_t gone[2] = {0};
    for (int i = 0; i < 2; i++)
        if ((gone[i] = fork()) == 0) {
            struct latchwork_client *c = latchwork_client_open(url, NULL, &error);
            struct latchwork_lock *l = latchwork_lock_open(
                c, "n0",
                &(struct latchwork_lock_options){LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_FAIR},
                &error);
            struct latchwork_hold *h;
            while (shared->arrivals <= i) lw_sleep_ms(1);
            latchwork_lock_acquire(l, -1, &h, &error);
            _exit(0);
        }
    struct latchwork_client *c[2] = {open_client(NULL), open_client(NULL)};
    for (int i = 0; i < 2; i++) fair_lock[i] = open_kind(c[i], "n0", LATCHWORK_KIND_FAIR, 30000);
    struct latchwork_hold *h = take(fair_lock[0], 0);
    pthread_t t[WAITERS];
    int queued = 0;
    for (int i = 0; i < WAITERS; i++) {
        if (i == DEAD_AT || i == FROZEN_AT) {
            shared->arrivals++;
            wait_for_queue(++queued);
        }
        pthread_create(&t[i], NULL, wait_in_order, (void *)(intptr_t)i);
        wait_for_queue(++queued);
    }
    kill(gone[0], SIGKILL);
    waitpid(gone[0], NULL, 0);
    kill(gone[1], SIGSTOP);
    assert_ok(latchwork_hold_release(h, &error));
    for (int i = 0; i < WAITERS; i++) pthread_join(t[i], NULL);
    kill(gone[1], SIGKILL);
    waitpid(gone[1], NULL, 0);
    assert_int_equal(shared->failures, 0);
    for (int i = 0; i < WAITERS; i++) assert_int_equal(shared->order[i], i);
    for (int i = 0; i < 2; i++) {
        latchwork_lock_close(fair_lock[i]);
        latchwork_client_close(c[i]);
    }
}

#define T(f) cmocka_unit_test_setup(f, setup)
int main(void) {
    char file[] = "/tmp/lock-witness-XXXXXX";
    witness = mkstemp(file);
    unlink(file);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (witness < 0 || shared == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {T(mutex),
                                       T(renewed_mutex),
                                       T(plain_mutex),
                                       T(mutex_without_scripts),
                                       T(reentrant),
                                       T(fair),
                                       T(read_write),
                                       T(semaphore),
                                       T(killed_holders_of_a_mutex),
                                       T(killed_holders_of_a_fair_lock),
                                       T(fair_is_first_come_first_served)};
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
