/* SPDX-License-Identifier: Apache-2.0 */
/* Hands spans from the workers to the process that sends them (monitor/tracing), through rings in
 * shared memory.
 *
 *   worker 0 ──> ring 0 ──┐
 *   worker 1 ──> ring 1 ──┴─> one process, which reads spans, and releases them when they were sent
 *                             or cannot be sent
 *
 * Each ring has one writer and one reader, and neither waits for the other. If a ring is full, the
 * worker drops the span and counts it, so that a slow or unreachable collector cannot delay a
 * message. Spans stay in the ring until they are released, so the process that sends them may die
 * and be started again without losing them. A worker that dies while it writes a span loses only
 * this span. Only the function that makes the rings allocates memory.
 *
 * The rings lie in a mapping of their own, which is made only if tracing is on. A process may use
 * board->spans only if the supervisor made the mapping before it forked the process, which is true
 * if the configuration of the process has tracing.endpoint. */
#ifndef LW_CONSUMER_SPANS_H
#define LW_CONSUMER_SPANS_H

#include "base/bytes.h"
#include "base/err.h"
#include "base/trace_context.h"
#include "consumer/outcomes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LW_SPANS = 1024,
    LW_SPAN_TOPIC = 249,
    LW_SPAN_KEY = 64,
    LW_SPAN_REASON = 160,
    LW_SPAN_STATE = 512
};
enum { LW_SPAN_TEXT = LW_SPAN_TOPIC + LW_SPAN_KEY + LW_SPAN_REASON + LW_SPAN_STATE };

/* Describes one attempt of a message. */
struct lw_span_record {
    struct lw_trace_context context; /* the trace, the id of this span, and the flags */
    uint8_t parent_id[LW_SPAN_ID];   /* id of the parent span; all zero if there is none */
    /* `start_us` and `end_us` are the times at which the handler began and ended, us since 1970 */
    int64_t start_us, end_us;
    /* `lane_ms` is the time from the message's arrival to the start of the handler */
    int64_t lane_ms;
    /* `replay` is the number of the replay; 0: the message is a Kafka record itself, no replay */
    int64_t offset, replay;
    int64_t body; /* size of the payload, in bytes; -1: the payload is null */
    uint64_t fence;
    uint64_t key_hash; /* hash of the key, if tracing.keys is `hash` */
    int32_t partition;
    uint32_t attempt;
    uint8_t end;  /* how the attempt has ended, as enum lw_end */
    bool parked;  /* true: the message has waited in Redis */
    bool has_key; /* true: `text` contains the key, which may be empty */
    uint8_t n_topic, n_key, n_reason;
    uint16_t n_state;
    char text[LW_SPAN_TEXT]; /* topic, key, reason and tracestate, one after the other */
};

struct lw_span_ring {
    _Atomic uint64_t written; /* number of spans ever written; only the worker changes it */
    char pad[56];             /* padding: `written` and `released` are on separate cache lines */
    _Atomic uint64_t released;
    struct lw_span_record spans[LW_SPANS];
};

/* Makes the rings of `n` workers. A ring takes up memory only as spans are written to it. Returns
 * NULL with *err if the mapping fails. */
struct lw_span_ring *lw_spans_open(int n, struct lw_err *err);
void lw_spans_close(struct lw_span_ring *rings, int n);

/* Only the worker that owns a ring calls the next two functions. lw_span_begin() returns a place
 * for a span, or NULL if the ring is full. lw_span_commit() hands the span over. A place that is
 * not committed is used again. */
struct lw_span_record *lw_span_begin(struct lw_span_ring *ring);
void lw_span_commit(struct lw_span_ring *ring);
/* Sets the texts of a span. A text that is too long is cut, except a tracestate, which is left out,
 * because a part of it would be malformed. A key whose `p` is NULL is left out. */
struct lw_span_texts {
    struct lw_bytes topic, key, reason, state;
};
void lw_span_set_texts(struct lw_span_record *s, const struct lw_span_texts *t);

/* Returns how many spans in a ring are not released yet. */
static inline size_t lw_span_count(const struct lw_span_ring *ring) {
    uint64_t released = atomic_load_explicit(&ring->released, memory_order_relaxed);
    return (size_t)(atomic_load_explicit(&ring->written, memory_order_acquire) - released);
}
/* Only the process that sends spans calls the next two functions. lw_span_at() returns the span `i`
 * places after the oldest one that is not released, or NULL if there is none. lw_span_release()
 * frees the space of the n oldest spans. */
const struct lw_span_record *lw_span_at(const struct lw_span_ring *ring, size_t i);
void lw_span_release(struct lw_span_ring *ring, size_t n);
/* Returns the texts of a span, which are valid until the span is released. */
struct lw_span_texts lw_span_get_texts(const struct lw_span_record *s);

#endif
