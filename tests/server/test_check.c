/* SPDX-License-Identifier: Apache-2.0 */
/* Tests `latchwork check --connect` with a private redis-server and the mock brokers of
 * librdkafka. */
#include "cli/check/servers.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "kafka/anchor.h"
#include "tests/support/redis_server.h"

enum { WAIT_MS = 2000 };

static struct lw_config *config(const char *servers, const char *redis, const char *dead) {
    struct lw_buf text = {0};
    struct lw_problems p = {0};
    lw_buf_addf(&text,
                "{\"name\":\"t\",\"kafka\":{\"topics\":[\"orders\"],\"properties\":{\"bootstrap."
                "servers\":\"%s\"}},\"dead\":{\"to\":\"%s\"},"
                "\"redis\":{\"url\":\"%s\",\"shards\":2},\"handler\":{\"type\":\"exec\"}}",
                servers, dead, redis);
    struct lw_config *c = lw_config_parse("t", text.p, text.n, NULL, 0, &p);
    if (!c) fail_msg("%.*s", (int)p.errors.n, p.errors.p);
    lw_buf_free(&text);
    lw_problems_free(&p);
    return c;
}

static const char *text_of(struct lw_buf *b) {
    lw_buf_add(b, "", 1);
    b->n--;
    return b->p;
}

static void report_free(struct lw_check_report *r) {
    lw_problems_free(&r->problems);
    lw_buf_free(&r->notes);
}

/* --- Redis ------------------------------------------------------------------------------------ */

static struct lw_test_redis *redis;
static char socket_url[256];

static int start_redis(void **state) {
    (void)state;
    redis = lw_test_redis_start(NULL);
    if (!redis) return -1;
    snprintf(socket_url, sizeof socket_url, "unix://%s", lw_test_redis_path(redis));
    return 0;
}

static int stop_redis(void **state) {
    (void)state;
    lw_test_redis_stop(redis);
    return 0;
}

static void say(const char *command) {
    redisContext *ctx = lw_test_redis_connect(redis);
    redisReply *reply = redisCommand(ctx, command);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", command, reply->str);
    freeReplyObject(reply);
    redisFree(ctx);
}

/* Checks the Redis at `url`. Exactly n errors are expected, and `want` must occur in the text of
 * all of them together. If `want` is NULL, no error is expected. */
static void expect_problems(const char *url, const char *want, size_t n) {
    struct lw_config *c = config("127.0.0.1:1", url, "redis");
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_redis(c, &r);
    const char *problems = text_of(&r.problems.errors);
    if (!want && r.problems.n_errors) fail_msg("unexpected: %s", problems);
    if (want && !strstr(problems, want)) fail_msg("want %s, got %s", want, problems);
    assert_null(strstr(problems, "hunter2"));
    if (!want)
        assert_true(strstr(text_of(&r.notes), ": Redis ") ||
                    strstr(text_of(&r.notes), ": Valkey "));
    assert_int_equal(r.problems.n_errors, n);
    report_free(&r);
    lw_config_free(c);
}
static void expect_redis(const char *url, const char *want) {
    expect_problems(url, want, want ? 1 : 0);
}

static void test_redis_fine(void **state) {
    (void)state;
    expect_redis(socket_url, NULL);
}

/* Checks a server from which the test tries to unload Lua. Only Valkey 9.1 and later can lack Lua,
 * because there Lua is a module. */
static void test_redis_without_lua(void **state) {
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
    char url[256];
    snprintf(url, sizeof url, "unix://%s", lw_test_redis_path(own));
    expect_redis(
        url, without ? "this server runs without its Lua module, and Latchwork needs Lua scripts"
                     : NULL);
    lw_test_redis_stop(own);
}

static void test_redis_down(void **state) {
    (void)state;
    expect_redis("unix:///nonexistent/redis.sock",
                 "redis unix:///nonexistent/redis.sock: No such file or directory");
}

static void test_redis_evicts(void **state) {
    (void)state;
    say("CONFIG SET maxmemory-policy allkeys-lru");
    expect_redis(socket_url, "maxmemory-policy is allkeys-lru: Redis would throw away locks");
    say("CONFIG SET maxmemory-policy noeviction");
}

static void test_redis_is_a_replica(void **state) {
    (void)state;
    say("REPLICAOF 127.0.0.1 1");
    expect_redis(socket_url, "its role is slave");
    say("REPLICAOF NO ONE");
}

static const char *with_user(char *url, size_t size, const char *user) {
    snprintf(url, size, "unix://%s:hunter2@%s", user, lw_test_redis_path(redis));
    return url;
}

static void test_redis_rights(void **state) {
    (void)state;
    char url[300];
    say("ACL SETUSER good on >hunter2 ~lw:* +@all");
    expect_redis(with_user(url, sizeof url, "good"), NULL);
    say("ACL SETUSER few on >hunter2 ~lw:* +@all -zadd -brpoplpush -zscan");
    expect_problems(
        with_user(url, sizeof url, "few"),
        "may not run ZADD on names like lw:{t.0}:lock:check, as workers and operators do", 3);
    expect_problems(
        url, "may not run BRPOPLPUSH on names like lw:{t.0}:lock:check, as a worker does", 3);
    expect_problems(
        url, "may not run ZSCAN on names like lw:{t.0}:lock:check, as operators' commands do", 3);
    /* Deny commands that `latchwork lock exec -c` and `latchwork lock break -c` need. */
    say("ACL SETUSER reader on >hunter2 ~lw:* +@all -pttl -sismember -xadd");
    expect_redis(with_user(url, sizeof url, "reader"), "may not run");
    expect_redis(url, "XADD");
    expect_redis(url, "PTTL");
    expect_redis(url, "SISMEMBER");
    say("ACL SETUSER elsewhere on >hunter2 ~other:* +@all");
    expect_redis(
        with_user(url, sizeof url, "elsewhere"),
        "lw:{t.0}:ready:check; give it the key pattern: ACL SETUSER elsewhere ~lw:{t.[0-9]*}:*");
    say("ACL SETUSER some on >hunter2 ~lw:{t.*}:[^d]* %%R~lw:{t.*}:d* +@all");
    expect_redis(with_user(url, sizeof url, "some"),
                 "may not read and write lw:{t.0}:dead, lw:{t.0}:dedup:check; give");
    say("ACL SETUSER noload on >hunter2 ~lw:* +@all -script");
    expect_problems(with_user(url, sizeof url, "noload"),
                    "has no permissions to run the 'script|load' command", 2);
    expect_redis(with_user(url, sizeof url, "nobody"), "it refuses the user or password");
}

static void test_redis_leaves_nothing(void **state) {
    (void)state;
    expect_redis(socket_url, NULL);
    redisContext *ctx = lw_test_redis_connect(redis);
    redisReply *reply = redisCommand(ctx, "DBSIZE");
    assert_int_equal(reply->integer, 0);
    freeReplyObject(reply);
    redisFree(ctx);
}

/* --- Kafka ------------------------------------------------------------------------------------ */

static void test_kafka(void **state) {
    (void)state;
    char why[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    assert_non_null(rk);
    rd_kafka_mock_cluster_t *mock = rd_kafka_mock_cluster_new(rk, 1);
    assert_non_null(mock);
    rd_kafka_mock_topic_create(mock, "orders", 3, 1);
    struct lw_config *c =
        config(rd_kafka_mock_cluster_bootstraps(mock), "unix:///r", "topic:orders.dead");
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_kafka(c, &r);
    assert_string_equal(text_of(&r.notes),
                        "kafka: 1 broker\nkafka: topic orders has 3 partitions\n");
    assert_string_equal(text_of(&r.problems.errors),
                        "dead.to: the brokers know no topic orders.dead: create it, or allow user "
                        "\"ANONYMOUS\" to DESCRIBE it\n");
    report_free(&r);
    lw_config_free(c);
    rd_kafka_mock_cluster_destroy(mock);
    rd_kafka_destroy(rk);
}

/* --- another fleet in the group --------------------------------------------------------------- */

#define OURS "018bcfe568000001"
#define THEIRS "018bcfe568000002"

struct group {
    rd_kafka_t *rk, *member;
    rd_kafka_mock_cluster_t *mock;
    atomic_bool stop;
};

static struct group group_open(void) {
    char why[256];
    struct group g = {0};
    g.rk = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), why, sizeof why);
    g.mock = rd_kafka_mock_cluster_new(g.rk, 1);
    rd_kafka_mock_topic_create(g.mock, "orders", 3, 1);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(g.mock), why,
                      sizeof why);
    rd_kafka_conf_set(conf, "group.id", "t", why, sizeof why);
    g.member = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    assert_non_null(g.member);
    return g;
}
static void group_close(struct group *g) {
    rd_kafka_destroy_flags(g->member, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    rd_kafka_mock_cluster_destroy(g->mock);
    rd_kafka_destroy(g->rk);
}

static rd_kafka_resp_err_t commit_as(struct group *g, int64_t offset, const char *fleet) {
    char meta[LW_META_TEXT];
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *p = rd_kafka_topic_partition_list_add(list, "orders", 1);
    p->offset = offset;
    struct lw_anchor anchor = {.offset = offset - 1, .timestamp_ms = 1700000000000, .hash = 7};
    p->metadata_size = lw_meta_encode(fleet, &anchor, meta);
    p->metadata = strdup(meta);
    rd_kafka_resp_err_t err = rd_kafka_commit(g->member, list, 0);
    rd_kafka_topic_partition_list_destroy(list);
    return err;
}

static void *goes_on(void *arg) {
    struct group *g = arg;
    for (int64_t offset = 8; !atomic_load(&g->stop); offset++)
        commit_as(g, offset, THEIRS), usleep(50000);
    return NULL;
}

/* Runs lw_check_kafka() as if Redis belonged to the fleet `ours`, and returns the report. If `ours`
 * is "", Redis belongs to no fleet. If `ours` is NULL, lw_check_kafka() does not know which fleet
 * Redis belongs to. */
static struct lw_check_report check_fleet(struct group *g, const char *ours) {
    struct lw_config *c = config(rd_kafka_mock_cluster_bootstraps(g->mock), "unix:///r", "redis");
    struct lw_check_report r = {.wait_ms = 10000, .fleet_known = ours};
    if (ours) snprintf(r.fleet, sizeof r.fleet, "%s", ours);
    lw_check_kafka(c, &r);
    lw_config_free(c);
    return r;
}

static void test_another_fleet_was_here(void **state) {
    (void)state;
    struct group g = group_open();
    assert_int_equal(commit_as(&g, 7, THEIRS), 0);
    const char *const ours[] = {OURS, "", THEIRS, NULL};
    for (size_t i = 0; i < 4; i++) {
        struct lw_check_report r = check_fleet(&g, ours[i]);
        /* Commits of another epoch cause only a warning, because they do not prove that another
         * fleet exists. */
        assert_int_equal(r.problems.n_errors, 0);
        assert_int_equal(r.problems.n_warnings, i < 2 ? 1 : 0);
        if (i < 2) {
            const char *said = text_of(&r.problems.warnings);
            assert_non_null(strstr(said, "group t: the commits of 1 partitions (orders:1 at offset "
                                         "7) are by another fleet (" THEIRS "), "));
            assert_non_null(strstr(said, i ? "knows no fleet of this name" : "knows fleet " OURS));
            assert_non_null(strstr(said, "If it was wiped or replaced since, this is expected"));
        }
        report_free(&r);
    }
    group_close(&g);
}

static void test_another_fleet_is_at_work(void **state) {
    (void)state;
    struct group g = group_open();
    assert_int_equal(commit_as(&g, 7, THEIRS), 0);
    pthread_t thread;
    pthread_create(&thread, NULL, goes_on, &g);
    struct lw_check_report r = check_fleet(&g, OURS);
    atomic_store(&g.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(r.problems.n_errors, 1);
    assert_non_null(strstr(text_of(&r.problems.errors),
                           "another fleet (" THEIRS
                           ") is at work with another Redis: its commit of orders:1"));
    report_free(&r);
    group_close(&g);
}

static void test_redis_names_the_fleet(void **state) {
    (void)state;
    struct lw_config *c = config("127.0.0.1:1", socket_url, "redis");
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_redis(c, &r);
    assert_true(r.fleet_known && !r.fleet[0]);
    say("HSET lw:{t.0}:epoch id " OURS "0123456789abcdef");
    report_free(&r);
    r = (struct lw_check_report){.wait_ms = WAIT_MS};
    lw_check_redis(c, &r);
    assert_string_equal(r.fleet, OURS);
    say("DEL lw:{t.0}:epoch");
    report_free(&r);
    lw_config_free(c);
}

static void test_kafka_down(void **state) {
    (void)state;
    struct lw_config *c = config("127.0.0.1:1", "unix:///r", "redis");
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_kafka(c, &r);
    assert_int_equal(r.problems.n_errors, 1);
    const char *said = text_of(&r.problems.errors);
    assert_non_null(strstr(said, "kafka: no answer from 127.0.0.1:1 within 2000 ms: "));
    assert_non_null(strstr(said, "refused"));
    report_free(&r);
    lw_config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis_fine),
        cmocka_unit_test(test_redis_without_lua),
        cmocka_unit_test(test_redis_down),
        cmocka_unit_test(test_redis_evicts),
        cmocka_unit_test(test_redis_is_a_replica),
        cmocka_unit_test(test_redis_rights),
        cmocka_unit_test(test_redis_leaves_nothing),
        cmocka_unit_test(test_kafka),
        cmocka_unit_test(test_kafka_down),
        cmocka_unit_test(test_another_fleet_was_here),
        cmocka_unit_test(test_another_fleet_is_at_work),
        cmocka_unit_test(test_redis_names_the_fleet),
    };
    return cmocka_run_group_tests_name("check", tests, start_redis, stop_redis);
}
