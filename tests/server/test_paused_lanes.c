/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lw_paused_lanes(), which finds out whether all waiting messages are in paused lanes, with a
 * private redis-server. */
#include "ops/queue/paused_lanes.h"

#include "tests/support/redis_fixture.h"

static struct lw_buf names;
static struct lw_err err;
static char *urls[] = {url};
static struct lw_config config = {.name = (char *)"a[b]*",
                                  .redis = {.urls = urls, .n_urls = 1, .shards = 2}};

static int clean(void **state) {
    lw_buf_free(&names);
    err.text[0] = 0;
    return flush(state);
}

static void wait_in(int shard, const char *key, bool paused) {
    redis_says("LPUSH lw:{a[b]*.%d}:wait:%s m", shard, key);
    redis_says("ZADD lw:{a[b]*.%d}:lanes 1 %s", shard, key);
    if (paused) redis_says("SADD lw:{a[b]*.%d}:paused %s", shard, key);
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
    redis_says("SADD lw:{a[b]*.0}:paused idle");
    /* Add a lane that is in the zset `lanes`, but has no waiting messages. */
    redis_says("ZADD lw:{a[b]*.0}:lanes 1 left-behind");
    redis_says("SET lw:{a.0}:lock:c-17 x"); /* a lock of another application */
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
    redis_says("SET lw:{a[b]*.1}:lock:c-99 token PX 60000");
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
    redis_says("SET lw:{a[b]*.0}:lanes text");
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
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
