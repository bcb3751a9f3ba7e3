/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps counts that a crash would lose. If a worker dies after Redis executed a settle and before
 * the worker read the reply, the outcomes of that settle are recorded but not counted. So the board
 * holds the outcomes of each settle until it is answered (up to LW_UNSURE per shard). When a worker
 * dies, the supervisor marks these outcomes as owed (board.h). An owed outcome is counted once, by
 * the worker that settles the message or finds it finished. */
#include "consumer/worker/owed.h"

#include "consumer/worker/partition.h"
#include "consumer/worker/private.h"
#include "consumer/worker/run.h"
#include "consumer/worker/settle.h"
#include "consumer/worker/shard.h"
#include "consumer/worker/hold.h"
#include "consumer/worker/msg.h"
#include "consumer/worker/lane.h"

#include <assert.h>
#include <xxhash.h>

static uint64_t hash_of(const struct part *p, int64_t offset) {
    assert(p->topic && offset >= 0);
    uint64_t place[3] = {(uint64_t)p->partition, (uint64_t)offset, (uint64_t)p->replay};
    return XXH3_64bits_withSeed(place, sizeof place, XXH3_64bits(p->topic, strlen(p->topic)));
}

static _Atomic uint64_t *row(struct lw_worker *w, const struct shard *sh) {
    assert(sh->index >= 0 && sh->index < w->n_shards);
    bool counted = w->set.board && sh->index < LW_UNSURE_SHARDS;
    return counted ? w->set.board->workers[w->set.index].unsure[sh->index] : NULL;
}

static void put(_Atomic uint64_t *at, uint64_t id) {
    atomic_store_explicit(at, id, memory_order_relaxed);
}

/* Writes to the board the outcomes of those runs that ended as done or dead and are not counted
 * yet. */
static int write_item(_Atomic uint64_t *to, int n, const struct settle_item *it) {
    assert(n >= 0 && n <= LW_UNSURE);
    assert(it->n_runs <= it->hold->n_finished);
    struct run *r = it->hold->first;
    for (int k = 0; k < it->n_runs; k++, r = r->next) {
        bool done = r->outcome == LW_DONE,
             dead = r->outcome == LW_DEAD || r->outcome == LW_DEAD_SENT;
        r->unsure = 0;
        if (r->accounted || (!done && !dead) || n == LW_UNSURE) continue;
        put(&to[n++], lw_owed_id(hash_of(r->msg->part, r->msg->offset), dead));
        r->unsure = n;
    }
    return n;
}

void unsure_write(struct lw_worker *w, const struct shard *sh, const struct settle_item *items,
                  int n_items) {
    assert(items && n_items >= 0);
    _Atomic uint64_t *to = row(w, sh);
    int n = 0;
    for (int i = 0; to && i < n_items; i++) n = write_item(to, n, &items[i]);
    for (; to && n < LW_UNSURE && atomic_load_explicit(&to[n], memory_order_relaxed); n++)
        put(&to[n], 0);
}

/* Marks a run as counted. The run keeps its place on the board, because readers stop at the first
 * empty place. The mark is set before the count is raised. So a crash between the two steps loses
 * the count, but never doubles it. */
void unsure_counted(struct lw_worker *w, struct run *r) {
    assert(r->unsure >= 0 && r->unsure <= LW_UNSURE);
    _Atomic uint64_t *at = row(w, &w->shards[r->hold->lane->shard]);
    if (at && r->unsure) put(&at[r->unsure - 1], LW_UNSURE_COUNTED);
    r->unsure = 0;
    if (w->set.board && atomic_load_explicit(&w->set.board->n_owed, memory_order_relaxed))
        lw_board_owed(w->set.board, hash_of(r->msg->part, r->msg->offset), NULL);
}

void unsure_clear(struct lw_worker *w, struct shard *sh) {
    _Atomic uint64_t *at = row(w, sh);
    for (int n = 0; at && n < LW_UNSURE && atomic_load_explicit(&at[n], memory_order_relaxed); n++)
        put(&at[n], 0);
}

void unsure_owe(struct lw_worker *w, const struct shard *sh) {
    if (row(w, sh)) lw_board_owe(w->set.board, w->set.index, sh->index);
}

void owed_add(struct lw_worker *w, const struct run *r) {
    check_run(r);
    if (w->set.board && !r->accounted)
        lw_board_owe_one(w->set.board, lw_owed_id(hash_of(r->msg->part, r->msg->offset), false));
}

void owed_pay(struct lw_worker *w, const struct part *p, int64_t offset) {
    assert(offset >= 0);
    bool dead;
    if (!w->set.board || !atomic_load_explicit(&w->set.board->n_owed, memory_order_relaxed)) return;
    if (lw_board_owed(w->set.board, hash_of(p, offset), &dead))
        count(dead ? &w->counts->dead : &w->counts->done);
}
