/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `limit`, which deals out the places and tokens of the fleet (`limits`). The
 * scripts run on the clock of the server, so a test moves the times in Redis instead. */
#include "ops/script.h"
#include "tests/support/lanes.h"
#include "tests/support/lanes_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct asks {
    const char *worker;
    int number, running, per_second, burst, has, want, tokens;
    /* number of fields and values of the worker's file, which knows no version then */
    const char *file[8];
    int room;  /* number of messages that it could start in all; 0 stands for 100 */
    int asked; /* number of the places that it has in use for messages not yet in handlers */
};

/* A group in a statement, and the answer about it. */
struct group {
    const char *name;
    int running, per_second, burst, has, more, hand;
    int places, tokens;
    int asked; /* see above */
};

/* Puts a limit into force, as an operator does. */
static void force(struct lt *l, const char *field, int running, int per_second, int burst) {
    char text[64];
    snprintf(text, sizeof text, "%d %d %d -", running, per_second, burst);
    lt_int(l, "HSET " LT_TAG "limits version 1 %s %s", field, text);
}

/* Begins a call with the arguments that tell of the fleet. */
static void begin(struct lt *l, struct asks a) {
    lt_begin(l, &lw_script_limit);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "limit");
    lt_add_text(&l->keys, LT_TAG "limits"), lt_add_text(&l->keys, LT_TAG "limited");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, a.worker);
    lt_addf(&l->args, "%d", a.number), lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_addf(&l->args, "%d", !a.file[0]), lt_addf(&l->args, "%d", a.has);
    lt_addf(&l->args, "%d", a.want), lt_addf(&l->args, "%d", a.tokens);
    lt_addf(&l->args, "0"), lt_addf(&l->args, "100");
    lt_addf(&l->args, "%d", a.room ? a.room : 100);
    lt_addf(&l->args, "%d", a.has - a.asked);
    int n = 0;
    while (a.file[n]) n++;
    lt_addf(&l->args, "%d", n / 2);
    for (int i = 0; i < n; i++) lt_add_text(&l->args, a.file[i]);
}

/* Makes a statement about groups, of a fleet with these limits, and with a free handler for each
 * message. Returns the numbers of places and tokens of the fleet as "P T". */
static const char *groups_of(struct lt *l, struct asks a, struct group *g, int n) {
    static char text[64];
    force(l, "fleet", a.running, a.per_second, a.burst);
    for (int i = 0; i < n; i++) {
        char field[80];
        snprintf(field, sizeof field, "group:%s", g[i].name);
        force(l, field, g[i].running, g[i].per_second, g[i].burst);
    }
    begin(l, a);
    for (int i = 0; i < n; i++) {
        lt_add_text(&l->args, g[i].name), lt_addf(&l->args, "%d", g[i].has);
        lt_addf(&l->args, "%d", g[i].more), lt_addf(&l->args, "%d", g[i].hand);
        lt_addf(&l->args, "%d", g[i].has - g[i].asked);
    }
    lt_run(l);
    assert_int_equal(l->reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(l->reply->elements, 8 + 5 * n);
    for (int i = 0; i < n; i++) {
        g[i].places = (int)l->reply->element[8 + 5 * i]->integer;
        g[i].tokens = (int)l->reply->element[9 + 5 * i]->integer;
    }
    snprintf(text, sizeof text, "%lld %lld", l->reply->element[0]->integer,
             l->reply->element[1]->integer);
    return text;
}

/* Makes a statement, and returns the numbers of places and tokens in the answer as "P T". */
static const char *state_of(struct lt *l, struct asks a) {
    static char text[64];
    if (!a.file[0]) force(l, "fleet", a.running, a.per_second, a.burst);
    begin(l, a);
    const char *answer = lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return answer;
    assert_int_equal(l->reply->elements, 8);
    snprintf(text, sizeof text, "%lld %lld", l->reply->element[0]->integer,
             l->reply->element[1]->integer);
    return text;
}

static const char *places(struct lt *l, const char *worker, int number, int has, int want) {
    return state_of(l, (struct asks){worker, number, 4, 0, 1, has, want, 0, {0}, 0, 0});
}

/* Makes a token the one that comes `ms` ms from now. */
static void next_in(struct lt *l, int64_t ms) {
    lt_int(l, "HSET " LT_TAG "limit next %" PRId64 "000", lt_now_ms(l) + ms);
}

static const char *tokens(struct lt *l, const char *worker, int number, int want) {
    return state_of(l, (struct asks){worker, number, 0, 1, 5, 0, 0, want, {0}, 0, 0});
}

static void places_are_given_up_to_the_limit(void **state) {
    struct lt *l = *state;
    assert_string_equal(places(l, "a", 1, 0, 3), "3 0");
    assert_string_equal(places(l, "b", 1, 0, 3), "1 0");
    assert_true(l->reply->element[4]->integer > 0);
    /* a statement replaces the one before, and is never added to it */
    assert_string_equal(places(l, "a", 2, 3, 3), "3 0");
    assert_int_equal(l->reply->element[4]->integer, 0);
    assert_string_equal(places(l, "a", 3, 1, 1), "1 0");
    assert_string_equal(places(l, "b", 2, 1, 9), "3 0");
}

static void nothing_is_left_of_a_worker_without_places(void **state) {
    struct lt *l = *state;
    places(l, "a", 1, 0, 3);
    assert_string_equal(places(l, "a", 2, 0, 0), "0 0");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "limit"), 0);
}

static void statements_expire(void **state) {
    struct lt *l = *state;
    l->ttl_ms = 1;
    assert_string_equal(places(l, "a", 1, 4, 4), "4 0");
    int64_t from = lt_now_ms(l);
    while (lt_now_ms(l) <= from + 2) {}
    l->ttl_ms = LT_TTL_MS;
    assert_string_equal(places(l, "b", 1, 0, 4), "4 0");
    assert_int_equal(lt_int(l, "HLEN " LT_TAG "limit"), 1);
    /* a may still count those in handlers, whose leases have ended, but none that it has asked for,
     * since b has its places now */
    const struct asks late = {"a", 2, 4, 0, 1, 4, 4, 0, {0}, 0, 3};
    assert_string_equal(state_of(l, late), "1 0");
    struct group g[] = {{.name = "acme", .running = 2, .has = 2, .more = 1, .asked = 2}};
    groups_of(l, (struct asks){.worker = "c", .number = 1}, g, 1);
    assert_int_equal(g[0].places, 1);
}

static void a_late_statement_changes_nothing(void **state) {
    struct lt *l = *state;
    places(l, "a", 7, 0, 4);
    char *before = lt_dump(l, true);
    places(l, "a", 6, 0, 1);
    lt_assert_unchanged(l, before, true);
    assert_string_equal(places(l, "b", 1, 0, 1), "0 0");
}

static void who_waits_longest_is_first(void **state) {
    struct lt *l = *state;
    /* in the same millisecond, the lower name is first */
    places(l, "b", 1, 0, 4);
    assert_string_equal(places(l, "a", 1, 0, 1), "0 0"); /* a waits now */
    assert_string_equal(places(l, "b", 2, 3, 4), "3 0"); /* a place of b is free: it is for a */
    assert_int_equal(l->reply->element[5]->integer, 1);
    assert_string_equal(places(l, "a", 2, 0, 1), "1 0");
}

static void a_lower_limit_drains(void **state) {
    struct lt *l = *state;
    places(l, "a", 1, 0, 4);
    const struct asks low = {"a", 2, 2, 0, 1, 4, 4, 0, {0}, 0, 0};
    assert_string_equal(state_of(l, low), "4 0"); /* nothing that runs is taken away */
    const struct asks lower = {"a", 3, 2, 0, 1, 1, 4, 0, {0}, 0, 0};
    assert_string_equal(state_of(l, lower), "2 0");
}

/* Returns the limits in force of the answer, as "FIELD VALUE …", and the version as '?'. */
static const char *limits_of(struct lt *l) {
    static char text[400];
    size_t at = 0;
    text[0] = 0;
    const redisReply *r = l->reply->element[7];
    for (size_t i = 0; i < r->elements; i += 2)
        if (strcmp(r->element[i]->str, "version") != 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s=%s ", r->element[i]->str,
                                   r->element[i + 1]->str);
    return text;
}

static void the_file_seeds_the_limits_in_force(void **state) {
    struct lt *l = *state;
    struct asks a = {.worker = "a", .number = 1, .want = 4};
    a.file[0] = "fleet", a.file[1] = "3 0 0", a.file[2] = "group:x", a.file[3] = "1 0 0";
    assert_string_equal(state_of(l, a), "3 0");
    long long version = l->reply->element[6]->integer;
    assert_true(version > 0);
    assert_string_equal(limits_of(l), "fleet=3 0 0 3 0 0 group:x=1 0 0 1 0 0 ");
    /* another worker with this file changes nothing */
    a.worker = "b";
    state_of(l, a);
    assert_int_equal(l->reply->element[6]->integer, version);
}

static void two_files_in_one_fleet(void **state) {
    struct lt *l = *state;
    struct asks old = {.worker = "a", .number = 1, .want = 3}, new = old;
    old.file[0] = "fleet", old.file[1] = "3 0 0", old.file[2] = "group:x", old.file[3] = "1 0 0";
    new.file[0] = "fleet", new.file[1] = "5 0 0", new.file[2] = "group:y", new.file[3] = "2 0 0";
    new.worker = "b";
    assert_string_equal(state_of(l, old), "3 0");
    /* what an operator has set stays as long as no file says something else about it */
    lt_int(l, "HSET " LT_TAG "limits fleet %s", "4 0 0 3 0 0");
    lt_int(l, "HSET " LT_TAG "limits group:z %s", "7 0 0 -");
    lt_int(l, "HSET " LT_TAG "limits paused:x 1");
    old.number = 2;
    assert_string_equal(state_of(l, old), "3 0");
    assert_string_equal(limits_of(l),
                        "fleet=4 0 0 3 0 0 group:x=1 0 0 1 0 0 group:z=7 0 0 - paused:x=1 ");
    /* a worker with a new file decides for all; x has no limits of its own any more */
    assert_string_equal(state_of(l, new), "2 0");
    assert_string_equal(limits_of(l),
                        "fleet=5 0 0 5 0 0 group:z=7 0 0 - paused:x=1 group:y=2 0 0 2 0 0 ");
    /* a call of a worker of the old file that comes late changes nothing */
    state_of(l, old);
    assert_string_equal(lt_text(l, "HGET " LT_TAG "limits fleet"), "5 0 0 5 0 0");
    /* and one that starts later decides again */
    old.worker = "c";
    state_of(l, old);
    assert_string_equal(lt_text(l, "HGET " LT_TAG "limits fleet"), "3 0 0 3 0 0");
}

static void nothing_starts_before_a_file_was_seen(void **state) {
    struct lt *l = *state;
    begin(l, (struct asks){.worker = "a", .number = 1, .want = 4});
    lt_run(l);
    assert_int_equal(l->reply->element[0]->integer, 0);
    assert_int_equal(l->reply->element[6]->integer, 0); /* so the worker sends its file */
}

static void who_knows_the_version_gets_no_limits(void **state) {
    struct lt *l = *state;
    places(l, "a", 1, 0, 1);
    assert_int_equal(l->reply->element[7]->elements, 0);
    lt_int(l, "HSET " LT_TAG "limits version 2");
    begin(l, (struct asks){.worker = "a", .number = 2, .want = 4});
    lt_run(l);
    assert_int_equal(l->reply->element[6]->integer, 2);
    assert_string_equal(limits_of(l), "fleet=4 0 1 - ");
}

static void what_is_paused_starts_nothing(void **state) {
    struct lt *l = *state;
    struct group g[] = {
        {.name = "x", .running = 9, .per_second = 1, .burst = 5, .has = 2, .more = 3},
        {.name = "y", .running = 9, .more = 3}};
    const struct asks a = {.worker = "a", .number = 1, .running = 9};
    lt_int(l, "HSET " LT_TAG "limits paused:x 1");
    groups_of(l, a, g, 2);
    assert_int_equal(g[0].places, 2);
    assert_int_equal(g[0].tokens, 0);
    assert_int_equal(g[1].places, 3);
    lt_int(l, "HSET " LT_TAG "limits paused 1");
    groups_of(l, (struct asks){.worker = "b", .number = 1, .running = 9}, g, 2);
    assert_int_equal(g[1].places, 0);
}

static void a_quarantine_keeps_what_is_stated(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    next_in(l, -1000);
    const struct asks more = {"a", 1, 4, 1, 5, 2, 4, 3, {0}, 0, 0};
    assert_string_equal(state_of(l, more), "2 0");
    lt_int(l, "HSET " LT_TAG "epoch not_before 0");
    assert_string_equal(places(l, "b", 1, 0, 4), "1 0"); /* of the two that are free */
}

static void statements_of_another_epoch_are_void(void **state) {
    struct lt *l = *state;
    places(l, "a", 1, 4, 4);
    lt_int(l, "HSET " LT_TAG "epoch id next");
    snprintf(l->epoch, sizeof l->epoch, "next");
    assert_string_equal(places(l, "b", 1, 0, 4), "4 0");
    snprintf(l->epoch, sizeof l->epoch, "other");
    assert_string_equal(places(l, "a", 2, 4, 4), "LOST");
}

/* With one token a second, what a test takes in time does not matter. */
static void tokens_that_were_left_are_a_burst(void **state) {
    struct lt *l = *state;
    next_in(l, -1000000);
    assert_string_equal(tokens(l, "a", 1, 9), "0 5");
    assert_string_equal(tokens(l, "a", 2, 9), "0 0");
}

static void the_first_token_is_no_burst(void **state) {
    struct lt *l = *state;
    assert_string_equal(tokens(l, "a", 1, 9), "0 0");
}

static void tokens_are_shared_in_order_of_waiting(void **state) {
    struct lt *l = *state;
    next_in(l, 100000); /* so far ahead is only a clock that went back: it comes soon */
    assert_string_equal(tokens(l, "a", 1, 9), "0 0");
    assert_string_equal(tokens(l, "b", 1, 9), "0 0");
    next_in(l, -1000000);
    assert_string_equal(tokens(l, "a", 2, 9), "0 3");
    assert_string_equal(tokens(l, "b", 2, 9), "0 1"); /* b before a: one of two */
}

static void a_clock_that_went_back_costs_one_wait(void **state) {
    struct lt *l = *state;
    next_in(l, 3600000);
    tokens(l, "a", 1, 1);
    int64_t next = strtoll(lt_text(l, "HGET " LT_TAG "limit next"), NULL, 10);
    assert_true(next / 1000 - lt_now_ms(l) < 2000);
}

static void tokens_have_their_distance(void **state) {
    struct lt *l = *state;
    next_in(l, 0);
    const struct asks many = {"a", 1, 0, 1000, 1, 0, 0, 500, {0}, 0, 0};
    state_of(l, many);
    int64_t n = l->reply->element[1]->integer;
    assert_true(n >= 40 && n <= 70); /* as many as come within the time that may be drawn ahead */
    assert_string_equal(l->reply->element[3]->str, "1000.000");
    assert_true(l->reply->element[2]->integer <= 60000);
}

/* --- operators -------------------------------------------------------------------------------- */

static const char *operate(struct lt *l, const char *what, const char *of, const char *running,
                           const char *per_second, const char *burst, const char *fields) {
    static char text[100];
    lt_begin(l, &lw_op_limits);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "limits");
    lt_add_text(&l->args, what), lt_add_text(&l->args, of), lt_add_text(&l->args, running);
    lt_add_text(&l->args, per_second), lt_add_text(&l->args, burst);
    lt_add_text(&l->args, fields);
    lt_run(l);
    snprintf(text, sizeof text, "%s %s", l->reply->element[0]->str, l->reply->element[1]->str);
    return text;
}

static void operators_change_limits(void **state) {
    struct lt *l = *state;
    assert_string_equal(operate(l, "set", ":x", "2", "", "", "9"), "NONE ");
    force(l, "each", 3, 10, 1);
    lt_int(l, "HSET " LT_TAG "limits version 5");
    assert_string_equal(operate(l, "set", ":x", "2", "", "", "9"), "OK 2 10 1");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "limits group:x"), "2 10 1 -");
    int64_t version = strtoll(lt_text(l, "HGET " LT_TAG "limits version"), NULL, 10);
    assert_true(version > 5);
    assert_string_equal(operate(l, "set", ":x", "2", "", "", "9"), "SAME 2 10 1");
    assert_int_equal(strtoll(lt_text(l, "HGET " LT_TAG "limits version"), NULL, 10), version);
    assert_string_equal(operate(l, "pause", ":x", "", "", "", "9"), "OK 2 10 1");
    assert_string_equal(operate(l, "pause", ":x", "", "", "", "9"), "SAME 2 10 1");
    assert_string_equal(operate(l, "pause", "", "", "", "", "4"), "FULL 0 0 0");
    assert_string_equal(operate(l, "pause", "", "", "", "", "5"), "OK 0 0 0");
    assert_string_equal(operate(l, "resume", ":x", "", "", "", "9"), "OK 2 10 1");
    assert_string_equal(operate(l, "resume", ":x", "", "", "", "9"), "SAME 2 10 1");
    assert_string_equal(operate(l, "set", "", "", "", "7", "9"), "BURST 0 0 0");
    /* without a limit in the file, x has that of each group again */
    assert_string_equal(operate(l, "reset", ":x", "", "", "", "9"), "OK 3 10 1");
    assert_int_equal(lt_int(l, "HEXISTS " LT_TAG "limits group:x"), 0);
    assert_string_equal(operate(l, "reset", ":x", "", "", "", "9"), "SAME 3 10 1");
    lt_int(l, "HSET " LT_TAG "limits group:y %s", "9 9 1 4 5 1");
    assert_string_equal(operate(l, "reset", ":y", "", "", "", "9"), "OK 4 5 1");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "limits group:y"), "4 5 1 4 5 1");
    assert_string_equal(operate(l, "reset", ":y", "", "", "", "9"), "SAME 4 5 1");
}

static void operators_see_what_runs_and_waits(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .running = 2, .has = 1, .more = 3}};
    groups_of(l, (struct asks){.worker = "a", .number = 1}, g, 1);
    groups_of(l, (struct asks){.worker = "b", .number = 1}, g, 1);
    lt_int(l, "HSET " LT_TAG "limits paused:x 77");
    lt_int(l, "ZADD " LT_TAG "ready:x 1 k 1 j");
    lt_begin(l, &lw_op_groups);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "limit");
    lt_add_text(&l->keys, LT_TAG "limits"), lt_add_text(&l->args, "x");
    lt_run(l);
    assert_int_equal(l->reply->elements, 9);
    assert_string_equal(l->reply->element[5]->str, "3"); /* a has two places, and b its own */
    assert_true(strtoll(l->reply->element[6]->str, NULL, 10) > 0);
    assert_string_equal(l->reply->element[7]->str, "77");
    assert_string_equal(l->reply->element[8]->str, "2");
    assert_true(lt_int(l, "ZCOUNT " LT_TAG "limited 1 +inf") == 1);
}

/* --- groups ----------------------------------------------------------------------------------- */

static void a_group_has_limits_of_its_own(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "acme", .running = 2, .more = 9},
                        {.name = "", .running = 3, .more = 1}};
    groups_of(l, (struct asks){.worker = "a", .number = 1}, g, 2);
    assert_int_equal(g[0].places, 2);
    assert_int_equal(g[1].places, 1);
    groups_of(l, (struct asks){.worker = "b", .number = 1}, g, 2);
    assert_int_equal(g[0].places, 0);
    assert_int_equal(g[1].places, 1);
    /* what a gives back is b's */
    struct group none[] = {{.name = "acme", .running = 2}, {.name = "", .running = 3}};
    groups_of(l, (struct asks){.worker = "a", .number = 2}, none, 2);
    groups_of(l, (struct asks){.worker = "b", .number = 2}, g, 2);
    assert_int_equal(g[0].places, 2);
}

static void groups_get_no_more_than_the_fleet_lets_start(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .running = 9, .more = 3},
                        {.name = "y", .running = 9, .more = 3}};
    assert_string_equal(groups_of(l, (struct asks){.worker = "a", .number = 1, .running = 4}, g, 2),
                        "4 0");
    assert_int_equal(g[0].places, 3);
    assert_int_equal(g[1].places, 1);
    assert_string_equal(groups_of(l, (struct asks){.worker = "b", .number = 1, .running = 4}, g, 2),
                        "0 0");
    assert_int_equal(g[0].places + g[1].places, 0);
}

static void the_fleet_gives_no_more_than_groups_can_use(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .running = 1, .more = 3}};
    next_in(l, -10000);
    const struct asks a = {.worker = "a", .number = 1, .running = 4, .per_second = 100, .burst = 9};
    assert_string_equal(groups_of(l, a, g, 1), "1 1");
}

/* The handlers that groups cannot use are for messages that need no permit of a group. */
static void groups_and_others_share_the_room(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .running = 2, .more = 9}};
    struct asks a = {.worker = "a", .number = 1, .running = 50, .has = 1, .want = 9, .room = 8};
    assert_string_equal(groups_of(l, a, g, 1), "9 0");
    assert_int_equal(g[0].places, 2);
    a.number = 2, a.room = 1;
    assert_string_equal(groups_of(l, a, g, 1), "3 0");
}

/* Who wants tokens and has no limit per second does not wait for any. */
static void without_a_limit_per_second_nobody_waits_for_tokens(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .running = 9, .more = 3}};
    groups_of(l, (struct asks){.worker = "a", .number = 1}, g, 1);
    assert_int_equal(g[0].places, 3);
    assert_int_equal(l->reply->element[4]->integer, 0);
    g[0].running = 2;
    groups_of(l, (struct asks){.worker = "b", .number = 1}, g, 1);
    assert_true(l->reply->element[4]->integer > 0);
}

static void the_first_token_of_a_group_is_no_burst(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .per_second = 1, .burst = 5, .more = 9}};
    groups_of(l, (struct asks){.worker = "a", .number = 1}, g, 1);
    assert_int_equal(g[0].tokens, 0);
    /* but when tokens have been known for long, a group of which nothing is known was quiet */
    lt_int(l, "DEL " LT_TAG "limit:x");
    lt_int(l, "HSET " LT_TAG "limit since %" PRId64 "000", lt_now_ms(l) - 100000);
    groups_of(l, (struct asks){.worker = "a", .number = 2}, g, 1);
    assert_int_equal(g[0].tokens, 5);
}

static void nothing_is_left_of_a_quiet_group(void **state) {
    struct lt *l = *state;
    struct group g[] = {{.name = "x", .running = 1, .per_second = 10, .burst = 5, .more = 1}};
    groups_of(l, (struct asks){.worker = "a", .number = 1}, g, 1);
    int64_t left = lt_int(l, "PTTL " LT_TAG "limit:x");
    assert_true(left > 0 && left <= LT_TTL_MS + 2000);
    g[0].more = 0;
    g[0].per_second = 0;
    lt_int(l, "DEL " LT_TAG "limit:x");
    groups_of(l, (struct asks){.worker = "a", .number = 2}, g, 1);
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "limit:x"), 0);
}

/* --- lanes of groups -------------------------------------------------------------------------- */

static const char *ready(struct lt *l, const char *group, int n) {
    static char text[200];
    size_t at = 0;
    lt_begin(l, &lw_script_ready);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "lanes");
    lt_add_text(&l->keys, LT_TAG "groups");
    lt_add_text(&l->args, l->epoch), lt_addf(&l->args, "500"), lt_addf(&l->args, "9");
    if (n) lt_add_text(&l->args, group), lt_addf(&l->args, "%d", n);
    lt_run(l);
    text[0] = 0;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < l->reply->element[k]->elements; i++) {
            const redisReply *e = l->reply->element[k]->element[i];
            at += (size_t)(e->str ? snprintf(text + at, sizeof text - at, "%s ", e->str)
                                  : snprintf(text + at, sizeof text - at, "%lld ", e->integer));
        }
    return text;
}

static struct lt_msg message(const char *lane, int64_t offset) {
    return (struct lt_msg){.topic = "orders",
                           .offset = offset,
                           .lane = lw_bytes_of(lane),
                           .token = "w.1",
                           .dedup = "",
                           .group = "g"};
}

static void a_lane_without_a_permit_waits_under_its_group(void **state) {
    struct lt *l = *state;
    struct lt_msg m[] = {message("k", 1), message("j", 2)};
    m[0].parks = m[1].parks = true;
    assert_string_equal(lt_gate(l, m, 2), "WW");
    assert_int_equal(lt_int(l, "EXISTS " LT_TAG "lock:k"), 0);
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "ready"), 0);
    assert_string_equal(ready(l, "", 0), "g 2 ");
    assert_string_equal(ready(l, "g", 1), "0 j g 1 ");
    assert_string_equal(ready(l, "g", 9), "0 k ");
    assert_string_equal(ready(l, "g", 9), "");
}

static void a_lane_that_is_given_back_waits_under_its_group(void **state) {
    struct lt *l = *state;
    struct lt_msg m = message("k", 1);
    assert_string_equal(lt_gate(l, &m, 1), "R");
    m.outcome = "back";
    m.mode = "drop";
    assert_string_equal(lt_settle(l, &m, 1), "L");
    assert_int_equal(lt_int(l, "LLEN " LT_TAG "ready"), 0);
    assert_string_equal(ready(l, "g", 1), "0 k ");
    assert_string_equal(lt_text(l, "HGET " LT_TAG "group k"), "g");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LT(places_are_given_up_to_the_limit),
        LT(nothing_is_left_of_a_worker_without_places),
        LT(statements_expire),
        LT(a_late_statement_changes_nothing),
        LT(who_waits_longest_is_first),
        LT(a_lower_limit_drains),
        LT(the_file_seeds_the_limits_in_force),
        LT(two_files_in_one_fleet),
        LT(nothing_starts_before_a_file_was_seen),
        LT(who_knows_the_version_gets_no_limits),
        LT(what_is_paused_starts_nothing),
        LT(operators_change_limits),
        LT(operators_see_what_runs_and_waits),
        LT(a_quarantine_keeps_what_is_stated),
        LT(statements_of_another_epoch_are_void),
        LT(tokens_that_were_left_are_a_burst),
        LT(the_first_token_is_no_burst),
        LT(tokens_are_shared_in_order_of_waiting),
        LT(a_clock_that_went_back_costs_one_wait),
        LT(tokens_have_their_distance),
        LT(a_group_has_limits_of_its_own),
        LT(groups_get_no_more_than_the_fleet_lets_start),
        LT(the_fleet_gives_no_more_than_groups_can_use),
        LT(the_first_token_of_a_group_is_no_burst),
        LT(groups_and_others_share_the_room),
        LT(without_a_limit_per_second_nobody_waits_for_tokens),
        LT(nothing_is_left_of_a_quiet_group),
        LT(a_lane_without_a_permit_waits_under_its_group),
        LT(a_lane_that_is_given_back_waits_under_its_group),
    };
    return LT_RUN(tests, LT_PLAIN | LT_FLUSHED | LT_FULL);
}
