/* SPDX-License-Identifier: Apache-2.0 */
/* Tests slots and tags, and the parser of the reply to CLUSTER SLOTS. */
#include "base/redis/cluster.h"
#include "base/redis/slot.h"
#include "config/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int slot(const char *name) { return lw_slot(name, strlen(name)); }

/* Checks the example of the Redis Cluster specification, and slots that a real server gave for
 * CLUSTER KEYSLOT. */
static void slots_are_those_of_the_specification(void **state) {
    (void)state;
    assert_int_equal(lw_crc16("123456789", 9), 0x31c3);
    assert_int_equal(slot("123456789"), 12739);
    assert_int_equal(slot("foo"), 12182);
    assert_int_equal(slot(""), 0);
    assert_int_equal(slot("{user1000}.following"), slot("user1000"));
    assert_int_equal(slot("foo{}{bar}"), lw_crc16("foo{}{bar}", 10) % LW_SLOTS);
    assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
    assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
    assert_int_equal(slot("{bar"), lw_crc16("{bar", 4) % LW_SLOTS);
}

static int slot_of_shard(const char *name, int shard, int shards) {
    char tag[80];
    snprintf(tag, sizeof tag, "%s.%d.%d", name, shard, lw_slot_suffix(name, shard, shards));
    return slot(tag);
}

/* If the slots are divided evenly among the masters, and the number of shards is a multiple of
 * the number of masters, each master must get the same number of shards. */
static void shards_spread_over_masters(void **state) {
    (void)state;
    for (int masters = 1; masters <= 32; masters++)
        for (int each = 1; each <= 3; each++) {
            int n[32] = {0};
            for (int s = 0; s < masters * each; s++) {
                int i = 0, at = slot_of_shard("orders", s, masters * each);
                while (at >= (i + 1) * LW_SLOTS / masters) i++;
                n[i]++;
            }
            for (int i = 0; i < masters; i++) assert_int_equal(n[i], each);
        }
}

/* Shard 0 must be in the same slot for any number of shards. A worker joins shard 0 first, and
 * shard 0 must refuse the worker if it is configured with a wrong number of shards. */
static void shard_0_is_the_same_for_any_number(void **state) {
    (void)state;
    int k = lw_slot_suffix("orders", 0, 1);
    for (int shards = 2; shards <= 1024; shards *= 2)
        assert_int_equal(lw_slot_suffix("orders", 0, shards), k);
}

static void tags_without_and_with_a_cluster(void **state) {
    (void)state;
    char prefix[LW_SHARD_PREFIX], want[LW_SHARD_PREFIX];
    struct lw_config c = {.name = (char *)(uintptr_t) "orders", .redis.shards = 3};
    assert_int_equal(lw_shard_prefix(&c, 1, prefix), strlen("lw:{orders.1}:"));
    assert_string_equal(prefix, "lw:{orders.1}:");
    c.redis.cluster.on = true;
    snprintf(want, sizeof want, "lw:{orders.1.%d}:", lw_slot_suffix("orders", 1, 3));
    lw_shard_prefix(&c, 1, prefix);
    assert_string_equal(prefix, want);
    assert_int_equal(lw_shard_slot(&c, 1), slot_of_shard("orders", 1, 3));
}

/* --- maps ------------------------------------------------------------------------------------- */

static redisReply *reply_of(const char *resp) {
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, resp, strlen(resp));
    redisReaderGetReply(reader, &reply);
    redisReaderFree(reader);
    assert_non_null(reply);
    return reply;
}

static int read_map(const char *resp, struct lw_slot_map *m, struct lw_err *err) {
    struct lw_redis_url asked = {.host = (char *)(uintptr_t) "10.0.0.1", .port = 7000};
    redisReply *r = reply_of(resp);
    int failed = lw_slot_map_read(r, &asked, m, err);
    freeReplyObject(r);
    return failed;
}

#define OTHER "*3\r\n$8\r\n10.0.0.2\r\n:7001\r\n$1\r\nb\r\n"

static void a_map_names_owners_and_replicas(void **state) {
    (void)state;
    struct lw_slot_map m;
    struct lw_err err = {0};
    assert_int_equal(read_map("*2\r\n*4\r\n:0\r\n:99\r\n" OTHER
                              "*3\r\n$1\r\nh\r\n:7002\r\n$1\r\nc\r\n*3\r\n:101\r\n:16383\r\n" OTHER,
                              &m, &err),
                     0);
    const struct lw_span *span = lw_slot_map_find(&m, 99);
    assert_non_null(span);
    assert_int_equal(span->n_nodes, 2);
    assert_string_equal(span->node[0].host, "10.0.0.2");
    assert_int_equal(span->node[0].port, 7001);
    assert_string_equal(span->node[1].host, "h");
    assert_null(lw_slot_map_find(&m, 100));
    assert_int_equal(lw_slot_map_find(&m, 16383)->first, 101);
    lw_slot_map_free(&m);
}

static void expect_host(const char *node, const char *host, int port) {
    char resp[300];
    struct lw_slot_map m;
    struct lw_err err = {0};
    snprintf(resp, sizeof resp, "*1\r\n*3\r\n:0\r\n:16383\r\n%s", node);
    if (read_map(resp, &m, &err)) fail_msg("%s", err.text);
    assert_string_equal(m.span[0].node[0].host, host);
    assert_int_equal(m.span[0].node[0].port, port);
    lw_slot_map_free(&m);
}

/* In a reply to CLUSTER SLOTS, a node may have no address. If the server is configured to prefer
 * host names, a node may also have no host name. */
static void a_node_without_a_host(void **state) {
    (void)state;
    expect_host("*3\r\n$-1\r\n:7003\r\n$1\r\na\r\n", "10.0.0.1", 7003);
    expect_host("*3\r\n$0\r\n\r\n:7003\r\n$1\r\na\r\n", "10.0.0.1", 7003);
    expect_host("*3\r\n$0\r\n\r\n:0\r\n$1\r\na\r\n", "10.0.0.1", 7000);
    expect_host("*4\r\n$1\r\n?\r\n:7003\r\n$1\r\na\r\n*2\r\n$2\r\nip\r\n$8\r\n10.0.0.9\r\n",
                "10.0.0.9", 7003);
    expect_host("*4\r\n$6\r\nnode-1\r\n:7003\r\n$1\r\na\r\n*2\r\n$2\r\nip\r\n$8\r\n10.0.0.9\r\n",
                "node-1", 7003);
}

static void malformed_maps(void **state) {
    (void)state;
    static const char *const bad[] = {
        "+OK\r\n",
        "*-1\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n$1\r\n1\r\n" OTHER,
        "*1\r\n*3\r\n:-1\r\n:1\r\n" OTHER,
        "*1\r\n*3\r\n:2\r\n:1\r\n" OTHER,
        "*1\r\n*3\r\n:2\r\n:16384\r\n" OTHER,
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\nh\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\nh\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*3\r\n$1\r\n?\r\n:7003\r\n$1\r\na\r\n",
        "*1\r\n*4\r\n:0\r\n:1\r\n" OTHER "+x\r\n",
        "-ERR no\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct lw_slot_map m;
        struct lw_err err = {0};
        if (!read_map(bad[i], &m, &err)) fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(err.text, "CLUSTER SLOTS"));
        assert_null(m.span);
    }
}

static void a_server_that_is_no_node(void **state) {
    (void)state;
    struct lw_slot_map m;
    struct lw_err err = {0};
    assert_int_equal(read_map("-ERR This instance has cluster support disabled\r\n", &m, &err), -1);
    assert_string_equal(err.text, "it is no cluster node; write redis.url for a single Redis");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_those_of_the_specification),
        cmocka_unit_test(shards_spread_over_masters),
        cmocka_unit_test(shard_0_is_the_same_for_any_number),
        cmocka_unit_test(tags_without_and_with_a_cluster),
        cmocka_unit_test(a_map_names_owners_and_replicas),
        cmocka_unit_test(a_node_without_a_host),
        cmocka_unit_test(malformed_maps),
        cmocka_unit_test(a_server_that_is_no_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
