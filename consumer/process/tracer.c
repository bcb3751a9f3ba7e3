/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/process/tracer.h"

#include "base/clock.h"
#include "base/random.h"
#include "consumer/spans.h"
#include "handlers/span.h"

#include <assert.h>
#include <stdlib.h>
#include <xxhash.h>

struct lw_tracer {
    const struct lw_config *c;
    struct lw_span_ring *ring;
    struct lw_counts *counts;
    /* `seed` is a hash of the Kafka cluster's id and the application's name, a pair that no two
     * applications share */
    uint64_t seed;
    uint64_t random; /* state of the random generator that makes span ids */
};

struct lw_tracer *lw_tracer_open(const struct lw_config *c, struct lw_board *board, int worker,
                                 const char *cluster_id, uint64_t seed) {
    if (!c->tracing.endpoint || !board->spans) return NULL;
    struct lw_tracer *t = lw_alloc(sizeof *t);
    uint64_t cluster = XXH3_64bits(cluster_id, strlen(cluster_id));
    *t = (struct lw_tracer){.c = c,
                            .ring = &board->spans[worker],
                            .counts = &board->workers[worker].counts,
                            .seed = XXH3_64bits_withSeed(c->name, strlen(c->name), cluster),
                            .random = seed};
    return t;
}

void lw_tracer_close(struct lw_tracer *t) { free(t); }

/* --- the beginning ---------------------------------------------------------------------------- */

static bool has_name(const struct lw_header *h, const char *name, size_t n) {
    return h->name.n == n && !memcmp(h->name.p, name, n);
}
static bool is_parent(const struct lw_header *h) {
    return has_name(h, "traceparent", strlen("traceparent"));
}
static bool is_state(const struct lw_header *h) {
    return has_name(h, "tracestate", strlen("tracestate"));
}

/* Returns the last header that the function `is` accepts, or NULL if there is none. The rule
 * `key.from` also takes the last of several headers with one name. */
static const struct lw_header *last(const struct lw_job *job,
                                    bool (*is)(const struct lw_header *h)) {
    for (size_t i = job->n_headers; i > 0; i--)
        if (is(&job->headers[i - 1])) return &job->headers[i - 1];
    return NULL;
}

/* Returns a random id for a span, which is never 0. */
static uint64_t new_span_id(struct lw_tracer *t) {
    uint64_t id = lw_random_next(&t->random);
    /* the generator yields 0 once per period, and 0 is no valid span id */
    return id ? id : lw_random_next(&t->random);
}

/* Makes the id of a new trace, a hash of the message's identity and the record's timestamp. Because
 * of the timestamp, the records of a recreated topic get other ids. */
static void new_trace(const struct lw_tracer *t, const struct lw_job *job,
                      struct lw_trace_context *out) {
    XXH128_canonical_t id;
    XXH128_canonicalFromHash(&id, XXH3_128bits_withSeed(job->identity, strlen(job->identity),
                                                        t->seed + (uint64_t)job->timestamp_ms));
    memcpy(out->trace_id, id.digest, LW_TRACE_ID);
    out->trace_id[0] |= !out->trace_id[0]; /* an id that is all zeros would be malformed */
    out->flags = LW_TRACE_SAMPLED;
}

/* Finds the trace of a message. Returns false if the message is not sampled. */
static bool sampled(const struct lw_tracer *t, const struct lw_job *job,
                    struct lw_trace_context *out, bool *fresh) {
    const struct lw_header *parent = last(job, is_parent);
    *fresh = !parent || !lw_traceparent_read(parent->value, out);
    if (!*fresh) return out->flags & LW_TRACE_SAMPLED;
    new_trace(t, job, out);
    return lw_trace_ratio(out->trace_id, t->c->tracing.ratio);
}

/* Copies the headers of a message. Puts this span into each traceparent, or adds a traceparent if
 * the message has none. A tracestate belongs to the trace of the message's own traceparent, so it
 * is left out if the trace is a new one. Returns the number of headers. */
static size_t set_headers(struct lw_job_span *s, const struct lw_job *job, bool fresh) {
    struct lw_header own = {lw_bytes_of("traceparent"), lw_bytes(s->traceparent, LW_TRACEPARENT)};
    size_t n = 0;
    bool named = false;
    for (size_t i = 0; i < job->n_headers; i++) {
        const struct lw_header *h = &job->headers[i];
        if (fresh && is_state(h)) continue;
        named |= is_parent(h);
        s->headers[n++] = is_parent(h) ? own : *h;
    }
    if (!named) s->headers[n++] = own;
    return n;
}

void lw_tracer_begin(struct lw_tracer *t, struct lw_job *job, const struct lw_waited *waited) {
    struct lw_trace_context context;
    bool fresh;
    assert(!job->span);
    if (!sampled(t, job, &context, &fresh)) return;
    struct lw_job_span *s = lw_alloc(sizeof *s + (job->n_headers + 1) * sizeof s->headers[0]);
    uint64_t id = new_span_id(t);
    if (!fresh) memcpy(s->parent_id, context.span_id, LW_SPAN_ID);
    memcpy(context.span_id, &id, LW_SPAN_ID);
    context.flags &= LW_TRACE_SAMPLED | LW_TRACE_RANDOM;
    s->context = context;
    s->arrived_ms = waited->arrived_ms;
    s->replay = waited->replay;
    s->parked = waited->parked;
    lw_traceparent_write(&context, s->traceparent);
    job->n_headers = set_headers(s, job, fresh);
    job->headers = s->headers;
    job->span = s;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Returns the end that the span records for the attempt. A retry without attempts left is recorded
 * as a dead letter. */
static enum lw_end end_of(const struct lw_tracer *t, const struct lw_job *job) {
    enum lw_end end = lw_end_of(job->outcome);
    return end == LW_END_RETRY && job->attempt >= t->c->retry.max_attempts ? LW_END_DEAD : end;
}

static void set_times(struct lw_span_record *out, const struct lw_job_span *s) {
    /* `wall_us` is the wall clock minus the boot clock; it is added to a time on the boot clock to
     * get the time on the wall clock */
    int64_t wall_us = lw_wall_us() - lw_boot_us();
    int64_t waited_ms = (s->begun_us + wall_us) / 1000 - s->arrived_ms;
    out->start_us = s->begun_us + wall_us;
    out->end_us = s->ended_us + wall_us;
    out->lane_ms = waited_ms > 0 ? waited_ms : 0;
}

static void set_texts(const struct lw_tracer *t, struct lw_span_record *out,
                      const struct lw_job *job) {
    const struct lw_header *state = last(job, is_state);
    struct lw_span_texts texts = {.topic = lw_bytes_of(job->topic),
                                  .reason =
                                      lw_bytes_of(job->outcome == LW_DONE ? "" : job->reason)};
    if (state && state->value.p) texts.state = state->value;
    if (t->c->tracing.keys == LW_KEYS_PLAIN) texts.key = job->key;
    lw_span_set_texts(out, &texts);
    out->key_hash = t->c->tracing.keys == LW_KEYS_HASH
                        ? XXH3_64bits(job->key.p ? job->key.p : "", job->key.n)
                        : 0;
}

static void fill(const struct lw_tracer *t, struct lw_span_record *out, const struct lw_job *job) {
    const struct lw_job_span *s = job->span;
    out->context = s->context;
    memcpy(out->parent_id, s->parent_id, LW_SPAN_ID);
    set_times(out, s);
    out->offset = job->offset;
    out->replay = s->replay;
    out->body = job->payload.p ? (int64_t)job->payload.n : -1;
    out->fence = job->fence;
    out->partition = job->partition;
    out->attempt = (uint32_t)job->attempt;
    out->end = (uint8_t)end_of(t, job);
    out->parked = s->parked;
    set_texts(t, out, job);
}

void lw_tracer_end(struct lw_tracer *t, const struct lw_job *job) {
    if (!job->span || job->took_us <= 0) return;
    struct lw_span_record *out = lw_span_begin(t->ring);
    if (!out) {
        atomic_fetch_add_explicit(&t->counts->spans_dropped, 1, memory_order_relaxed);
        return;
    }
    fill(t, out, job);
    lw_span_commit(t->ring);
}
