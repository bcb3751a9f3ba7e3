/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the tests of locks on a Redis Cluster: three masters, each with a replica, and slots
 * that move. */
#ifndef LW_TEST_LOCK_CLUSTER_H
#define LW_TEST_LOCK_CLUSTER_H

#include "base/redis/slot.h"
#include "tests/lock/fixture.h"
#include "tests/support/server_process.h"

#include <unistd.h>

/* LIMIT_MS only turns a hang into a failure. LEASE_MS is the length of a lease that no test
 * outlasts. */
enum { MASTERS = 3, NODES = 2 * MASTERS, LIMIT_MS = 120000, LEASE_MS = 600000, ARGS_MAX = 32 };

static struct lw_test_redis *node[NODES];
static int port[NODES], bus[NODES];
static char id[NODES][64], address[NODES][32];
static const char *addresses[NODES];

static inline bool alive(int i) { return node[i] && lw_test_redis_pid(node[i]) > 0; }

/* Sends a command to cluster node i over an administrator's connection. The caller frees the
 * reply. */
__attribute__((format(printf, 2, 0))) static inline redisReply *ask_node(int i, const char *format,
                                                                         va_list ap) {
    redisContext *c = lw_test_redis_connect(node[i]);
    if (!c) fail_msg("node %d cannot be asked", i);
    redisReply *r = redisvCommand(c, format, ap);
    redisFree(c);
    if (!r) fail_msg("node %d does not answer", i);
    return r;
}

/* Sends a command to cluster node i over an administrator's connection, and returns the reply as
 * text. */
__attribute__((format(printf, 2, 3))) static inline const char *say(int i, const char *format,
                                                                    ...) {
    static _Thread_local char text[8192];
    va_list ap;
    va_start(ap, format);
    redisReply *r = ask_node(i, format, ap);
    va_end(ap);
    snprintf(text, sizeof text, "%s", r->str ? r->str : "");
    if (r->type == REDIS_REPLY_INTEGER) snprintf(text, sizeof text, "%lld", r->integer);
    freeReplyObject(r);
    return text;
}

/* Starts cluster node i. `more` is NULL or a list of additional arguments, which ends with NULL. */
static inline bool start_cluster_node(int i, const char *const *more) {
    char number[3][12];
    const char *args[ARGS_MAX] = {"--bind",
                                  "127.0.0.1",
                                  "--cluster-enabled",
                                  "yes",
                                  "--cluster-node-timeout",
                                  "15000",
                                  "--cluster-replica-validity-factor",
                                  "0",
                                  "--repl-diskless-sync-delay",
                                  "0",
                                  "--cluster-port"};
    size_t n = 0;
    while (args[n]) n++;
    snprintf(number[0], sizeof number[0], "%d", bus[i] = lw_test_free_port());
    snprintf(number[1], sizeof number[1], "%d", port[i] = lw_test_free_port());
    args[n++] = number[0];
    args[n++] = more ? "--tls-port" : "--port";
    args[n++] = number[1];
    for (; more && *more; more++) args[n++] = *more;
    node[i] = lw_test_redis_start(args);
    if (!node[i]) return false;
    snprintf(id[i], sizeof id[i], "%s", say(i, "CLUSTER MYID"));
    snprintf(address[i], sizeof address[i], "127.0.0.1:%d", port[i]);
    addresses[i] = address[i];
    say(i, "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
    return true;
}

/* Waits until each live node of the first n nodes reports that the cluster is ok and has n
 * nodes. */
static inline void wait_ok(int n) {
    char known[40];
    snprintf(known, sizeof known, "cluster_known_nodes:%d", n);
    for (int64_t until = lw_boot_ms() + LIMIT_MS;; lw_sleep_ms(20)) {
        int ok = 0;
        for (int i = 0; i < n; i++) {
            const char *info = alive(i) ? say(i, "CLUSTER INFO") : NULL;
            ok += !info || (strstr(info, "cluster_state:ok") && strstr(info, known));
        }
        if (ok == n) return;
        assert_true(lw_boot_ms() < until);
    }
}

/* Starts three masters and, if `replicas` is true, a replica of each master. */
static inline bool start_masters(bool replicas, const char *const *more) {
    int n = replicas ? NODES : MASTERS;
    for (int i = 0; i < n; i++)
        if (!start_cluster_node(i, more)) return false;
    for (int i = 0; i < MASTERS; i++)
        say(i, "CLUSTER ADDSLOTSRANGE %d %d", i * LW_SLOTS / MASTERS,
            (i + 1) * LW_SLOTS / MASTERS - 1);
    /* each meets each, so that no node has to hear of another one by gossip, which takes seconds */
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++) say(k, "CLUSTER MEET 127.0.0.1 %d %d", port[i], bus[i]);
    wait_ok(n);
    for (int i = MASTERS; i < n; i++)
        for (int64_t until = lw_boot_ms() + LIMIT_MS;
             strcmp(say(i, "CLUSTER REPLICATE %s", id[i - MASTERS]), "OK"); lw_sleep_ms(20))
            assert_true(lw_boot_ms() < until);
    for (int i = MASTERS; i < n; i++)
        for (int64_t until = lw_boot_ms() + LIMIT_MS;
             !strstr(say(i, "INFO replication"), "master_link_status:up"); lw_sleep_ms(20))
            assert_true(lw_boot_ms() < until);
    wait_ok(n);
    return true;
}

static inline void stop_nodes(void) {
    for (int i = 0; i < NODES; i++) {
        lw_test_redis_stop(node[i]);
        node[i] = NULL;
    }
}

/* Returns the slot of the key that the lock library uses for the lock `name`. */
static inline int slot_of(const char *name) {
    char key[256];
    return lw_slot(key, (size_t)snprintf(key, sizeof key, "lwl:{%s}:lock", name));
}

/* Returns the index of the live node that reports that it owns the slot, or -1. */
static inline int owner_of(int slot) {
    for (int i = 0; i < NODES; i++) {
        if (!alive(i)) continue;
        char *line = strstr(say(i, "CLUSTER NODES"), "myself");
        if (!line) continue;
        *strchr(line, '\n') = '\0';
        const char *slots = line;
        for (int word = 0; word < 6 && slots; word++) slots = strchr(slots + 1, ' ');
        for (int first, last; slots && *slots; slots = strchr(slots + 1, ' ')) {
            int n = sscanf(slots, " %d-%d", &first, &last);
            if (n == 1) last = first;
            if (n >= 1 && first <= slot && slot <= last) return i;
        }
    }
    return -1;
}

static inline void begin_move(int slot, int from, int to) {
    assert_string_equal(say(to, "CLUSTER SETSLOT %d IMPORTING %s", slot, id[from]), "OK");
    assert_string_equal(say(from, "CLUSTER SETSLOT %d MIGRATING %s", slot, id[to]), "OK");
}

/* Moves all keys of the slot with MIGRATE, one by one. Returns the number of keys moved. */
static inline int move_keys(int slot, int from, int to) {
    int moved = 0;
    redisContext *c = lw_test_redis_connect(node[from]);
    assert_non_null(c);
    for (;;) {
        redisReply *keys = redisCommand(c, "CLUSTER GETKEYSINSLOT %d 1", slot);
        assert_true(keys && keys->type == REDIS_REPLY_ARRAY);
        if (keys->elements) {
            redisReply *r =
                redisCommand(c, "MIGRATE 127.0.0.1 %d %b 0 %d", port[to], keys->element[0]->str,
                             (size_t)keys->element[0]->len, LIMIT_MS);
            assert_true(r && r->type == REDIS_REPLY_STATUS);
            freeReplyObject(r);
            moved++;
        }
        bool more = keys->elements;
        freeReplyObject(keys);
        if (!more) break;
    }
    redisFree(c);
    return moved;
}

static inline void end_move(int slot, int from, int to) {
    assert_string_equal(say(to, "CLUSTER SETSLOT %d NODE %s", slot, id[to]), "OK");
    assert_string_equal(say(from, "CLUSTER SETSLOT %d NODE %s", slot, id[to]), "OK");
    for (int i = 0; i < MASTERS; i++)
        if (i != from && i != to && alive(i)) say(i, "CLUSTER SETSLOT %d NODE %s", slot, id[to]);
}

static inline struct latchwork_client *open_cluster(const struct latchwork_client_options *more) {
    struct latchwork_client_options o =
        more ? *more : (struct latchwork_client_options){LATCHWORK_CLIENT_INIT};
    o.cluster = addresses;
    o.n_cluster = 2;
    o.connect_ms = o.command_ms = LIMIT_MS;
    struct latchwork_client *c = latchwork_client_open(NULL, &o, &error);
    if (!c) fail_msg("client: %s", error.text);
    return c;
}

#endif
