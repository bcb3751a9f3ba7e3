/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which waiter is notified of a release, and which waiter may take the lock first. One of the
 * waiters is a ghost: a client that is in Redis' list of waiters but does nothing. */
#include "tests/lock/fixture.h"

#include <pthread.h>

/* Maximum wait in ms. It is shorter than the 4 s after which a waiter tries again without a
 * notification, so only a waiter that was notified of the release gets the lock in time. */
enum { BEFORE_LOOKING_MS = 2500 };

static struct latchwork_client *client;
static struct latchwork_lock *lock;
static redisContext *ghost_ears;

static int setup(void **state) {
    if (flush(state)) return -1;
    client = open_client(NULL);
    lock = open_kind(client, "a", LATCHWORK_KIND_MUTEX, 60000);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    if (ghost_ears) redisFree(ghost_ears);
    ghost_ears = NULL;
    latchwork_lock_close(lock);
    latchwork_client_close(client);
    return 0;
}

/* Subscribes to the ghost's channel. Like a frozen process, the ghost receives messages but never
 * reacts. */
static void ghost_listens(void) {
    ghost_ears = lw_test_redis_connect(server);
    freeReplyObject(redisCommand(ghost_ears, "SUBSCRIBE lwl:wake:ghost"));
}

struct waiter {
    pthread_t thread;
    struct latchwork_lock *lock;
    int64_t wait_ms;
};
static void *wait_for_it(void *arg) {
    struct waiter *w = arg;
    struct latchwork_hold *h;
    struct latchwork_error why = {0};
    enum latchwork_result r = latchwork_lock_acquire(w->lock, w->wait_ms, &h, &why);
    if (r == LATCHWORK_LOCK_OK) r = latchwork_hold_release(h, &why);
    return (void *)(intptr_t)r;
}
static void start_waiter(struct waiter *w, struct latchwork_lock *l, int64_t wait_ms,
                         const char *registered) {
    int64_t before = redis_number("ZCARD %s", registered), until = lw_boot_ms() + 10000;
    *w = (struct waiter){.lock = l, .wait_ms = wait_ms};
    pthread_create(&w->thread, NULL, wait_for_it, w);
    while (redis_number("ZCARD %s", registered) <= before && lw_boot_ms() < until) lw_sleep_ms(1);
    assert_int_equal(redis_number("ZCARD %s", registered), before + 1);
}
static void assert_waiter(struct waiter *w, enum latchwork_result expected) {
    void *r;
    pthread_join(w->thread, &r);
    assert_int_equal((intptr_t)r, expected);
}

static void the_dead_are_passed_over_at_once(void **state) {
    (void)state;
    struct waiter w;
    struct latchwork_hold *h = take(lock, 0);
    redis_says("ZADD lwl:{a}:wait 1 ghost 2 ghost2");
    start_waiter(&w, lock, BEFORE_LOOKING_MS, "lwl:{a}:wait");
    assert_ok(latchwork_hold_release(h, &error));
    assert_waiter(&w, LATCHWORK_LOCK_OK);
}

static void the_frozen_hold_up_until_the_next_look(void **state) {
    (void)state;
    struct waiter w;
    ghost_listens();
    struct latchwork_hold *h = take(lock, 0);
    redis_says("ZADD lwl:{a}:wait 1 ghost");
    start_waiter(&w, lock, 60000, "lwl:{a}:wait");
    assert_ok(latchwork_hold_release(h, &error));
    assert_waiter(&w, LATCHWORK_LOCK_OK);
}

/* A client stops waiting at the moment when it is notified of the release. It must pass the
 * notification on to the next waiter. */
static void who_leaves_passes_it_on(void **state) {
    (void)state;
    struct waiter w;
    struct latchwork_client *other = open_client(NULL);
    struct latchwork_lock *its = open_kind(other, "a", LATCHWORK_KIND_MUTEX, 60000);
    struct latchwork_hold *h = take(lock, 0);

    start_waiter(&w, its, BEFORE_LOOKING_MS, "lwl:{a}:wait");
    pthread_t t;
    struct waiter leaver = {.lock = lock, .wait_ms = 600};
    int64_t before = redis_number("ZCARD lwl:{a}:wait"), until = lw_boot_ms() + 10000;
    pthread_create(&t, NULL, wait_for_it, &leaver);
    while (redis_number("ZCARD lwl:{a}:wait") <= before && lw_boot_ms() < until) lw_sleep_ms(1);
    /* Produce the state after a release of which only the client of `leaver` was notified: the lock
     * is free, and the client of `leaver` is no longer in the list of waiters. */
    redisReply *r = redisCommand(admin, "ZRANGE lwl:{a}:wait -1 -1");
    redis_says("ZREM lwl:{a}:wait %s", r->element[0]->str);
    freeReplyObject(r);
    redis_says("DEL lwl:{a}:lock");
    pthread_join(t, NULL);
    assert_waiter(&w, LATCHWORK_LOCK_OK);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    latchwork_lock_close(its);
    latchwork_client_close(other);
}

static void assert_try(enum latchwork_result expected, struct latchwork_lock *l) {
    struct latchwork_hold *h;
    assert_result(expected, latchwork_lock_try(l, &h, &error));
    if (h) assert_ok(latchwork_hold_release(h, &error));
}
static void ghost_lives_for(int64_t ms) {
    redis_says("ZADD lwl:{a}:alive %lld ghost", (long long)(lw_wall_ms() + ms));
}

static void a_fair_lock_waits_for_the_first_in_line_if_it_lives(void **state) {
    (void)state;
    struct latchwork_lock *l = open_kind(client, "a", LATCHWORK_KIND_FAIR, 60000);
    ghost_listens();
    redis_says("ZADD lwl:{a}:queue 1 ghost:1");
    ghost_lives_for(60000);
    assert_try(LATCHWORK_LOCK_BUSY, l);
    ghost_lives_for(-1);
    assert_try(LATCHWORK_LOCK_OK, l);
    assert_string_equal(redis_says("ZCARD lwl:{a}:queue"), "0");
    latchwork_lock_close(l);
}

static void readers_and_writers_go_in_the_order_they_came(void **state) {
    (void)state;
    struct latchwork_lock *r = open_kind(client, "a", LATCHWORK_KIND_READ, 60000),
                          *w = open_kind(client, "a", LATCHWORK_KIND_WRITE, 60000);
    ghost_listens();
    ghost_lives_for(60000);
    struct latchwork_hold *h = take(r, 0);
    assert_try(LATCHWORK_LOCK_OK, r);
    /* A writer waits from now on, so no new reader gets the lock. */
    redis_says("ZADD lwl:{a}:queue 1 ghost:1");
    assert_try(LATCHWORK_LOCK_BUSY, r);
    assert_ok(latchwork_hold_release(h, &error));
    assert_try(LATCHWORK_LOCK_BUSY, r);
    assert_try(LATCHWORK_LOCK_BUSY, w);
    redis_says("ZREM lwl:{a}:queue ghost:1");
    /* A reader waits from now on, so a writer that comes later must let the reader go first. */
    redis_says("ZADD lwl:{a}:read-queue 1 ghost:1");
    assert_try(LATCHWORK_LOCK_BUSY, w);
    assert_try(LATCHWORK_LOCK_OK, r);
    ghost_lives_for(-1);
    assert_try(LATCHWORK_LOCK_OK, w);
    latchwork_lock_close(r), latchwork_lock_close(w);
}

/* Tests that the release by a writer wakes all waiting readers at once. */
static void readers_come_in_together(void **state) {
    (void)state;
    struct latchwork_lock *r = open_kind(client, "a", LATCHWORK_KIND_READ, 60000),
                          *w = open_kind(client, "a", LATCHWORK_KIND_WRITE, 60000);
    struct latchwork_hold *h = take(w, 0);
    struct waiter waiter[5];
    for (int i = 0; i < 5; i++) start_waiter(&waiter[i], r, 60000, "lwl:{a}:read-queue");
    assert_ok(latchwork_hold_release(h, &error));
    for (int i = 0; i < 5; i++) assert_waiter(&waiter[i], LATCHWORK_LOCK_OK);
    assert_try(LATCHWORK_LOCK_OK, w);
    latchwork_lock_close(r), latchwork_lock_close(w);
}

/* Only the first thread in line tries to take the lock. The threads behind it must also learn that
 * Redis cannot be reached: BUSY would mean that others hold the lock. */
static void all_in_line_learn_that_redis_is_unreachable(void **state) {
    (void)state;
    struct latchwork_client *c = latchwork_client_open("redis://127.0.0.1:1", NULL, &error);
    assert_non_null(c);
    struct latchwork_lock *l = latchwork_lock_open(c, "a", NULL, &error);
    assert_non_null(l);
    struct waiter waiter[3];
    for (int i = 0; i < 3; i++) {
        waiter[i] = (struct waiter){.lock = l, .wait_ms = 1000};
        pthread_create(&waiter[i].thread, NULL, wait_for_it, &waiter[i]);
    }
    for (int i = 0; i < 3; i++) assert_waiter(&waiter[i], LATCHWORK_LOCK_ERROR);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {T(the_dead_are_passed_over_at_once),
                                       T(the_frozen_hold_up_until_the_next_look),
                                       T(who_leaves_passes_it_on),
                                       T(a_fair_lock_waits_for_the_first_in_line_if_it_lives),
                                       T(readers_and_writers_go_in_the_order_they_came),
                                       T(readers_come_in_together),
                                       T(all_in_line_learn_that_redis_is_unreachable)};
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
