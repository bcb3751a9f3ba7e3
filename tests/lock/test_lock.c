/* SPDX-License-Identifier: Apache-2.0 */
/* Tests each kind of lock, step by step, on a real Redis. */
#include "lock/client.h"
#include "tests/lock/fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static struct latchwork_client *client;

static int setup(void **state) {
    if (flush(state)) return -1;
    client = open_client(NULL);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    latchwork_client_close(client);
    return 0;
}

static void assert_taken(struct latchwork_lock *l) {
    struct latchwork_hold *h;
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &h, &error));
    assert_null(h);
    assert_int_equal(error.code, LATCHWORK_E_BUSY);
}

static void mutex_excludes_and_names_its_holder(void **state) {
    (void)state;
    struct latchwork_lock *l = open_lock(client, "a", NULL);
    struct latchwork_hold *h = take(l, 0);
    assert_string_equal(redis_says("GET lwl:{a}:lock"), latchwork_hold_token(h));
    assert_true(redis_number("PTTL lwl:{a}:lock") > 5000);
    assert_taken(l);
    assert_ok(latchwork_hold_check(h, &error));
    assert_false(latchwork_hold_lost(h));
    assert_true(latchwork_hold_left_ms(h) > 0 && latchwork_hold_left_ms(h) <= 10000);
    assert_ok(latchwork_hold_release(h, &error));
    assert_string_equal(redis_says("EXISTS lwl:{a}:lock"), "0");
    latchwork_lock_close(l);
}

/* Tests that a hold is lost if its lock was broken, has expired or was deleted, and that calls with
 * the lost hold do not change the lock of the next holder. */
static void every_kind_knows_when_it_is_not_its_own(void **state) {
    (void)state;
    for (enum latchwork_kind kind = LATCHWORK_KIND_MUTEX; kind <= LATCHWORK_KIND_SEMAPHORE;
         kind++) {
        struct latchwork_lock *l = open_kind(client, "a", kind, 10000);
        for (int how = 0; how < 3; how++) {
            struct latchwork_hold *h = take(l, 0);
            uint64_t fence = latchwork_hold_fence(h);
            if (how == 0) lw_test_redis_flush(server);
            if (how == 1) assert_ok(latchwork_lock_break(l, NULL, &error));
            if (how < 2) {
                struct latchwork_hold *other = NULL;
                if (kind == LATCHWORK_KIND_REENTRANT)
                    assert_ok(latchwork_lock_acquire_as(l, 7, 0, &other, &error));
                else
                    assert_ok(latchwork_lock_try(l, &other, &error));
                assert_true(latchwork_hold_fence(other) > fence);
                assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_check(h, &error));
                assert_int_equal(error.code, LATCHWORK_E_NOT_OWNER);
                assert_true(latchwork_hold_lost(h));
                assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_renew(h, 0, &error));
                assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
                assert_ok(latchwork_hold_check(other, &error));
                assert_ok(latchwork_hold_release(other, &error));
            } else {
                assert_ok(latchwork_hold_renew(h, 0, &error));
                assert_ok(latchwork_hold_release(h, &error));
            }
        }
        latchwork_lock_close(l);
        lw_test_redis_flush(server);
    }
}

static void an_expired_hold_is_lost_and_the_lock_free(void **state) {
    (void)state;
    for (enum latchwork_kind kind = LATCHWORK_KIND_MUTEX; kind <= LATCHWORK_KIND_SEMAPHORE;
         kind++) {
        struct latchwork_lock *l = open_kind(client, "a", kind, 50);
        /* waits, because on a slow machine a lease may end before its grant has come */
        struct latchwork_hold *h = take(l, 30000);
        lw_sleep_ms(70);
        assert_true(latchwork_hold_lost(h));
        assert_int_equal(latchwork_hold_left_ms(h), 0);
        assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_renew(h, 0, &error));
        assert_int_equal(error.code, LATCHWORK_E_EXPIRED);
        assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_check(h, &error));
        assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
        latchwork_lock_close(l);
        lw_test_redis_flush(server);
    }
}

static void fences_grow_over_everything(void **state) {
    (void)state;
    struct latchwork_lock *l = open_lock(client, "a", NULL);
    uint64_t last = 0;
    for (int i = 0; i < 40; i++) {
        if (i % 4 == 1) lw_test_redis_flush(server);
        if (i % 4 == 2) redis_says("SCRIPT FLUSH");
        if (i % 4 == 3) {
            /* Set the fence counter far ahead of the clock, as if the clock had been set back. */
            redis_says("SET lwl:{a}:fence %llu", (unsigned long long)last + 1000000000);
        }
        struct latchwork_hold *h = take(l, 0);
        if (latchwork_hold_fence(h) <= last)
            fail_msg("fence %llu after %llu", (unsigned long long)latchwork_hold_fence(h),
                     (unsigned long long)last);
        last = latchwork_hold_fence(h);
        assert_ok(latchwork_hold_release(h, &error));
    }
    assert_true(redis_number("PTTL lwl:{a}:fence") > 0);
    latchwork_lock_close(l);
}

static void reentrant_is_counted_and_lost_as_a_whole(void **state) {
    (void)state;
    struct latchwork_lock *l = open_kind(client, "a", LATCHWORK_KIND_REENTRANT, 10000);
    struct latchwork_hold *h = take(l, 0), *again, *other;
    assert_ok(latchwork_lock_acquire(l, 0, &again, &error));
    assert_ptr_equal(h, again);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire_as(l, 1, 0, &other, &error));
    assert_ok(latchwork_hold_release(h, &error));
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire_as(l, 1, 0, &other, &error));
    assert_ok(latchwork_hold_release(h, &error));
    assert_ok(latchwork_lock_acquire_as(l, 1, 0, &other, &error));
    assert_ok(latchwork_lock_acquire_as(l, 1, 0, &again, &error));
    assert_ptr_equal(other, again);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &h, &error));
    lw_test_redis_flush(server);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_check(other, &error));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_lock_acquire_as(l, 1, 0, &again, &error));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(other, &error));
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(other, &error));
    assert_ok(latchwork_lock_acquire_as(l, 1, 0, &again, &error));
    assert_ok(latchwork_hold_release(again, &error));
    latchwork_lock_close(l);
}

static void readers_share_and_writers_do_not(void **state) {
    (void)state;
    struct latchwork_lock *r = open_kind(client, "a", LATCHWORK_KIND_READ, 10000),
                          *w = open_kind(client, "a", LATCHWORK_KIND_WRITE, 10000);
    struct latchwork_hold *one = take(r, 0), *two = take(r, 0);
    assert_taken(w);
    assert_ok(latchwork_hold_release(one, &error));
    assert_taken(w);
    assert_ok(latchwork_hold_release(two, &error));
    struct latchwork_hold *h = take(w, 0);
    assert_taken(w);
    assert_taken(r);
    assert_ok(latchwork_hold_release(h, &error));
    assert_ok(latchwork_hold_release(take(r, 0), &error));
    latchwork_lock_close(r);
    latchwork_lock_close(w);
}

static void a_semaphore_has_n_permits(void **state) {
    (void)state;
    struct latchwork_lock *l = open_kind(client, "a", LATCHWORK_KIND_SEMAPHORE, 10000);
    struct latchwork_hold *h[3];
    for (int i = 0; i < 3; i++) h[i] = take(l, 0);
    assert_taken(l);
    assert_ok(latchwork_hold_release(h[1], &error));
    h[1] = take(l, 0);
    assert_taken(l);
    for (int i = 0; i < 3; i++) assert_ok(latchwork_hold_release(h[i], &error));
    assert_string_equal(redis_says("EXISTS lwl:{a}:permits"), "0");
    latchwork_lock_close(l);
}

static void plain_is_what_other_clients_write(void **state) {
    (void)state;
    for (int no_scripts = 0; no_scripts < 2; no_scripts++) {
        struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT,
                                              .flags = no_scripts ? LATCHWORK_FLAG_NO_SCRIPTS : 0};
        struct latchwork_client *c = open_client(&co);
        struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_PLAIN};
        struct latchwork_lock *l = open_lock(c, "shop:lock", &o);
        struct latchwork_hold *h = take(l, 0);
        const char *value = redis_says("GET shop:lock");
        assert_int_equal(strlen(value), 32);
        assert_int_equal(strspn(value, "0123456789abcdef"), 32);
        assert_string_equal(value, latchwork_hold_token(h));
        assert_true(redis_number("PTTL shop:lock") > 0);
        assert_string_equal(redis_says("SET shop:lock foreign NX PX 1000"), "nil");
        assert_ok(latchwork_hold_release(h, &error));
        assert_string_equal(redis_says("SET shop:lock foreign NX PX 60"), "OK");
        assert_taken(l);
        /* The holder does not use this library and announces no release, so the waiter must
         * poll. */
        h = take(l, 5000);
        assert_ok(latchwork_hold_renew(h, 20000, &error));
        assert_true(redis_number("PTTL shop:lock") > 15000);
        redis_says("SET shop:lock foreign PX 1000");
        assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
        assert_string_equal(redis_says("GET shop:lock"), "foreign");
        redis_says("DEL shop:lock");
        latchwork_lock_close(l);
        latchwork_client_close(c);
    }
}

static struct latchwork_name name_of(const char *s) {
    return (struct latchwork_name){s, strlen(s)};
}

static void custom_names_and_the_hint(void **state) {
    (void)state;
    for (int no_scripts = 0; no_scripts < 2; no_scripts++) {
        struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT,
                                              .flags = no_scripts ? LATCHWORK_FLAG_NO_SCRIPTS : 0};
        struct latchwork_client *c = open_client(&co);
        struct latchwork_lock_names n = {LATCHWORK_NAMES_INIT, .lock = name_of("lw:{o.0}:lock:k"),
                                         .fence = name_of("lw:{o.0}:fence")};
        n.hint_if = name_of("lw:{o.0}:lanes"), n.hint_to = name_of("lw:{o.0}:ready"),
        n.hint = name_of("k");
        struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .names = &n};
        struct latchwork_lock *l = open_lock(c, "k", &o);
        redis_says("SET lw:{o.0}:fence 9000000000000000");
        struct latchwork_hold *h = take(l, 0);
        assert_true(latchwork_hold_fence(h) == 9000000000000001);
        assert_string_equal(redis_says("GET lw:{o.0}:lock:k"), latchwork_hold_token(h));
        assert_string_equal(redis_says("GET lw:{o.0}:fence"), "9000000000000001");
        assert_string_equal(redis_says("PTTL lw:{o.0}:fence"), "-1");
        assert_ok(latchwork_hold_release(h, &error));
        assert_string_equal(redis_says("LLEN lw:{o.0}:ready"), "0");
        redis_says("ZADD lw:{o.0}:lanes 1 k");
        assert_ok(latchwork_hold_release(take(l, 0), &error));
        assert_string_equal(redis_says("LRANGE lw:{o.0}:ready 0 -1"), "");
        assert_string_equal(redis_says("LPOP lw:{o.0}:ready"), "k");
        /* After the release, Redis contains only two keys: the fence counter, and the zset
         * `lanes`. */
        assert_string_equal(redis_says("DBSIZE"), "2");
        latchwork_lock_close(l);
        latchwork_client_close(c);
        lw_test_redis_flush(server);
    }
}

static void a_lock_without_ttl_is_told_and_given_one(void **state) {
    (void)state;
    struct latchwork_hold *h;
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_PLAIN};
    struct latchwork_lock *l = open_lock(client, "old", &o);
    redis_says("SETNX old someone");
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 30, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_TTL);
    assert_ok(latchwork_lock_give_ttl(l, 60000, &error));
    assert_true(redis_number("PTTL old") > 0);
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_give_ttl(l, 60000, &error));
    latchwork_lock_close(l);
    o.give_ttl_ms = 50;
    l = open_lock(client, "old", &o);
    redis_says("SET old someone");
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_try(l, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_TTL);
    assert_ok(latchwork_hold_release(take(l, 5000), &error));
    latchwork_lock_close(l);
}

static void without_scripts(void **state) {
    (void)state;
    struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT,
                                          .flags = LATCHWORK_FLAG_NO_SCRIPTS};
    struct latchwork_client *c = open_client(&co);
    redis_says("CONFIG RESETSTAT");
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                       .ttl_ms = 1000};
    struct latchwork_lock *l = open_lock(c, "a", &o);
    struct latchwork_hold *h = take(l, 0), *other;
    assert_string_equal(redis_says("GET lwl:{a}:lock"), latchwork_hold_token(h));
    /* The second acquire waits longer than the TTL of 1 s and does not get the lock, because the
     * lease is renewed. */
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_acquire(l, 2500, &other, &error));
    assert_ok(latchwork_hold_check(h, &error));
    uint64_t fence = latchwork_hold_fence(h);
    assert_ok(latchwork_hold_release(h, &error));
    lw_test_redis_flush(server);
    h = take(l, 0);
    assert_true(latchwork_hold_fence(h) > fence);
    lw_test_redis_flush(server);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h, &error));
    assert_null(strstr(redis_says("INFO commandstats"), "cmdstat_eval"));
    latchwork_lock_close(l);
    o.kind = LATCHWORK_KIND_FAIR;
    assert_null(latchwork_lock_open(c, "a", &o, &error));
    assert_int_equal(error.code, LATCHWORK_E_NO_SCRIPTS);
    latchwork_client_close(c);
}

/* Extends leases to 8 s by hand, while automatic renewals of the original lease are due every 200
 * ms. No automatic renewal may shorten the lease of 8 s, no matter when it is sent. */
static void a_lease_extended_by_hand_is_not_shortened(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                       .ttl_ms = 600};
    struct latchwork_lock *l = open_lock(c, "a", &o);
    int stalled = 0;
    for (int i = 0; i < 200; i++) {
        int64_t taken_ms = lw_boot_ms();
        struct latchwork_hold *h = take(l, 0);
        /* In every second iteration, wait until about the time of the first automatic renewal. */
        if (i % 2) lw_sleep_ms(195 + i % 10);
        int64_t before_ms = lw_boot_ms();
        enum latchwork_result result = latchwork_hold_renew(h, 8000, &error);
        int64_t spent_ms = lw_boot_ms() - before_ms;
        if (result == LATCHWORK_LOCK_LOST && lw_boot_ms() - taken_ms > 600) {
            /* If this process got no CPU for the whole TTL, the lease may have ended before it was
             * renewed. */
            stalled++;
            latchwork_hold_release(h, &error);
            continue;
        }
        assert_result(LATCHWORK_LOCK_OK, result);
        assert_true(latchwork_hold_left_ms(h) > 7000 - spent_ms);
        if (i == 0) {
            /* In the first iteration, wait until the long lease was renewed automatically: its
             * first renewal is due when a third of the lease is over. */
            lw_sleep_ms(4200);
            assert_true(latchwork_hold_left_ms(h) > 8000 - (lw_boot_ms() - before_ms) - 500);
            assert_true(redis_number("PTTL lwl:{a}:lock") > 600);
        }
        assert_ok(latchwork_hold_release(h, &error));
    }
    assert_in_range(stalled, 0, 100);
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

struct counted {
    int n;
    char last[600];
};
static int count(void *ctx, const struct latchwork_lock_info *i) {
    struct counted *c = ctx;
    c->n++;
    snprintf(c->last, sizeof c->last, "%d %.*s %.*s %d", (int)i->kind, (int)i->name_len, i->name,
             (int)i->label_len, i->label ? i->label : "",
             i->left_ms > 0 && i->fence > 0 && i->since_ms > 1700000000000);
    return 0;
}

static void listing_and_breaking(void **state) {
    (void)state;
    struct latchwork_client_options co = {LATCHWORK_CLIENT_INIT, .label = "me-1"};
    struct latchwork_client *c = open_client(&co);
    struct latchwork_lock *m = open_lock(c, "a}b", NULL),
                          *s = open_kind(c, "s", LATCHWORK_KIND_SEMAPHORE, 10000),
                          *r = open_kind(c, "rw", LATCHWORK_KIND_READ, 10000);
    struct latchwork_hold *h[4] = {take(m, 0), take(s, 0), take(s, 0), take(r, 0)};
    struct counted seen = {0};
    assert_ok(latchwork_lock_list(c, NULL, 0, count, &seen, &error));
    assert_int_equal(seen.n, 4);
    seen.n = 0;
    assert_ok(latchwork_lock_list(c, "a*", 0, count, &seen, &error));
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.last, "0 a}b me-1 1");
    assert_ok(latchwork_lock_show(r, count, &seen, &error));
    assert_string_equal(seen.last, "3 rw me-1 1");
    redis_says("SET plain token PX 5000");
    seen.n = 0;
    assert_ok(latchwork_lock_list(c, "pl*", LATCHWORK_FLAG_KEYS, count, &seen, &error));
    assert_int_equal(seen.n, 1);
    uint64_t fence = 0;
    assert_ok(latchwork_lock_break(m, &fence, &error));
    assert_true(fence > latchwork_hold_fence(h[0]));
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_show(m, count, &seen, &error));
    assert_result(LATCHWORK_LOCK_BUSY, latchwork_lock_break(m, &fence, &error));
    struct latchwork_hold *next = take(m, 0);
    assert_true(latchwork_hold_fence(next) > fence);
    assert_result(LATCHWORK_LOCK_LOST, latchwork_hold_release(h[0], &error));
    assert_ok(latchwork_hold_release(next, &error));
    for (int i = 1; i < 4; i++) assert_ok(latchwork_hold_release(h[i], &error));
    latchwork_lock_close(m), latchwork_lock_close(s), latchwork_lock_close(r);
    latchwork_client_close(c);
}

static void wrong_calls_say_so(void **state) {
    (void)state;
    assert_null(latchwork_client_open("http://x", NULL, &error));
    assert_int_equal(error.code, LATCHWORK_E_ARGUMENT);
    assert_null(latchwork_client_open(url, &(struct latchwork_client_options){0}, &error));
    assert_null(latchwork_lock_open(client, "", NULL, &error));
    assert_null(latchwork_lock_open(client, "}", NULL, &error));
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = 1};
    assert_null(latchwork_lock_open(client, "a", &o, &error));
    o = (struct latchwork_lock_options){LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_SEMAPHORE};
    assert_null(latchwork_lock_open(client, "a", &o, &error));
    o = (struct latchwork_lock_options){LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_FAIR,
                                        .flags = LATCHWORK_FLAG_PLAIN};
    assert_null(latchwork_lock_open(client, "a", &o, &error));
    o = (struct latchwork_lock_options){LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_REDLOCK};
    assert_null(latchwork_lock_open(client, "a", &o, &error));
    struct latchwork_lock *l = open_lock(client, "a", NULL);
    struct latchwork_hold *h;
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_acquire_as(l, 1, 0, &h, &error));
    redis_says("LPUSH lwl:{a}:lock x");
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_acquire(l, 1000, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_TYPE);
    latchwork_lock_close(l);
    struct latchwork_client *c = latchwork_client_open("unix:///nowhere/redis.sock", NULL, &error);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_client_ping(c, &error));
    assert_int_equal(error.code, LATCHWORK_E_CONNECT);
    latchwork_client_close(c);
    redis_says("ACL SETUSER small on >pw ~other:* +@all");
    char with_user[300];
    snprintf(with_user, sizeof with_user, "unix://small:pw@%s", lw_test_redis_path(server));
    c = latchwork_client_open(with_user, NULL, &error);
    l = open_lock(c, "a", NULL);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_acquire(l, 1000, &h, &error));
    assert_int_equal(error.code, LATCHWORK_E_DENIED);
    assert_null(strstr(error.text, "pw"));
    latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* Tests which error code and which advice the caller gets for each error reply of Redis. */
static void error_replies_have_a_meaning(void **state) {
    (void)state;
    static const struct {
        const char *reply, *advice;
        int code;
    } cases[] = {
        {"-NOAUTH Authentication required.\r\n", "give user and password", LATCHWORK_E_DENIED},
        {"-READONLY You can't write against a read only replica.\r\n", "name the master",
         LATCHWORK_E_READONLY},
        {"-ERR Error running script f_0: @user_script:3: OOM command not allowed\r\n",
         "raise maxmemory", LATCHWORK_E_FULL},
        {"-ERR unknown command 'EVALSHA'\r\n", "LATCHWORK_FLAG_NO_SCRIPTS", LATCHWORK_E_NO_SCRIPTS},
        {"-ERR Could not find scripting engine 'lua'\r\n", "load the server's Lua module",
         LATCHWORK_E_NO_SCRIPTS},
        {"-ERR something else\r\n", "something else", LATCHWORK_E_REPLY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        redisReader *reader = redisReaderCreate();
        void *reply = NULL;
        redisReaderFeed(reader, cases[i].reply, strlen(cases[i].reply));
        assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
        assert_null(lw_take_reply(client, reply, &error));
        assert_int_equal(error.code, cases[i].code);
        assert_non_null(strstr(error.text, cases[i].advice));
        redisReaderFree(reader);
    }
}

/* Takes a lock on a server from which the test tries to unload Lua. Lua can be unloaded only in
 * Valkey 9.1 and later, because it is a module there; on any other server the lock is taken as
 * usual. */
static void a_server_without_lua(void **state) {
    (void)state;
    struct lw_test_redis *own =
        lw_test_redis_start((const char *[]){"--enable-module-command", "local", NULL});
    assert_non_null(own);
    redisContext *ctx = lw_test_redis_connect(own);
    redisReply *reply = redisCommand(ctx, "MODULE UNLOAD lua");
    assert_non_null(reply);
    bool without = reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    redisFree(ctx);
    char at[256];
    snprintf(at, sizeof at, "unix://%s", lw_test_redis_path(own));
    struct latchwork_client *c = latchwork_client_open(at, NULL, &error);
    struct latchwork_lock *l = open_lock(c, "a", NULL);
    struct latchwork_hold *h;
    error.code = 0;
    enum latchwork_result result = latchwork_lock_try(l, &h, &error);
    assert_int_equal(result, without ? LATCHWORK_LOCK_ERROR : LATCHWORK_LOCK_OK);
    assert_int_equal(error.code, without ? LATCHWORK_E_NO_SCRIPTS : 0);
    if (!without) assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
    latchwork_client_close(c);
    lw_test_redis_stop(own);
}

static void a_forked_child_is_refused(void **state) {
    (void)state;
    struct latchwork_lock *l = open_lock(client, "a", NULL);
    struct latchwork_hold *h = take(l, 0);
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct latchwork_hold *other;
        int bad = latchwork_lock_try(l, &other, &error) != LATCHWORK_LOCK_ERROR ||
                  error.code != LATCHWORK_E_FORK;
        bad |= latchwork_hold_release(h, &error) != LATCHWORK_LOCK_ERROR ||
               error.code != LATCHWORK_E_FORK;
        latchwork_client_close(client);
        struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .label = "twin"};
        client = latchwork_client_open(url, &o, &error);
        l = latchwork_lock_open(client, "b", NULL, &error);
        bad |= latchwork_lock_try(l, &other, &error) != LATCHWORK_LOCK_OK;
        if (!bad && write(fd[1], latchwork_hold_token(other), 37) != 37) bad = 1;
        _exit(bad);
    }
    int status;
    char childs[37];
    assert_int_equal(read(fd[0], childs, sizeof childs), sizeof childs);
    close(fd[0]), close(fd[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_ok(latchwork_hold_release(h, &error));
    /* The parent's next token must not contain the random bytes that the child process used. */
    struct latchwork_client *twin = open_client(NULL);
    h = take(l, 0);
    latchwork_client_close(twin);
    assert_memory_not_equal(strchr(latchwork_hold_token(h), '/') + 1, childs + 5, 32);
    assert_ok(latchwork_hold_release(h, &error));
    latchwork_lock_close(l);
}

static void *interrupt_soon(void *arg) {
    lw_sleep_ms(50);
    latchwork_client_interrupt(arg);
    return NULL;
}
static void an_interrupted_client_waits_no_more(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *l = open_lock(client, "a", NULL), *mine = open_lock(c, "a", NULL);
    struct latchwork_hold *h = take(l, 0), *other;
    pthread_t t;
    pthread_create(&t, NULL, interrupt_soon, c);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_acquire(mine, -1, &other, &error));
    assert_int_equal(error.code, LATCHWORK_E_CLOSED);
    pthread_join(t, NULL);
    assert_result(LATCHWORK_LOCK_ERROR, latchwork_lock_acquire(mine, 1000, &other, &error));
    assert_ok(latchwork_hold_release(h, &error));
    assert_ok(latchwork_lock_try(mine, &other, &error));
    assert_ok(latchwork_hold_release(other, &error));
    latchwork_lock_close(mine), latchwork_lock_close(l);
    latchwork_client_close(c);
}

/* The next tests call the public functions with NULL in place of their pointers. A function must
 * return an error that says which pointer is NULL, or do nothing, but never crash. Functions that
 * only query a hold treat NULL as a lost hold. */
static int seen_none(void *ctx, const struct latchwork_lock_info *info) {
    (void)ctx, (void)info;
    return 0;
}
#define assert_wrong(call)                                  \
    do {                                                    \
        error.code = 0;                                     \
        assert_result(LATCHWORK_LOCK_ERROR, call);          \
        assert_int_equal(error.code, LATCHWORK_E_ARGUMENT); \
        assert_non_null(strstr(error.text, "NULL"));        \
    } while (0)
#define assert_none(call)                                   \
    do {                                                    \
        error.code = 0;                                     \
        assert_null(call);                                  \
        assert_int_equal(error.code, LATCHWORK_E_ARGUMENT); \
    } while (0)

static void null_openers(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_row row = {"t", "1"}, no_table = {NULL, "1"}, no_id = {"t", NULL};
    assert_none(latchwork_client_open(NULL, NULL, &error));
    assert_null(latchwork_client_open(NULL, NULL, NULL));
    assert_none(latchwork_lock_open(NULL, "n", NULL, &error));
    assert_none(latchwork_lock_open(c, NULL, NULL, &error));
    assert_null(latchwork_lock_open(NULL, NULL, NULL, NULL));
    assert_none(latchwork_rows_open(NULL, NULL, &row, 1, NULL, &error));
    assert_none(latchwork_rows_open(c, NULL, NULL, 1, NULL, &error));
    assert_none(latchwork_rows_open(c, NULL, &no_table, 1, NULL, &error));
    assert_none(latchwork_rows_open(c, NULL, &no_id, 1, NULL, &error));
    assert_null(latchwork_rows_open(NULL, NULL, NULL, 0, NULL, NULL));
    assert_none(latchwork_redlock_open(NULL, 1, NULL, &error));
    assert_none(latchwork_redlock_open((const char *const[]){NULL}, 1, NULL, &error));
    assert_null(latchwork_redlock_open(NULL, 0, NULL, NULL));
    assert_none(latchwork_redlock_lock_open(NULL, "n", NULL, &error));
    assert_null(latchwork_redlock_lock_open(NULL, NULL, NULL, NULL));
    latchwork_client_interrupt(NULL), latchwork_client_close(NULL), latchwork_lock_close(NULL);
    latchwork_redlock_interrupt(NULL), latchwork_redlock_close(NULL);
    assert_wrong(latchwork_client_ping(NULL, &error));
    assert_wrong(latchwork_lock_list(NULL, NULL, 0, seen_none, NULL, &error));
    assert_wrong(latchwork_lock_list(c, NULL, 0, NULL, NULL, &error));
    assert_int_equal(latchwork_client_ping(NULL, NULL), LATCHWORK_LOCK_ERROR);
    latchwork_client_close(c);
}

static void null_locks_and_holds(void **state) {
    (void)state;
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_lock *mutex = open_lock(c, "n", NULL),
                          *again = open_kind(c, "r", LATCHWORK_KIND_REENTRANT, 1000);
    struct latchwork_hold *h = NULL;
    assert_wrong(latchwork_lock_try(NULL, &h, &error));
    assert_wrong(latchwork_lock_try(mutex, NULL, &error));
    assert_wrong(latchwork_lock_try(NULL, NULL, &error));
    assert_wrong(latchwork_lock_acquire(NULL, 10, &h, &error));
    assert_wrong(latchwork_lock_acquire(mutex, 10, NULL, &error));
    assert_wrong(latchwork_lock_acquire_as(NULL, 1, 10, &h, &error));
    assert_wrong(latchwork_lock_acquire_as(again, 1, 10, NULL, &error));
    assert_int_equal(latchwork_lock_acquire_as(mutex, 1, 10, NULL, NULL), LATCHWORK_LOCK_ERROR);
    assert_wrong(latchwork_hold_release(NULL, &error));
    assert_wrong(latchwork_hold_renew(NULL, 0, &error));
    assert_wrong(latchwork_hold_check(NULL, &error));
    assert_wrong(latchwork_lock_show(NULL, seen_none, NULL, &error));
    assert_wrong(latchwork_lock_show(mutex, NULL, NULL, &error));
    assert_wrong(latchwork_lock_break(NULL, NULL, &error));
    assert_wrong(latchwork_lock_give_ttl(NULL, 1000, &error));
    assert_int_equal(latchwork_hold_release(NULL, NULL), LATCHWORK_LOCK_ERROR);
    latchwork_hold_forget(NULL);
    assert_int_equal(latchwork_hold_fence(NULL), 0);
    assert_int_equal(latchwork_hold_fence_at(NULL, 0), 0);
    assert_int_equal(latchwork_hold_deadline_ms(NULL), 0);
    assert_int_equal(latchwork_hold_left_ms(NULL), 0);
    assert_int_not_equal(latchwork_hold_lost(NULL), 0);
    assert_string_equal(latchwork_hold_token(NULL), "");
    latchwork_lock_close(mutex), latchwork_lock_close(again), latchwork_client_close(c);
}

static int count_seen(void *ctx, const struct latchwork_lock_info *info) {
    (void)info;
    ++*(int *)ctx;
    return 0;
}
/* Tests that latchwork_lock_list() skips a key that has the name of a lock but another Redis type,
 * and still lists the locks after it. */
static void a_foreign_key_does_not_end_a_listing(void **state) {
    (void)state;
    static const char *const foreign[] = {"lock", "write", "read", "permits"};
    struct latchwork_client *c = open_client(NULL);
    struct latchwork_hold *h[8];
    struct latchwork_lock *l[8];
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "mine%d", i);
        l[i] = open_lock(c, name, NULL);
        h[i] = take(l[i], 0);
    }
    for (size_t i = 0; i < 4; i++) redis_says("LPUSH lwl:{foreign}:%s x", foreign[i]);
    /* Make the key for the waiters a list instead of a zset, so that they cannot be counted. */
    redis_says("LPUSH lwl:{mine0}:wait x");
    int n = 0;
    assert_ok(latchwork_lock_list(c, NULL, 0, count_seen, &n, &error));
    assert_true(n >= 7);
    redis_says("DEL lwl:{mine0}:wait");
    for (int i = 0; i < 8; i++) {
        assert_ok(latchwork_hold_release(h[i], &error));
        latchwork_lock_close(l[i]);
    }
    latchwork_client_close(c);
}

/* In the last millisecond of a lease, PTTL returns 0. The waiter must then try again at once, and
 * must not wait as long as it does for a lock without TTL. */
static void a_lease_in_its_last_millisecond(void **state) {
    (void)state;
    struct latchwork_client *scriptless = open_client(&(struct latchwork_client_options){
        LATCHWORK_CLIENT_INIT, .flags = LATCHWORK_FLAG_NO_SCRIPTS});
    struct latchwork_lock *locks[] = {open_kind(client, "a", LATCHWORK_KIND_MUTEX, 10000),
                                      open_lock(scriptless, "a", NULL)};
    for (int i = 0; i < 400; i++) {
        redis_says("SET lwl:{a}:lock x PX 1");
        assert_ok(latchwork_hold_release(take(locks[i % 2], 2000), &error));
    }
    for (int i = 0; i < 2; i++) latchwork_lock_close(locks[i]);
    latchwork_client_close(scriptless);
}

/* --- one hold, many threads ------------------------------------------------------------------- */

enum { ROUNDS = 150, RENEWERS = 4 };
struct shared_hold {
    struct latchwork_hold *hold;
    pthread_barrier_t begin, end;
    atomic_bool over;
    atomic_int failures;
};
struct renewer {
    struct shared_hold *shared;
    int64_t ttl_ms;
};

static void *renew_in_rounds(void *arg) {
    struct renewer *r = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&r->shared->begin);
        if (latchwork_hold_renew(r->shared->hold, r->ttl_ms, NULL))
            atomic_fetch_add(&r->shared->failures, 1);
        pthread_barrier_wait(&r->shared->end);
    }
    return NULL;
}
static void *look_always(void *arg) {
    struct shared_hold *s = arg;
    uint64_t fence = latchwork_hold_fence(s->hold);
    while (!atomic_load(&s->over)) {
        bool fine = latchwork_hold_fence(s->hold) == fence && !latchwork_hold_lost(s->hold) &&
                    latchwork_hold_left_ms(s->hold) > 0 &&
                    latchwork_hold_deadline_ms(s->hold) > 0 && latchwork_hold_token(s->hold)[0];
        if (!fine || latchwork_hold_check(s->hold, NULL)) atomic_fetch_add(&s->failures, 1);
    }
    return NULL;
}

/* Several threads renew one hold at the same time, to 60 s or to 20 s. The hold's deadline must
 * never be later than the end of the lease in Redis, no matter which renewal came last. */
static void one_hold_in_many_threads(void **state) {
    (void)state;
    struct latchwork_lock *l = open_kind(client, "a", LATCHWORK_KIND_MUTEX, 20000);
    struct shared_hold s = {.hold = take(l, 0)};
    pthread_barrier_init(&s.begin, NULL, RENEWERS + 1);
    pthread_barrier_init(&s.end, NULL, RENEWERS + 1);
    pthread_t renewers[RENEWERS], looker;
    struct renewer r[RENEWERS];
    pthread_create(&looker, NULL, look_always, &s);
    for (int i = 0; i < RENEWERS; i++) {
        r[i] = (struct renewer){&s, i % 2 ? 60000 : 20000};
        pthread_create(&renewers[i], NULL, renew_in_rounds, &r[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&s.begin);
        pthread_barrier_wait(&s.end);
        int64_t ends_ms = redis_number("PTTL lwl:{a}:lock") + lw_boot_ms();
        if (latchwork_hold_deadline_ms(s.hold) > ends_ms + 1)
            fail_msg("round %d: the hold ends %lld ms later than the lease", i,
                     (long long)(latchwork_hold_deadline_ms(s.hold) - ends_ms));
    }
    atomic_store(&s.over, true);
    for (int i = 0; i < RENEWERS; i++) pthread_join(renewers[i], NULL);
    pthread_join(looker, NULL);
    assert_int_equal(s.failures, 0);
    assert_ok(latchwork_hold_release(s.hold, &error));
    pthread_barrier_destroy(&s.begin);
    pthread_barrier_destroy(&s.end);
    latchwork_lock_close(l);
}

static void versions_and_names(void **state) {
    (void)state;
    assert_string_equal(latchwork_version(), LATCHWORK_VERSION);
    assert_int_equal(latchwork_version_number(), LATCHWORK_VERSION_NUMBER);
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", LATCHWORK_VERSION_MAJOR, LATCHWORK_VERSION_MINOR,
             LATCHWORK_VERSION_PATCH);
    assert_string_equal(text, LATCHWORK_VERSION);
    assert_string_equal(latchwork_code_name(LATCHWORK_E_NONE), "none");
    assert_string_equal(latchwork_code_name(LATCHWORK_E_SYSTEM), "system");
    assert_string_equal(latchwork_code_name(-1), "other");
    assert_string_equal(latchwork_code_name(LATCHWORK_E_SYSTEM + 1), "other");
    for (int code = 0; code <= LATCHWORK_E_SYSTEM; code++)
        assert_non_null(latchwork_code_name(code));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {T(mutex_excludes_and_names_its_holder),
                                       T(every_kind_knows_when_it_is_not_its_own),
                                       T(an_expired_hold_is_lost_and_the_lock_free),
                                       T(fences_grow_over_everything),
                                       T(reentrant_is_counted_and_lost_as_a_whole),
                                       T(readers_share_and_writers_do_not),
                                       T(a_semaphore_has_n_permits),
                                       T(plain_is_what_other_clients_write),
                                       T(custom_names_and_the_hint),
                                       T(a_lock_without_ttl_is_told_and_given_one),
                                       T(without_scripts),
                                       T(a_lease_extended_by_hand_is_not_shortened),
                                       T(listing_and_breaking),
                                       T(wrong_calls_say_so),
                                       T(error_replies_have_a_meaning),
                                       T(a_server_without_lua),
                                       T(a_forked_child_is_refused),
                                       T(an_interrupted_client_waits_no_more),
                                       T(null_openers),
                                       T(null_locks_and_holds),
                                       T(a_lease_in_its_last_millisecond),
                                       T(one_hold_in_many_threads),
                                       T(versions_and_names),
                                       T(a_foreign_key_does_not_end_a_listing)};
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
