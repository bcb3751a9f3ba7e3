/* SPDX-License-Identifier: Apache-2.0 */
/* Tests connections to a real cluster of two masters: each connection finds the owner of a slot,
 * and goes to the new owner when the slot moves. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/redis/connection.h"
#include "base/redis/finder.h"
#include "base/redis/slot.h"
#include "base/redis/wire.h"
#include "tests/support/redis_server.h"
#include "tests/support/server_process.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PASSWORD "hunter2"
enum { LIMIT_MS = 20000, FIND_MS = 6000, NODES = 2 };

static struct lw_test_redis *node[NODES], *single;
static int port[NODES], single_port;
/* id[i] is the cluster's id of node i. key[i] is a key of shard i, whose slot belongs to node i at
 * first. */
static char id[NODES][64], key[NODES][80];
static int slot[NODES];

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* Sends a command to cluster node i over an administrator's connection, and returns the reply as
 * text. */
static const char *say(int i, const char *format, ...) {
    static char text[4096];
    va_list ap;
    redisContext *c = lw_test_redis_connect(node[i]);
    assert_non_null(c);
    va_start(ap, format);
    redisReply *r = redisvCommand(c, format, ap);
    va_end(ap);
    assert_non_null(r);
    snprintf(text, sizeof text, "%s", r->str ? r->str : "");
    freeReplyObject(r);
    redisFree(c);
    return text;
}

static struct lw_test_redis *start_node(int p) {
    char at[12], bus[12];
    snprintf(at, sizeof at, "%d", p);
    snprintf(bus, sizeof bus, "%d", lw_test_free_port());
    const char *args[] = {"--port",
                          at,
                          "--bind",
                          "127.0.0.1",
                          "--cluster-enabled",
                          "yes",
                          "--cluster-port",
                          bus,
                          "--cluster-node-timeout",
                          "1000",
                          "--user",
                          "u",
                          "on",
                          ">" PASSWORD,
                          "~*",
                          "&*",
                          "+@all",
                          NULL};
    return lw_test_redis_start(args);
}

static void wait_ok(void) {
    for (int64_t until = lw_boot_ms() + LIMIT_MS;; pause_ms(20)) {
        int ok = 0;
        for (int i = 0; i < NODES; i++)
            ok += strstr(say(i, "CLUSTER INFO"), "cluster_state:ok") != NULL;
        if (ok == NODES) return;
        assert_true(lw_boot_ms() < until);
    }
}

static int start(void **state) {
    (void)state;
    for (int i = 0; i < NODES; i++) {
        node[i] = start_node(port[i] = lw_test_free_port());
        assert_non_null(node[i]);
        snprintf(id[i], sizeof id[i], "%s", say(i, "CLUSTER MYID"));
        say(i, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        say(i, "CLUSTER ADDSLOTSRANGE %d %d", i * LW_SLOTS / NODES, (i + 1) * LW_SLOTS / NODES - 1);
        int n = snprintf(key[i], sizeof key[i], "lw:{t.%d.%d}:k", i, lw_slot_suffix("t", i, NODES));
        slot[i] = lw_slot(key[i], (size_t)n);
    }
    char bus[16];
    snprintf(bus, sizeof bus, "%s", strchr(say(1, "CLUSTER NODES"), '@') + 1);
    say(0, "CLUSTER MEET 127.0.0.1 %d %d", port[1], atoi(bus));
    wait_ok();
    char at[12];
    snprintf(at, sizeof at, "%d", single_port = lw_test_free_port());
    single =
        lw_test_redis_start((const char *[]){"--port", at, "--bind", "127.0.0.1", "--user", "u",
                                             "on", ">" PASSWORD, "~*", "&*", "+@all", NULL});
    return single ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    for (int i = 0; i < NODES; i++) lw_test_redis_stop(node[i]);
    lw_test_redis_stop(single);
    return 0;
}

static struct lw_redis_servers cluster_of(const int *ports, size_t n, const char *password) {
    struct lw_redis_servers s = {.kind = LW_REDIS_CLUSTER, .n = n, .n_slots = NODES};
    s.at = lw_alloc(n * sizeof *s.at);
    s.slot = lw_alloc(NODES * sizeof *s.slot);
    memcpy(s.slot, slot, sizeof slot);
    for (size_t i = 0; i < n; i++)
        s.at[i] = (struct lw_redis_url){.host = lw_strdup("127.0.0.1"),
                                        .port = ports[i],
                                        .user = lw_strdup("u"),
                                        .password = lw_strdup(password),
                                        .via = LW_VIA_FOUND};
    s.cluster = lw_cluster_open(s.at, n, NULL);
    assert_non_null(s.cluster);
    return s;
}

static void find(struct lw_redis_servers *s, int shard, int wanted) {
    struct lw_redis_url at;
    struct lw_err err = {0};
    if (lw_redis_servers_find(s, shard, FIND_MS, &at, &err)) fail_msg("%s", err.text);
    assert_int_equal(at.port, wanted);
    assert_string_equal(at.user, "u");
    assert_string_equal(at.password, PASSWORD);
    assert_true(at.only_master);
    lw_redis_url_free(&at);
}

static void refuse(int p, const char *password, const char *why) {
    struct lw_redis_servers s = cluster_of(&p, 1, password);
    struct lw_redis_url at;
    struct lw_err err = {0};
    assert_int_equal(lw_redis_servers_find(&s, 0, FIND_MS, &at, &err), -1);
    if (!strstr(err.text, why)) fail_msg("\"%s\" is not in: %s", why, err.text);
    lw_redis_servers_free(&s);
}

/* --- searches --------------------------------------------------------------------------------- */

static void any_node_names_the_owner(void **state) {
    (void)state;
    for (int asked = 0; asked < NODES; asked++) {
        struct lw_redis_servers s = cluster_of(&port[asked], 1, PASSWORD);
        for (int i = 0; i < NODES; i++) find(&s, i, port[i]);
        assert_int_equal(lw_redis_servers_count(&s), NODES);
        lw_redis_servers_free(&s);
    }
}

static void what_is_no_node_is_named(void **state) {
    (void)state;
    char refused[64];
    int nobody = lw_test_free_port();
    snprintf(refused, sizeof refused, "127.0.0.1:%d: Connection refused", nobody);
    refuse(port[0], "guess", "correct redis.username and redis.password");
    refuse(single_port, PASSWORD, "it is no cluster node; write redis.url");
    refuse(nobody, PASSWORD, refused);
}

static void a_dead_node_before_a_live_one(void **state) {
    (void)state;
    struct lw_redis_servers s = cluster_of((int[]){lw_test_free_port(), port[1]}, 2, PASSWORD);
    find(&s, 0, port[0]);
    lw_redis_servers_doubt(&s);
    find(&s, 1, port[1]);
    lw_redis_servers_free(&s);
}

/* One search asks at most eight nodes. If more are down, later searches must get past them. */
static void a_live_node_behind_many_dead_ones(void **state) {
    (void)state;
    enum { DEAD = 12 };
    int ports[DEAD + 1];
    struct lw_redis_url at;
    for (int i = 0; i < DEAD; i++) ports[i] = lw_test_free_port();
    ports[DEAD] = port[1];
    struct lw_redis_servers s = cluster_of(ports, DEAD + 1, PASSWORD);
    int searches = 0, failed = -1;
    while (failed && searches++ <= DEAD) {
        struct lw_err err = {0};
        failed = lw_redis_servers_find(&s, 0, FIND_MS, &at, &err);
    }
    assert_int_equal(failed, 0);
    assert_true(searches > 1);
    lw_redis_url_free(&at);
    lw_redis_servers_free(&s);
}

/* The only configured node, node 0, is down. Before it was killed, it named node 1, which can also
 * give the slot map. */
static void a_node_that_was_learned(void **state) {
    (void)state;
    struct lw_redis_servers s = cluster_of(&port[0], 1, PASSWORD);
    find(&s, 1, port[1]);
    lw_test_redis_kill(node[0]);
    find(&s, 1, port[1]);
    assert_true(lw_test_redis_restart(node[0]));
    wait_ok();
    lw_redis_servers_free(&s);
}

/* --- wires ------------------------------------------------------------------------------------ */

struct seen {
    struct lw_finder *finder;
    struct lw_wire *wire;
    int ups, downs, replies;
    char why[256];
};

static void on_up(void *ctx) { ((struct seen *)ctx)->ups++; }

static void on_reply(void *ctx, const redisReply *r) {
    if (r->type == REDIS_REPLY_ERROR) fail_msg("told: %s", r->str);
    ((struct seen *)ctx)->replies++;
}

static void on_down(void *ctx, const char *why) {
    struct seen *s = ctx;
    s->downs++;
    snprintf(s->why, sizeof s->why, "%s", why);
}

static void turn(struct seen *s) {
    int64_t left = lw_wire_due_ms(s->wire) - lw_boot_ms();
    struct pollfd p = lw_wire_poll(s->wire);
    poll(&p, 1, left < 0 ? 0 : left > 20 ? 20 : (int)left);
    lw_wire_serve(s->wire, p.revents);
}

#define UNTIL(s, condition)                                               \
    for (int64_t until_ = lw_boot_ms() + LIMIT_MS; !(condition); turn(s)) \
        if (lw_boot_ms() > until_)                                        \
    fail_msg("never: %s (%s)", #condition,                                \
             lw_wire_trouble((s)->wire) ? lw_wire_trouble((s)->wire) : "")

static void open_wire(struct seen *s) {
    struct lw_redis_servers servers = cluster_of(port, NODES, PASSWORD);
    *s = (struct seen){.finder = lw_finder_open(&servers, NULL)};
    struct lw_wire_setup setup = {.finder = s->finder,
                                  .name = "test",
                                  .backoff_max_ms = 100,
                                  .up = on_up,
                                  .reply = on_reply,
                                  .down = on_down,
                                  .ctx = s};
    s->wire = lw_wire_open(&setup);
    UNTIL(s, s->ups == 1);
}

static void close_wire(struct seen *s) {
    lw_wire_close(s->wire);
    lw_finder_close(s->finder);
}

static void send_on(struct seen *s, const char *const *words, const char *key_) {
    struct lw_commands c = {0};
    lw_cmd(&c, words[0]);
    for (size_t i = 1; words[i]; i++) lw_arg_text(&c, strcmp(words[i], "K") ? words[i] : key_);
    lw_wire_send(s->wire, &c);
    lw_commands_free(&c);
}
#define SEND(s, ...) send_on(s, (const char *const[]){__VA_ARGS__, NULL}, key[0])

static void set_slot(const char *how, int owner) {
    for (int i = 0; i < NODES; i++) say(i, "CLUSTER SETSLOT %d %s %s", slot[0], how, id[owner]);
}

/* Sends commands to the old owner of a slot that has moved. The old owner refuses them, the wire
 * does not pass these refusals on as replies, and nothing is written. The next connection goes to
 * the new owner. */
static void a_slot_that_moved(void **state) {
    (void)state;
    struct seen s;
    open_wire(&s);
    SEND(&s, "SET", "K", "1");
    UNTIL(&s, s.replies == 1);
    say(0, "DEL %s", key[0]);
    set_slot("NODE", 1);
    SEND(&s, "SET", "K", "lost");
    SEND(&s, "SET", "K", "lost, too");
    UNTIL(&s, s.ups == 2);
    assert_int_equal(s.downs, 1);
    assert_int_equal(s.replies, 1);
    assert_non_null(strstr(s.why, "the slot of this shard is on another node (MOVED "));
    assert_string_equal(say(1, "GET %s", key[0]), "");
    SEND(&s, "SET", "K", "2");
    UNTIL(&s, s.replies == 2);
    assert_string_equal(say(1, "GET %s", key[0]), "2");
    say(1, "DEL %s", key[0]);
    set_slot("NODE", 0);
    close_wire(&s);
}

static void drops(const char *const *words, const char *why) {
    struct seen s;
    open_wire(&s);
    send_on(&s, words, key[0]);
    UNTIL(&s, s.ups == 2);
    assert_int_equal(s.replies, 0);
    if (!strstr(s.why, why)) fail_msg("\"%s\" is not in: %s", why, s.why);
    close_wire(&s);
}

/* While a slot migrates, its owner refuses commands for keys that it does not have. The error
 * depends on the command. */
static void a_slot_on_its_way(void **state) {
    (void)state;
    char other[100];
    snprintf(other, sizeof other, "%s2", key[0]);
    say(0, "SET %s here", key[0]);
    say(1, "CLUSTER SETSLOT %d IMPORTING %s", slot[0], id[0]);
    say(0, "CLUSTER SETSLOT %d MIGRATING %s", slot[0], id[1]);
    drops((const char *[]){"GET", other, NULL}, "is being moved to another node (ASK ");
    drops((const char *[]){"MGET", "K", other, NULL}, "is being moved to another node (TRYAGAIN");
    drops((const char *[]){"EVAL", "return redis.call('GET', KEYS[1] .. '2')", "1", "K", NULL},
          "is being moved to another node (");
    for (int i = 0; i < NODES; i++) say(i, "CLUSTER SETSLOT %d STABLE", slot[0]);
    say(0, "DEL %s", key[0]);
}

/* Kills one of the two masters. The cluster then refuses all requests. */
static void a_cluster_that_is_down(void **state) {
    (void)state;
    struct seen s;
    open_wire(&s);
    lw_test_redis_kill(node[1]);
    for (int64_t until = lw_boot_ms() + LIMIT_MS;
         strstr(say(0, "CLUSTER INFO"), "cluster_state:ok"); pause_ms(20))
        assert_true(lw_boot_ms() < until);
    SEND(&s, "SET", "K", "1");
    UNTIL(&s, s.downs == 1);
    assert_non_null(strstr(s.why, "CLUSTERDOWN"));
    assert_true(lw_test_redis_restart(node[1]));
    wait_ok();
    UNTIL(&s, lw_wire_is_up(s.wire));
    SEND(&s, "SET", "K", "1");
    UNTIL(&s, s.replies == 1);
    close_wire(&s);
    say(0, "DEL %s", key[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_node_names_the_owner),
        cmocka_unit_test(what_is_no_node_is_named),
        cmocka_unit_test(a_dead_node_before_a_live_one),
        cmocka_unit_test(a_live_node_behind_many_dead_ones),
        cmocka_unit_test(a_node_that_was_learned),
        cmocka_unit_test(a_slot_that_moved),
        cmocka_unit_test(a_slot_on_its_way),
        cmocka_unit_test(a_cluster_that_is_down),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
