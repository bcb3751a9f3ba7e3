/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/spans.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

/* MAP_NORESERVE is set because most of the rings are never touched, and a system that counts
 * reservations would refuse such a large mapping. */
struct lw_span_ring *lw_spans_open(int n, struct lw_err *err) {
    size_t bytes = (size_t)n * sizeof(struct lw_span_ring);
    struct lw_span_ring *rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (rings != MAP_FAILED) return rings;
    lw_fail(err, "no shared memory for the spans of %d workers (%zu bytes): %s", n, bytes,
            strerror(errno));
    return NULL;
}

void lw_spans_close(struct lw_span_ring *rings, int n) {
    if (rings) munmap(rings, (size_t)n * sizeof(struct lw_span_ring));
}

struct lw_span_record *lw_span_begin(struct lw_span_ring *ring) {
    uint64_t n = atomic_load_explicit(&ring->written, memory_order_relaxed);
    if (n - atomic_load_explicit(&ring->released, memory_order_acquire) >= LW_SPANS) return NULL;
    return &ring->spans[n % LW_SPANS];
}

void lw_span_commit(struct lw_span_ring *ring) {
    atomic_store_explicit(&ring->written,
                          atomic_load_explicit(&ring->written, memory_order_relaxed) + 1,
                          memory_order_release);
}

static char *put(char *to, struct lw_bytes text, size_t n) {
    if (n) memcpy(to, text.p, n);
    return to + n;
}

void lw_span_set_texts(struct lw_span_record *s, const struct lw_span_texts *t) {
    char *to = s->text;
    s->n_topic = (uint8_t)lw_bytes_fit(t->topic, LW_SPAN_TOPIC);
    s->n_key = (uint8_t)lw_bytes_fit(t->key, LW_SPAN_KEY);
    s->n_reason = (uint8_t)lw_bytes_fit(t->reason, LW_SPAN_REASON);
    s->n_state = (uint16_t)(t->state.n <= LW_SPAN_STATE ? t->state.n : 0);
    s->has_key = t->key.p != NULL;
    to = put(to, t->topic, s->n_topic);
    to = put(to, t->key, s->n_key);
    to = put(to, t->reason, s->n_reason);
    to = put(to, t->state, s->n_state);
    assert(to <= s->text + LW_SPAN_TEXT);
}

const struct lw_span_record *lw_span_at(const struct lw_span_ring *ring, size_t i) {
    uint64_t n = atomic_load_explicit(&ring->released, memory_order_relaxed) + i;
    if (n >= atomic_load_explicit(&ring->written, memory_order_acquire)) return NULL;
    return &ring->spans[n % LW_SPANS];
}

void lw_span_release(struct lw_span_ring *ring, size_t n) {
    uint64_t released = atomic_load_explicit(&ring->released, memory_order_relaxed);
    assert(released + n <= atomic_load_explicit(&ring->written, memory_order_relaxed));
    atomic_store_explicit(&ring->released, released + n, memory_order_release);
}

struct lw_span_texts lw_span_get_texts(const struct lw_span_record *s) {
    const char *key = s->text + s->n_topic, *reason = key + s->n_key, *state = reason + s->n_reason;
    return (struct lw_span_texts){.topic = lw_bytes(s->text, s->n_topic),
                                  .key = lw_bytes(s->has_key ? key : NULL, s->n_key),
                                  .reason = lw_bytes(reason, s->n_reason),
                                  .state = lw_bytes(state, s->n_state)};
}
