/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the figures of the web page: percentiles, the ring of data points, and lists of
 * outcomes. */
#include "base/clock.h"
#include "monitor/live.h"
#include "monitor/outcome_list.h"
#include "monitor/percentile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct world {
    struct lw_config config;
    struct lw_board *board;
    struct lw_shard_look shards[2];
    struct lw_metrics_source m;
    struct lw_live *live;
};

static int setup(void **state) {
    struct world *w = lw_alloc(sizeof *w);
    struct lw_err err = {0};
    w->config = (struct lw_config){
        .name = (char *)(uintptr_t) "orders", .redis.shards = 2, .handler.threads = 4};
    w->board = lw_board_open(3, &err);
    w->m = (struct lw_metrics_source){&w->config, w->board, w->shards, 1000000};
    w->live = lw_live_open();
    *state = w;
    return w->board ? 0 : -1;
}

static int teardown(void **state) {
    struct world *w = *state;
    lw_live_close(w->live);
    lw_board_close(w->board);
    free(w);
    return 0;
}

/* --- percentiles ------------------------------------------------------------------------------ */

static void test_percentiles(void **state) {
    static const struct lw_hist_bounds bounds = {3, {100, 200, 1000}};
    struct lw_hist h = {0};
    struct lw_hist_counts before = {0}, after = {0};
    (void)state;
    assert_int_equal(lw_hist_percentile(&bounds, &before, &after, 0.5), -1);
    lw_hist_add_n(&h, &bounds, 50, 100);
    lw_hist_counts_add(&before, &h); /* durations from before the interval must not count */
    lw_hist_add_n(&h, &bounds, 150, 50);
    lw_hist_add_n(&h, &bounds, 500, 49);
    lw_hist_add_n(&h, &bounds, 5000, 1);
    lw_hist_counts_add(&after, &h);
    assert_int_equal(lw_hist_percentile(&bounds, &before, &after, 0.25), 150);
    assert_int_equal(lw_hist_percentile(&bounds, &before, &after, 0.5), 200);
    assert_int_equal(lw_hist_percentile(&bounds, &before, &after, 0.99), 1000);
    assert_int_equal(lw_hist_percentile(&bounds, &before, &after, 1), 1000);
}

/* --- points ----------------------------------------------------------------------------------- */

/* Parses the data of the only event in `text`. The event must be called `name`. Frees `text`. */
static json_t *event(struct lw_buf *text, const char *name) {
    char head[64];
    lw_buf_add(text, "", 1);
    int n = snprintf(head, sizeof head, "event: %s\ndata: ", name);
    assert_memory_equal(text->p, head, n);
    const char *end = strstr(text->p, "\n\n");
    assert_non_null(end);
    assert_int_equal(end[2], 0);
    json_t *v = json_loadb(text->p + n, (size_t)(end - text->p) - (size_t)n, 0, NULL);
    assert_non_null(v);
    lw_buf_free(text);
    return v;
}

static int64_t number(const json_t *object, const char *name) {
    const json_t *v = json_object_get(object, name);
    if (!json_is_integer(v)) fail_msg("%s is no number", name);
    return json_integer_value(v);
}

static json_t *history(struct world *w) {
    struct lw_buf text = {0};
    lw_live_history(w->live, &text);
    return event(&text, "history");
}

static void test_a_point_every_five_seconds(void **state) {
    struct world *w = *state;
    for (int s = 0; s < 21; s++, w->m.now_ms += 1000) {
        atomic_fetch_add(&w->board->workers[s % 2].counts.done, 10);
        lw_live_sample(w->live, &w->m);
    }
    json_t *h = history(w), *points = json_object_get(h, "points");
    assert_int_equal(number(h, "every_ms"), LW_LIVE_EVERY_MS);
    assert_int_equal(json_array_size(points), 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(number(json_array_get(points, i), "done"), 10 + 50 * (int64_t)i);
    json_decref(h);
}

static void test_the_ring_keeps_15_minutes(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 3 * LW_LIVE_POINTS; i++, w->m.now_ms += LW_LIVE_EVERY_MS) {
        atomic_store(&w->board->workers[0].counts.received, (uint64_t)i);
        lw_live_sample(w->live, &w->m);
    }
    json_t *h = history(w), *points = json_object_get(h, "points");
    assert_int_equal(json_array_size(points), LW_LIVE_POINTS);
    for (size_t i = 0; i < LW_LIVE_POINTS; i++)
        assert_int_equal(number(json_array_get(points, i), "received"),
                         2 * LW_LIVE_POINTS + (int64_t)i);
    assert_int_equal((LW_LIVE_POINTS - 1) * LW_LIVE_EVERY_MS, 15 * 60 * 1000);
    json_decref(h);
}

static void test_percentiles_are_of_the_interval(void **state) {
    struct world *w = *state;
    struct lw_hist *handler = &w->board->workers[0].counts.handler;
    struct lw_buf text = {0};
    lw_hist_add_n(handler, &lw_bounds_handler, 1, 1000);
    lw_live_sample(w->live, &w->m);
    w->m.now_ms += 1000;
    lw_live_now(w->live, &w->m, json_array(), json_object(), &text);
    json_t *now = event(&text, "now"), *point = json_object_get(now, "point");
    /* no handler has run since lw_live_sample() was called */
    assert_true(json_is_null(json_object_get(point, "handler_p50_us")));
    assert_true(json_is_null(json_object_get(point, "end_to_end_p99_us")));
    json_decref(now);
    lw_hist_add_n(handler, &lw_bounds_handler, 2000000, 10);
    w->m.now_ms += 1000;
    lw_live_now(w->live, &w->m, json_array(), json_object(), &text);
    now = event(&text, "now");
    assert_true(number(json_object_get(now, "point"), "handler_p50_us") > 1000000);
    json_decref(now);
}

static void test_now(void **state) {
    struct world *w = *state;
    struct lw_buf text = {0};
    w->shards[0] = (struct lw_shard_look){.up = true, .lanes = 3, .dead = 4};
    w->shards[1] = (struct lw_shard_look){.up = true, .lanes = 5, .dead = 6};
    atomic_store(&w->board->workers[1].waiting, 8);
    atomic_store(&w->board->workers[2].counts.skipped, 9);
    for (int i = 0; i < LW_LIVE_PARTITIONS + 1; i++) lw_board_own(w->board, i % 3, "orders", i);
    lw_live_now(w->live, &w->m, json_array(), json_object(), &text);
    json_t *now = event(&text, "now"), *point = json_object_get(now, "point");
    assert_int_equal(number(point, "lanes"), 8);
    assert_int_equal(number(point, "dead_letters"), 10);
    assert_int_equal(number(point, "waiting"), 8);
    assert_int_equal(number(json_object_get(now, "ledger"), "skipped"), 9);
    assert_int_equal(json_array_size(json_object_get(now, "workers")), 3);
    assert_int_equal(json_array_size(json_object_get(now, "partitions")), LW_LIVE_PARTITIONS);
    assert_true(json_is_true(json_object_get(now, "more_partitions")));
    assert_int_equal(json_array_size(json_object_get(now, "failures")), 0);
    json_decref(now);
    /* the figures of a shard that does not answer are old, so the sums are unknown */
    w->shards[1].up = false;
    text.n = 0;
    lw_live_now(w->live, &w->m, json_array(), json_object(), &text);
    now = event(&text, "now");
    assert_true(json_is_null(json_object_get(json_object_get(now, "point"), "dead_letters")));
    assert_true(json_is_null(json_object_get(json_object_get(now, "point"), "lanes")));
    json_decref(now);
}

/* --- outcomes --------------------------------------------------------------------------------- */

static void add_waited(struct world *w, int worker, enum lw_end end, int64_t at_ms, const char *key,
                       bool waited) {
    struct lw_outcome_record r = {
        .at_ms = at_ms, .offset = at_ms, .fence = 1, .attempt = 1, .end = (uint8_t)end};
    r.slot = (int32_t)(lw_board_slot(w->board, "orders", worker) - w->board->partitions);
    lw_outcome_texts(&r, lw_bytes_of(key), lw_end_failed(end) ? "why" : "");
    lw_outcome_add(&w->board->workers[worker].outcomes, &r, waited);
}

static void add(struct world *w, int worker, enum lw_end end, int64_t at_ms, const char *key) {
    add_waited(w, worker, end, at_ms, key, false);
}

static void check_times(const json_t *list, const int64_t *at_ms, size_t n) {
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(number(json_array_get(list, i), "at_ms"), at_ms[i]);
}

static void test_outcomes_of_all_workers_in_order(void **state) {
    struct world *w = *state;
    add(w, 0, LW_END_DONE, 10, "a"), add(w, 1, LW_END_DEAD, 20, "b"),
        add(w, 2, LW_END_DONE, 30, "a");
    add(w, 0, LW_END_RETRY, 40, "b"), add(w, 1, LW_END_SKIPPED, 50, ""),
        add(w, 0, LW_END_DONE, 60, "a");
    struct {
        struct lw_outcome_query q;
        int64_t at_ms[6];
        size_t n;
    } cases[] = {
        {{.limit = 9}, {60, 50, 40, 30, 20, 10}, 6},
        {{.limit = 2}, {60, 50}, 2},
        {{.limit = 9, .key = lw_bytes_of("a")}, {60, 30, 10}, 3},
        {{.limit = 9, .ends = 1u << LW_END_DEAD | 1u << LW_END_RETRY}, {40, 20}, 2},
        {{.limit = 9, .ends = 1u << LW_END_DONE | 1u << LW_END_DEAD, .after_ms = 10},
         {60, 30, 20},
         3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *list = lw_outcomes_list(w->board, &cases[i].q);
        check_times(list, cases[i].at_ms, cases[i].n);
        json_decref(list);
    }
}

/* An operator who looks at a key that stands still must see how its messages ended, though all
 * other keys go on, and however many of them fail. */
static void test_a_key_that_fails_or_waits_keeps_its_last_outcomes(void **state) {
    struct world *w = *state;
    struct lw_outcome_query key = {.limit = 9, .key = lw_bytes_of("stuck")};
    for (int i = 0; i < 6; i++) add_waited(w, 0, LW_END_DONE, 100 + i, "stuck", true);
    add(w, 0, LW_END_RETRY, 106, "stuck"), add(w, 1, LW_END_DONE, 107, "stuck");
    json_t *list = lw_outcomes_list(w->board, &key);
    check_times(list, (int64_t[]){107, 106, 105, 104, 103, 102, 101, 100}, 8);
    json_decref(list);
    for (int i = 0; i < LW_OUTCOMES; i++) add(w, 0, LW_END_DONE, 200 + i, "good");
    for (int i = 0; i < LW_FAILURES; i++) add(w, 0, LW_END_RETRY, 200 + i, "bad");
    list = lw_outcomes_list(w->board, &key);
    check_times(list, (int64_t[]){107, 106, 105, 104, 103}, 5);
    json_decref(list);
    for (int i = 0; i < LW_OUTCOMES; i++) add(w, 1, LW_END_DONE, 200 + i, "good");
    list = lw_outcomes_list(w->board, &key);
    /* the one of the other worker had neither failed nor waited */
    check_times(list, (int64_t[]){106, 105, 104, 103}, 4);
    json_decref(list);
}

static void test_what_is_complete(void **state) {
    struct world *w = *state;
    struct lw_outcome_query all = {.limit = 5000},
                            failed = {.limit = 5000, .ends = 1u << LW_END_DEAD};
    int64_t from = atomic_load(&w->board->started_wall_ms) + 1;
    add(w, 0, LW_END_DEAD, from, "bad");
    for (int i = 1; i <= LW_OUTCOMES + 100; i++) add(w, 0, LW_END_DONE, from + i, "good");
    json_t *a = lw_outcomes_answer(w->board, &all);
    assert_true(json_is_false(json_object_get(a, "complete")));
    /* since_ms must be the time of the oldest success that is still kept */
    assert_int_equal(number(a, "since_ms"), from + 101);
    assert_int_equal(json_array_size(json_object_get(a, "outcomes")), LW_OUTCOMES + 1);
    json_decref(a);
    a = lw_outcomes_answer(w->board, &failed);
    assert_true(json_is_true(json_object_get(a, "complete")));
    assert_int_equal(number(a, "since_ms"), from - 1);
    json_decref(a);
}

static void test_hot_keys(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 30; i++) {
        char key[8];
        snprintf(key, sizeof key, "k-%d", i % 15);
        add(w, i % 3, LW_END_DONE, 100000 + i, key);
        add(w, i % 3, LW_END_RETRY, 100000 + i, "hot");
        add(w, i % 3, LW_END_SKIPPED, 100000 + i, "");
    }
    /* at this time the outcomes of the time 100000, which were added first, are too old to count */
    json_t *hot = lw_outcomes_hot(w->board, 100000 + LW_HOT_MS, 10);
    assert_int_equal(json_array_size(hot), 10);
    assert_string_equal(json_string_value(json_object_get(json_array_get(hot, 0), "key")), "hot");
    assert_int_equal(number(json_array_get(hot, 0), "outcomes"), 29);
    assert_int_equal(number(json_array_get(hot, 1), "outcomes"), 2);
    json_decref(hot);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentiles),
        TEST(test_a_point_every_five_seconds),
        TEST(test_the_ring_keeps_15_minutes),
        TEST(test_percentiles_are_of_the_interval),
        TEST(test_now),
        TEST(test_outcomes_of_all_workers_in_order),
        TEST(test_a_key_that_fails_or_waits_keeps_its_last_outcomes),
        TEST(test_what_is_complete),
        TEST(test_hot_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
