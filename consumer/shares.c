/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/shares.h"

#include <assert.h>
#include <string.h>

enum { NAME_WORDS = LW_LANE_ROOM / 8, RATE_STEPS = 2 };

static int64_t get(const _Atomic int64_t *from) {
    return atomic_load_explicit(from, memory_order_relaxed);
}
static void put(_Atomic int64_t *to, int64_t v) {
    atomic_store_explicit(to, v, memory_order_relaxed);
}
static void add(_Atomic int64_t *to, int64_t v) { put(to, get(to) + v); }

/* --- writing ---------------------------------------------------------------------------------- */

static void begin_write(struct lw_share *s) {
    uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
    /* a worker that was killed while it wrote has left an odd version */
    atomic_store_explicit(&s->version, (version + 1) | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_write(struct lw_share *s) {
    uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
    atomic_store_explicit(&s->version, version + 1, memory_order_release);
}

static void empty(struct lw_share *s) {
    put(&s->running, 0), put(&s->at_ms, 0);
    for (int i = 0; i < LW_SHARE_STEPS; i++) put(&s->starts[i], 0), put(&s->busy_ms[i], 0);
}

void lw_shares_reset(struct lw_shares *s) {
    for (int i = -1; i < LW_SHARES; i++) {
        struct lw_share *one = i < 0 ? &s->all : &s->group[i];
        begin_write(one);
        empty(one);
        end_write(one);
    }
}

static void pack(struct lw_bytes group, uint64_t words[NAME_WORDS]) {
    assert(group.n <= LW_LANE_ROOM);
    memset(words, 0, NAME_WORDS * sizeof *words);
    if (group.n) memcpy(words, group.p, group.n);
}

static bool is(const struct lw_share *s, size_t n, const uint64_t words[NAME_WORDS]) {
    bool same = get(&s->at_ms) && atomic_load_explicit(&s->n_name, memory_order_relaxed) == n;
    for (size_t i = 0; same && 8 * i < n; i++)
        same = atomic_load_explicit(&s->name[i], memory_order_relaxed) == words[i];
    return same;
}

struct lw_share *lw_share_take(struct lw_shares *s, struct lw_bytes group, int64_t now_ms) {
    struct lw_share *oldest = NULL;
    uint64_t words[NAME_WORDS];
    pack(group, words);
    for (int i = 0; i < LW_SHARES; i++) {
        struct lw_share *one = &s->group[i];
        if (is(one, group.n, words)) return one;
        if (get(&one->running)) continue;
        if (!oldest || get(&one->at_ms) < get(&oldest->at_ms)) oldest = one;
    }
    if (!oldest) return NULL;
    begin_write(oldest);
    empty(oldest);
    for (int i = 0; i < NAME_WORDS; i++)
        atomic_store_explicit(&oldest->name[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&oldest->n_name, (uint32_t)group.n, memory_order_relaxed);
    put(&oldest->at_ms, now_ms);
    end_write(oldest);
    return oldest;
}

/* Counts the time of what runs up to now, and empties each step that begins meanwhile. */
static void advance(struct lw_share *s, int64_t now_ms) {
    int64_t at = get(&s->at_ms), step = now_ms / LW_SHARE_STEP_MS, running = get(&s->running);
    int64_t first = (step - LW_SHARE_STEPS) * LW_SHARE_STEP_MS;
    if (!at) at = now_ms;
    if (at < first) at = first;
    while (at < now_ms) {
        int64_t end = (at / LW_SHARE_STEP_MS + 1) * LW_SHARE_STEP_MS;
        int64_t to = end < now_ms ? end : now_ms;
        add(&s->busy_ms[at / LW_SHARE_STEP_MS % LW_SHARE_STEPS], running * (to - at));
        if (to == end) {
            put(&s->starts[end / LW_SHARE_STEP_MS % LW_SHARE_STEPS], 0);
            put(&s->busy_ms[end / LW_SHARE_STEP_MS % LW_SHARE_STEPS], 0);
        }
        at = to;
    }
    put(&s->at_ms, at);
}

void lw_share_run(struct lw_share *s, int by, int64_t now_ms) {
    begin_write(s);
    advance(s, now_ms);
    add(&s->running, by);
    if (by > 0) add(&s->starts[now_ms / LW_SHARE_STEP_MS % LW_SHARE_STEPS], by);
    end_write(s);
}

/* --- reading ---------------------------------------------------------------------------------- */

static void copy_fields(const struct lw_share *s, struct lw_share *out) {
    out->n_name = atomic_load_explicit(&s->n_name, memory_order_relaxed);
    for (int i = 0; i < NAME_WORDS; i++)
        out->name[i] = atomic_load_explicit(&s->name[i], memory_order_relaxed);
    put(&out->running, get(&s->running)), put(&out->at_ms, get(&s->at_ms));
    for (int i = 0; i < LW_SHARE_STEPS; i++) {
        put(&out->starts[i], get(&s->starts[i]));
        put(&out->busy_ms[i], get(&s->busy_ms[i]));
    }
}

/* Returns false if the share changed during each of 100 copies, or a worker died as it wrote. */
static bool copy(const struct lw_share *s, struct lw_share *out) {
    for (int i = 0; i < 100; i++) {
        uint32_t version = atomic_load_explicit(&s->version, memory_order_acquire);
        copy_fields(s, out);
        atomic_thread_fence(memory_order_acquire);
        bool same = atomic_load_explicit(&s->version, memory_order_relaxed) == version;
        if (same && !(version & 1)) return true;
    }
    return false;
}

bool lw_share_look(const struct lw_share *s, int64_t now_ms, struct lw_share_look *out) {
    struct lw_share c = {0};
    *out = (struct lw_share_look){0};
    if (!copy(s, &c) || !c.at_ms || c.n_name > LW_LANE_ROOM) return false;
    advance(&c, now_ms);
    for (int i = 0; i < NAME_WORDS; i++) {
        uint64_t word = atomic_load_explicit(&c.name[i], memory_order_relaxed);
        memcpy(out->name + 8 * i, &word, sizeof word);
    }
    out->n_name = c.n_name;
    out->running = c.running;
    for (int i = 0; i < LW_SHARE_STEPS; i++) out->busy_ms += c.busy_ms[i];
    int64_t step = now_ms / LW_SHARE_STEP_MS, starts = 0;
    for (int64_t i = step - RATE_STEPS; i <= step; i++)
        if (i >= 0) starts += c.starts[i % LW_SHARE_STEPS];
    out->per_second =
        1000.0 * (double)starts / (double)(now_ms - (step - RATE_STEPS) * LW_SHARE_STEP_MS);
    return true;
}
