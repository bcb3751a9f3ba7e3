/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that no call to a script blocks Redis for long, even in extreme cases: 64 lanes with
 * messages of half a megabyte, partitions with thousands of segments, and more. The simulation
 * bounds exactly what a call reads and returns (tests/sim/world/bytes.c). In this test, a real
 * Redis shows how long a call takes. For each call, this is the smaller of two times: the time
 * measured by Redis, and the CPU time of the server. Other programs share the machine, so each call
 * is made several times, and only the shortest time counts. */
#include "tests/support/lanes.h"
#include "tests/support/lanes_build.h"
#include "ops/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LANES = 64, EACH = 8, SIZE = 500000, RUNS = 5, MOST_US = 50000, CALL_BYTES = 2 << 20 };

static void key(struct lt *l, const char *name) { lt_addf(&l->keys, LT_TAG "%s", name); }
static void arg(struct lt *l, const char *text) { lt_add_text(&l->args, text); }

static void eval(struct lt *l, const char *script) {
    redisReply *r = redisCommand(l->admin, "EVAL %s 0", script);
    assert_non_null(r);
    if (r->type == REDIS_REPLY_ERROR) fail_msg("%s", r->str);
    freeReplyObject(r);
}

/* Fills the waiting lists of 64 lanes as if gate had parked eight messages in each. Message m of
 * lane k has the offset 8k + m in partition 1 of the topic `orders`. */
static void fill(struct lt *l) {
    eval(l, "local body = string.rep('x', 500000)\n"
            "for k = 0, 63 do\n"
            "  for m = 0, 7 do\n"
            "    local line = '1 orders 1 ' .. 8 * k + m .. ' 0 1 1 3 0 0 500000\\n'\n"
            "    redis.call('LPUSH', '" LT_TAG "wait:' .. 100 + k, line .. 100 + k .. body)\n"
            "  end\n"
            "  redis.call('ZADD', '" LT_TAG "lanes', 1, 100 + k)\n"
            "end");
}
static void all_wait(struct lt *l) {
    eval(l, "redis.call('SET', '" LT_TAG "state:orders:1:0', string.rep('\\85', 128))");
}
static void lock_all(struct lt *l) {
    eval(l,
         "for k = 100, 163 do redis.call('SET', '" LT_TAG "lock:' .. k, 't1:1', 'PX', 600000) end");
}
static void free_all(struct lt *l) {
    eval(l, "for k = 100, 163 do redis.call('DEL', '" LT_TAG "lock:' .. k) end");
}

static struct lt_msg of_lane(int k, int m) {
    static char names[LANES][8];
    snprintf(names[k], sizeof names[k], "%d", 100 + k);
    struct lt_msg msg = lt_msg(1, EACH * k + m, names[k], "t1");
    msg.size = SIZE;
    return msg;
}

/* --- measuring -------------------------------------------------------------------------------- */

static int64_t spent_us(struct lt *l) {
    redisReply *r = redisCommand(l->admin, "INFO commandstats");
    const char *at = r ? strstr(r->str, "cmdstat_evalsha:") : NULL;
    const char *us = at ? strstr(at, "usec=") : NULL;
    assert_non_null(us);
    int64_t n = atoll(us + 5);
    freeReplyObject(r);
    return n;
}

/* Returns the CPU time that all threads of the Redis server have used. Its growth during a call is
 * an upper bound of the CPU time of the call. */
static int64_t cpu_us(struct lt *l) {
    clockid_t clock;
    struct timespec t;
    assert_int_equal(clock_getcpuclockid(lw_test_redis_pid(l->server), &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static size_t bytes_of(const redisReply *r) {
    size_t n = r->str ? r->len : 0;
    for (size_t i = 0; i < r->elements; i++) n += bytes_of(r->element[i]);
    return n;
}

typedef void step_fn(struct lt *l);

static void is_short(struct lt *l, const char *name, step_fn *prepare, step_fn *call) {
    int64_t least = INT64_MAX;
    size_t bytes = 0;
    for (int i = 0; i < RUNS; i++) {
        if (prepare) prepare(l);
        lt_text(l, "CONFIG RESETSTAT");
        int64_t begin_us = cpu_us(l);
        call(l);
        int64_t used_us = cpu_us(l) - begin_us, us = spent_us(l);
        if (used_us < us) us = used_us;
        if (us < least) least = us;
        bytes = bytes_of(l->reply);
    }
    print_message("%-28s %6" PRId64 " us, %zu bytes\n", name, least, bytes);
    if (least > MOST_US)
        fail_msg("%s keeps Redis for %" PRId64 " us, more than %d", name, least, MOST_US);
    assert_true(bytes <= CALL_BYTES + SIZE + 100000);
}

/* --- workers' calls --------------------------------------------------------------------------- */

static void claim_all(struct lt *l) {
    struct lt_msg m[LANES];
    for (int k = 0; k < LANES; k++) m[k] = of_lane(k, 0);
    l->want = 64, l->reserve = 64;
    lt_claim(l, m, LANES);
    assert_non_null(strchr(l->answers, 'N'));
    /* The call reaches its limits before it has found the heads of all lanes. The remaining lanes
     * are answered with 'B' and get a new hint. */
    assert_non_null(strchr(l->answers, 'B'));
    assert_true(lt_int(l, "LLEN " LT_TAG "ready") > 0);
}
static void none_due(struct lt *l) {
    free_all(l);
    /* Make all messages due one minute from now. */
    eval(l, "local due = redis.call('TIME')[1] + 60 .. '000'\n"
            "for o = 0, 511 do redis.call('HSET', '" LT_TAG
            "tries:orders:1:0', o, '1 1 ' .. due) end");
}
static void claim_undue(struct lt *l) {
    struct lt_msg m[LANES];
    for (int k = 0; k < LANES; k++) m[k] = of_lane(k, 0);
    lt_claim(l, m, LANES);
    assert_null(strchr(l->answers, 'N'));
}
static void claims(void **state) {
    struct lt *l = *state;
    fill(l), all_wait(l);
    is_short(l, "claim, small ones expected", free_all, claim_all);
    snprintf(l->bounds, sizeof l->bounds, "1048576 2097152 500100");
    is_short(l, "claim", free_all, claim_all);
    l->skip = true;
    is_short(l, "claim, retry.order skip", free_all, claim_all);
    is_short(l, "claim, none is due", none_due, claim_undue);
}

static void settle_all(struct lt *l, const char *outcome, char mode, int n) {
    static struct lt_msg m[LANES];
    struct lt_item items[LANES];
    for (int k = 0; k < n; k++) {
        m[k] = lt_with(of_lane(k, 0), outcome, "next");
        items[k] = (struct lt_item){
            .done = &m[k], .n_done = 1, .mode = mode, .want = 64, .before = 1, .value = "t1:1"};
    }
    l->reserve = 64;
    lt_settle_items(l, items, (size_t)n);
}
static void settle_next(struct lt *l) {
    settle_all(l, "done", 'n', LANES);
    assert_non_null(strchr(l->answers, 'N'));
    assert_non_null(strchr(l->answers, 'L'));
}
static void settle_drop(struct lt *l) { settle_all(l, "done", '-', LANES); }
static void settle_retries(struct lt *l) { settle_all(l, "retry", '-', CALL_BYTES / SIZE); }
static void settle_dead(struct lt *l) { settle_all(l, "dead", '-', CALL_BYTES / SIZE); }
static void held(struct lt *l) { all_wait(l), lock_all(l); }
static void settles(void **state) {
    struct lt *l = *state;
    fill(l);
    is_short(l, "settle, small ones expected", held, settle_next);
    snprintf(l->bounds, sizeof l->bounds, "1048576 2097152 500100");
    is_short(l, "settle", held, settle_next);
    is_short(l, "settle, the locks given back", held, settle_drop);
    is_short(l, "settle, retries", held, settle_retries);
    is_short(l, "settle, dead letters", held, settle_dead);
}

static void gate_some(struct lt *l) {
    static int64_t offset = 10000;
    struct lt_msg m[CALL_BYTES / SIZE + 1];
    for (int k = 0; k <= CALL_BYTES / SIZE; k++)
        m[k] = of_lane(k, 0), m[k].offset = offset++, m[k].token = "t2";
    lt_gate(l, m, CALL_BYTES / SIZE + 1);
    assert_non_null(strchr(l->answers, 'W'));
}
static void gates(void **state) {
    struct lt *l = *state;
    fill(l), all_wait(l);
    is_short(l, "gate", lock_all, gate_some);
}

static void many_due(struct lt *l) {
    eval(l, "for k = 1, 10000 do redis.call('ZADD', '" LT_TAG
            "lanes', 1, k) redis.call('LPUSH', '" LT_TAG "wait:' .. k, 'x') end "
            "redis.call('DEL', '" LT_TAG "ready')");
}
static void tend(struct lt *l) { l->most = 256, lt_tend(l); }
static void many_hints(struct lt *l) {
    eval(l, "for k = 1, 1000 do redis.call('LPUSH', '" LT_TAG "ready', k) end");
}
static void hint(struct lt *l) { l->most = 64, lt_hints(l); }
static void tends_and_hints(void **state) {
    struct lt *l = *state;
    is_short(l, "tend", many_due, tend);
    is_short(l, "hints", many_hints, hint);
}

static void far_ahead(struct lt *l) {
    eval(l, "for k = 1, 20000 do redis.call('ZADD', '" LT_TAG
            "lanes', 1e15, k) end redis.call('HSET', '" LT_TAG "epoch', 'life', 'other')");
}
static void enter(struct lt *l) {
    struct lt_entered e;
    struct lt_enter ask = {.candidate = "candidate",
                           .life = "life",
                           .host = "host",
                           .ttl_ms = LT_TTL_MS,
                           .field = "version",
                           .value = "1"};
    assert_string_equal(lt_enter(l, &ask, &e), "OK");
}
static void enters(void **state) { is_short(*state, "enter", far_ahead, enter); }

static void watch(struct lt *l) {
    struct lt_look looks[64];
    for (int i = 0; i < 64; i++) looks[i] = (struct lt_look){"orders:1", i, 0, 4095};
    lt_watch(l, looks, 64);
}
static void segments(struct lt *l) {
    eval(l, "for p = 1, 3 do for s = 0, 4095 do local n = 'orders:' .. p .. ':' .. s "
            "redis.call('SETRANGE', '" LT_TAG "state:' .. n, 4095, 'x') redis.call('HSET', '" LT_TAG
            "tries:' .. n, 1, 1, 2, 2) end end "
            "redis.call('DEL', '" LT_TAG "floor', '" LT_TAG "sweep')");
}
static void floors(struct lt *l) {
    lt_begin(l, &lw_script_floor);
    key(l, "epoch"), key(l, "floor");
    arg(l, l->epoch);
    for (int p = 1; p <= 3; p++) lt_addf(&l->args, "orders:%d", p), arg(l, "67108864"), arg(l, "0");
    /* After one call of the script `floor`, only the segments of the first of the three partitions
     * are deleted completely. */
    assert_string_equal(lt_run(l), "1");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "state:orders:1:4095 " LT_TAG "state:orders:1:0"),
                     0);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "state:orders:2:4095"), 1);
    /* The hash `sweep` contains the segment at which the next call will continue. */
    assert_string_equal(lt_text(l, "HGET " LT_TAG "sweep orders:2"), "0");
}
static void quarantine(struct lt *l) {
    eval(l, "for s = 0, 63 do redis.call('SETRANGE', '" LT_TAG
            "state:orders:1:' .. s, 4095, '\\0') end");
    lt_int(l, "HSET " LT_TAG "epoch not_before 99999999999999");
}
/* Calls the script `repair` with the largest input that is allowed: 1,024 ranges with 4,096 offsets
 * in total. Each range is in a page (64 bytes of a segment) of its own. */
static void repair(struct lt *l) {
    struct lt_range ranges[1024];
    for (int i = 0; i < 1024; i++)
        ranges[i] = (struct lt_range){"orders:1", i * 1024, i * 1024 + 4};
    assert_string_equal(lt_repair(l, "orders:1", 0, 0, ranges, 1024), "OK");
}
static void segments_of_partitions(void **state) {
    struct lt *l = *state;
    is_short(l, "watch", segments, watch);
    is_short(l, "floor", segments, floors);
    is_short(l, "repair", quarantine, repair);
}

/* --- operators' calls ------------------------------------------------------------------------- */

static void drop(struct lt *l) {
    lt_begin(l, &lw_op_drop);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor");
    arg(l, "64"), arg(l, "");
    for (int k = 0; k < 16; k++) {
        lt_addf(&l->keys, LT_TAG "lock:%d", 100 + k / 2);
        arg(l, "orders:1");
        lt_addf(&l->args, "%d", EACH * (k / 2) + EACH - 1 - k % 2);
    }
    lt_run(l);
    assert_int_equal(l->answers[0], 'X');
}
static void page(struct lt *l) {
    lt_begin(l, &lw_op_page);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor"), key(l, "wait:160");
    arg(l, "0"), arg(l, "32");
    lt_run(l);
    /* The reply contains three messages, because the third makes it larger than 1 MiB. */
    assert_int_equal(l->reply->elements, 1 + 4 * 3);
}
static void look(struct lt *l) {
    lt_begin(l, &lw_op_look);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor");
    for (int k = 20; k < 36; k++) lt_addf(&l->args, "%d", 100 + k);
    lt_run(l);
}
static void all_done(struct lt *l) {
    eval(l, "redis.call('SET', '" LT_TAG "state:orders:1:0', string.rep('\\170', 128))");
}
static void put(struct lt *l) {
    static int64_t offset = 20000;
    lt_begin(l, &lw_op_put);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor"), key(l, "ready"), key(l, "dead");
    arg(l, "1000"), arg(l, "any"), arg(l, "");
    for (int k = 0; k <= CALL_BYTES / SIZE; k++) {
        struct lt_msg m = of_lane(k, 0);
        struct lw_buf b = {0};
        m.offset = offset++;
        lt_encode(&m, &b);
        lt_addf(&l->keys, LT_TAG "lock:%d", 100 + k);
        lt_add(&l->args, b.p, b.n), arg(l, ""), arg(l, "");
        lw_buf_free(&b);
    }
    lt_run(l);
    assert_int_equal(l->answers[0], 'P');
}
static void operators(void **state) {
    struct lt *l = *state;
    fill(l);
    is_short(l, "drop, lanes held", held, drop);
    free_all(l);
    is_short(l, "drop", all_wait, drop);
    is_short(l, "page", all_wait, page);
    is_short(l, "look", all_wait, look);
    is_short(l, "look, all finished", all_done, look);
    is_short(l, "put", all_wait, put);
}

int main(void) {
    const struct CMUnitTest tests[] = {LT(claims),          LT(settles), LT(gates),
                                       LT(tends_and_hints), LT(enters),  LT(segments_of_partitions),
                                       LT(operators)};
    return LT_RUN(tests, LT_PLAIN);
}
