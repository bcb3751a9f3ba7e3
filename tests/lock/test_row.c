/* SPDX-License-Identifier: Apache-2.0 */
/* Tests row locks: a lock has all of its rows or none, takes them in a fixed order no matter in
 * which order they are named, and gives them one fence. Also tests dead holders, lost rows, rows
 * without a TTL, and many processes that contend for a few rows. */
#include "tests/lock/fixture.h"
#include "tests/lock/proxy.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, THREADS = 3, TURNS = 40, ROWS = 6, MANY = 256 };

static struct latchwork_client *client;

static int setup(void **state) {
    if (flush(state)) return -1;
    client = latchwork_client_open(url, NULL, &error);
    return client ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    latchwork_client_close(client);
    return 0;
}

#define ROW(t, i) ((struct latchwork_row){.table = (t), .id = (i)})
static struct latchwork_lock *open_rows(const struct latchwork_row *rows, size_t n,
                                        const struct latchwork_lock_options *o) {
    struct latchwork_lock *l = latchwork_rows_open(client, NULL, rows, n, o, &error);
    if (!l) fail_msg("rows: %s", error.text);
    return l;
}
static struct latchwork_lock *open_row(const char *id, int64_t ttl_ms) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = ttl_ms};
    return open_rows(&ROW("t", id), 1, &o);
}
static void open_many(struct latchwork_row *rows, char (*ids)[8], size_t n) {
    for (size_t i = 0; i < n; i++) {
        snprintf(ids[i], sizeof ids[i], "%hu", (unsigned short)(n - i));
        rows[i] = ROW("many", ids[i]);
    }
}

static void a_row_is_a_mutex_of_its_name(void **state) {
    (void)state;
    struct latchwork_lock *row = open_row("1", 5000), *mutex = open_lock(client, "row:t:1", NULL);
    struct latchwork_hold *h = take(row, 0), *other;
    assert_string_equal(redis_says("EXISTS lwl:{row:t:1}:lock"), "1");
    assert_true(redis_number("PTTL lwl:{row:t:1}:lock") <= 5000);
    assert_true(strncmp(redis_says("GET lwl:{row:t:1}:lock"), latchwork_hold_token(h),
                        strlen(latchwork_hold_token(h))) == 0);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(mutex, &other, &error));
    assert_ok(latchwork_hold_check(h, &error));
    uint64_t fence = latchwork_hold_fence(h);
    assert_ok(latchwork_hold_release(h, &error));
    h = take(mutex, 0);
    assert_true(latchwork_hold_fence(h) > fence);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(row, &other, &error));
    assert_non_null(strstr(error.text, "lwl:{row:t:1}:lock"));
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(row);
    latchwork_lock_close(mutex);
}

static void all_or_none(void **state) {
    (void)state;
    const struct latchwork_row rows[] = {ROW("t", "3"), ROW("t", "1"), ROW("t", "2"),
                                         ROW("t", "1")};
    struct latchwork_lock *l = open_rows(rows, 4, NULL), *two = open_row("2", 5000);
    struct latchwork_hold *h = take(two, 0), *other;
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &other, &error));
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 50, &other, &error));
    assert_null(other);
    assert_string_equal(
        redis_says("EXISTS lwl:{row:t:1}:lock lwl:{row:t:2}:lock lwl:{row:t:3}:lock"), "1");
    assert_ok(latchwork_hold_release(h, &error));
    h = take(l, 0);
    assert_string_equal(
        redis_says("EXISTS lwl:{row:t:1}:lock lwl:{row:t:2}:lock lwl:{row:t:3}:lock"), "3");
    for (size_t i = 0; i < 4; i++)
        assert_true(latchwork_hold_fence_at(h, i) == latchwork_hold_fence(h));
    assert_ok(latchwork_hold_release(h, &error));
    assert_string_equal(redis_says("KEYS *:lock"), "");
    latchwork_lock_close(l);
    latchwork_lock_close(two);
}

/* The fence counter of one row may be ahead of the other counters and of the clock. The fence of
 * the hold must then be larger than all counters, and the next fence of each row must be larger
 * still. */
static void one_fence_for_all(void **state) {
    (void)state;
    redis_says("SET lwl:{row:t:2}:fence 4000000000000000");
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2")};
    struct latchwork_lock *both = open_rows(rows, 2, NULL), *one = open_row("1", 5000),
                          *two = open_row("2", 5000);
    struct latchwork_hold *h = take(one, 0);
    uint64_t fence = latchwork_hold_fence(h);
    assert_true(fence < 4000000000000000);
    assert_ok(latchwork_hold_release(h, &error));
    h = take(both, 0);
    assert_true(latchwork_hold_fence(h) > 4000000000000000);
    fence = latchwork_hold_fence(h);
    assert_ok(latchwork_hold_release(h, &error));
    h = take(one, 0);
    assert_true(latchwork_hold_fence(h) > fence);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(both);
    latchwork_lock_close(one);
    latchwork_lock_close(two);
}

/* TTL, in ms, of a lock with MANY rows. It is long, because a renewal needs many round trips, each
 * of which may be slow on a busy machine. */
enum { MANY_TTL_MS = 4500 };

static void the_most_rows(unsigned flags, size_t n) {
    static struct latchwork_row rows[MANY];
    static char ids[MANY][8];
    open_many(rows, ids, n);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = MANY_TTL_MS,
                                       .flags = LATCHWORK_FLAG_RENEW | flags};
    struct latchwork_lock *l = open_rows(rows, n, &o);
    struct latchwork_hold *h = take(l, 10000), *other;
    uint64_t fence = latchwork_hold_fence(h);
    assert_true(fence > 0);
    for (size_t i = 0; i < n; i += 51) {
        /* The fence counter of each row contains the fence of the hold, even if the acquire needed
         * several calls of the script and an early call took the row. */
        assert_int_equal(redis_number("GET lwl:{row:many:%s}:fence", ids[i]), (int64_t)fence);
    }
    /* The second acquire waits longer than the TTL and does not get the lock, because the lease is
     * renewed. */
    assert_result(LATCHWORK_LOCK_BUSY,
                  latchwork_lock_acquire(l, MANY_TTL_MS + 2000, &other, &error));
    assert_ok(latchwork_hold_check(h, &error));
    assert_ok(latchwork_hold_renew(h, 3 * MANY_TTL_MS, &error));
    assert_true(latchwork_hold_left_ms(h) > MANY_TTL_MS);
    assert_ok(latchwork_hold_release(h, &error));
    assert_string_equal(redis_says(flags ? "EXISTS row:many:1" : "EXISTS lwl:{row:many:1}:lock"),
                        "0");
    latchwork_lock_close(l);
}
static void many_rows(void **state) { (void)state, the_most_rows(0, MANY); }
static void some_rows(void **state) { (void)state, the_most_rows(0, 20); }
static void plain_rows(void **state) { (void)state, the_most_rows(LATCHWORK_FLAG_PLAIN, 40); }

static void nothing_is_released_or_renewed_that_is_lost(void **state) {
    (void)state;
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2"), ROW("u", "1")};
    struct latchwork_lock *l = open_rows(rows, 3, NULL);
    struct latchwork_hold *h = take(l, 0);
    redis_says("SET lwl:{row:t:2}:lock somebody:5 PX 60000");
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_check(h, &error));
    assert_true(latchwork_hold_lost(h));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NOT_OWNER);
    assert_string_equal(redis_says("GET lwl:{row:t:2}:lock"), "somebody:5");
    assert_string_equal(redis_says("EXISTS lwl:{row:t:1}:lock lwl:{row:u:1}:lock"), "0");
    latchwork_lock_close(l);
}

/* --- waiting ---------------------------------------------------------------------------------- */

struct waiter {
    struct latchwork_lock *lock;
    struct latchwork_hold *hold;
    enum latchwork_result result;
    struct latchwork_error error;
};
static void *wait_for_it(void *arg) {
    struct waiter *w = arg;
    w->result = latchwork_lock_acquire(w->lock, 60000, &w->hold, &w->error);
    return NULL;
}
static void wait_until_there(const char *key) {
    int64_t until = lw_boot_ms() + 20000;
    while (!redis_number("EXISTS %s", key) && lw_boot_ms() < until) lw_sleep_ms(1);
    assert_int_equal(redis_number("EXISTS %s", key), 1);
}

/* Tests that a client keeps its first row while it waits for the second, even for longer than the
 * TTL. */
static void rows_are_kept_while_one_is_waited_for(void **state) {
    (void)state;
    const struct latchwork_row rows[] = {ROW("t", "2"), ROW("t", "1"), ROW("t", "3")};
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 4000};
    struct latchwork_lock *all = open_rows(rows, 3, &o), *two = open_row("2", 60000);
    struct latchwork_hold *h = take(two, 0);
    struct waiter w = {.lock = all};
    pthread_t t;
    pthread_create(&t, NULL, wait_for_it, &w);
    wait_until_there("lwl:{row:t:1}:lock");
    char value[256];
    snprintf(value, sizeof value, "%s", redis_says("GET lwl:{row:t:1}:lock"));
    for (int64_t until = lw_boot_ms() + 7000; lw_boot_ms() < until;) {
        lw_sleep_ms(60);
        assert_string_equal(redis_says("GET lwl:{row:t:1}:lock"), value);
        /* A client that waits for row 2 does not hold row 3, because rows are taken in ascending
         * order. */
        assert_int_equal(redis_number("EXISTS lwl:{row:t:3}:lock"), 0);
    }
    assert_ok(latchwork_hold_release(h, &error));
    pthread_join(t, NULL);
    assert_int_equal(w.result, LATCHWORK_LOCK_OK);
    for (int i = 1; i <= 3; i++) {
        char *colon = strrchr(redis_says("GET lwl:{row:t:%d}:lock", i), ':');
        assert_non_null(colon);
        assert_true(strtoull(colon + 1, NULL, 10) == latchwork_hold_fence(w.hold));
    }
    assert_ok(latchwork_hold_release(w.hold, &error));
    latchwork_lock_close(all);
    latchwork_lock_close(two);
}

static void who_waits_can_be_interrupted(void **state) {
    (void)state;
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2")};
    struct latchwork_client *other = open_client(NULL);
    struct latchwork_lock *both = open_rows(rows, 2, NULL),
                          *two = open_lock(other, "row:t:2", NULL);
    struct latchwork_hold *h = take(two, 0);
    struct waiter w = {.lock = both};
    pthread_t t;
    pthread_create(&t, NULL, wait_for_it, &w);
    wait_until_there("lwl:{row:t:1}:lock");
    latchwork_client_interrupt(client);
    pthread_join(t, NULL);
    assert_int_equal(w.result, LATCHWORK_LOCK_ERROR);
    assert_int_equal(w.error.code, LATCHWORK_E_CLOSED);
    assert_int_equal(redis_number("EXISTS lwl:{row:t:1}:lock"), 0);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(both);
    latchwork_lock_close(two);
    latchwork_client_close(other);
}

/* --- dead holders, rows without TTL ----------------------------------------------------------- */

static pid_t hold_and_die(const struct latchwork_row *rows, size_t n, uint64_t *fence,
                          bool *ready) {
    pid_t pid = fork();
    if (pid) return pid;
    struct latchwork_client *c = latchwork_client_open(url, NULL, &error);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 1500,
                                       .flags = LATCHWORK_FLAG_RENEW};
    struct latchwork_lock *l = latchwork_rows_open(c, NULL, rows, n, &o, &error);
    struct latchwork_hold *h;
    if (latchwork_lock_acquire(l, 10000, &h, &error) != LATCHWORK_LOCK_OK) _exit(1);
    *fence = latchwork_hold_fence(h);
    *(volatile bool *)ready = true;
    for (;;) pause();
}

static void a_dead_holder_is_followed(void **state) {
    (void)state;
    struct {
        uint64_t fence;
        bool ready;
    } *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2"), ROW("t", "3")};
    pid_t pid = hold_and_die(rows, 3, &shared->fence, &shared->ready);
    int64_t until = lw_boot_ms() + 20000;
    while (!*(volatile bool *)&shared->ready && lw_boot_ms() < until) lw_sleep_ms(1);
    struct latchwork_lock *l = open_rows(rows + 1, 2, NULL);
    struct latchwork_hold *h = NULL;
    /* The holder is alive and renews its lease, so the rows stay locked. */
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 3500, &h, &error));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    h = take(l, 20000);
    assert_true(latchwork_hold_fence(h) > shared->fence);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    munmap(shared, sizeof *shared);
}

static void rows_without_ttl(void **state) {
    (void)state;
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2")};
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_PLAIN};
    struct latchwork_lock *l = open_rows(rows, 2, &o);
    struct latchwork_hold *h;
    /* A client that dies between SETNX and EXPIRE leaves a lock without a TTL. */
    redis_says("SETNX row:t:2 1");
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_TTL);
    assert_non_null(strstr(error.text, "row:t:2 "));
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 150, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_TTL);
    assert_int_equal(redis_number("PTTL row:t:2"), -1);
    assert_int_equal(redis_number("EXISTS row:t:1"), 0);

    assert_ok(latchwork_lock_give_ttl(l, 50, &error));
    h = take(l, 20000);
    assert_string_equal(redis_says("GET row:t:2"), latchwork_hold_token(h));
    assert_int_equal(strlen(latchwork_hold_token(h)), 32);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_give_ttl(l, 50, &error));
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);

    o.give_ttl_ms = 50;
    l = open_rows(rows, 2, &o);
    redis_says("SETNX row:t:1 1");
    redis_says("SETNX row:t:2 1");
    assert_ok(latchwork_hold_release(take(l, 20000), &error));
    redis_says("SETNX row:t:2 1");
    /* The attempt fails with the error NO_TTL, but gives the row's lock a TTL. */
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_TTL);
    assert_true(redis_number("PTTL row:t:2") != -1);
    latchwork_lock_close(l);
}

/* --- looking and breaking --------------------------------------------------------------------- */

static int count_seen(void *ctx, const struct latchwork_lock_info *info) {
    int *n = ctx;
    assert_true(info->name_len > 4 && memcmp(info->name, "row:", 4) == 0);
    return ++*n == 2;
}
static void shown_and_broken(void **state) {
    (void)state;
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2"), ROW("t", "3")};
    struct latchwork_lock *l = open_rows(rows, 3, NULL);
    int seen = 0;
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_show(l, count_seen, &seen, &error));
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_break(l, NULL, &error));
    struct latchwork_hold *h = take(l, 0);
    assert_ok(latchwork_lock_show(l, count_seen, &seen, &error));
    /* The callback asked to stop after the second row, so it was not called for a third. */
    assert_int_equal(seen, 2);
    uint64_t fence = 0, before = latchwork_hold_fence(h);
    assert_ok(latchwork_lock_break(l, &fence, &error));
    assert_true(fence > before);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    h = take(l, 0);
    assert_true(latchwork_hold_fence(h) > fence);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
}

static void lost_replies(void **state) {
    (void)state;
    struct lw_proxy proxy;
    assert_true(lw_proxy_start(&proxy, lw_test_redis_path(server)));
    char through[256];
    snprintf(through, sizeof through, "unix://%s", proxy.path);
    struct latchwork_client *c = latchwork_client_open(through, NULL, &error);
    const struct latchwork_row rows[] = {ROW("t", "1"), ROW("t", "2")};
    struct latchwork_lock *l = latchwork_rows_open(c, NULL, rows, 2, NULL, &error);
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    struct latchwork_hold *h;
    lw_proxy_lose(&proxy, 1);
    assert_ok(latchwork_lock_try(l, &h, &error));
    assert_int_equal(proxy.lose, 0);
    lw_proxy_lose(&proxy, 1);
    assert_ok(latchwork_hold_renew(h, 0, &error));
    lw_proxy_lose(&proxy, 1);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    assert_int_equal(error.code, LATCHWORK_E_UNKNOWN);
    assert_string_equal(redis_says("EXISTS lwl:{row:t:1}:lock lwl:{row:t:2}:lock"), "0");
    latchwork_lock_close(l);
    latchwork_client_close(c);
    lw_proxy_stop(&proxy);
}

static void wrong_calls(void **state) {
    (void)state;
    char longest[400];
    memset(longest, 'x', sizeof longest);
    longest[257] = '\0';
    const struct latchwork_row bad[] = {ROW("", "1"),   ROW("a:b", "1"), ROW("t", ""),
                                        ROW(NULL, "1"), ROW("t", NULL),  ROW("t", longest)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(latchwork_rows_open(client, NULL, &bad[i], 1, NULL, &error));
        assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    }
    assert_null(latchwork_rows_open(client, NULL, NULL, 0, NULL, &error));
    /* the table name of this row is too long */
    assert_null(
        latchwork_rows_open(client, longest, &ROW(longest + 130, longest + 2), 1, NULL, &error));
    assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    struct latchwork_lock_options unset = {0};
    assert_null(latchwork_rows_open(client, NULL, &ROW("t", "1"), 1, &unset, &error));
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .flags = LATCHWORK_FLAG_NO_SCRIPTS};
    struct latchwork_client *c = open_client(&o);
    assert_null(latchwork_rows_open(c, NULL, &ROW("t", "1"), 1, NULL, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_SCRIPTS);
    latchwork_client_close(c);
}

/* --- many processes --------------------------------------------------------------------------- */

struct shared {
    _Atomic int inside[ROWS], overlaps, failures;
    _Atomic uint64_t fence[ROWS];
    /* These counters are not atomic, so an increment gets lost if two processes hold a row at the
     * same time. */
    long count[ROWS];
    _Atomic long entered;
};
static struct shared *shared;

/* Chooses a few rows in a random order. If the library took rows in the given order, the test would
 * soon deadlock. */
static size_t choose(struct latchwork_row *rows, int *which, unsigned *seed) {
    static const char *const ids[ROWS] = {"0", "1", "2", "3", "4", "5"};
    size_t n = 1 + (size_t)rand_r(seed) % 4;
    for (size_t i = 0; i < n; i++) {
        which[i] = rand_r(seed) % ROWS;
        for (size_t j = 0; j < i; j++) /* No row may be chosen twice. */
            if (which[j] == which[i]) return i;
        rows[i] = ROW(which[i] % 2 ? "odd" : "even", ids[which[i]]);
    }
    return n;
}

static void be_inside(const int *which, size_t n, uint64_t fence) {
    for (size_t i = 0; i < n; i++) {
        if (atomic_fetch_add(&shared->inside[which[i]], 1)) shared->overlaps++;
        if (atomic_exchange(&shared->fence[which[i]], fence) >= fence) shared->overlaps++;
        long count = *(volatile long *)&shared->count[which[i]];
        if (i == 0) lw_sleep_ms(0);
        *(volatile long *)&shared->count[which[i]] = count + 1;
    }
    shared->entered += (long)n;
    for (size_t i = 0; i < n; i++) atomic_fetch_sub(&shared->inside[which[i]], 1);
}

struct worker {
    struct latchwork_client *client;
    unsigned seed;
};
static void *work(void *arg) {
    struct worker *w = arg;
    for (int turn = 0; turn < TURNS; turn++) {
        struct latchwork_row rows[4];
        int which[4];
        size_t n = choose(rows, which, &w->seed);
        struct latchwork_error why = {0};
        struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 30000};
        struct latchwork_lock *l = latchwork_rows_open(w->client, NULL, rows, n, &o, &why);
        struct latchwork_hold *h;
        enum latchwork_result r = latchwork_lock_acquire(l, 200000, &h, &why);
        if (r == LATCHWORK_LOCK_OK) {
            be_inside(which, n, latchwork_hold_fence(h));
            r = latchwork_hold_release(h, &why);
        }
        if (r != LATCHWORK_LOCK_OK) {
            fprintf(stderr, "rows: %s: %s\n", latchwork_result_name(r), why.text);
            shared->failures++;
        }
        latchwork_lock_close(l);
    }
    return NULL;
}

static int one_process(unsigned seed) {
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .connections = 2};
    struct latchwork_client *c = latchwork_client_open(url, &o, &error);
    struct worker w[THREADS];
    pthread_t t[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){c, seed * 100 + i};
        pthread_create(&t[i], NULL, work, &w[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    latchwork_client_close(c);
    return 0;
}

static void many_processes_in_any_order(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[PROCESSES];
    for (unsigned i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0) _exit(one_process(i + 1));
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(shared->failures, 0);
    assert_int_equal(shared->overlaps, 0);
    long sum = 0;
    for (int i = 0; i < ROWS; i++) sum += shared->count[i];
    assert_true(sum >= PROCESSES * THREADS * TURNS);
    assert_int_equal(sum, shared->entered);
    munmap(shared, sizeof *shared);
}

/* Kills four processes, one after the other, while they hold rows. Each process except the first
 * must get the rows when the lease of the process before it has ended. */
static void killed_holders(void **state) {
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct latchwork_row rows[] = {ROW("even", "0"), ROW("odd", "1"), ROW("even", "2")};
    uint64_t last = 0;
    for (int i = 0; i < 4; i++) {
        atomic_store(&shared->fence[0], 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct latchwork_client *c = latchwork_client_open(url, NULL, &error);
            struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 200};
            struct latchwork_lock *l = latchwork_rows_open(c, NULL, rows, 3, &o, &error);
            struct latchwork_hold *h;
            if (latchwork_lock_acquire(l, 20000, &h, &error) != LATCHWORK_LOCK_OK) _exit(1);
            atomic_store(&shared->fence[0], latchwork_hold_fence(h));
            for (;;) pause();
        }
        int64_t until = lw_boot_ms() + 30000;
        while (!atomic_load(&shared->fence[0]) && lw_boot_ms() < until) lw_sleep_ms(1);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        /* The fence has grown, so this process got the rows that the previous process never
         * released. */
        assert_true(atomic_load(&shared->fence[0]) > last);
        last = atomic_load(&shared->fence[0]);
    }
    munmap(shared, sizeof *shared);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_row_is_a_mutex_of_its_name),
        TEST(all_or_none),
        TEST(one_fence_for_all),
        TEST(some_rows),
        TEST(many_rows),
        TEST(plain_rows),
        TEST(nothing_is_released_or_renewed_that_is_lost),
        TEST(rows_are_kept_while_one_is_waited_for),
        TEST(who_waits_can_be_interrupted),
        TEST(a_dead_holder_is_followed),
        TEST(rows_without_ttl),
        TEST(shown_and_broken),
        TEST(lost_replies),
        TEST(wrong_calls),
        TEST(many_processes_in_any_order),
        TEST(killed_holders),
    };
    return cmocka_run_group_tests_name("row", tests, start_server, stop_server);
}
