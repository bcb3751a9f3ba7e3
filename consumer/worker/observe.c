/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the state of the worker's partitions to the board, where the exporter reads it for the
 * metrics. How messages are handled does not depend on this file. */
#include "consumer/worker/private.h"

static void put(_Atomic int64_t *to, int64_t v) {
    atomic_store_explicit(to, v, memory_order_relaxed);
}
static int64_t get(_Atomic int64_t *from) {
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void show(struct part *p, int64_t end, int64_t now) {
    check_part(p);
    assert(p->gen && p->slot);
    struct lw_board_partition *b = p->slot;
    int64_t mark = lw_offsets_watermark(p->offsets),
            unfinished = (int64_t)lw_offsets_unfinished(p->offsets);
    /* the log reaches at least as far as it did when the partition was assigned */
    if (end < p->log_end) end = p->log_end;
    put(&b->committed, p->committed >= 0 ? p->committed : p->begin);
    put(&b->log_end, end > mark ? end : mark);
    put(&b->waiting, (int64_t)lw_offsets_waiting(p->offsets));
    put(&b->unfinished, unfinished);
    put(&b->records, (int64_t)lw_offsets_held(p->offsets));
    if (mark != get(&b->watermark) || !unfinished) put(&b->moved_ms, now);
    put(&b->watermark, mark);
}

static void take(struct lw_worker *w, int worker, struct part *p, int64_t now) {
    check_part(p);
    assert(p->gen && !p->slot);
    p->slot = lw_board_own(w->set.board, worker, p->topic, p->partition);
    if (!p->slot) return;
    put(&p->slot->watermark, lw_offsets_watermark(p->offsets));
    put(&p->slot->moved_ms, now);
}

void lw_worker_observe(struct lw_worker *w, int worker, int64_t (*log_end)(void *ctx, uint32_t gen),
                       void *ctx) {
    check_worker(w);
    if (!w->set.board) return;
    int64_t now = now_ms(w);
    for (struct part *p = w->parts; p; p = p->hh.next) {
        bool ours = p->gen && p->offsets;
        if (p->slot && !ours) {
            lw_board_disown(p->slot, worker);
            p->slot = NULL;
        } else if (ours) {
            if (!p->slot) take(w, worker, p, now);
            if (p->slot) show(p, log_end ? log_end(ctx, p->gen) : -1, now);
        }
    }
}

uint64_t lw_worker_in_handler(const struct lw_worker *w) {
    check_runs(&w->runs);
    return w->runs.in_handler;
}
