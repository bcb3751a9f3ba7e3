/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the scripts on two nodes of a real cluster, while a slot migrates from one node to the
 * other, key by key. A script that runs at the source during the migration either fails, or gives
 * the same answer as with all keys in place. It must not treat a key that has moved as one that
 * does not exist. When all keys are together again, repeating the call must have the same effect as
 * if there had been no migration, no matter what the first attempt has written.
 *
 * A scene is a call of one script, with the data that is prepared for the call. Each scene is tried
 * with each of its keys moved alone, with all keys except one moved, and with random sets of keys
 * moved (LW_SEED). */
#include "tests/support/lanes_build.h"
#include "tests/support/server_process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEYS_MAX = 64, BY_CHANCE = 8, OK_TRIES = 400, NODE_ID = 41 };

struct nodes {
    /* The test support's access to the source node of the migration, which owns all slots at
     * first. */
    struct lt *l;
    struct lw_test_redis *target;
    redisContext *to;
    int source_port, target_port;
    char source_id[NODE_ID], target_id[NODE_ID];
    int slot, failed, answered;
    uint64_t seed;
};

struct scene {
    const char *name;
    void (*before)(struct lt *l);
    const char *(*call)(struct lt *l);
};

/* --- two nodes -------------------------------------------------------------------------------- */

static struct lw_test_redis *start_node(int port, int bus) {
    char text[2][12];
    snprintf(text[0], sizeof text[0], "%d", port);
    snprintf(text[1], sizeof text[1], "%d", bus);
    const char *args[] = {"--port",
                          text[0],
                          "--bind",
                          "127.0.0.1",
                          "--cluster-enabled",
                          "yes",
                          "--cluster-port",
                          text[1],
                          "--save",
                          "",
                          "--maxmemory-policy",
                          "noeviction",
                          NULL};
    return lw_test_redis_start(args);
}

static redisReply *ask(redisContext *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = redisvCommand(c, fmt, ap);
    va_end(ap);
    if (!r || r->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", fmt, r ? r->str : c->errstr);
    return r;
}
#define TELL(c, ...) freeReplyObject(ask(c, __VA_ARGS__))

static void id_of(redisContext *c, char id[NODE_ID]) {
    redisReply *r = ask(c, "CLUSTER MYID");
    snprintf(id, NODE_ID, "%s", r->str);
    freeReplyObject(r);
}

static bool says(redisContext *c, const char *what, const char *text) {
    redisReply *r = ask(c, "CLUSTER %s", what);
    bool yes = strstr(r->str, text) != NULL;
    freeReplyObject(r);
    return yes;
}

static void wait_for(redisContext *c, const char *what, const char *text) {
    for (int i = 0; i < OK_TRIES && !says(c, what, text); i++)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_true(says(c, what, text));
}

static int slot_of(redisContext *c, const char *name) {
    redisReply *r = ask(c, "CLUSTER KEYSLOT %s", name);
    int n = (int)r->integer;
    freeReplyObject(r);
    return n;
}

static int start(void **state) {
    struct nodes *n = calloc(1, sizeof *n);
    *state = n;
    n->source_port = lw_test_free_port(), n->target_port = lw_test_free_port();
    int bus = lw_test_free_port();
    n->l = lt_open(start_node(n->source_port, lw_test_free_port()));
    n->target = start_node(n->target_port, bus);
    n->to = n->target ? lw_test_redis_connect(n->target) : NULL;
    if (!n->l || !n->to) return -1;
    id_of(n->l->admin, n->source_id), id_of(n->to, n->target_id);
    TELL(n->l->admin, "CLUSTER ADDSLOTSRANGE 0 16383");
    TELL(n->l->admin, "CLUSTER MEET 127.0.0.1 %d %d", n->target_port, bus);
    wait_for(n->to, "NODES", n->source_id), wait_for(n->l->admin, "NODES", n->target_id);
    wait_for(n->to, "INFO", "cluster_state:ok"), wait_for(n->l->admin, "INFO", "cluster_state:ok");
    n->slot = slot_of(n->l->admin, LT_TAG "epoch");
    TELL(n->to, "CLUSTER SETSLOT %d IMPORTING %s", n->slot, n->source_id);
    n->seed = getenv("LW_SEED") ? strtoull(getenv("LW_SEED"), NULL, 10) : 1;
    return 0;
}

static int stop(void **state) {
    struct nodes *n = *state;
    if (n->to) redisFree(n->to);
    lw_test_redis_stop(n->target);
    lt_close(n->l);
    free(n);
    return 0;
}

static void move(struct nodes *n, redisContext *from, int port, const redisReply *keys,
                 uint64_t which) {
    (void)n;
    for (size_t i = 0; i < keys->elements; i++)
        if (which >> i & 1)
            TELL(from, "MIGRATE 127.0.0.1 %d %b 0 5000", port, keys->element[i]->str,
                 keys->element[i]->len);
}

static redisReply *keys_of(const struct nodes *n, redisContext *c) {
    redisReply *r = ask(c, "CLUSTER GETKEYSINSLOT %d %d", n->slot, KEYS_MAX);
    assert_true(r->elements < KEYS_MAX);
    return r;
}

/* --- a scene ---------------------------------------------------------------------------------- */

static void set_up(struct nodes *n, const struct scene *s) {
    TELL(n->l->admin, "CLUSTER SETSLOT %d STABLE", n->slot);
    TELL(n->to, "FLUSHALL");
    void *state = n->l;
    lt_setup(&state);
    s->before(n->l);
}

/* Returns all data of both nodes as text, in which each time is replaced by '#'. */
static char *stored(struct nodes *n) {
    char *text = lt_dump(n->l, false), *to = text;
    for (const char *p = text; *p;) {
        size_t digits = strspn(p, "0123456789");
        if (digits < 13)
            *to++ = *p++;
        else
            p += digits, *to++ = '#';
    }
    *to = '\0';
    return text;
}

static char *copy(const char *text) { return lw_memdup(text, strlen(text) + 1); }

/* Calls the scene's script with all keys in place, and returns the script's answer. Sets *after to
 * the data of the nodes after the call. */
static char *expected(struct nodes *n, const struct scene *s, char **after, size_t *n_keys) {
    set_up(n, s);
    redisReply *keys = keys_of(n, n->l->admin);
    *n_keys = keys->elements;
    freeReplyObject(keys);
    char *answer = copy(s->call(n->l));
    if (answer[0] == '-') fail_msg("%s: %s with all keys in place", s->name, n->l->reply->str);
    *after = stored(n);
    return answer;
}

static bool is_of_the_cluster(const char *text) {
    /* The last two texts are parts of the error with which a script ends. The text "access a non
     * local key" is that of Redis, and the other text is that of Valkey. */
    return !strncmp(text, "TRYAGAIN ", 9) || !strncmp(text, "ASK ", 4) ||
           strstr(text, "access a non local key") ||
           strstr(text, "undeclared keys were accessed during rehashing of the slot");
}

/* Moves the keys whose bits are set in `which`, and then calls the scene's script. */
static void try_one(struct nodes *n, const struct scene *s, uint64_t which, const char *want,
                    const char *after) {
    struct lt *l = n->l;
    set_up(n, s);
    redisReply *keys = keys_of(n, l->admin);
    TELL(l->admin, "CLUSTER SETSLOT %d MIGRATING %s", n->slot, n->target_id);
    move(n, l->admin, n->target_port, keys, which);
    freeReplyObject(keys);
    const char *answer = s->call(l);
    bool failed = answer[0] == '-';
    if (!failed && strcmp(answer, want) != 0)
        fail_msg("%s, keys %" PRIx64 ": %s, not %s", s->name, which, answer, want);
    if (failed && !is_of_the_cluster(l->reply->str))
        fail_msg("%s, keys %" PRIx64 ": %s", s->name, which, l->reply->str);
    TELL(l->admin, "CLUSTER SETSLOT %d STABLE", n->slot);
    keys = keys_of(n, n->to);
    move(n, n->to, n->source_port, keys, ~UINT64_C(0));
    freeReplyObject(keys);
    n->failed += failed, n->answered += !failed;
    if (!failed) return;
    lt_call_again(l);
    if (l->answers[0] == '-')
        fail_msg("%s, keys %" PRIx64 ", together again: %s", s->name, which, l->reply->str);
    char *now = stored(n);
    if (strcmp(now, after) != 0)
        fail_msg("%s, keys %" PRIx64 ": stored is\n%s\nnot\n%s", s->name, which, now, after);
    free(now);
}

static void try_all(struct nodes *n, const struct scene *s) {
    size_t n_keys;
    char *after, *want = expected(n, s, &after, &n_keys);
    uint64_t all = (UINT64_C(1) << n_keys) - 1;
    for (size_t i = 0; i < n_keys; i++) {
        try_one(n, s, UINT64_C(1) << i, want, after);
        try_one(n, s, all & ~(UINT64_C(1) << i), want, after);
    }
    for (int i = 0; i < BY_CHANCE; i++) {
        n->seed = n->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        try_one(n, s, n->seed >> 20 & all, want, after);
    }
    try_one(n, s, 0, want, after);
    try_one(n, s, all, want, after);
    free(want), free(after);
}

/* --- the scenes ------------------------------------------------------------------------------- */

static struct lt_msg of_a(int64_t offset, const char *token) {
    return lt_msg(0, offset, "a", token);
}
static struct lt_msg of_b(int64_t offset, const char *token) {
    return lt_msg(0, offset, "b", token);
}

static void gate_one(struct lt *l, struct lt_msg m) { lt_gate(l, &m, 1); }
static void settle_one(struct lt *l, struct lt_msg m, const char *outcome) {
    struct lt_msg it = lt_with(m, outcome, "drop");
    lt_settle(l, &it, 1);
}

/* Prepares the lanes of a scene, before the scene calls its script. Lane a is held: one of its
 * messages is done and two wait. Lane b is free: two messages wait, and its hint was popped. Lane c
 * has a message that was tried once. This function also creates keys that seldom exist, because a
 * script that accesses a missing key fails during a migration, before it reaches the commands under
 * test. */
static void busy(struct lt *l) {
    const struct lt_msg c = lt_msg(1, 9, "c", "t3"), c_again = lt_with(c, "retry", "next");
    gate_one(l, of_a(0, "t1")), settle_one(l, of_a(0, "t1"), "done");
    gate_one(l, of_a(1, "t2")), gate_one(l, of_a(2, "t9")), gate_one(l, of_a(3, "t9"));
    gate_one(l, of_b(4, "t4")), gate_one(l, of_b(5, "t9")), gate_one(l, of_b(6, "t9"));
    lt_free_lock(l, of_b(4, "t4"));
    gate_one(l, c);
    lt_settle(l, &c_again, 1);
    lt_floor(l, "orders:0", 0, 0);
    lt_int(l, "LPUSH " LT_TAG "ready a b");
    lt_text(l, "RPOPLPUSH " LT_TAG "ready " LT_TAG "claimed:w");
    lt_int(l, "SADD " LT_TAG "paused z");
    lt_int(l, "HSET " LT_TAG "sweep orders:9 3");
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 77 %s", "1 5 0");
    lt_text(l, "XADD " LT_TAG "dead 1-1 reason none");
    lt_text(l, "XADD " LT_TAG "vanished 1-1 lane z");
    lt_text(l, "SET " LT_TAG "lock:b backoff:1000 PX 1000000");
    lt_int(l, "HSET " LT_TAG "epoch life life history h/0 offset:h1 0 quarantine_ms 1");
}
static const char *gate(struct lt *l, struct lt_msg m) { return lt_gate(l, &m, 1); }
static const char *gate_of_a_finished(struct lt *l) { return gate(l, of_a(0, "t5")); }
static const char *gate_of_a_held_lane(struct lt *l) { return gate(l, of_a(8, "t5")); }
static const char *gate_behind_waiters(struct lt *l) { return gate(l, of_b(8, "t5")); }
static const char *gate_of_one_that_waits(struct lt *l) { return gate(l, of_b(5, "t5")); }
static const char *gate_again(struct lt *l) { return gate(l, of_a(1, "t2")); }
static const char *gate_of_a_tried_one(struct lt *l) { return gate(l, lt_msg(1, 9, "c", "t5")); }
static const char *gate_of_many(struct lt *l) {
    const struct lt_msg m[] = {of_a(0, "t5"), of_a(8, "t5"), of_b(9, "t5"), of_b(10, "t5"),
                               lt_msg(1, 9, "c", "t5")};
    return lt_gate(l, m, 5);
}
static const char *settle(struct lt *l, const char *outcome, const char *mode) {
    const struct lt_msg m = lt_with(of_a(1, "t2"), outcome, mode);
    return lt_settle(l, &m, 1);
}
static const char *settle_next(struct lt *l) { return settle(l, "done", "next"); }
static const char *settle_drop(struct lt *l) { return settle(l, "done", "drop"); }
static const char *settle_retry(struct lt *l) { return settle(l, "retry", "next"); }
static const char *settle_back(struct lt *l) { return settle(l, "back", "next"); }
static const char *settle_sent(struct lt *l) { return settle(l, "sent", "next"); }
static const char *settle_keep(struct lt *l) {
    const struct lt_msg next = of_a(8, "t2");
    struct lt_msg m = lt_with(of_a(1, "t2"), "done", "keep");
    m.next = &next;
    return lt_settle(l, &m, 1);
}
static const char *settle_stale(struct lt *l) {
    const struct lt_msg m = of_b(4, "t4");
    return lt_settle(l, &m, 1);
}
static const char *claim_free(struct lt *l) {
    const struct lt_msg m = of_b(0, "t6");
    l->taken = 1, l->want = 2;
    return lt_claim(l, &m, 1);
}
static const char *claim_held(struct lt *l) {
    const struct lt_msg m = of_a(0, "t6");
    return lt_claim(l, &m, 1);
}
static const char *renew_held(struct lt *l) {
    const struct lt_msg m[] = {of_a(1, "t2"), of_b(4, "t4")};
    return lt_renew(l, m, 2);
}
static const char *tend_all(struct lt *l) { return lt_tend(l); }
static const char *pop_hints(struct lt *l) { return lt_hints(l); }
static const char *watch_all(struct lt *l) {
    static char out[200];
    const struct lt_look looks[] = {{"orders:0", 0, 0, 9}, {"orders:1", 0, 0, 9}};
    const char *floors = lt_watch(l, looks, 2);
    if (floors[0] == '-' && floors[1] && floors[1] != ' ') return floors;
    size_t n = (size_t)snprintf(out, sizeof out, ".%s", floors);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < lt_states(l, i).n; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, " %02x",
                                  (unsigned char)lt_states(l, i).p[k]);
    return out;
}
static const char *raise_floor(struct lt *l) { return lt_floor(l, "orders:0", 20000, 0); }
static const char *repair_some(struct lt *l) {
    const struct lt_range r[] = {{"orders:0", 1, 2}, {"orders:1", 3, 5}};
    return lt_repair(l, "orders:0", 1, 0, r, 2);
}
static void busy_and_quiet(struct lt *l) {
    busy(l);
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
}
static const char *unpark_some(struct lt *l) {
    lt_begin(l, &lw_script_unpark);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "floor");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, "orders:0"), lt_add_text(&l->args, "5");
    return lt_run(l);
}
static const char *hold_held(struct lt *l) {
    lt_begin(l, &lw_script_hold);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "fence");
    lt_add_lane(l, "lock:", lw_bytes_of("a"));
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%" PRId64, lt_now_ms(l));
    lt_addf(&l->args, "%" PRId64, l->ttl_ms / 4);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_add_text(&l->args, "t7"), lt_add_text(&l->args, "0");
    lt_run(l);
    return l->reply->type == REDIS_REPLY_ARRAY ? l->reply->element[0]->str : l->answers;
}

static const struct scene scenes[] = {
    {"gate of a finished message", busy, gate_of_a_finished},
    {"gate of a held lane", busy, gate_of_a_held_lane},
    {"gate behind waiters", busy, gate_behind_waiters},
    {"gate of one that waits", busy, gate_of_one_that_waits},
    {"gate sent again", busy, gate_again},
    {"gate of one that was tried", busy, gate_of_a_tried_one},
    {"gate of many", busy, gate_of_many},
    {"settle, next", busy, settle_next},
    {"settle, drop", busy, settle_drop},
    {"settle, keep", busy, settle_keep},
    {"settle, retry", busy, settle_retry},
    {"settle, back", busy, settle_back},
    {"settle, sent", busy, settle_sent},
    {"settle without the lease", busy, settle_stale},
    {"claim of a free lane", busy, claim_free},
    {"claim of a held lane", busy, claim_held},
    {"renew", busy, renew_held},
    {"tend", busy, tend_all},
    {"hints", busy, pop_hints},
    {"watch", busy, watch_all},
    {"floor", busy, raise_floor},
    {"repair", busy_and_quiet, repair_some},
    {"unpark", busy, unpark_some},
    {"hold", busy, hold_held},
};

static void moved_is_not_absent(void **state) {
    struct nodes *n = *state;
    const char *only = getenv("LW_SCENE");
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (!only || strstr(scenes[i].name, only)) try_all(n, &scenes[i]);
    print_message("%d calls failed, %d were answered\n", n->failed, n->answered);
    assert_true(n->failed > 0 && (only || n->answered > 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(moved_is_not_absent)};
    return cmocka_run_group_tests(tests, start, stop);
}
