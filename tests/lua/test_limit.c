/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the script `limit`, which deals out the places and tokens of the fleet (`limits`). The
 * scripts run on the clock of the server, so a test moves the times in Redis instead. */
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
};

/* A group in a statement, and the answer about it. */
struct group {
    const char *name;
    int running, per_second, burst, has, more, hand;
    int places, tokens;
};

/* Begins a call with the arguments that tell of the fleet. */
static void begin(struct lt *l, struct asks a) {
    lt_begin(l, &lw_script_limit);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "limit");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, a.worker);
    lt_addf(&l->args, "%d", a.number), lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_addf(&l->args, "%d", a.running), lt_addf(&l->args, "%d", a.per_second);
    lt_addf(&l->args, "%d", a.burst), lt_addf(&l->args, "%d", a.has);
    lt_addf(&l->args, "%d", a.want), lt_addf(&l->args, "%d", a.tokens);
}

/* Makes a statement about groups, of a fleet with these limits, and with a free handler for each
 * message. Returns the numbers of places and tokens of the fleet as "P T". */
static const char *groups_of(struct lt *l, struct asks a, struct group *g, int n) {
    static char text[64];
    begin(l, a);
    lt_addf(&l->args, "0"), lt_addf(&l->args, "100");
    for (int i = 0; i < n; i++) {
        lt_add_text(&l->args, g[i].name);
        lt_addf(&l->args, "%d", g[i].running), lt_addf(&l->args, "%d", g[i].per_second);
        lt_addf(&l->args, "%d", g[i].burst), lt_addf(&l->args, "%d", g[i].has);
        lt_addf(&l->args, "%d", g[i].more), lt_addf(&l->args, "%d", g[i].hand);
    }
    lt_run(l);
    assert_int_equal(l->reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(l->reply->elements, 6 + 5 * n);
    for (int i = 0; i < n; i++) {
        g[i].places = (int)l->reply->element[6 + 5 * i]->integer;
        g[i].tokens = (int)l->reply->element[7 + 5 * i]->integer;
    }
    snprintf(text, sizeof text, "%lld %lld", l->reply->element[0]->integer,
             l->reply->element[1]->integer);
    return text;
}

/* Makes a statement, and returns the numbers of places and tokens in the answer as "P T". */
static const char *state_of(struct lt *l, struct asks a) {
    static char text[64];
    begin(l, a);
    const char *answer = lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return answer;
    assert_int_equal(l->reply->elements, 6);
    snprintf(text, sizeof text, "%lld %lld", l->reply->element[0]->integer,
             l->reply->element[1]->integer);
    return text;
}

static const char *places(struct lt *l, const char *worker, int number, int has, int want) {
    return state_of(l, (struct asks){worker, number, 4, 0, 1, has, want, 0});
}

/* Makes a token the one that comes `ms` ms from now. */
static void next_in(struct lt *l, int64_t ms) {
    lt_int(l, "HSET " LT_TAG "limit next %" PRId64 "000", lt_now_ms(l) + ms);
}

static const char *tokens(struct lt *l, const char *worker, int number, int want) {
    return state_of(l, (struct asks){worker, number, 0, 1, 5, 0, 0, want});
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
    const struct asks low = {"a", 2, 2, 0, 1, 4, 4, 0};
    assert_string_equal(state_of(l, low), "4 0"); /* nothing that runs is taken away */
    const struct asks lower = {"a", 3, 2, 0, 1, 1, 4, 0};
    assert_string_equal(state_of(l, lower), "2 0");
}

static void two_limits_in_one_fleet(void **state) {
    struct lt *l = *state;
    places(l, "a", 1, 0, 4);
    const struct asks low = {"b", 1, 2, 0, 1, 0, 2, 0}, high = {"c", 1, 6, 0, 1, 0, 6, 0};
    assert_string_equal(state_of(l, low), "0 0");
    assert_string_equal(state_of(l, high), "1 0"); /* one of two, since b waits longer */
}

static void a_quarantine_keeps_what_is_stated(void **state) {
    struct lt *l = *state;
    lt_int(l, "HSET " LT_TAG "epoch not_before %" PRId64, lt_now_ms(l) + LT_TTL_MS);
    next_in(l, -1000);
    const struct asks more = {"a", 1, 4, 1, 5, 2, 4, 3};
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
    const struct asks many = {"a", 1, 0, 1000, 1, 0, 0, 500};
    state_of(l, many);
    int64_t n = l->reply->element[1]->integer;
    assert_true(n >= 40 && n <= 70); /* as many as come within the time that may be drawn ahead */
    assert_string_equal(l->reply->element[3]->str, "1000.000");
    assert_true(l->reply->element[2]->integer <= 60000);
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
        LT(two_limits_in_one_fleet),
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
        LT(nothing_is_left_of_a_quiet_group),
        LT(a_lane_without_a_permit_waits_under_its_group),
        LT(a_lane_that_is_given_back_waits_under_its_group),
    };
    return LT_RUN(tests, LT_PLAIN | LT_FLUSHED | LT_FULL);
}
