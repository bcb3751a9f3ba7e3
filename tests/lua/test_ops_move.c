/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the operators' scripts `put` and `drop`, which move messages: every answer, and what each
 * script leaves in Redis. */
#include "tests/support/lanes.h"
#include "tests/support/lanes_build.h"
#include "ops/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct put {
    const char *lane;
    int64_t offset, replay;
    /* Two optional arguments of the script. NULL stands for an empty argument. If the message was
     * read from Kafka again, `original` is the partition of the original record. `entry` is the id
     * of the dead letter to remove. */
    const char *original, *entry;
    /* The text that is sent instead of an envelope. NULL: a valid envelope is sent. */
    const char *text;
};

static const char *envelope(int64_t offset, int64_t replay) {
    static char text[4][128];
    static int at;
    char *p = text[at++ % 4];
    snprintf(p, sizeof text[0], "1 orders 0 %" PRId64 " %" PRId64 " 5 5 1 0 0 2\nk{}", offset,
             replay);
    return p;
}
static void key(struct lt *l, const char *name) { lt_addf(&l->keys, LT_TAG "%s", name); }

static const char *put(struct lt *l, const struct put *m, size_t n, const char *which,
                       const char *dry) {
    static const char *const names[] = {"epoch", "lanes", "floor", "ready", "dead"};
    lt_begin(l, &lw_op_put);
    for (size_t i = 0; i < 5; i++) key(l, names[i]);
    for (size_t i = 0; i < n; i++) lt_addf(&l->keys, LT_TAG "lock:%s", m[i].lane);
    lt_addf(&l->args, "%d", LT_HANDOFF_MS), lt_add_text(&l->args, which),
        lt_add_text(&l->args, dry);
    for (size_t i = 0; i < n; i++) {
        lt_add_text(&l->args, m[i].text ? m[i].text : envelope(m[i].offset, m[i].replay));
        lt_add_text(&l->args, m[i].original ? m[i].original : "");
        lt_add_text(&l->args, m[i].entry ? m[i].entry : "");
    }
    return lt_run(l);
}
static const char *put1(struct lt *l, int64_t offset, int64_t replay) {
    return put(l, &(struct put){.lane = "k", .offset = offset, .replay = replay}, 1, "undone", "");
}
static const char *again(struct lt *l, int64_t offset, const char *which) {
    return put(l, &(struct put){.lane = "k", .offset = offset, .replay = 7, .original = "orders:0"},
               1, which, "");
}

struct drop {
    const char *lane, *tp;
    int64_t offset;
};
static const char *drop(struct lt *l, const struct drop *m, size_t n, int ahead, const char *dry) {
    lt_begin(l, &lw_op_drop);
    key(l, "epoch"), key(l, "lanes"), key(l, "floor");
    for (size_t i = 0; i < n; i++) lt_addf(&l->keys, LT_TAG "lock:%s", m[i].lane);
    lt_addf(&l->args, "%d", ahead), lt_add_text(&l->args, dry);
    for (size_t i = 0; i < n; i++) {
        lt_add_text(&l->args, m[i].tp ? m[i].tp : "orders:0");
        lt_addf(&l->args, "%" PRId64, m[i].offset);
    }
    return lt_run(l);
}
/* Calls the script `drop` for the offsets from `first` to `last` of lane k. */
static const char *drop_range(struct lt *l, int first, int last, int ahead, const char *dry) {
    struct drop m[64];
    for (int i = 0; i <= last - first; i++) m[i] = (struct drop){"k", NULL, first + i};
    return drop(l, m, (size_t)(last - first + 1), ahead, dry);
}

static struct lt_msg message(int64_t offset) { return lt_msg(0, offset, "k", "t1"); }
static void park(struct lt *l, int first, int last) {
    for (int o = first; o <= last; o++) {
        lt_int(l, "LPUSH " LT_TAG "wait:k %s", envelope(o, 0));
        lt_set_state(l, message(o), 1);
    }
    lt_int(l, "ZADD " LT_TAG "lanes 5 k");
}
static void hold(struct lt *l, const char *value) {
    lt_text(l, "SET " LT_TAG "lock:k %s PX 50000", value);
}
static int64_t hints(struct lt *l) { return lt_int(l, "LLEN " LT_TAG "ready"); }
static int64_t score(struct lt *l) { return atoll(lt_text(l, "ZSCORE " LT_TAG "lanes k")); }
static int replay_state(struct lt *l, int64_t offset, int64_t replay) {
    /* In the dump of Redis, find the line of the key that holds the state of the replay. The line
     * must say that the key expires. */
    char *bytes = lt_dump(l, true);
    char name[80];
    snprintf(name, sizeof name, "state:orders:0#%" PRId64 ":%" PRId64 " string expires ", replay,
             offset / 16384);
    bool there = strstr(bytes, name) != NULL;
    free(bytes);
    if (!there) return -1;
    redisReply *r = redisCommand(l->admin, "BITFIELD " LT_TAG "state:orders:0#%d:%d GET u2 #%d",
                                 (int)replay, (int)(offset / 16384), (int)(offset % 16384));
    int state = (int)r->element[0]->integer;
    freeReplyObject(r);
    return state;
}

/* --- put -------------------------------------------------------------------------------------- */

static void put_into_a_free_lane_hints(void **state) {
    struct lt *l = *state;
    int64_t from = lt_now_ms(l);
    assert_string_equal(put1(l, 3, 7), "P");
    assert_string_equal(lt_waiting(l, message(0)), "0/3");
    /* The replay is marked as waiting, and this mark expires. */
    assert_int_equal(replay_state(l, 3, 7), 1);
    assert_int_equal(lt_state(l, message(3)), 0);
    assert_int_equal(hints(l), 1);
    assert_true(score(l) >= from + LT_HANDOFF_MS && score(l) <= lt_now_ms(l) + LT_HANDOFF_MS);
    char *before = lt_dump(l, true);
    /* The same call sent again, as after a lost answer or when a job is resumed, changes
     * nothing. */
    assert_string_equal(lt_call_again(l), "A");
    lt_assert_unchanged(l, before, true);
}

static void put_stands_behind_those_that_wait(void **state) {
    struct lt *l = *state;
    park(l, 1, 2);
    const struct put m[] = {{.lane = "k", .offset = 9, .replay = 7},
                            {.lane = "k", .offset = 8, .replay = 7},
                            {.lane = "other", .offset = 20000}};
    assert_string_equal(put(l, m, 3, "any", ""), "PPP");
    assert_string_equal(lt_waiting(l, message(0)), "0/1 0/2 0/9 0/8");
    /* The script `put` has not changed the lane's score, which is the time at which tend will look
     * at the lane. */
    assert_int_equal(score(l), 5);
    assert_int_equal(hints(l), 1); /* the only hint is that of lane `other` */
    assert_string_equal(lt_text(l, "LINDEX " LT_TAG "ready 0"), "other");
    assert_int_equal(lt_state(l, message(20000)), 1);
    /* The mark of a Kafka record does not expire, unlike that of a replay. */
    assert_int_equal(lt_int(l, "TTL " LT_TAG "state:orders:0:1"), -1);
}

static void put_into_a_held_lane_leaves_it_to_the_holder(void **state) {
    struct lt *l = *state;
    int64_t from = lt_now_ms(l);
    hold(l, "w.1:5");
    assert_string_equal(put1(l, 3, 7), "P");
    assert_int_equal(hints(l), 0);
    assert_true(score(l) > from + 40000 && score(l) <= lt_now_ms(l) + 50000);
    lt_setup(state);
    lt_text(l, "SET " LT_TAG "lock:k somebody");
    assert_string_equal(put1(l, 3, 7), "P");
    assert_int_equal(hints(l), 0);
    assert_true(score(l) >= from && score(l) <= lt_now_ms(l));
}

/* With retry.order skip, a replay need not wait until the messages of its lane are due, as it must
 * if the lane itself rests. */
static void put_into_a_lane_that_is_not_due_wakes_it(void **state) {
    struct lt *l = *state;
    park(l, 1, 1);
    lt_int(l, "ZADD " LT_TAG "lanes XX CH 9000000000000000 k");
    hold(l, "backoff:50000");
    assert_string_equal(put1(l, 3, 7), "P");
    assert_string_equal(lt_lock(l, message(0)), "backoff");
    hold(l, "backoff:050000");
    assert_string_equal(put1(l, 4, 7), "P");
    assert_string_equal(lt_lock(l, message(0)), "(nil)");
    assert_true(score(l) <= lt_now_ms(l));
}

static void put_into_a_paused_lane_waits(void **state) {
    struct lt *l = *state;
    lt_int(l, "SADD " LT_TAG "paused k");
    assert_string_equal(put1(l, 3, 7), "P");
    assert_int_equal(hints(l), 0);
    assert_true(score(l) > 0);
}

static void put_leaves_out_what_is_known(void **state) {
    struct lt *l = *state;
    for (int s = 1; s <= 3; s++) {
        lt_set_state(l, message(s), s);
        /* The script `put` skips an import that already waits or is finished. */
        assert_string_equal(put1(l, s, 0), "A");
    }
    lt_int(l, "HSET " LT_TAG "floor orders:0 100");
    assert_string_equal(put1(l, 99, 0), "A");
    assert_string_equal(put1(l, 100, 0), "P");
    /* The floor of the original partition does not apply to replays. */
    assert_string_equal(put1(l, 99, 7), "P");
}

static const char *put_letter(struct lt *l, int64_t offset, int64_t replay, const char *which,
                              const char *dry) {
    char identity[64];
    snprintf(identity, sizeof identity, "orders/0/%" PRId64, offset);
    const struct put m = {
        .lane = "k", .offset = offset, .replay = replay, .original = "orders:0", .entry = identity};
    return put(l, &m, 1, which, dry);
}

static void put_of_a_letter_in_a_topic_takes_it_once(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "floor orders:0 100");
    lt_set_state(l, message(101), 1);
    lt_set_state(l, message(102), 2);
    lt_set_state(l, message(103), 3);
    assert_string_equal(put_letter(l, 99, 7, "undone", "dry"), "P");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "taken"), 0);
    int64_t from = lt_now_ms(l);
    assert_string_equal(put_letter(l, 99, 7, "undone", ""), "P");
    int64_t at = atoll(lt_text(l, "ZSCORE " LT_TAG "taken orders/0/99"));
    assert_true(at >= from && at <= lt_now_ms(l));
    assert_string_equal(lt_call_again(l), "A");
    /* Another job takes the letter again only if it was asked to. */
    assert_string_equal(put_letter(l, 99, 8, "undone", "dry"), "E");
    assert_string_equal(put_letter(l, 99, 8, "undone", ""), "E");
    assert_string_equal(put_letter(l, 99, 8, "any", ""), "P");
    /* What runs without a replay, or has run since, is left out. */
    assert_string_equal(put_letter(l, 100, 7, "any", ""), "U");
    assert_string_equal(put_letter(l, 101, 7, "any", ""), "U");
    assert_string_equal(put_letter(l, 102, 7, "undone", ""), "D");
    assert_string_equal(put_letter(l, 103, 7, "undone", ""), "P");
    assert_string_equal(lt_waiting(l, message(0)), "0/99 0/99 0/103");
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "taken"), 2);
}

static void what_was_taken_is_forgotten_in_the_end(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "floor orders:0 100");
    int64_t old = lt_now_ms(l) - INT64_C(91) * 86400000;
    for (int i = 0; i < 150; i++)
        lt_int(l, "ZADD " LT_TAG "taken %" PRId64 " old/0/%d", old + i, i);
    lt_int(l, "ZADD " LT_TAG "taken %" PRId64 " new/0/1", old + INT64_C(2) * 86400000);
    assert_string_equal(put_letter(l, 1, 7, "any", ""), "P");
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "taken"), 52); /* a call forgets at most 100 */
    assert_string_equal(put_letter(l, 2, 7, "any", ""), "P");
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "taken"), 3);
    assert_string_not_equal(lt_text(l, "ZSCORE " LT_TAG "taken new/0/1"), "");
}

static void put_of_what_is_read_again_looks_at_the_original(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "floor orders:0 100");
    lt_set_state(l, message(101), 1);
    lt_set_state(l, message(102), 2);
    lt_set_state(l, message(103), 3);
    assert_string_equal(again(l, 99, "undone"), "D");
    assert_string_equal(again(l, 100, "undone"), "U");
    assert_string_equal(again(l, 100, "any"), "U");
    assert_string_equal(again(l, 101, "any"), "U");
    assert_string_equal(again(l, 102, "undone"), "D");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "wait:k"), 0);
    assert_string_equal(again(l, 103, "undone"), "P");
    assert_string_equal(again(l, 102, "any"), "P");
    assert_string_equal(again(l, 99, "any"), "P");
    assert_string_equal(again(l, 99, "any"), "A");
    assert_string_equal(lt_waiting(l, message(0)), "0/103 0/102 0/99");
}

static void put_takes_its_dead_letter_along(void **state) {
    struct lt *l = *state;
    char id[64];
    snprintf(id, sizeof id, "%s", lt_text(l, "XADD " LT_TAG "dead * envelope e reason r"));
    struct put m = {.lane = "k", .offset = 3, .replay = 7, .entry = id};
    assert_string_equal(put(l, &m, 1, "any", "dry"), "P");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 1);
    assert_string_equal(put(l, &m, 1, "any", ""), "P");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 0);
    m.offset = 4;
    assert_string_equal(put(l, &m, 1, "any", ""), "G");
    assert_string_equal(lt_waiting(l, message(0)), "0/3");
    /* The same job (number 7) has already put this message into its lane, where it still waits, so
     * the script `put` does not delete the dead letter. */
    snprintf(id, sizeof id, "%s", lt_text(l, "XADD " LT_TAG "dead * envelope e reason r"));
    m.offset = 3;
    assert_string_equal(put(l, &m, 1, "any", ""), "A");
    assert_int_equal(lt_int(l, "XLEN " LT_TAG "dead"), 1);
}

static void put_refuses_what_does_not_fit(void **state) {
    struct lt *l = *state;
    lt_text(l, "SET " LT_TAG "wait:k x");
    const struct put m[] = {{.lane = "k", .offset = 3, .replay = 7},
                            {.lane = "a", .text = "2 orders"},
                            {.lane = "a", .offset = 4, .replay = 7}};
    assert_string_equal(put(l, m, 3, "any", ""), "BBP");
    assert_int_equal(replay_state(l, 4, 7), 1);
    char *before = lt_dump(l, true);
    /* A message that the script `put` has refused has no mark, so a repeated call refuses it
     * again. */
    assert_string_equal(put(l, m, 3, "any", ""), "BBA");
    lt_assert_unchanged(l, before, true);
}

static void a_dry_run_of_put_changes_nothing(void **state) {
    struct lt *l = *state;
    char *before = lt_dump(l, true);
    assert_string_equal(
        put(l, &(struct put){.lane = "k", .offset = 3, .replay = 7}, 1, "any", "dry"), "P");
    lt_assert_unchanged(l, before, true);
}

static void what_is_put_runs_once(void **state) {
    struct lt *l = *state;
    struct lt_msg k = message(0);
    assert_string_equal(put1(l, 3, 7), "P");
    assert_string_equal(lt_claim(l, &k, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
    /* The replay of message 3 by job 7 is already running, so the script `put` skips it. */
    assert_string_equal(put1(l, 3, 7), "A");
    lt_free_lock(l, k);
    lt_text(l, "BITFIELD " LT_TAG "state:orders:0#7:0 SET u2 #3 2");
    assert_string_equal(lt_claim(l, &k, 1), "E");
    /* The replay of message 3 by job 7 is already done, so the script `put` skips it. */
    assert_string_equal(put1(l, 3, 7), "A");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "wait:k"), 0);
}

/* --- drop ------------------------------------------------------------------------------------- */

static void drop_from_a_free_lane_takes_what_is_at_its_end(void **state) {
    struct lt *l = *state;
    park(l, 1, 6);
    lt_int(l, "HSET " LT_TAG "tries:orders:0:0 2 %s", "1 5 0");
    assert_string_equal(drop_range(l, 1, 3, 64, ""), "XXX");
    assert_string_equal(lt_waiting(l, message(0)), "0/4 0/5 0/6");
    for (int o = 1; o <= 3; o++) assert_int_equal(lt_state(l, message(o)), 2);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "tries:orders:0:0"), 0);
    char *before = lt_dump(l, true);
    assert_string_equal(drop_range(l, 1, 3, 64, ""), "DDD");
    lt_assert_unchanged(l, before, true);
    /* The dropped message stays in the waiting list until a later call removes it. */
    assert_string_equal(drop_range(l, 5, 5, 64, ""), "X");
    assert_string_equal(lt_waiting(l, message(0)), "0/4 0/5 0/6");
    assert_string_equal(drop_range(l, 4, 6, 64, ""), "XDX");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "wait:k " LT_TAG "lanes"), 0);
}

static void drop_leaves_what_the_holder_may_have(void **state) {
    struct lt *l = *state;
    park(l, 1, 6);
    /* Message 2 is finished, so it does not count as one of the two heads that the holder may
     * have. */
    lt_set_state(l, message(2), 2);
    hold(l, "w.1:5");
    assert_string_equal(drop_range(l, 1, 5, 2, ""), "HDHXX");
    /* The heads that the holder may have keep their places in the waiting list. */
    assert_string_equal(lt_waiting(l, message(0)), "0/1 0/2 0/3 0/4 0/5 0/6");
    assert_string_equal(drop_range(l, 1, 6, 2, ""), "HDHDDX");
    /* The lane `other` has no holder, so its message is dropped. */
    assert_string_equal(drop(l, (struct drop[]){{"other", NULL, 1}}, 1, 2, ""), "X");
}

static void one_that_stands_twice_is_one(void **state) {
    struct lt *l = *state;
    park(l, 1, 1);
    /* Message 1 is in the waiting list twice, as if one owner of its partition had put it back and
     * the next owner had parked it. */
    park(l, 1, 3);
    hold(l, "w.1:5");
    assert_string_equal(drop_range(l, 1, 3, 2, ""), "HHX");
}

static void drop_reads_past_what_is_no_message(void **state) {
    struct lt *l = *state;
    lt_int(l, "LPUSH " LT_TAG "wait:k torn");
    park(l, 1, 2);
    hold(l, "w.1:5");
    assert_string_equal(drop_range(l, 1, 2, 1, ""), "HX");
}

static void drop_in_a_backoff(void **state) {
    struct lt *l = *state;
    park(l, 1, 3);
    hold(l, "backoff");
    assert_string_equal(drop_range(l, 1, 2, 64, ""), "XX");
    assert_string_equal(lt_waiting(l, message(0)), "0/1 0/2 0/3");
    struct lt_msg k = message(0);
    lt_free_lock(l, k);
    assert_string_equal(lt_claim(l, &k, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
}

static void drop_of_what_does_not_wait(void **state) {
    struct lt *l = *state;
    park(l, 1, 1);
    lt_int(l, "HSET " LT_TAG "floor orders:0 1");
    lt_set_state(l, message(3), 3);
    char *before = lt_dump(l, true);
    const struct drop m[] = {{"k", NULL, 0}, {"k", NULL, 2}, {"k", NULL, 3}};
    assert_string_equal(drop(l, m, 3, 64, ""), "DND");
    assert_string_equal(drop_range(l, 1, 1, 64, "dry"), "X");
    lt_assert_unchanged(l, before, true);
}

static void drop_of_replays(void **state) {
    struct lt *l = *state;
    assert_string_equal(put1(l, 3, 7), "P");
    assert_string_equal(put1(l, 4, 7), "P");
    /* Delete the marks, as if the replays had waited for longer than the lifetime of the marks. */
    lt_int(l, "DEL " LT_TAG "state:orders:0#7:0");
    const struct drop m[] = {{"k", "orders:0#7", 4}};
    assert_string_equal(drop(l, m, 1, 64, ""), "X");
    assert_int_equal(replay_state(l, 4, 7), 2);
    struct lt_msg k = message(0);
    l->want = 5;
    assert_string_equal(lt_claim(l, &k, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/3");
}

static void drop_beside_names_of_another_type(void **state) {
    struct lt *l = *state;
    park(l, 1, 1);
    /* A lock key that has another Redis type counts as a held lock. */
    lt_int(l, "LPUSH " LT_TAG "lock:k x");
    assert_string_equal(drop_range(l, 1, 1, 64, ""), "H");
    lt_int(l, "DEL " LT_TAG "lock:k " LT_TAG "wait:k");
    hold(l, "w.1:5");
    lt_text(l, "SET " LT_TAG "wait:k x");
    assert_string_equal(drop_range(l, 1, 1, 64, "dry"), "X");
    lt_int(l, "DEL " LT_TAG "lock:k");
    assert_string_equal(drop_range(l, 1, 1, 64, ""), "X");
}

/* A holder settles its heads after messages behind them were dropped. Only the heads that the
 * holder finished are removed from the list. */
static void drop_under_a_holder_that_settles(void **state) {
    struct lt *l = *state;
    struct lt_msg k = message(0), done[3] = {message(1), message(2), message(3)};
    park(l, 1, 9);
    l->want = 3;
    assert_string_equal(lt_claim(l, &k, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/1 0/2 0/3");
    assert_string_equal(drop_range(l, 1, 6, 3, ""), "HHHXXX");
    struct lt_item one = {.done = done,
                          .n_done = 1,
                          .mode = 'h',
                          .named = &done[2],
                          .n_named = 1,
                          .want = 2,
                          .before = 3};
    assert_string_equal(lt_settle_items(l, &one, 1), "K");
    assert_string_equal(lt_waiting(l, k), "0/2 0/3 0/4 0/5 0/6 0/7 0/8 0/9");
    struct lt_item rest = {.done = done + 1, .n_done = 2, .mode = 'n', .want = 3, .before = 2};
    assert_string_equal(lt_settle_items(l, &rest, 1), "N");
    assert_string_equal(lt_heads(l, 0), "0/7 0/8 0/9");
    assert_string_equal(lt_waiting(l, k), "0/7 0/8 0/9");
}

/* --- all -------------------------------------------------------------------------------------- */

static void both_are_refused_without_an_epoch(void **state) {
    struct lt *l = *state;
    park(l, 1, 1);
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + 60000);
    assert_string_equal(put1(l, 3, 7), "QUARANTINE");
    assert_string_equal(drop_range(l, 1, 1, 64, ""), "QUARANTINE");
    lt_int(l, "DEL " LT_TAG "epoch");
    assert_string_equal(put1(l, 3, 7), "NOEPOCH");
    assert_string_equal(drop_range(l, 1, 1, 64, ""), "NOEPOCH");
}

static void at_maxmemory(void **state) {
    struct lt *l = *state;
    park(l, 1, 2);
    lt_text(l, "CONFIG SET maxmemory 1");
    /* At maxmemory, Redis refuses the script `put`, which needs memory, and still executes the
     * script `drop`. */
    assert_string_equal(put1(l, 3, 7), "-OOM");
    assert_string_equal(drop_range(l, 1, 1, 64, ""), "X");
    lt_text(l, "CONFIG SET maxmemory 0");
    assert_string_equal(lt_waiting(l, message(0)), "0/2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(put_into_a_free_lane_hints),
        LT(put_stands_behind_those_that_wait),
        LT(put_into_a_held_lane_leaves_it_to_the_holder),
        LT(put_into_a_lane_that_is_not_due_wakes_it),
        LT(put_into_a_paused_lane_waits),
        LT(put_leaves_out_what_is_known),
        LT(put_of_a_letter_in_a_topic_takes_it_once),
        LT(what_was_taken_is_forgotten_in_the_end),
        LT(put_of_what_is_read_again_looks_at_the_original),
        LT(put_takes_its_dead_letter_along),
        LT(put_refuses_what_does_not_fit),
        LT(a_dry_run_of_put_changes_nothing),
        LT(what_is_put_runs_once),
        LT(drop_from_a_free_lane_takes_what_is_at_its_end),
        LT(drop_leaves_what_the_holder_may_have),
        LT(one_that_stands_twice_is_one),
        LT(drop_reads_past_what_is_no_message),
        LT(drop_in_a_backoff),
        LT(drop_of_what_does_not_wait),
        LT(drop_of_replays),
        LT(drop_beside_names_of_another_type),
        LT(drop_under_a_holder_that_settles),
        LT(both_are_refused_without_an_epoch),
        LT(at_maxmemory),
    };
    return LT_RUN(tests, LT_PLAIN | LT_FLUSHED);
}
