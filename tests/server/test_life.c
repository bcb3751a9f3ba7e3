/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a real redis-server reports about the life of its data when it gets and loses
 * replicas, is promoted, or restarts. */
#include "base/clock.h"
#include "base/redis/reply.h"
#include "queue/life.h"
#include "tests/support/redis_server.h"
#include "tests/support/server_process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { WAIT_MS = 60000 };

struct node {
    struct lw_test_redis *server;
    redisContext *c;
    char port[8];
};

static void start(struct node *n) {
    snprintf(n->port, sizeof n->port, "%d", lw_test_free_port());
    const char *const args[] = {"--port",
                                n->port,
                                "--bind",
                                "127.0.0.1",
                                "--repl-backlog-ttl",
                                "1",
                                "--repl-diskless-sync-delay",
                                "0",
                                NULL};
    n->server = lw_test_redis_start(args);
    assert_non_null(n->server);
    n->c = lw_test_redis_connect(n->server);
    assert_non_null(n->c);
}

static struct lw_life look(struct node *n, const char *field, char *out, int size) {
    struct lw_life life;
    redisReply *r = redisCommand(n->c, "INFO server replication stats");
    assert_true(r && r->type == REDIS_REPLY_STRING);
    lw_life_read(&life, r->str);
    if (field) lw_info_field(r->str, field, out, size);
    freeReplyObject(r);
    return life;
}
static struct lw_life life_of(struct node *n) { return look(n, NULL, NULL, 0); }

static void follow(struct node *n, const char *host, const char *port) {
    redisReply *r = redisCommand(n->c, "REPLICAOF %s %s", host, port);
    assert_true(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    for (int64_t until = lw_boot_ms() + WAIT_MS; strcmp(host, "NO") != 0;) {
        char up[8];
        look(n, "master_link_status", up, sizeof up);
        if (!strcmp(up, "up")) return;
        assert_true(lw_boot_ms() < until);
        usleep(20000);
    }
}

/* Waits until the server has a new replication id, and returns its life. */
static struct lw_life renamed(struct node *n, const struct lw_life *before) {
    struct lw_life now = life_of(n);
    for (int64_t until = lw_boot_ms() + WAIT_MS; !strcmp(now.id, before->id); now = life_of(n)) {
        assert_true(lw_boot_ms() < until);
        usleep(20000);
    }
    return now;
}

static void test_replicas_and_promotions(void **state) {
    (void)state;
    struct node a = {0}, b = {0};
    start(&a), start(&b);
    struct lw_life a0 = life_of(&a), b0 = life_of(&b), now;
    assert_true(a0.never_replica);
    assert_true(lw_life_same(&a0, &a0));
    assert_false(lw_life_same(&a0, &b0));

    /* Node a gets its first replica. The life of its data continues. */
    follow(&b, "127.0.0.1", a.port);
    now = renamed(&a, &a0);
    assert_true(lw_life_same(&a0, &now));
    struct lw_life replica = life_of(&b);
    assert_false(replica.never_replica);
    assert_false(lw_life_same(&b0, &replica));

    /* Node b is promoted, so node a has no replica any more. */
    follow(&b, "NO", "ONE");
    struct lw_life b1 = life_of(&b);
    assert_false(b1.never_replica);
    assert_false(lw_life_same(&b0, &b1));
    assert_false(lw_life_same(&replica, &b1));
    now = renamed(&a, &now);
    assert_true(lw_life_same(&a0, &now));

    /* Node a becomes a replica of b. The life of the data of b continues, although b was
     * promoted. */
    follow(&a, "127.0.0.1", b.port);
    now = life_of(&a);
    assert_false(lw_life_same(&a0, &now));
    now = life_of(&b);
    assert_true(lw_life_same(&b1, &now));
    /* Node a becomes a master again, now with the data of b, and still has its old run_id. */
    follow(&a, "NO", "ONE");
    struct lw_life a1 = life_of(&a);
    assert_false(lw_life_same(&a0, &a1));
    /* Node a now looks as if it had never been a replica, except that its count of bytes read as a
     * replica is not 0. */
    follow(&b, "127.0.0.1", a.port);
    now = life_of(&a);
    assert_true(lw_life_same(&a1, &now));
    assert_false(lw_life_same(&a0, &now));

    redisFree(a.c);
    assert_true(lw_test_redis_restart(a.server));
    a.c = lw_test_redis_connect(a.server);
    struct lw_life a2 = life_of(&a);
    assert_false(lw_life_same(&now, &a2));
    redisFree(a.c), redisFree(b.c);
    lw_test_redis_stop(a.server), lw_test_redis_stop(b.server);
}

/* A master follows another server for a moment, so it has that server's data, and its statistics
 * are reset. That is another life. */
static void test_a_moment_as_a_replica(void **state) {
    (void)state;
    struct node a = {0}, b = {0};
    start(&a), start(&b);
    struct lw_life before = life_of(&a);
    follow(&a, "127.0.0.1", b.port);
    follow(&a, "NO", "ONE");
    freeReplyObject(redisCommand(a.c, "CONFIG RESETSTAT"));
    struct lw_life after = life_of(&a);
    assert_string_equal(before.history, after.history);
    assert_false(lw_life_same(&before, &after));
    redisFree(a.c), redisFree(b.c);
    lw_test_redis_stop(a.server), lw_test_redis_stop(b.server);
}

/* A promoted server forgets its former master's replication id once it has had no replica for
 * repl-backlog-ttl. Then only the number of bytes that it read as a replica tells its lives
 * apart. */
static void test_a_forgotten_promotion(void **state) {
    (void)state;
    struct node a = {0}, b = {0};
    start(&a), start(&b);
    struct lw_life before = life_of(&a), after;
    follow(&a, "127.0.0.1", b.port);
    follow(&a, "NO", "ONE");
    for (int64_t until = lw_boot_ms() + WAIT_MS; (after = life_of(&a)).promoted;) {
        assert_true(lw_boot_ms() < until);
        usleep(20000);
    }
    assert_false(lw_life_same(&before, &after));
    redisFree(a.c), redisFree(b.c);
    lw_test_redis_stop(a.server), lw_test_redis_stop(b.server);
}

/* CONFIG RESETSTAT sets the number of bytes read as a replica to 0, but a promoted server still has
 * the replication id of its former master. */
static void test_a_server_that_was_never_a_replica(void **state) {
    (void)state;
    static const struct {
        const char *replid2, *bytes;
        bool never;
    } cases[] = {{"0000000000000000000000000000000000000000", "0", true},
                 {"00000000000000000000000000000000000000f0", "0", false},
                 {"0000000000000000000000000000000000000000", "17", false},
                 {"", "0", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char info[400];
        struct lw_life life;
        snprintf(info, sizeof info,
                 "\nrun_id:r\r\nrole:master\r\nmaster_replid:x\r\nmaster_replid2:%s\r\ntotal_net_"
                 "repl_input_bytes:%s\r\n",
                 cases[i].replid2, cases[i].bytes);
        lw_life_read(&life, info);
        assert_int_equal(life.never_replica, cases[i].never);
    }
}

/* Some servers do not count the bytes that they read as a replica. For such servers, two lives are
 * compared by the replication id alone. */
static void test_a_server_that_says_less(void **state) {
    (void)state;
    struct lw_life a, b, c;
    lw_life_read(&a, "# Server\r\nrun_id:r\r\n# Replication\r\nrole:master\r\nmaster_replid:x\r\n");
    lw_life_read(&b, "# Server\r\nrun_id:r\r\n# Replication\r\nrole:master\r\nmaster_replid:y\r\n");
    lw_life_read(
        &c,
        "# "
        "Server\r\nrun_id:r\r\nrole:slave\r\nmaster_replid:z\r\ntotal_net_repl_input_bytes:0\r\n");
    assert_true(lw_life_same(&a, &a));
    assert_false(lw_life_same(&a, &b));
    assert_string_equal(c.history, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replicas_and_promotions),
                                       cmocka_unit_test(test_a_moment_as_a_replica),
                                       cmocka_unit_test(test_a_forgotten_promotion),
                                       cmocka_unit_test(test_a_server_that_was_never_a_replica),
                                       cmocka_unit_test(test_a_server_that_says_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
