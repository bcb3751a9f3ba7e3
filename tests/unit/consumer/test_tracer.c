/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the spans of a worker: which messages are sampled, what a handler sees, which spans are
 * written to the worker's ring on the board, and what happens if the ring is full. */
#include "base/bytes.h"
#include "consumer/process/tracer.h"
#include "handlers/span.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

struct world {
    struct lw_config config;
    struct lw_board *board;
    struct lw_tracer *tracer;
    struct lw_job job;
    struct lw_job_lease lease;
};

static int setup(void **state) {
    struct world *w = lw_alloc(sizeof *w);
    struct lw_err err = {0};
    w->config.name = lw_strdup("orders");
    w->config.tracing.endpoint = lw_strdup("http://127.0.0.1:4318/v1/traces");
    w->config.tracing.ratio = 1;
    w->config.tracing.keys = LW_KEYS_NONE;
    w->config.retry.max_attempts = 3;
    w->board = lw_board_open(2, &err);
    if (!w->board || lw_board_add_spans(w->board, &err)) return -1;
    w->tracer = lw_tracer_open(&w->config, w->board, 1, "cluster", 42);
    *state = w;
    return w->tracer ? 0 : -1;
}

static int teardown(void **state) {
    struct world *w = *state;
    free(w->job.span);
    lw_tracer_close(w->tracer);
    lw_board_close(w->board);
    free(w->config.name), free(w->config.tracing.endpoint);
    free(w);
    return 0;
}

static struct lw_header header(const char *name, const char *value) {
    return (struct lw_header){lw_bytes_of(name), lw_bytes_of(value)};
}

/* Begins a job with the given headers, as the worker does at a grant. */
static const struct lw_job_span *begin(struct world *w, int64_t offset,
                                       const struct lw_header *headers, size_t n) {
    struct lw_job *j = &w->job;
    free(j->span);
    *j = (struct lw_job){.topic = "orders",
                         .partition = 3,
                         .offset = offset,
                         .timestamp_ms = 1763671234567,
                         .attempt = 1,
                         .fence = 99};
    snprintf(j->identity, sizeof j->identity, "orders/3/%d", (int)offset);
    j->key = lw_bytes_of("c-17"), j->payload = lw_bytes_of("{}");
    j->headers = headers, j->n_headers = n;
    lw_job_begin(j, &w->lease);
    lw_tracer_begin(w->tracer, j, &(struct lw_waited){1000, 0, true});
    return j->span;
}

/* Ends the job as a handler would. Returns the span that reached the ring, or NULL. */
static const struct lw_span_record *end(struct world *w, enum lw_outcome outcome,
                                        const char *reason) {
    w->job.outcome = outcome;
    w->job.took_us = 250;
    snprintf(w->job.reason, sizeof w->job.reason, "%s", reason);
    if (w->job.span) w->job.span->begun_us = 5000000, w->job.span->ended_us = 5000250;
    size_t before = lw_span_count(&w->board->spans[1]);
    lw_tracer_end(w->tracer, &w->job);
    return lw_span_at(&w->board->spans[1], before);
}

static void check_hex(const uint8_t *bytes, size_t n, const char *want) {
    char got[33];
    lw_hex(bytes, n, got);
    assert_string_equal(got, want);
}

static const char *text_of(struct lw_bytes b) {
    static char text[LW_SPAN_TEXT + 1];
    snprintf(text, sizeof text, "%.*s", (int)b.n, b.n ? b.p : "");
    return text;
}

static void test_a_sampled_parent(void **state) {
    struct world *w = *state;
    const struct lw_header headers[] = {header("a", "1"),
                                        header("traceparent", "00-" TRACE "-" SPAN "-01"),
                                        header("tracestate", "v=1")};
    const struct lw_job_span *s = begin(w, 7, headers, 3);
    assert_non_null(s);
    check_hex(s->context.trace_id, LW_TRACE_ID, TRACE);
    check_hex(s->parent_id, LW_SPAN_ID, SPAN);
    assert_int_equal(w->job.n_headers, 3);
    assert_string_equal(text_of(w->job.headers[0].value), "1");
    struct lw_trace_context seen;
    assert_true(lw_traceparent_read(w->job.headers[1].value, &seen));
    assert_memory_equal(&seen, &s->context, sizeof seen);
    assert_memory_not_equal(seen.span_id, s->parent_id, LW_SPAN_ID);
    assert_string_equal(text_of(w->job.headers[2].value), "v=1");
    /* the message's own headers must not be changed */
    assert_string_equal(text_of(headers[1].value), "00-" TRACE "-" SPAN "-01");
    const struct lw_span_record *r = end(w, LW_DONE, "");
    assert_non_null(r);
    assert_memory_equal(&r->context, &seen, sizeof seen);
    check_hex(r->parent_id, LW_SPAN_ID, SPAN);
    assert_int_equal(r->end_us - r->start_us, 250);
    assert_int_equal(r->end, LW_END_DONE);
    assert_true(r->offset == 7 && r->partition == 3 && r->attempt == 1 && r->fence == 99 &&
                r->body == 2 && r->parked);
    struct lw_span_texts t = lw_span_get_texts(r);
    assert_string_equal(text_of(t.topic), "orders");
    assert_string_equal(text_of(t.state), "v=1");
    /* a key may be personal data, so it is not recorded */
    assert_true(t.key.p == NULL && !r->key_hash);
}

static void test_a_parent_that_is_not_sampled(void **state) {
    struct world *w = *state;
    const struct lw_header headers[] = {header("traceparent", "00-" TRACE "-" SPAN "-00"),
                                        header("tracestate", "v=1")};
    assert_null(begin(w, 7, headers, 2));
    assert_ptr_equal(w->job.headers, headers);
    assert_null(end(w, LW_DONE, ""));
}

/* If a message has several traceparent headers, the last one counts. The traceparent of the new
 * span replaces each of them, so that a handler may read any of them. */
static void test_two_parents(void **state) {
    struct world *w = *state;
    const struct lw_header headers[] = {header("traceparent", "00-" TRACE "-1111111111111111-00"),
                                        header("traceparent", "00-" TRACE "-" SPAN "-01")};
    const struct lw_job_span *s = begin(w, 7, headers, 2);
    check_hex(s->parent_id, LW_SPAN_ID, SPAN);
    assert_int_equal(w->job.n_headers, 2);
    assert_string_equal(text_of(w->job.headers[0].value), s->traceparent);
    assert_string_equal(text_of(w->job.headers[1].value), s->traceparent);
}

static void test_a_malformed_parent_begins_a_trace(void **state) {
    static const uint8_t none[LW_SPAN_ID];
    struct world *w = *state;
    const struct lw_header headers[] = {header("tracestate", "v=1"),
                                        header("traceparent", "00-" TRACE "-" SPAN "-1"),
                                        header("b", "2")};
    const struct lw_job_span *s = begin(w, 7, headers, 3);
    assert_non_null(s);
    assert_memory_equal(s->parent_id, none, LW_SPAN_ID);
    /* the tracestate is left out, because it belongs to a traceparent that is malformed */
    assert_int_equal(w->job.n_headers, 2);
    assert_string_equal(text_of(w->job.headers[0].value), s->traceparent);
    assert_string_equal(text_of(w->job.headers[1].value), "2");
    const struct lw_header null_value = {lw_bytes_of("traceparent"), {NULL, 0}};
    assert_non_null(begin(w, 8, &null_value, 1));
}

static void test_no_headers(void **state) {
    struct world *w = *state;
    const struct lw_job_span *s = begin(w, 7, NULL, 0);
    assert_int_equal(w->job.n_headers, 1);
    assert_string_equal(text_of(w->job.headers[0].name), "traceparent");
    assert_string_equal(text_of(w->job.headers[0].value), s->traceparent);
}

/* All attempts of a message must be in one trace, even on different workers, and each attempt must
 * have a span of its own. */
static void test_attempts_share_a_trace(void **state) {
    struct world *w = *state;
    struct lw_trace_context one = begin(w, 7, NULL, 0)->context,
                            again = begin(w, 7, NULL, 0)->context;
    assert_memory_equal(one.trace_id, again.trace_id, LW_TRACE_ID);
    assert_memory_not_equal(one.span_id, again.span_id, LW_SPAN_ID);
    assert_memory_not_equal(one.trace_id, begin(w, 8, NULL, 0)->context.trace_id, LW_TRACE_ID);
    struct lw_tracer *mine = w->tracer;
    w->tracer = lw_tracer_open(&w->config, w->board, 0, "cluster", 4711);
    assert_memory_equal(one.trace_id, begin(w, 7, NULL, 0)->context.trace_id, LW_TRACE_ID);
    lw_tracer_close(w->tracer);
    w->tracer = mine;
}

static void test_the_ratio(void **state) {
    struct world *w = *state;
    int n = 0, again = 0;
    const struct lw_header parent = header("traceparent", "00-" TRACE "-" SPAN "-01");
    w->config.tracing.ratio = 0.25;
    for (int i = 0; i < 4000; i++) n += begin(w, i, NULL, 0) != NULL;
    for (int i = 0; i < 4000; i++) again += begin(w, i, NULL, 0) != NULL;
    /* the ids are hashes, so n is the same each time the test is started */
    assert_in_range(n, 880, 1120);
    assert_int_equal(n, again);
    w->config.tracing.ratio = 0;
    for (int i = 0; i < 100; i++) assert_null(begin(w, i, NULL, 0));
    /* a trace that its sender has sampled is recorded even if the ratio is 0 */
    assert_non_null(begin(w, 7, &parent, 1));
}

static void test_outcomes(void **state) {
    struct world *w = *state;
    begin(w, 7, NULL, 0);
    assert_int_equal(end(w, LW_RETRY, "busy")->end, LW_END_RETRY);
    assert_string_equal(text_of(lw_span_get_texts(lw_span_at(&w->board->spans[1], 0)).reason),
                        "busy");
    begin(w, 7, NULL, 0);
    w->job.attempt = 3;
    assert_int_equal(end(w, LW_RETRY, "busy")->end, LW_END_DEAD); /* this was the last attempt */
    begin(w, 7, NULL, 0);
    assert_int_equal(end(w, LW_DEAD, "no")->end, LW_END_DEAD);
    begin(w, 7, NULL, 0);
    assert_int_equal(end(w, LW_BACK, "")->end, LW_END_BACK);
    begin(w, 7, NULL, 0);
    w->job.outcome = LW_BACK;
    lw_tracer_end(w->tracer, &w->job); /* a job that was not run has no span */
    assert_int_equal(lw_span_count(&w->board->spans[1]), 4);
}

static void test_keys(void **state) {
    struct world *w = *state;
    w->config.tracing.keys = LW_KEYS_PLAIN;
    begin(w, 7, NULL, 0);
    assert_string_equal(text_of(lw_span_get_texts(end(w, LW_DONE, "")).key), "c-17");
    w->config.tracing.keys = LW_KEYS_HASH;
    begin(w, 8, NULL, 0);
    const struct lw_span_record *r = end(w, LW_DONE, "");
    assert_true(r->key_hash && !r->has_key && !r->n_key);
}

static void test_texts_are_cut(void **state) {
    struct world *w = *state;
    char long_state[LW_SPAN_STATE + 2], reason[LW_REASON_MAX];
    memset(long_state, 's', sizeof long_state - 1);
    long_state[sizeof long_state - 1] = '\0';
    memset(reason, 'r', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    memcpy(reason + LW_SPAN_REASON - 1, "\xc3\xa4", 2);
    struct lw_header headers[] = {header("traceparent", "00-" TRACE "-" SPAN "-01"),
                                  header("tracestate", long_state)};
    begin(w, 7, headers, 2);
    struct lw_span_texts t = lw_span_get_texts(end(w, LW_DEAD, reason));
    assert_int_equal(t.state.n, 0);
    /* a text must not end with half a character */
    assert_int_equal(t.reason.n, LW_SPAN_REASON - 1);
    long_state[LW_SPAN_STATE] = '\0';
    headers[1] = header("tracestate", long_state);
    begin(w, 7, headers, 2);
    assert_int_equal(lw_span_get_texts(end(w, LW_DEAD, reason)).state.n, LW_SPAN_STATE);
}

static uint64_t dropped(const struct world *w) {
    return atomic_load(&w->board->workers[1].counts.spans_dropped);
}

static void test_a_full_ring_drops_and_counts(void **state) {
    struct world *w = *state;
    struct lw_span_ring *ring = &w->board->spans[1];
    for (int i = 0; i < LW_SPANS; i++) {
        begin(w, i, NULL, 0);
        assert_non_null(end(w, LW_DONE, ""));
    }
    assert_int_equal(dropped(w), 0);
    begin(w, LW_SPANS, NULL, 0);
    assert_null(end(w, LW_DONE, ""));
    assert_int_equal(dropped(w), 1);
    assert_int_equal(lw_span_at(ring, 0)->offset, 0); /* a full ring keeps its oldest spans */
    lw_span_release(ring, 2);
    assert_int_equal(lw_span_at(ring, 0)->offset, 2);
    begin(w, 5000, NULL, 0);
    assert_int_equal(end(w, LW_DONE, "")->offset, 5000);
    assert_int_equal(dropped(w), 1);
    assert_int_equal(lw_span_count(ring), LW_SPANS - 1);
}

static void test_off(void **state) {
    struct world *w = *state;
    struct lw_config off = {0};
    struct lw_err err = {0};
    assert_null(lw_tracer_open(&off, w->board, 0, "cluster", 1));
    struct lw_board *bare = lw_board_open(1, &err);
    assert_null(lw_tracer_open(&w->config, bare, 0, "cluster", 1));
    lw_board_close(bare);
    lw_tracer_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_sampled_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_parent_that_is_not_sampled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_parents, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_malformed_parent_begins_a_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attempts_share_a_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_ratio, setup, teardown),
        cmocka_unit_test_setup_teardown(test_outcomes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_ring_drops_and_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_off, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
