/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the renewer with a private redis-server: it renews leases, and reports leases that are
 * lost. */
#include "base/clock.h"
#include "base/log.h"
#include "lock/lane/renewer.h"
#include "tests/support/redis_server.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
/* cmocka.h must be included after the preceding system headers */
#include <cmocka.h>

/* A lease is renewed after a third of its TTL and cancelled after two thirds, so on a busy machine
 * the renewer may be late by TTL_MS / 3. The tests wait until a renewal has happened, and never for
 * a fixed time. */
enum { LIMIT_MS = 60000, TTL_MS = 3600, MANY = 300 };

struct seen {
    struct lw_test_redis *redis;
    redisContext *c;
    struct lw_finder *finder;
    struct lw_leases *leases;
    struct lw_renewer *renewer;
    _Atomic uint64_t lost;
    struct lw_lease lease[MANY];
    char lane[MANY][16];
};

static bool epoch(void *ctx, int shard, char *out, size_t size) {
    (void)ctx, (void)shard;
    snprintf(out, size, "E");
    return true;
}

static const char *prefix(void *ctx, int shard) {
    (void)ctx, (void)shard;
    return "lw:{t.0}:";
}

static redisReply *ask(struct seen *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    redisReply *r = redisvCommand(s->c, fmt, args);
    va_end(args);
    assert_non_null(r);
    if (r->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", fmt, r->str);
    return r;
}

#define DO(...) freeReplyObject(ask(__VA_ARGS__))

static void take(struct seen *s, int i) {
    snprintf(s->lane[i], sizeof s->lane[i], "k%d", i);
    struct lw_lease *l = &s->lease[i];
    l->lane = lw_bytes_of(s->lane[i]);
    l->token = (uint64_t)i + 1;
    int64_t now = lw_boot_ms();
    DO(s, "SET lw:{t.0}:lock:%s w.%d:100 PX %d", s->lane[i], i + 1, (int)TTL_MS);
    lw_leases_add(s->leases, l, now + TTL_MS);
}

static void begin(struct seen *s) {
    *s = (struct seen){.redis = lw_test_redis_start(NULL)};
    assert_non_null(s->redis);
    s->c = lw_test_redis_connect(s->redis);
    assert_non_null(s->c);
    char text[200];
    snprintf(text, sizeof text, "unix://%s", lw_test_redis_path(s->redis));
    struct lw_redis_servers servers = {.at = lw_alloc(sizeof *servers.at), .n = 1};
    assert_int_equal(lw_redis_url_parse(text, servers.at, NULL), 0);
    s->finder = lw_finder_open(&servers, NULL);
    DO(s, "HSET lw:{t.0}:epoch id E");
    s->leases = lw_leases_open(1, TTL_MS);
    struct lw_renewer_setup setup = {
        .finder = s->finder,
        .shards = 1,
        .ttl_ms = TTL_MS,
        .worker_id = "w",
        .leases = s->leases,
        .lost = &s->lost,
        .epoch = epoch,
        .prefix = prefix,
        .ctx = s,
    };
    struct lw_err err = {0};
    s->renewer = lw_renewer_open(&setup, &err);
    if (!s->renewer) fail_msg("%s", err.text);
}

static void end(struct seen *s) {
    lw_renewer_close(s->renewer);
    lw_leases_close(s->leases);
    lw_finder_close(s->finder);
    redisFree(s->c);
    lw_test_redis_stop(s->redis);
}

static bool cancelled(const struct seen *s, int i) {
    return atomic_load(&s->lease[i].held.cancelled);
}

static void until_cancelled(struct seen *s, int i) {
    for (int64_t limit = lw_boot_ms() + LIMIT_MS; !cancelled(s, i); lw_sleep_ms(2))
        if (lw_boot_ms() > limit) fail_msg("lease %d is never cancelled", i);
}

static int64_t deadline(const struct seen *s, int i) {
    return atomic_load(&s->lease[i].held.deadline_ms);
}

/* Waits until each of the leases from index `from` to `to` - 1 was renewed once more. */
static void until_renewed(const struct seen *s, int from, int to) {
    int64_t was[MANY];
    for (int i = from; i < to; i++) was[i] = deadline(s, i);
    for (int i = from; i < to; i++)
        for (int64_t limit = lw_boot_ms() + LIMIT_MS; deadline(s, i) == was[i]; lw_sleep_ms(2)) {
            if (cancelled(s, i)) fail_msg("lease %d is cancelled", i);
            if (lw_boot_ms() > limit) fail_msg("lease %d is never renewed", i);
        }
}

/* Waits until the leases have existed for longer than they would without renewal. */
static void live_on(const struct seen *s, int from, int to) {
    int64_t first = deadline(s, from);
    while (lw_boot_ms() < first) until_renewed(s, from, to);
}

static unsigned lost(const struct seen *s) { return (unsigned)atomic_load(&s->lost); }

static bool is_held(struct seen *s, int i) {
    char mine[32];
    snprintf(mine, sizeof mine, "w.%d:100", i + 1);
    redisReply *r = ask(s, "GET lw:{t.0}:lock:%s", s->lane[i]);
    bool held = r->type == REDIS_REPLY_STRING && strcmp(r->str, mine) == 0;
    freeReplyObject(r);
    return held;
}

/* Takes more leases than fit into one batch. All of them must be renewed for longer than a TTL,
 * although SCRIPT FLUSH removes the scripts from Redis once. */
static void leases_are_kept(void **state) {
    (void)state;
    static struct seen s;
    begin(&s);
    for (int i = 0; i < MANY; i++) take(&s, i);
    until_renewed(&s, 0, MANY);
    DO(&s, "SCRIPT FLUSH");
    live_on(&s, 0, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_false(cancelled(&s, i));
        assert_true(is_held(&s, i));
    }
    assert_int_equal(lost(&s), 0);
    for (int i = 0; i < MANY; i++) lw_leases_remove(s.leases, &s.lease[i]);
    end(&s);
}

static void a_lock_that_is_gone_or_anothers(void **state) {
    (void)state;
    static struct seen s;
    begin(&s);
    for (int i = 0; i < 3; i++) take(&s, i);
    DO(&s, "DEL lw:{t.0}:lock:k0");
    /* The new holder has the token w.22, which begins with the token w.2 of the lost lease. The two
     * tokens must not be mistaken for each other. */
    DO(&s, "SET lw:{t.0}:lock:k1 w.22:101 PX 100000");
    until_cancelled(&s, 0);
    until_cancelled(&s, 1);
    until_renewed(&s, 2, 3); /* lease 2 is still renewed */
    assert_false(cancelled(&s, 2));
    assert_true(is_held(&s, 2));
    assert_int_equal(lost(&s), 2);
    redisReply *r = ask(&s, "PTTL lw:{t.0}:lock:k1");
    assert_true(r->integer > 10000); /* the other holder's lock is unchanged */
    freeReplyObject(r);
    r = ask(&s, "EXISTS lw:{t.0}:lock:k0");
    assert_int_equal(r->integer, 0); /* the renewer has not taken the deleted lock again */
    freeReplyObject(r);
    for (int i = 0; i < 3; i++) lw_leases_remove(s.leases, &s.lease[i]);
    end(&s);
}

static void a_frozen_server_fences(void **state) {
    (void)state;
    static struct seen s;
    begin(&s);
    take(&s, 0);
    kill(lw_test_redis_pid(s.redis), SIGSTOP);
    until_cancelled(&s, 0);
    assert_int_equal(lost(&s), 1);
    kill(lw_test_redis_pid(s.redis), SIGCONT);
    lw_leases_remove(s.leases, &s.lease[0]);
    take(&s, 1); /* a lease added later is renewed as usual */
    live_on(&s, 1, 2);
    assert_false(cancelled(&s, 1));
    assert_true(is_held(&s, 1));
    lw_leases_remove(s.leases, &s.lease[1]);
    end(&s);
}

static void another_epoch_cancels(void **state) {
    (void)state;
    static struct seen s;
    begin(&s);
    take(&s, 0);
    DO(&s, "HSET lw:{t.0}:epoch id F");
    until_cancelled(&s, 0);
    /* The lease was cancelled because of the answer LOST, which the counter of lost leases does not
     * count. */
    assert_int_equal(lost(&s), 0);
    lw_leases_remove(s.leases, &s.lease[0]);
    end(&s);
}

int main(void) {
    lw_log_setup(LW_LOG_OFF, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_are_kept),
        cmocka_unit_test(a_lock_that_is_gone_or_anothers),
        cmocka_unit_test(a_frozen_server_fences),
        cmocka_unit_test(another_epoch_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
