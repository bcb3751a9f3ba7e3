/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lw_paused_lanes(), which finds out whether all waiting messages are in paused lanes, with a
 * private redis-server. */
#include "ops/queue/paused_lanes.h"

#include "tests/support/redis_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct lw_test_redis *server;
static redisContext *redis;
static struct lw_buf names;
static struct lw_err err;
static char url[256];
static char *urls[] = {url};
static struct lw_config config = {.name = (char *)"a[b]*",
                                  .redis = {.urls = urls, .n_urls = 1, .shards = 2}};

static int start(void **state) {
    (void)state;
    server = lw_test_redis_start(NULL);
    redis = server ? lw_test_redis_connect(server) : NULL;
    if (!redis) return -1;
    snprintf(url, sizeof url, "unix://%s", lw_test_redis_path(server));
    return 0;
}

static int stop(void **state) {
    (void)state;
    redisFree(redis);
    lw_test_redis_stop(server);
    return 0;
}

static int clean(void **state) {
    (void)state;
    lw_buf_free(&names);
    err.text[0] = 0;
    return lw_test_redis_flush(server) ? 0 : -1;
}

static void do_(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = redisvCommand(redis, fmt, ap);
    va_end(ap);
    assert_non_null(r);
    assert_int_not_equal(r->type, REDIS_REPLY_ERROR);
    freeReplyObject(r);
}

static void wait_in(int shard, const char *key, bool paused) {
    do_("LPUSH lw:{a[b]*.%d}:wait:%s m", shard, key);
    do_("ZADD lw:{a[b]*.%d}:lanes 1 %s", shard, key);
    if (paused) do_("SADD lw:{a[b]*.%d}:paused %s", shard, key);
}

static int ask(void) {
    lw_buf_free(&names);
    return lw_paused_lanes(&config, &names, &err);
}

static void test_only_paused(void **state) {
    (void)state;
    assert_int_equal(ask(), 0);
    wait_in(0, "c-17", true);
    wait_in(1, "c\n18", true);
    /* Add a paused lane without waiting messages. */
    do_("SADD lw:{a[b]*.0}:paused idle");
    /* Add a lane that is in the zset `lanes`, but has no waiting messages. */
    do_("ZADD lw:{a[b]*.0}:lanes 1 left-behind");
    do_("SET lw:{a.0}:lock:c-17 x"); /* a lock of another application */
    assert_int_equal(ask(), 2);
    lw_buf_add(&names, "", 1);
    assert_string_equal(names.p, "c-17, c?18");
}

static void test_others_wait_too(void **state) {
    (void)state;
    wait_in(0, "c-17", true);
    wait_in(1, "c-18", false);
    assert_int_equal(ask(), 0);
}

static void test_one_is_at_work(void **state) {
    (void)state;
    wait_in(0, "c-17", true);
    do_("SET lw:{a[b]*.1}:lock:c-99 token PX 60000");
    assert_int_equal(ask(), 0);
}

static void test_many(void **state) {
    (void)state;
    char key[16];
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        wait_in(i % 2, key, true);
    }
    assert_int_equal(ask(), 3000);
    lw_buf_add(&names, "", 1);
    assert_non_null(strstr(names.p, " and 2900 more"));
    wait_in(1, "the-one", false);
    assert_int_equal(ask(), 0);
}

static void test_errors(void **state) {
    (void)state;
    do_("SET lw:{a[b]*.0}:lanes text");
    assert_int_equal(ask(), -1);
    assert_non_null(strstr(err.text, "WRONGTYPE"));
    err.text[0] = 0;
    char *nowhere[] = {(char *)"unix:///nonexistent/redis.sock"};
    config.redis.urls = nowhere;
    int got = ask();
    config.redis.urls = urls;
    assert_int_equal(got, -1);
    assert_non_null(strstr(err.text, "cannot connect"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_paused, clean, clean),
        cmocka_unit_test_setup_teardown(test_others_wait_too, clean, clean),
        cmocka_unit_test_setup_teardown(test_one_is_at_work, clean, clean),
        cmocka_unit_test_setup_teardown(test_many, clean, clean),
        cmocka_unit_test_setup_teardown(test_errors, clean, clean),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
