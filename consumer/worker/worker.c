/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, queries, stops and frees a worker. The steps of its work are in turn.c. */

#include "consumer/worker/private.h"

#include <xxhash.h>

static struct lw_byte_bounds bounds(const struct lw_byte_bounds *asked) {
    assert(asked);
    struct lw_byte_bounds b = *asked;
    if (!b.call) b.call = LW_CALL_BYTES;
    if (!b.lane) b.lane = LW_LANE_BYTES;
    if (!b.heads) b.heads = 32 << 20;
    if (!b.held) b.held = 64 << 20;
    return b;
}

struct lw_worker *lw_worker_open(const struct lw_worker_setup *setup) {
    assert(setup->config && setup->io && setup->id);
    assert(setup->config->redis.shards > 0);
    struct lw_worker *w = lw_alloc(sizeof *w);
    w->set = *setup;
    w->c = setup->config;
    w->io = setup->io;
    w->ctx = setup->ctx;
    w->counts = setup->counts ? setup->counts : &w->own_counts;
    w->n_shards = w->c->redis.shards;
    w->lanes_seed = XXH3_64bits(setup->id, strlen(setup->id)); /* the id has random digits */
    commits_open(w);
    w->bytes = bounds(&setup->bytes);
    msgs_open(w);
    pthread_mutex_init(&w->epoch_mutex, NULL);
    w->leases = lw_leases_open(w->n_shards, w->c->lock.ttl_ms);
    w->shards = lw_alloc((size_t)w->n_shards * sizeof *w->shards);
    for (int s = 0; s < w->n_shards; s++) {
        shard_init(w, &w->shards[s], s);
        w->io->connect(w->ctx, s);
    }
    return w;
}

#define FREE_LIST(list, link) \
    while (list) {            \
        void *gone = list;    \
        list = (list)->link;  \
        free(gone);           \
    }

void lw_worker_free(struct lw_worker *w) {
    check_worker(w);
    for (int s = 0; s < w->n_shards; s++) {
        pipe_forget(w, &w->shards[s]);
    }
    lane_drop_pending(w, NULL);
    while (w->n_assigned) part_drop(w, w->assigned[0]);
    assert(!w->held);
    for (int s = 0; s < w->n_shards; s++) {
        lanes_free(w, &w->shards[s]);
        shard_free(w, &w->shards[s]);
    }
    struct part *p, *tmp;
    HASH_ITER(hh, w->parts, p, tmp) part_free(w, p);
    FREE_LIST(w->runs.free, next)
    FREE_LIST(w->free_holds, next)
    FREE_LIST(w->memory.free, next)
    FREE_LIST(w->free_lanes, gate_next)
    lw_leases_close(w->leases);
    pthread_mutex_destroy(&w->epoch_mutex);
    lw_buf_free(&w->scratch);
    lw_buf_free(&w->scratch2);
    free(w->assigned), free(w->runs.start), free(w->shards), free(w->busy),
        free(w->runs.given_back);
    free(w);
}

struct lw_leases *lw_worker_leases(struct lw_worker *w) {
    check_worker(w);
    assert(w->leases);
    return w->leases;
}
const char *lw_worker_prefix(const struct lw_worker *w, int shard) {
    assert(shard >= 0 && shard < w->n_shards);
    return w->shards[shard].prefix;
}

void lw_worker_stop(struct lw_worker *w) {
    check_worker(w);
    w->stopping = true;
    lane_drop_pending(w, NULL);
    for (int s = 0; s < w->n_shards; s++)
        for (struct lane *l = w->shards[s].lanes; l; l = l->hh.next)
            if (l->hold) hold_cut(w, l->hold);
    lane_drop_pending(w, NULL);
    parts_pause(w);
}

bool lw_worker_busy(const struct lw_worker *w) {
    check_worker(w);
    if (w->runs.in_handler) return true;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        if (sh->phase == DOWN || !epoch_joined(sh)) continue;
        if (pipe_in_flight(sh) || pipe_sends_again(sh)) return true;
        for (const struct lane *l = sh->lanes; l; l = l->hh.next)
            if (l->hold) return true;
    }
    return false;
}

bool lw_worker_ready(const struct lw_worker *w) {
    check_worker(w);
    for (int s = 0; s < w->n_shards; s++)
        if (w->shards[s].phase != READY || refusal_text(&w->shards[s])) return false;
    return true;
}

uint64_t lw_worker_waiting(const struct lw_worker *w) {
    check_worker(w);
    uint64_t n = 0;
    for (size_t i = 0; i < w->n_assigned; i++) n += lw_offsets_waiting(w->assigned[i]->offsets);
    return n;
}
