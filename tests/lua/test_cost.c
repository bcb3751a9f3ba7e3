/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many commands the scripts execute in Redis per message. Each command takes about a
 * microsecond of Redis' single thread. */
#include "tests/support/lanes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 64, PARTITIONS = 4, EACH = 8, LANES = BATCH / EACH };
/* Maximum number of commands that one call may execute: a fixed number, plus a number per message
 * or per lane. */
enum {
    CALL_MOST = 15,
    GATE_MOST = BATCH + CALL_MOST,
    SETTLE_MOST = CALL_MOST,
    PARKED_MOST = 4 * LANES + CALL_MOST,
    CLAIM_MOST = 5 * LANES + CALL_MOST,
    NEXT_MOST = 6 * LANES + CALL_MOST,
    LAST_MOST = 5 * LANES + CALL_MOST,
};

/* Returns how often a command was called since CONFIG RESETSTAT. `line` is a line of INFO
 * commandstats, which has the form cmdstat_NAME:calls=N,… */
static int64_t calls_of(const char *line) {
    const char *calls = strstr(line, ":calls=");
    return calls ? atoll(calls + 7) : 0;
}
/* Returns true for the commands that tests and workers send directly. Scripts call all other
 * commands. */
static bool from_outside(const char *line) {
    static const char *const names[] = {"evalsha", "script|load", "script|flush",
                                        "config|", "info",        "time"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(line + strlen("cmdstat_"), names[i], strlen(names[i])) == 0) return true;
    return false;
}
/* Returns how many commands one script has executed. TIME is counted as one call, since each script
 * that is counted, except settle for a lone message, calls TIME once. The calls of TIME in INFO are
 * ignored, because the tests call TIME as well. */
static int64_t commands_in_script(struct lt *l) {
    redisReply *r = redisCommand(l->admin, "INFO commandstats");
    assert_non_null(r);
    int64_t n = 1;
    char *save = NULL;
    for (char *line = strtok_r(r->str, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
        if (strncmp(line, "cmdstat_", 8) == 0 && !from_outside(line)) n += calls_of(line);
    freeReplyObject(r);
    lt_text(l, "CONFIG RESETSTAT");
    return n;
}

/* Makes n * each messages in `m`: `each` messages for each of `n` lanes. The messages of a lane are
 * neighbours in `m` and belong to one partition. */
static void make_batch(struct lt_msg *m, char (*lanes)[24], int n, int each, int64_t first_offset) {
    for (int i = 0; i < n; i++) {
        snprintf(lanes[i], sizeof lanes[i], "lane %d", i);
        for (int k = 0; k < each; k++)
            m[i * each + k] =
                lt_msg(i % PARTITIONS, first_offset + i / PARTITIONS * each + k, lanes[i], "t1");
    }
}

static void assert_at_most(const char *what, int64_t n, int n_messages, int64_t most) {
    print_message("%s: %" PRId64 " commands for %d messages, %.2f a message\n", what, n, n_messages,
                  (double)n / n_messages);
    if (n > most) fail_msg("%s: %" PRId64 " commands, more than %" PRId64, what, n, most);
}
/* Returns how many commands the script has executed. The one command with which the test support
 * reads the fence is not counted. */
static int64_t counted(struct lt *l) { return commands_in_script(l) - 1; }

static void answered(const struct lt *l, const char *cycle, int n) {
    for (int i = 0; i < n; i++) assert_int_equal(l->answers[i], cycle[i % (int)strlen(cycle)]);
    assert_int_equal(l->answers[n], 0);
}

/* Tests batches with one message per lane and no waiting messages. A call of gate then costs one
 * SET per message and a fixed number of other commands. A call of settle costs only a fixed number
 * of commands. */
static void gate_and_settle_without_waiters(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[BATCH];
    static char lanes[BATCH][24];
    make_batch(m, lanes, BATCH, 1, 100);
    for (int i = 0; i < BATCH; i++) m[i].bare = true;
    lt_text(l, "CONFIG RESETSTAT");
    lt_gate(l, m, BATCH);
    int64_t gate = counted(l);
    answered(l, "R", BATCH);
    lt_settle(l, m, BATCH);
    int64_t settle = commands_in_script(l);
    answered(l, "L", BATCH);
    /* Check that commands of scripts are counted at all. */
    assert_true(gate > BATCH);
    assert_at_most("gate", gate, BATCH, GATE_MOST);
    assert_at_most("settle", settle, BATCH, SETTLE_MOST);
}

/* Tests the smallest calls: one message whose lane nobody has. gate looks up the epoch, the floor,
 * the state, and what is rare, takes a fence and the lock. settle needs neither the time nor, as
 * long as the segment exists, the floor. */
static void a_lone_message(void **state) {
    struct lt *l = *state;
    for (int64_t offset = 100; offset < 102; offset++) {
        struct lt_msg m = lt_msg(0, offset, "k", "t1");
        m.bare = true;
        lt_text(l, "CONFIG RESETSTAT");
        lt_gate(l, &m, 1);
        int64_t gate = counted(l);
        answered(l, "R", 1);
        lt_settle(l, &m, 1);
        /* commands_in_script() counts a TIME that settle does not call here */
        int64_t settle = commands_in_script(l) - 1;
        answered(l, "L", 1);
        assert_at_most("gate, lone", gate, 1, 8);
        assert_at_most("settle, lone", settle, 1, offset == 100 ? 7 : 6);
    }
}

/* Tests that several consecutive messages of one lane cost only one SET in total. */
static void several_messages_of_a_lane(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[BATCH];
    static struct lt_item items[LANES];
    static char lanes[LANES][24];
    make_batch(m, lanes, LANES, EACH, 100);
    lt_text(l, "CONFIG RESETSTAT");
    lt_gate(l, m, BATCH);
    int64_t gate = counted(l);
    answered(l, "RAAAAAAA", BATCH);
    for (int i = 0; i < LANES; i++)
        items[i] =
            (struct lt_item){.done = m + i * EACH, .n_done = EACH, .mode = 'n', .want = EACH};
    lt_settle_items(l, items, LANES);
    int64_t settle = commands_in_script(l);
    answered(l, "L", LANES);
    assert_at_most("gate, 8 of a lane", gate, BATCH, LANES + CALL_MOST);
    assert_at_most("settle, 8 of a lane", settle, BATCH, SETTLE_MOST);
}

/* Counts the commands for messages that are parked, claimed, and then handed over in groups of
 * eight. */
static void parked_and_drained(void **state) {
    struct lt *l = *state;
    static struct lt_msg m[2 * BATCH], claims[LANES];
    static struct lt_item items[LANES];
    static char lanes[LANES][24];
    l->want = EACH;
    make_batch(m, lanes, LANES, 2 * EACH, 100);
    for (int i = 0; i < LANES; i++) {
        claims[i] = lt_msg(0, 0, lanes[i], "t2");
        lt_text(l, "SET " LT_TAG "lock:%s other:1 PX %d", lanes[i], LT_TTL_MS);
    }
    lt_text(l, "CONFIG RESETSTAT");
    lt_gate(l, m, 2 * BATCH);
    int64_t parked = counted(l);
    answered(l, "W", 2 * BATCH);
    for (int i = 0; i < LANES; i++) lt_free_lock(l, claims[i]);
    lt_text(l, "CONFIG RESETSTAT");
    lt_claim(l, claims, LANES);
    int64_t claim = counted(l);
    answered(l, "N", LANES);
    for (int i = 0; i < 2 * BATCH; i++) m[i].token = "t2";
    for (int i = 0; i < LANES; i++)
        items[i] = (struct lt_item){
            .done = m + 2 * i * EACH, .n_done = EACH, .mode = 'n', .want = EACH, .before = EACH};
    lt_settle_items(l, items, LANES);
    int64_t next = counted(l);
    answered(l, "N", LANES);
    for (int i = 0; i < LANES; i++) {
        assert_int_equal(l->item[i].n_heads, EACH);
        items[i].done += EACH;
    }
    lt_text(l, "CONFIG RESETSTAT");
    lt_settle_items(l, items, LANES);
    int64_t last = commands_in_script(l);
    answered(l, "L", LANES);
    assert_int_equal(lt_int(l, "ZCARD " LT_TAG "lanes"), 0);
    assert_at_most("gate, parked", parked, 2 * BATCH, PARKED_MOST);
    assert_at_most("claim", claim, BATCH, CLAIM_MOST);
    assert_at_most("settle and hand over", next, BATCH, NEXT_MOST);
    assert_at_most("settle the last", last, BATCH, LAST_MOST);
    assert_at_most("parked and drained", parked + claim + next + last, 2 * BATCH,
                   2 * BATCH * 17 / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {LT(gate_and_settle_without_waiters), LT(a_lone_message),
                                       LT(several_messages_of_a_lane), LT(parked_and_drained)};
    return LT_RUN(tests, LT_PLAIN);
}
