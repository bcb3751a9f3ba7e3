/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how a worker gets hints from a private redis-server: in normal operation, after a lost
 * connection, and at maxmemory. */
#include "base/clock.h"
#include "base/log.h"
#include "consumer/process/hints.h"
#include "tests/support/redis_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
/* cmocka.h must be included after the preceding system headers */
#include <cmocka.h>

#define READY "lw:{t.0}:ready"
#define CLAIMED "lw:{t.0}:claimed:w"

enum { LIMIT_MS = 20000, KEEP = 16, TEXT = 32 };

struct seen {
    struct lw_test_redis *redis;
    redisContext *c;
    struct lw_hints *hints;
    struct lw_finder *finder;
    int n;
    char text[KEEP][TEXT];
};

static void on_hint(void *ctx, int shard, struct lw_bytes lane) {
    struct seen *s = ctx;
    assert_int_equal(shard, 0);
    if (s->n < KEEP) snprintf(s->text[s->n], TEXT, "%.*s", (int)lane.n, lane.p);
    s->n++;
}

static bool epoch(void *ctx, int shard, char *out, size_t size) {
    (void)ctx, (void)shard;
    snprintf(out, size, "E");
    return true;
}

static void begin(struct seen *s, const char *const *args) {
    *s = (struct seen){.redis = lw_test_redis_start(args)};
    assert_non_null(s->redis);
    s->c = lw_test_redis_connect(s->redis);
    assert_non_null(s->c);
    char text[200];
    snprintf(text, sizeof text, "unix://%s", lw_test_redis_path(s->redis));
    struct lw_redis_servers servers = {.at = lw_alloc(sizeof *servers.at), .n = 1};
    assert_int_equal(lw_redis_url_parse(text, servers.at, NULL), 0);
    s->finder = lw_finder_open(&servers, NULL);
    struct lw_hints_setup setup = {.finder = s->finder,
                                   .ttl_ms = 10000,
                                   .prefix = "lw:{t.0}:",
                                   .hint = on_hint,
                                   .epoch = epoch,
                                   .ctx = s};
    s->hints = lw_hints_open(&setup);
}

static void end(struct seen *s) {
    lw_hints_close(s->hints);
    lw_finder_close(s->finder);
    redisFree(s->c);
    lw_test_redis_stop(s->redis);
}

static long long ask(struct seen *s, const char *command) {
    redisReply *r = redisCommand(s->c, command);
    assert_non_null(r);
    if (r->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", command, r->str);
    long long v = r->integer;
    freeReplyObject(r);
    return v;
}

static void turn(struct seen *s) {
    int64_t left = lw_hints_due_ms(s->hints) - lw_boot_ms();
    struct pollfd p = lw_hints_poll(s->hints);
    poll(&p, 1, left < 0 ? 0 : left > 10 ? 10 : (int)left);
    lw_hints_serve(s->hints, p.revents);
    lw_hints_step(s->hints);
}

static void until(struct seen *s, int n) {
    for (int64_t limit = lw_boot_ms() + LIMIT_MS; s->n < n; turn(s))
        if (lw_boot_ms() > limit) fail_msg("%d hints, not %d", s->n, n);
}

static void until_popping(struct seen *s) {
    for (int64_t limit = lw_boot_ms() + LIMIT_MS;; turn(s)) {
        redisReply *r = redisCommand(s->c, "INFO clients");
        bool popping = strstr(r->str, "blocked_clients:1");
        freeReplyObject(r);
        if (popping) return;
        if (lw_boot_ms() > limit) fail_msg("nobody waits for a hint");
    }
}

static void turn_for(struct seen *s, int64_t ms) {
    for (int64_t limit = lw_boot_ms() + ms; lw_boot_ms() < limit;) turn(s);
}

static void told_while_wanted(void **state) {
    (void)state;
    struct seen s;
    begin(&s, NULL);
    turn_for(&s, 50);
    /* Before hints are needed for the first time, there is no connection to Redis. */
    assert_int_equal(lw_hints_poll(s.hints).fd, -1);
    lw_hints_want(s.hints, READY, CLAIMED, true);
    until_popping(&s);
    ask(&s, "LPUSH " READY " a b");
    until(&s, 2);
    assert_string_equal(s.text[0], "a");
    assert_string_equal(s.text[1], "b");
    assert_int_equal(ask(&s, "LLEN " CLAIMED), 2);
    until_popping(&s);
    /* The list `claimed` has a TTL, so that Redis deletes the list if the worker dies now. */
    assert_true(ask(&s, "PTTL " CLAIMED) > 0);
    lw_hints_want(s.hints, READY, CLAIMED, false);
    ask(&s, "LPUSH " READY " c d");
    /* The pop that was in flight when hints were no longer wanted still returns one hint. */
    until(&s, 3);
    turn_for(&s, 100);
    assert_int_equal(s.n, 3);
    assert_int_equal(ask(&s, "LLEN " READY), 1);
    end(&s);
}

static void a_broken_pop_loses_nothing(void **state) {
    (void)state;
    struct seen s;
    begin(&s, NULL);
    lw_hints_want(s.hints, READY, CLAIMED, true);
    until_popping(&s);
    /* Put hints into the list `claimed`, as if the reply to a pop had been lost. */
    ask(&s, "RPUSH " CLAIMED " new old");
    ask(&s, "CLIENT KILL TYPE normal SKIPME yes");
    until(&s, 2);
    assert_string_equal(s.text[0], "old");
    assert_string_equal(s.text[1], "new");
    until_popping(&s);
    end(&s);
}

static void at_maxmemory_a_script_pops(void **state) {
    (void)state;
    struct seen s;
    begin(&s, NULL);
    ask(&s, "HSET lw:{t.0}:epoch id E");
    ask(&s, "LPUSH " READY " a b c");
    ask(&s, "CONFIG SET maxmemory 1");
    lw_hints_want(s.hints, READY, CLAIMED, true);
    until(&s, 3);
    assert_string_equal(s.text[0], "a");
    assert_string_equal(s.text[2], "c");
    assert_int_equal(ask(&s, "LLEN " CLAIMED), 3);
    ask(&s, "CONFIG SET maxmemory 0");
    until_popping(&s);
    ask(&s, "LPUSH " READY " d");
    until(&s, 4);
    assert_string_equal(s.text[3], "d");
    end(&s);
}

static void blmove_where_brpoplpush_is_gone(void **state) {
    (void)state;
    struct seen s;
    begin(&s, (const char *const[]){"--rename-command", "BRPOPLPUSH", "", NULL});
    lw_hints_want(s.hints, READY, CLAIMED, true);
    until_popping(&s);
    ask(&s, "LPUSH " READY " a b");
    until(&s, 2);
    assert_string_equal(s.text[0], "a");
    assert_int_equal(ask(&s, "LLEN " CLAIMED), 2);
    end(&s);
}

static void a_refusal_is_no_spin(void **state) {
    (void)state;
    struct seen s;
    begin(&s, NULL);
    /* Make `ready` a string, so that each pop is answered with WRONGTYPE. */
    ask(&s, "SET " READY " x");
    lw_hints_want(s.hints, READY, CLAIMED, true);
    turn_for(&s, 300);
    redisReply *r = redisCommand(s.c, "INFO commandstats");
    const char *line = strstr(r->str, "cmdstat_brpoplpush:calls=");
    assert_non_null(line);
    int calls = 0;
    assert_int_equal(sscanf(line, "cmdstat_brpoplpush:calls=%d", &calls), 1);
    assert_int_equal(calls, 1);
    freeReplyObject(r);
    ask(&s, "DEL " READY);
    until_popping(&s);
    end(&s);
}

int main(void) {
    lw_log_setup(LW_LOG_OFF, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_while_wanted),
        cmocka_unit_test(a_broken_pop_loses_nothing),
        cmocka_unit_test(at_maxmemory_a_script_pops),
        cmocka_unit_test(blmove_where_brpoplpush_is_gone),
        cmocka_unit_test(a_refusal_is_no_spin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
