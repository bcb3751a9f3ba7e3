/* SPDX-License-Identifier: Apache-2.0 */
/* Tests metrics, health and the Host header. A scrape must show the values of the board in the
 * format that Prometheus reads. */
#include "monitor/http.h"
#include "monitor/metrics.h"
#include "base/clock.h"
#include "kafka/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct world {
    struct lw_config config;
    struct lw_board *board;
    struct lw_shard_look shards[2];
    struct lw_metrics_source m;
};

static int setup(void **state) {
    struct world *w = lw_alloc(sizeof *w);
    struct lw_err err = {0};
    w->config.redis.shards = 2;
    w->config.handler.threads = 4;
    w->board = lw_board_open(3, &err);
    w->m = (struct lw_metrics_source){&w->config, w->board, w->shards, 1000000};
    *state = w;
    return w->board ? 0 : -1;
}

static int teardown(void **state) {
    struct world *w = *state;
    lw_board_close(w->board);
    free(w);
    return 0;
}

/* Returns the value of a sample as text, or NULL if there is no such sample. The returned text is
 * valid until the next call. */
static const char *value(const char *text, const char *sample) {
    static char out[64];
    size_t n = strlen(sample);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, sample, n) || line[n] != ' ') continue;
        snprintf(out, sizeof out, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
        return out;
    }
    return NULL;
}

static char *scrape(struct world *w) {
    struct lw_buf b = {0};
    lw_metrics_text(&w->m, &b);
    lw_buf_add(&b, "", 1);
    return b.p;
}

static void assert_sample(struct world *w, const char *sample, const char *is) {
    char *text = scrape(w);
    const char *v = value(text, sample);
    if (!v || strcmp(v, is)) fail_msg("%s is %s, must be %s", sample, v ? v : "missing", is);
    free(text);
}

/* --- the form --------------------------------------------------------------------------------- */

static bool name_char(char c, bool first) {
    return isalpha((unsigned char)c) || c == '_' || c == ':' ||
           (!first && isdigit((unsigned char)c));
}

static const char *skip_name(const char *p) {
    if (!name_char(*p, true)) return NULL;
    while (name_char(*p, false)) p++;
    return p;
}

/* Skips the labels {name="value",…} of a sample. In a value only \\, \" and \n are escapes. */
static const char *skip_labels(const char *p) {
    do {
        if (!(p = skip_name(p + 1)) || *p++ != '=' || *p++ != '"') return NULL;
        for (; *p != '"'; p++) {
            if (!*p || *p == '\n') return NULL;
            if (*p == '\\' && !strchr("\\\"n", *++p)) return NULL;
        }
        p++;
    } while (*p == ',');
    return *p == '}' ? p + 1 : NULL;
}

static bool is_sample(const char *line) {
    const char *p = skip_name(line);
    if (p && *p == '{') p = skip_labels(p);
    if (!p || *p != ' ') return false;
    char *end;
    strtod(p + 1, &end);
    return end != p + 1 && !*end;
}

static void assert_form(char *text) {
    char family[128] = "", type[32] = "";
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char again[128];
        if (!strncmp(line, "# HELP ", 7)) {
            assert_int_equal(sscanf(line, "# HELP %127s", family), 1);
        } else if (!strncmp(line, "# TYPE ", 7)) {
            assert_int_equal(sscanf(line, "# TYPE %127s %31s", again, type), 2);
            assert_string_equal(again, family);
        } else {
            if (!is_sample(line)) fail_msg("not a sample: %s", line);
            assert_memory_equal(line, family, strlen(family));
            size_t n = strcspn(line, "{ ");
            if (strcmp(type, "histogram")) assert_int_equal(n, strlen(family));
        }
    }
}

static void test_form_of_an_empty_board(void **state) {
    char *text = scrape(*state);
    assert_form(text);
    free(text);
}

static void test_form_with_everything(void **state) {
    struct world *w = *state;
    struct lw_board_partition *p = lw_board_own(w->board, 1, "odd\"to\\pic\nname", 7);
    assert_non_null(p);
    atomic_store(&p->log_end, 100);
    atomic_store(&p->committed, 58);
    w->shards[0] = (struct lw_shard_look){true, 3, 1, 4, 1, 5, 0};
    for (int i = 0; i < 3; i++) {
        lw_hist_add(&w->board->workers[i].counts.handler, &lw_bounds_handler, 1 << (5 * i));
        lw_hist_add(&w->board->workers[i].counts.redis, &lw_bounds_redis, INT64_MAX / 4);
        atomic_store(&w->board->workers[i].counts.done, UINT64_MAX / 4);
    }
    assert_sample(w, "latchwork_kafka_lag{topic=\"odd\\\"to\\\\pic\\nname\",partition=\"7\"}",
                  "42");
    char *text = scrape(w);
    assert_form(text);
    free(text);
}

static void test_checker_finds_what_is_wrong(void **state) {
    (void)state;
    assert_true(is_sample("a_b{c=\"d\",e=\"f\\\\\"} 1.5"));
    assert_true(is_sample("a{le=\"+Inf\"} 3"));
    const char *const bad[] = {"a{c=\"d} 1", "a{c=d} 1",       "1a 1",         "a",
                               "a 1 x",      "a{c=\"\\x\"} 1", "a{c=\"d\",} 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_sample(bad[i])) fail_msg("taken for a sample: %s", bad[i]);
}

/* --- the values ------------------------------------------------------------------------------- */

static void test_sums_over_workers(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 3; i++) {
        atomic_store(&w->board->workers[i].counts.done, 10 + (unsigned)i);
        atomic_store(&w->board->workers[i].counts.dead, 1);
        atomic_store(&w->board->workers[i].waiting, 2);
        atomic_store(&w->board->workers[i].counts.locks_busy, 5);
    }
    assert_sample(w, "latchwork_messages_total{outcome=\"done\"}", "33");
    assert_sample(w, "latchwork_messages_total{outcome=\"dead\"}", "3");
    assert_sample(w, "latchwork_messages_total{outcome=\"dropped\"}", "0");
    assert_sample(w, "latchwork_waiting_messages", "6");
    assert_sample(w, "latchwork_lock_acquire_total{result=\"busy\"}", "15");
    assert_sample(w, "latchwork_handlers", "12");
}

static void test_wanted_workers(void **state) {
    struct world *w = *state; /* the board has three workers with four handlers each */
    assert_sample(w, "latchwork_wanted_workers", "0");
    assert_sample(w, "latchwork_runnable_lanes", "0");
    struct lw_board_partition *p = lw_board_own(w->board, 0, "t", 0);
    atomic_store(&p->log_end, 1000000); /* no worker has read these records yet */
    assert_sample(w, "latchwork_wanted_workers", "1");
    /* only one key is busy, so one worker is enough, however many records are unread */
    atomic_store(&w->board->workers[0].in_handler, 1);
    assert_sample(w, "latchwork_wanted_workers", "1");
    assert_sample(w, "latchwork_runnable_lanes", "0");
    atomic_store(&w->board->workers[0].in_handler, 10);
    atomic_store(&w->board->workers[1].in_handler, 3);
    /* messages of 13 keys are with workers that can handle 4 each, so 4 workers are needed */
    assert_sample(w, "latchwork_wanted_workers", "4");
    /* 6 of the 10 lanes of worker 0 have no handler, and worker 1 has a handler for each of its
     * lanes */
    assert_sample(w, "latchwork_runnable_lanes", "6");
    atomic_store(&w->board->workers[0].in_handler, 0);
    atomic_store(&w->board->workers[1].in_handler, 0);
    atomic_store(&p->committed, 1000000);
    assert_sample(w, "latchwork_wanted_workers", "0");
    atomic_store(&p->unfinished, 2); /* two messages back off or wait for another worker */
    assert_sample(w, "latchwork_wanted_workers", "1");
}

static void test_histogram(void **state) {
    struct world *w = *state;
    struct lw_hist *h = &w->board->workers[0].counts.handler;
    lw_hist_add(h, &lw_bounds_handler, -5); /* a duration is negative if the clock went back */
    /* a duration equal to a bound belongs to the bucket of that bound */
    lw_hist_add(h, &lw_bounds_handler, 100);
    lw_hist_add(h, &lw_bounds_handler, 101);
    /* these durations are longer than the last bound */
    lw_hist_add_n(&w->board->workers[2].counts.handler, &lw_bounds_handler, 90000000, 2);
    assert_sample(w, "latchwork_handler_duration_seconds_bucket{le=\"0.0001\"}", "2");
    assert_sample(w, "latchwork_handler_duration_seconds_bucket{le=\"0.00025\"}", "3");
    assert_sample(w, "latchwork_handler_duration_seconds_bucket{le=\"60\"}", "3");
    assert_sample(w, "latchwork_handler_duration_seconds_bucket{le=\"+Inf\"}", "5");
    assert_sample(w, "latchwork_handler_duration_seconds_count", "5");
    assert_sample(w, "latchwork_handler_duration_seconds_sum", "180.000201");
}

static void test_bounds_rise(void **state) {
    (void)state;
    const struct lw_hist_bounds *const all[] = {&lw_bounds_handler, &lw_bounds_end_to_end,
                                                &lw_bounds_redis};
    for (size_t k = 0; k < 3; k++) {
        assert_in_range(all[k]->n, 5, LW_HIST_BOUNDS);
        for (int i = 1; i < all[k]->n; i++) assert_true(all[k]->us[i] > all[k]->us[i - 1]);
    }
}

/* Two threads add durations while the test reads the metrics. In each reading, no bucket of the
 * histogram may be smaller than the bucket before it, and the total must not be smaller than in the
 * reading before. */
static void *adds(void *arg) {
    for (int64_t i = 0; i < 200000; i++) lw_hist_add(arg, &lw_bounds_redis, i * 37 % 7000000);
    return NULL;
}

static void test_reading_while_it_grows(void **state) {
    struct world *w = *state;
    pthread_t t[2];
    uint64_t last = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, adds, &w->board->workers[i].counts.redis), 0);
    for (int k = 0; k < 200; k++) {
        char *text = scrape(w), *p = text;
        uint64_t before = 0;
        while ((p = strstr(p, "latchwork_redis_round_trip_seconds_bucket"))) {
            p = strchr(p, '}') + 1;
            uint64_t n = strtoull(p, NULL, 10);
            assert_true(n >= before);
            before = n;
        }
        assert_true(before >= last);
        assert_int_equal(
            strtoull(value(text, "latchwork_redis_round_trip_seconds_count"), NULL, 10), before);
        last = before;
        free(text);
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    assert_sample(w, "latchwork_redis_round_trip_seconds_count", "400000");
}

static void test_requests_of_each_process(void **state) {
    struct world *w = *state;
    struct lw_board_worker *k = &w->board->workers[1];
    atomic_store(&k->pid, 1);
    atomic_store(&k->n_loads, 2);
    atomic_store(&k->loads[1], 64);
    assert_sample(w, "latchwork_handler_process_requests{worker=\"1\",process=\"0\"}", "0");
    assert_sample(w, "latchwork_handler_process_requests{worker=\"1\",process=\"1\"}", "64");
}

/* The metrics of the http handler must exist only if the workers have such a handler. The state
 * of a circuit breaker must count only while its worker lives. */
static void test_requests_of_http(void **state) {
    struct world *w = *state;
    struct lw_board_worker *k = w->board->workers;
    atomic_store(&k[0].counts.http.requests[lw_http_code_of(503)], 2);
    atomic_store(&k[1].counts.http.requests[lw_http_code_of(503)], 3);
    atomic_store(&k[1].counts.http.openings, 1);
    atomic_store(&k[1].counts.http.breaker, LW_HTTP_OPEN);
    char *text = scrape(w);
    assert_null(strstr(text, "latchwork_handler_http_requests_total{"));
    free(text);
    w->config.handler.type = (char *)"http";
    atomic_store(&k[0].pid, 1);
    assert_sample(w, "latchwork_handler_http_requests_total{code=\"503\"}", "5");
    assert_sample(w, "latchwork_handler_http_requests_total{code=\"2xx\"}", "0");
    assert_sample(w, "latchwork_handler_http_breaker_openings_total", "1");
    assert_sample(w, "latchwork_handler_http_breaker_workers{state=\"open\"}", "0");
    assert_sample(w, "latchwork_handler_http_breaker_workers{state=\"closed\"}", "1");
    atomic_store(&k[1].pid, 1);
    assert_sample(w, "latchwork_handler_http_breaker_workers{state=\"open\"}", "1");
}

static void test_partitions_have_one_owner(void **state) {
    struct world *w = *state;
    struct lw_board_partition *a = lw_board_own(w->board, 0, "orders", 1),
                              *b = lw_board_own(w->board, 1, "orders", 1);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, lw_board_own(w->board, 1, "orders", 2));
    /* the end of the log was read before the commit, so the committed offset is above that end */
    atomic_store(&a->log_end, 9), atomic_store(&a->committed, 11);
    /* lw_board_disown() must change nothing, because worker 1 owns the partition now */
    lw_board_disown(a, 0);
    assert_sample(w, "latchwork_kafka_lag{topic=\"orders\",partition=\"1\"}", "0");
    atomic_store(&a->moved_ms, w->m.now_ms - 1500), atomic_store(&a->unfinished, 3);
    assert_sample(w, "latchwork_commit_watermark_blocked_seconds{topic=\"orders\",partition=\"1\"}",
                  "1.500");
    atomic_store(&a->records, 12);
    assert_sample(w, "latchwork_commit_watermark_records{topic=\"orders\",partition=\"1\"}", "12");
    atomic_store(&a->unfinished, 0);
    assert_sample(w, "latchwork_commit_watermark_blocked_seconds{topic=\"orders\",partition=\"1\"}",
                  "0.000");
    lw_board_disown_all(w->board, 1);
    char *text = scrape(w);
    assert_null(strstr(text, "latchwork_kafka_lag{"));
    free(text);
}

static void test_silent_shard_tells_no_old_numbers(void **state) {
    struct world *w = *state;
    w->shards[0] = (struct lw_shard_look){.up = true, .lanes = 7};
    w->shards[1] = (struct lw_shard_look){.up = false, .lanes = 9};
    assert_sample(w, "latchwork_lanes{shard=\"0\"}", "7");
    assert_sample(w, "latchwork_redis_up{shard=\"1\"}", "0");
    char *text = scrape(w);
    assert_null(value(text, "latchwork_lanes{shard=\"1\"}"));
    free(text);
}

/* --- names, JSON, health ---------------------------------------------------------------------- */

static void test_contract(void **state) {
    (void)state;
    static const char *const promised[] = {"messages_total",
                                           "handler_duration_seconds_bucket",
                                           "end_to_end_seconds_bucket",
                                           "waiting_messages",
                                           "waiting_age_seconds",
                                           "lanes",
                                           "lock_acquire_total",
                                           "leases_lost_total",
                                           "redeliveries_skipped_total",
                                           "kafka_lag",
                                           "commit_watermark_blocked_seconds",
                                           "redis_round_trip_seconds_bucket",
                                           "workers"};
    struct lw_buf names = {0}, page = {0};
    lw_metrics_names(&names), lw_buf_add(&names, "", 1);
    lw_metrics_reference(&page), lw_buf_add(&page, "", 1);
    for (size_t i = 0; i < sizeof promised / sizeof *promised; i++) {
        char line[128];
        snprintf(line, sizeof line, "latchwork_%s\n", promised[i]);
        if (!strstr(names.p, line)) fail_msg("CONTRACT: no metric %s", line);
    }
    assert_non_null(strstr(
        page.p,
        "| `latchwork_messages_total` | counter | `outcome`: done, dead, dropped, skipped |"));
    lw_buf_free(&names), lw_buf_free(&page);
}

static void test_json(void **state) {
    struct world *w = *state;
    atomic_store(&w->board->workers[1].pid, 42), atomic_store(&w->board->workers[1].ready, true);
    atomic_store(&w->board->workers[1].counts.done, 5),
        atomic_store(&w->board->workers[2].counts.done, 6);
    json_t *workers = lw_metrics_workers(&w->m), *counters = lw_metrics_counters(&w->m),
           *partitions = lw_metrics_partitions(&w->m);
    assert_int_equal(json_array_size(workers), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(workers, 1), "state")),
                        "ready");
    assert_string_equal(json_string_value(json_object_get(json_array_get(workers, 0), "state")),
                        "down");
    assert_int_equal(json_integer_value(json_object_get(counters, "done")), 11);
    assert_int_equal(json_array_size(partitions), 0);
    json_decref(workers), json_decref(counters), json_decref(partitions);
}

static void test_health(void **state) {
    struct world *w = *state;
    struct lw_buf why = {0};
    for (int i = 0; i < 3; i++) {
        atomic_store(&w->board->workers[i].pid, 100 + i);
        atomic_store(&w->board->workers[i].heartbeat_ms, w->m.now_ms - 500);
        atomic_store(&w->board->workers[i].ready, true);
    }
    atomic_store(&w->board->ticked_ms, w->m.now_ms - 1000);
    assert_true(lw_metrics_alive(&w->m, &why));
    assert_true(lw_metrics_ready(&w->m, &why));
    assert_int_equal(why.n, 0);
    atomic_store(&w->board->workers[1].ready, false);
    assert_true(lw_metrics_alive(&w->m, &why));
    assert_false(lw_metrics_ready(&w->m, &why));
    lw_buf_add(&why, "", 1);
    assert_string_equal(why.p, "worker 1 is starting\n");
    why.n = 0;
    w->m.now_ms += 3600 * 1000;
    assert_false(lw_metrics_alive(&w->m, &why));
    lw_buf_add(&why, "", 1);
    assert_non_null(strstr(why.p, "the supervisor stands still"));
    assert_non_null(strstr(why.p, "worker 2: its main loop stands still for 3600500 ms"));
    lw_buf_free(&why);
}

static char *unready(struct world *w) {
    struct lw_buf why = {0};
    bool ready = lw_metrics_ready(&w->m, &why);
    lw_buf_add(&why, "", 1);
    assert_int_equal(ready, !why.p[0]);
    return why.p;
}

static void expect_unready(struct world *w, const char *want) {
    char *why = unready(w);
    assert_string_equal(why, want);
    free(why);
}

/* A worker must count as ready if its last turn reported that it is ready, and if it still takes
 * turns. Otherwise the text of /readyz must give the reason. */
static void test_ready_says_why(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 3; i++) {
        atomic_store(&w->board->workers[i].pid, 100 + i);
        atomic_store(&w->board->workers[i].heartbeat_ms, w->m.now_ms - 500);
        atomic_store(&w->board->workers[i].ready, true);
        atomic_store(&w->board->workers[i].kafka, LW_KAFKA_JOINED + 1);
    }
    expect_unready(w, "");
    assert_sample(w, "latchwork_kafka_workers{state=\"joined\"}", "3");
    lw_note_set(&w->board->workers[1].why, "kafka: no broker reachable for 7 s");
    /* a worker that reports that it is ready counts as ready, even if the board still has the
     * reason why it was not ready before */
    expect_unready(w, "");
    atomic_store(&w->board->workers[1].ready, false);
    atomic_store(&w->board->workers[1].kafka, LW_KAFKA_UNREACHABLE + 1);
    expect_unready(w, "worker 1 is not ready: kafka: no broker reachable for 7 s\n");
    assert_sample(w, "latchwork_kafka_workers{state=\"joined\"}", "2");
    assert_sample(w, "latchwork_kafka_workers{state=\"unreachable\"}", "1");
    atomic_store(&w->board->workers[1].pid, 0);
    expect_unready(w, "worker 1 is down\n");
    assert_sample(w, "latchwork_kafka_workers{state=\"unreachable\"}", "0");
    /* worker 2 reported that it was ready, but it has not taken a turn for 30 s */
    atomic_store(&w->board->workers[2].heartbeat_ms, w->m.now_ms - 30000);
    char *why = unready(w);
    assert_non_null(strstr(why, "worker 2: no main-loop turn for 30000 ms"));
    free(why);
    w->shards[1] = (struct lw_shard_look){.down_ms = w->m.now_ms - 12345};
    why = unready(w);
    assert_non_null(strstr(why, "\nRedis shard 1 does not answer for 12 s\n"));
    free(why);
}

static void expect_trouble(struct world *w, size_t i, const char *text, const char *link) {
    json_t *list = lw_metrics_troubles(&w->m, NULL, 3), *one = json_array_get(list, i);
    assert_non_null(one);
    assert_string_equal(json_string_value(json_object_get(one, "text")), text);
    assert_string_equal(json_string_value(json_object_get(one, "link")), link);
    json_decref(list);
}

static void test_troubles(void **state) {
    struct world *w = *state;
    for (int i = 0; i < 3; i++) {
        atomic_store(&w->board->workers[i].pid, 100 + i);
        atomic_store(&w->board->workers[i].heartbeat_ms, w->m.now_ms - 500);
        atomic_store(&w->board->workers[i].ready, true);
    }
    json_t *none = lw_metrics_troubles(&w->m, NULL, 0);
    assert_int_equal(json_array_size(none), 0);
    json_decref(none);
    expect_trouble(w, 0, "3 dead letters in the last minute", "/dead?order=newest");
    struct lw_board_partition *p = lw_board_own(w->board, 1, "orders", 7);
    atomic_store(&p->unfinished, 1);
    atomic_store(&p->watermark, 1042);
    atomic_store(&p->moved_ms, w->m.now_ms - 59000);
    expect_trouble(w, 0, "3 dead letters in the last minute", "/dead?order=newest");
    atomic_store(&p->moved_ms, w->m.now_ms - 125000);
    expect_trouble(w, 0, "partition orders/7 is blocked for 2 min", "/message/orders%2F7%2F1042");
    json_t *blocked = lw_metrics_troubles(&w->m, NULL, 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(blocked, 0), "identity")),
                        "orders/7/1042");
    json_decref(blocked);
    atomic_store(&w->board->workers[2].pid, 0);
    w->shards[0] = (struct lw_shard_look){.down_ms = w->m.now_ms - 12000};
    expect_trouble(w, 0, "Redis shard 0 does not answer for 12 s", "/overview");
    expect_trouble(w, 1, "worker 2 is down", "/workers");
    expect_trouble(w, 3, "3 dead letters in the last minute", "/dead?order=newest");
}

/* What is wrong must name each silent supervisor, unless its host has started another one since. */
static void test_silent_supervisors(void **state) {
    struct world *w = *state;
    json_t *none = lw_metrics_troubles(&w->m, NULL, 0);
    json_t *fleet = json_pack(
        "{s:[{s:s,s:s,s:i},{s:s,s:s,s:i,s:i},{s:s,s:n,s:n,s:i},{s:s,s:s,s:i},{s:s,s:s,s:I}]}",
        "supervisors", "state", "up", "host", "one", "started_ms", 1, "state", "silent", "host",
        "one", "pid", 17, "heard_ms_ago", 125000, "state", "silent", "host", "pid", "heard_ms_ago",
        16000, "state", "silent", "host", "two", "heard_ms_ago", 90000, "state", "up", "host",
        "two", "started_ms", (json_int_t)(lw_wall_ms() - 60000));
    /* a silent one may have started after its last heartbeat, if clocks differ */
    json_object_set_new(json_array_get(json_object_get(fleet, "supervisors"), 1), "started_ms",
                        json_integer(lw_wall_ms()));
    assert_non_null(fleet);
    json_t *list = lw_metrics_troubles(&w->m, fleet, 3);
    size_t n = json_array_size(none);
    static const char *const said[] = {"supervisor one (process 17) is silent for 2 min",
                                       "supervisor is silent for 16 s",
                                       "3 dead letters in the last minute"};
    assert_int_equal(json_array_size(list), n + 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, n + i), "text")),
                            said[i]);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, n), "link")),
                        "/overview");
    json_decref(none), json_decref(list), json_decref(fleet);
}

/* A worker writes the reason why it is not ready to the board. If the worker dies while it writes,
 * the text must not be read, and the next writer must replace the text. */
static void test_note(void **state) {
    struct world *w = *state;
    struct lw_note *n = &w->board->workers[0].why;
    char text[64];
    assert_true(lw_note_get(n, text, sizeof text));
    assert_string_equal(text, "");
    lw_note_set(n, "a reason");
    assert_true(lw_note_get(n, text, sizeof text));
    assert_string_equal(text, "a reason");
    atomic_fetch_add(&n->version, 1);
    assert_false(lw_note_get(n, text, sizeof text));
    assert_string_equal(text, "");
    lw_note_set(n, "a reason");
    assert_true(lw_note_get(n, text, sizeof text));
    assert_string_equal(text, "a reason");
}

static void test_hosts(void **state) {
    (void)state;
    static const char *const good[] = {"127.0.0.1:9464", "127.0.0.1",  "localhost:1",
                                       "LocalHost",      "[::1]:9464", "[::1]",
                                       "10.1.2.3:80",    "box:9464",   "box.example.org"};
    static const char *const bad[] = {"evil.example",
                                      "localhost.evil.example",
                                      "127.0.0.1.evil.example:80",
                                      "",
                                      ":80",
                                      "[::1",
                                      "[evil]:80",
                                      "box2",
                                      "localhost:80x",
                                      "localhost:80:81",
                                      "bo",
                                      "::1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!lw_http_host_ok(good[i], "box.example.org")) fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lw_http_host_ok(bad[i], "box.example.org")) fail_msg("let in: %s", bad[i]);
    assert_false(lw_http_host_ok(NULL, "box"));
    assert_false(lw_http_host_ok("x", ""));
}

static void test_http_texts(void **state) {
    static const char *const torn[] = {"%", "a%4", "%zz", "%00", "a%0"};
    static const char *const wrong[] = {"abc",         "Bearer",        "Bearer ",
                                        "Bearer ab",   "Bearer abcabc", "Bearer abd",
                                        "Bearer abc ", "Basic abc",     ""};
    struct lw_buf b = {0};
    (void)state;
    assert_true(lw_http_decode(lw_bytes_of("a%2Fb%20+%ff"), &b));
    assert_true(lw_bytes_eq(lw_bytes(b.p, b.n), lw_bytes_of("a/b +\xff")));
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++)
        assert_false(lw_http_decode(lw_bytes_of(torn[i]), &b));
    lw_buf_free(&b);
    assert_true(lw_http_bearer_ok("Bearer abc", "abc"));
    assert_true(lw_http_bearer_ok("bearer abc", "abc"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lw_http_bearer_ok(wrong[i], "abc"));
    assert_false(lw_http_bearer_ok(NULL, "abc"));
    assert_false(lw_http_bearer_ok("Bearer ", ""));
    assert_false(lw_http_bearer_ok("Bearer x", NULL));
}

static void test_accept_encoding(void **state) {
    static const char *const good[] = {"gzip", "GZIP", "gzip, deflate, br, zstd",
                                       "deflate,gzip;q=0.5", "br ; q=1 , gzip ; q=0.001, *;q=0"};
    static const char *const bad[] = {
        "",   "deflate", "xgzip", "gzipped", "gzip;q=0", "br, gzip; q=0.000", "identity;q=1, *;q=0",
        ",,;"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(lw_http_takes_gzip(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(lw_http_takes_gzip(bad[i]));
    assert_false(lw_http_takes_gzip(NULL));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_form_of_an_empty_board),
        T(test_form_with_everything),
        T(test_checker_finds_what_is_wrong),
        T(test_sums_over_workers),
        T(test_wanted_workers),
        T(test_histogram),
        T(test_bounds_rise),
        T(test_reading_while_it_grows),
        T(test_requests_of_each_process),
        T(test_requests_of_http),
        T(test_partitions_have_one_owner),
        T(test_silent_shard_tells_no_old_numbers),
        T(test_contract),
        T(test_json),
        T(test_health),
        T(test_ready_says_why),
        T(test_troubles),
        T(test_silent_supervisors),
        T(test_note),
        T(test_hosts),
        T(test_http_texts),
        T(test_accept_encoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
