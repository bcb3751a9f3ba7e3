/* SPDX-License-Identifier: Apache-2.0 */
/* Counts exactly what a lock costs Redis: the commands that clients send, and the commands that
 * scripts execute. Each command of a client costs a round trip. Each command of a script takes
 * about a microsecond of Redis' single thread. */
#include "tests/lock/fixture.h"

#include <pthread.h>

struct cost {
    /* `publish` counts the PUBLISH commands that scripts execute, and `other` counts all their
     * other commands. */
    int64_t evalsha, eval, publish, other;
};

static struct cost cost(void) {
    struct cost c = {0};
    redisReply *r = redisCommand(admin, "INFO commandstats");
    assert_non_null(r);
    char *save = NULL;
    for (char *line = strtok_r(r->str, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save)) {
        char *calls = strstr(line, ":calls=");
        if (strncmp(line, "cmdstat_", 8) || !calls) continue;
        const char *name = line + 8;
        int64_t n = strtoll(calls + 7, NULL, 10);
        if (!strncmp(name, "evalsha:", 8))
            c.evalsha += n;
        else if (!strncmp(name, "eval:", 5))
            c.eval += n;
        else if (!strncmp(name, "publish:", 8))
            c.publish += n;
        else if (strncmp(name, "info", 4) && strncmp(name, "config", 6) &&
                 strncmp(name, "subscribe", 9) && strncmp(name, "pubsub", 6))
            c.other += n;
    }
    freeReplyObject(r);
    redis_says("CONFIG RESETSTAT");
    return c;
}

#define assert_cost(what, c, want_evalsha, want_other)                                         \
    do {                                                                                       \
        struct cost c_ = (c);                                                                  \
        print_message("%s: %lld EVALSHA, %lld commands inside\n", what, (long long)c_.evalsha, \
                      (long long)c_.other);                                                    \
        assert_int_equal(c_.evalsha, want_evalsha);                                            \
        assert_int_equal(c_.other, want_other);                                                \
        assert_int_equal(c_.eval, 0);                                                          \
        assert_int_equal(c_.publish, 0);                                                       \
    } while (0)

static void an_uncontended_pair(void **state) {
    (void)state;
    static const struct {
        enum latchwork_kind kind;
        const char *name;
        /* Number of commands that the scripts of one acquire and one release execute. */
        int inside;
    } kinds[] = {
        /* The scripts of a mutex execute TIME, GET, SET and SET in acquire, and GET, DEL and
         * ZPOPMIN in release. */
        {LATCHWORK_KIND_MUTEX, "mutex", 4 + 3},
        /* The scripts of a reentrant lock execute the same commands as those of a mutex. */
        {LATCHWORK_KIND_REENTRANT, "reentrant", 4 + 3},
        /* The scripts of a fair lock execute GET, ZRANGE, GET, TIME, SET and SET in acquire, and
         * GET, DEL and ZRANGE in release. */
        {LATCHWORK_KIND_FAIR, "fair", 6 + 3},
        {LATCHWORK_KIND_READ, "read", 9 + 8},
        {LATCHWORK_KIND_WRITE, "write", 9 + 7},
        {LATCHWORK_KIND_SEMAPHORE, "semaphore", 9 + 4},
    };
    struct latchwork_client *c = open_client(NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        lw_test_redis_flush(server);
        struct latchwork_lock *l = open_kind(c, "a", kinds[i].kind, 10000);
        /* The first acquire and the first release also load the scripts, so these two calls are not
         * counted. */
        assert_ok(latchwork_hold_release(take(l, 0), &error));
        cost();
        for (int n = 0; n < 100; n++) assert_ok(latchwork_hold_release(take(l, 1000), &error));
        assert_cost(kinds[i].name, cost(), 200, 100 * kinds[i].inside);
        latchwork_lock_close(l);
    }
    latchwork_client_close(c);
}

static void renewals_and_nesting(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_kind(c, "a", LATCHWORK_KIND_REENTRANT, 10000);
    struct latchwork_hold *h = take(l, 0);
    assert_ok(latchwork_hold_renew(h, 0, &error));
    cost();
    for (int i = 0; i < 10; i++) take(l, 0);
    for (int i = 0; i < 10; i++) assert_ok(latchwork_hold_release(h, &error));
    assert_cost("nested", cost(), 0, 0);
    assert_ok(latchwork_hold_renew(h, 0, &error));
    assert_cost("renew", cost(), 1, 2);
    assert_ok(latchwork_hold_check(h, &error));
    assert_cost("check", cost(), 1, 1);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* Tests that after SCRIPT FLUSH the next call of each script costs one EVALSHA that fails and one
 * EVAL, and has no other consequence. */
static void scripts_flushed(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_lock(c, "a", NULL);
    assert_ok(latchwork_hold_release(take(l, 0), &error));
    redis_says("SCRIPT FLUSH");
    cost();
    for (int i = 0; i < 10; i++) assert_ok(latchwork_hold_release(take(l, 0), &error));
    struct cost seen = cost();
    assert_int_equal(seen.eval, 2);
    assert_int_equal(seen.evalsha, 20);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* --- hand-over: two clients pass one lock to and fro ------------------------------------------ */

enum { THREADS = 12, TURNS = 40 };
static pthread_barrier_t start;
static _Atomic int fails;

static void *turns(void *arg) {
    struct latchwork_lock *l = arg;
    struct latchwork_error why;
    pthread_barrier_wait(&start);
    for (int i = 0; i < TURNS; i++) {
        struct latchwork_hold *h;
        if (latchwork_lock_acquire(l, 60000, &h, &why) != LATCHWORK_LOCK_OK) {
            fails++;
            continue;
        }
        if (latchwork_hold_release(h, &why) != LATCHWORK_LOCK_OK) fails++;
    }
    return NULL;
}

/* Counts the commands with which a lock is handed over to the next waiter: a release, a PUBLISH, an
 * attempt, and a second, failing attempt if two waiters try together. The number must not depend on
 * the number of waiters. The TTL is long, and a waiter that is not notified seldom tries, so a lost
 * notification would show as a wait of seconds. */
static void hand_overs(enum latchwork_kind kind, int64_t evalsha_at_most) {
    struct latchwork_client *c[2] = {open_client(NULL), open_client(NULL)};
    struct latchwork_lock *l[2] = {open_kind(c[0], "a", kind, 60000),
                                   open_kind(c[1], "a", kind, 60000)};
    struct latchwork_hold *h = take(l[0], 0);
    pthread_t t[THREADS];
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, turns, l[i % 2]);
    pthread_barrier_wait(&start);
    /* Leave enough time for all waiters to stand in line and subscribe. */
    lw_sleep_ms(300);
    cost();
    assert_ok(latchwork_hold_release(h, &error));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    struct cost seen = cost();
    pthread_barrier_destroy(&start);
    int64_t n = THREADS * TURNS;
    print_message("kind %d: a hand-over takes %.2f EVALSHA (a release is one), %.2f PUBLISH\n",
                  (int)kind, (double)seen.evalsha / (double)n, (double)seen.publish / (double)n);
    assert_int_equal(fails, 0);
    assert_true(seen.evalsha >= 2 * n);
    assert_true(seen.evalsha <= evalsha_at_most * n);
    assert_true(seen.publish <= evalsha_at_most * n);
    for (int i = 0; i < 2; i++) {
        latchwork_lock_close(l[i]);
        latchwork_client_close(c[i]);
    }
}
static void hand_overs_of_a_mutex(void **state) {
    (void)state;
    hand_overs(LATCHWORK_KIND_MUTEX, 4);
}
static void hand_overs_of_a_fair_lock(void **state) {
    (void)state;
    hand_overs(LATCHWORK_KIND_FAIR, 6);
}

/* Tests that sleeping waiters cost nothing except the rare attempts of the first waiter in line. */
static void sleepers_send_nothing(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_kind(c, "a", LATCHWORK_KIND_MUTEX, 60000);
    struct latchwork_hold *h = take(l, 0);
    pthread_t t[THREADS];
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, turns, l);
    pthread_barrier_wait(&start);
    lw_sleep_ms(300);
    cost();
    lw_sleep_ms(1000);
    assert_true(cost().evalsha <= 1);
    assert_ok(latchwork_hold_release(h, &error));
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(fails, 0);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(an_uncontended_pair, flush),
                                       cmocka_unit_test_setup(renewals_and_nesting, flush),
                                       cmocka_unit_test_setup(scripts_flushed, flush),
                                       cmocka_unit_test_setup(hand_overs_of_a_mutex, flush),
                                       cmocka_unit_test_setup(hand_overs_of_a_fair_lock, flush),
                                       cmocka_unit_test_setup(sleepers_send_nothing, flush)};
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
