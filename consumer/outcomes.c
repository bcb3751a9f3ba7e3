/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/outcomes.h"

#include <assert.h>
#include <stddef.h>
#include <xxhash.h>

const char *const lw_end_name[LW_ENDS] = {
    [LW_END_DONE] = LW_WORD_DONE, [LW_END_RETRY] = LW_WORD_RETRY, [LW_END_DEAD] = LW_WORD_DEAD,
    [LW_END_DROPPED] = "dropped", [LW_END_SKIPPED] = "skipped",   [LW_END_BACK] = LW_WORD_BACK};

enum lw_end lw_end_of(enum lw_outcome outcome) {
    switch (outcome) {
    case LW_DONE: return LW_END_DONE;
    case LW_RETRY:
    case LW_LATER: return LW_END_RETRY;
    case LW_BACK: return LW_END_BACK;
    case LW_DEAD:
    case LW_DEAD_SENT: break;
    }
    return LW_END_DEAD;
}

static size_t words_of(const struct lw_outcome_record *r) {
    return (offsetof(struct lw_outcome_record, text) + r->n_key + r->n_reason + 7) / 8;
}

static uint64_t long_hash(struct lw_bytes key) {
    return key.n > LW_OUTCOME_KEY ? XXH3_64bits(key.p, key.n) | 1 : 0;
}

void lw_outcome_texts(struct lw_outcome_record *r, struct lw_bytes key, const char *reason) {
    size_t n_reason = reason[0] ? strlen(reason) : 0;
    r->key_hash = long_hash(key);
    r->n_key = (uint8_t)lw_bytes_fit(key, LW_OUTCOME_KEY);
    r->n_reason = (uint8_t)lw_bytes_fit(lw_bytes(reason, n_reason), LW_OUTCOME_REASON);
    r->cut = r->n_reason < n_reason;
    if (r->n_key) memcpy(r->text, key.p, r->n_key);
    if (r->n_reason) memcpy(r->text + r->n_key, reason, r->n_reason);
}

/* Writes a record to a ring word by word, because another process may read the same words at this
 * moment. Words beyond the record's texts are not written. */
static void write_cell(struct lw_outcome_cell *c, uint64_t n, const struct lw_outcome_record *r) {
    const char *from = (const char *)r;
    atomic_store_explicit(&c->version, 2 * n + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0, words = words_of(r); i < words; i++) {
        uint64_t word;
        memcpy(&word, from + 8 * i, sizeof word);
        atomic_store_explicit(&c->word[i], word, memory_order_relaxed);
    }
    atomic_store_explicit(&c->version, 2 * n + 2, memory_order_release);
}

/* Returns the index of the ring of a key, which is cut as in a record. */
static size_t key_ring(const char *key, size_t n) { return XXH3_64bits(key, n) % LW_KEY_RINGS; }

static void keep(struct lw_key_ring *ring, const struct lw_outcome_record *r) {
    uint64_t n = atomic_load_explicit(&ring->n, memory_order_relaxed);
    write_cell(&ring->cell[n % LW_KEY_OUTCOMES], n, r);
    atomic_store_explicit(&ring->n, n + 1, memory_order_release);
}

void lw_outcome_add(struct lw_outcome_rings *rings, struct lw_outcome_record *r, bool waited) {
    bool failed = lw_outcome_failed(r);
    _Atomic uint64_t *count = failed ? &rings->n_failures : &rings->n_outcomes;
    uint64_t n = atomic_load_explicit(count, memory_order_relaxed);
    assert(r->end < LW_ENDS && r->n_key <= LW_OUTCOME_KEY && r->n_reason <= LW_OUTCOME_REASON);
    r->number = n;
    write_cell(failed ? &rings->failures[n % LW_FAILURES] : &rings->outcomes[n % LW_OUTCOMES], n,
               r);
    atomic_store_explicit(count, n + 1, memory_order_release);
    if (failed || waited) keep(&rings->keys[key_ring(r->text, r->n_key)], r);
}

uint64_t lw_outcome_count(const struct lw_outcome_rings *rings, bool failures) {
    return atomic_load_explicit(failures ? &rings->n_failures : &rings->n_outcomes,
                                memory_order_acquire);
}

static bool read_cell(const struct lw_outcome_cell *c, uint64_t n, struct lw_outcome_record *out) {
    uint64_t copy[LW_OUTCOME_WORDS];
    if (atomic_load_explicit(&c->version, memory_order_acquire) != 2 * n + 2) return false;
    for (size_t i = 0; i < LW_OUTCOME_WORDS; i++)
        copy[i] = atomic_load_explicit(&c->word[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&c->version, memory_order_relaxed) != 2 * n + 2) return false;
    memcpy(out, copy, sizeof *out);
    return out->end < LW_ENDS && out->n_key <= LW_OUTCOME_KEY && out->n_reason <= LW_OUTCOME_REASON;
}

bool lw_outcome_get(const struct lw_outcome_rings *rings, bool failures, uint64_t n,
                    struct lw_outcome_record *out) {
    return read_cell(
        failures ? &rings->failures[n % LW_FAILURES] : &rings->outcomes[n % LW_OUTCOMES], n, out);
}

const struct lw_key_ring *lw_outcome_key_ring(const struct lw_outcome_rings *rings,
                                              struct lw_bytes key) {
    return &rings->keys[key_ring(key.p ? key.p : "", lw_bytes_fit(key, LW_OUTCOME_KEY))];
}

bool lw_outcome_get_key(const struct lw_key_ring *ring, uint64_t n, struct lw_outcome_record *out) {
    return read_cell(&ring->cell[n % LW_KEY_OUTCOMES], n, out);
}

bool lw_outcome_has_key(const struct lw_outcome_record *r, struct lw_bytes key) {
    size_t n = lw_bytes_fit(key, LW_OUTCOME_KEY);
    return n == r->n_key && r->key_hash == long_hash(key) && !memcmp(r->text, key.p, n);
}
