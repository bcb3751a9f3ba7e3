/* check --connect against a private redis-server and librdkafka's mock brokers. */
#include "tools/check_servers.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/redis_server.h"

enum { WAIT_MS = 2000 };

static struct lw_config *config(const char *servers, const char *redis, const char *dead) {
    struct lw_buf text = {0};
    struct lw_problems p = {0};
    lw_buf_addf(
        &text,
        "{\"name\":\"t\",\"kafka\":{\"topics\":[\"orders\"],\"properties\":{\"bootstrap.servers\":\"%s\"}},\"dead\":{\"to\":\"%s\"},"
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

/* ---- Redis ---- */

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

/* Checks the Redis at `url`; `want` NULL: no problem, otherwise the only one, which must hold it. */
static void expect_redis(const char *url, const char *want) {
    struct lw_config *c = config("127.0.0.1:1", url, "redis");
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_redis(c, &r);
    const char *problems = text_of(&r.problems.errors);
    if (!want && r.problems.n_errors) fail_msg("unexpected: %s", problems);
    if (want && !strstr(problems, want)) fail_msg("want %s, got %s", want, problems);
    assert_null(strstr(problems, "hunter2"));
    if (!want) assert_non_null(strstr(text_of(&r.notes), ": version "));
    assert_int_equal(r.problems.n_errors, want ? 1 : 0);
    report_free(&r);
    lw_config_free(c);
}

static void test_redis_fine(void **state) {
    (void)state;
    expect_redis(socket_url, NULL);
}

static void test_redis_down(void **state) {
    (void)state;
    expect_redis("unix:///nonexistent/redis.sock", "redis unix:///nonexistent/redis.sock: No such file or directory");
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
    say("ACL SETUSER few on >hunter2 ~lw:* +@all -zadd -brpoplpush");
    expect_redis(with_user(url, sizeof url, "few"), "this user may not run ZADD, BRPOPLPUSH on names like lw:{t.0}:check");
    say("ACL SETUSER reader on >hunter2 ~lw:* +@all -pttl -sismember -xadd"); /* hold and break, for `latchwork lock -c`, need these */
    expect_redis(with_user(url, sizeof url, "reader"), "may not run");
    expect_redis(url, "XADD");
    expect_redis(url, "PTTL");
    expect_redis(url, "SISMEMBER");
    say("ACL SETUSER elsewhere on >hunter2 ~other:* +@all");
    expect_redis(with_user(url, sizeof url, "elsewhere"), "NOPERM");
    say("ACL SETUSER noload on >hunter2 ~lw:* +@all -script");
    expect_redis(with_user(url, sizeof url, "noload"), "NOPERM this user has no permissions to run the 'script|load'");
    expect_redis(with_user(url, sizeof url, "nobody"), "AUTH: WRONGPASS");
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

/* ---- Kafka ---- */

static void test_kafka(void **state) {
    (void)state;
    char why[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    assert_non_null(rk);
    rd_kafka_mock_cluster_t *mock = rd_kafka_mock_cluster_new(rk, 1);
    assert_non_null(mock);
    rd_kafka_mock_topic_create(mock, "orders", 3, 1);
    struct lw_config *c = config(rd_kafka_mock_cluster_bootstraps(mock), "unix:///r", "topic:orders.dead");
    struct lw_check_report r = {.wait_ms = WAIT_MS};
    lw_check_kafka(c, &r);
    assert_string_equal(text_of(&r.notes), "kafka: 1 broker\nkafka: topic orders has 3 partitions\n");
    assert_string_equal(text_of(&r.problems.errors), "dead.to: the brokers know no topic orders.dead (or do not let this user see it)\n");
    report_free(&r);
    lw_config_free(c);
    rd_kafka_mock_cluster_destroy(mock);
    rd_kafka_destroy(rk);
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
        cmocka_unit_test(test_redis_fine),   cmocka_unit_test(test_redis_down),
        cmocka_unit_test(test_redis_evicts), cmocka_unit_test(test_redis_is_a_replica),
        cmocka_unit_test(test_redis_rights), cmocka_unit_test(test_redis_leaves_nothing),
        cmocka_unit_test(test_kafka),        cmocka_unit_test(test_kafka_down),
    };
    return cmocka_run_group_tests_name("check", tests, start_redis, stop_redis);
}
