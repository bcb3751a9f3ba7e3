/* SPDX-License-Identifier: Apache-2.0 */
/* hints: the part of the worker that keeps the hints, which name lanes that may be runnable. The
 * first hint comes from a blocking pop (BRPOPLPUSH into claimed:<worker>) on a connection of its
 * own. After that, the turn's pipeline fetches more hints. If a hint is lost, tend makes it
 * again. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

enum { HINTS_MAX = 4096 };

bool hints_known(const struct shard *sh) {
    check_hints(&sh->hints);
    return sh->hints.n || sh->hints.more;
}

size_t hints_listed(const struct shard *sh) {
    check_hints(&sh->hints);
    return sh->hints.n;
}

size_t hints_taken(const struct shard *sh) {
    check_hints(&sh->hints);
    return sh->hints.taken;
}

struct lw_bytes hints_pop(struct shard *sh) {
    check_hints(&sh->hints);
    assert(sh->hints.n);
    struct lw_bytes lane = sh->hints.ring[sh->hints.head];
    sh->hints.head = (sh->hints.head + 1) % sh->hints.cap;
    sh->hints.n--;
    sh->hints.taken++;
    return lane;
}

void hints_told(struct shard *sh) {
    check_hints(&sh->hints);
    sh->hints.taken = 0;
}

void hints_forget(struct shard *sh) {
    check_hints(&sh->hints);
    while (sh->hints.n) free((void *)(uintptr_t)hints_pop(sh).p);
    sh->hints.taken = 0;
    assert(!sh->hints.n);
}

void hints_free(struct shard *sh) {
    check_hints(&sh->hints);
    hints_forget(sh);
    free(sh->hints.ring);
}

void hints_want(struct lw_worker *w, struct shard *sh, bool want) {
    check_hints(&sh->hints);
    if (want == sh->hints.on) return;
    sh->hints.on = want;
    w->io->hints(w->ctx, sh->index, sh->key_ready, sh->key_claimed, want);
}

static void push(struct shard *sh, struct lw_bytes lane) {
    check_hints(&sh->hints);
    /* a hint with an id longer than LW_LANE_MAX names no lane of this application */
    if (lane.n > LW_LANE_MAX) return;
    if (sh->hints.n == sh->hints.cap) {
        size_t cap = sh->hints.cap ? sh->hints.cap * 2 : 64;
        struct lw_bytes *ring = lw_alloc(cap * sizeof *ring);
        for (size_t i = 0; i < sh->hints.n; i++)
            ring[i] = sh->hints.ring[(sh->hints.head + i) % sh->hints.cap];
        free(sh->hints.ring);
        sh->hints.ring = ring;
        sh->hints.head = 0;
        sh->hints.cap = cap;
    }
    assert(sh->hints.n < sh->hints.cap);
    sh->hints.ring[(sh->hints.head + sh->hints.n++) % sh->hints.cap] =
        lw_bytes(lw_memdup(lane.p, lane.n), lane.n);
    check_hints(&sh->hints);
}

void lw_worker_hint(struct lw_worker *w, int shard, struct lw_bytes lane) {
    check_worker(w);
    assert(shard >= 0 && shard < w->n_shards);
    struct shard *sh = &w->shards[shard];
    /* the list of hints is full, so the hint is dropped; tend makes it again */
    if (sh->hints.n >= HINTS_MAX) return;
    push(sh, lane);
    sh->hints.more = true;
}

void hints_build(struct lw_worker *w, struct shard *sh, size_t most) {
    check_hints(&sh->hints);
    assert(sh->phase == READY);
    if (!sh->hints.more || sh->hints.n >= CLAIM_BATCH || !most || !heads_fit(w)) return;
    sh->hints.more = false;
    pipe_script(sh, CALL_HINTS, &lw_script_hints, 3);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_ready), pipe_text(sh, sh->key_claimed);
    pipe_text(sh, epoch_id(sh)), pipe_number(sh, most < CLAIM_BATCH ? (int64_t)most : CLAIM_BATCH);
    pipe_number(sh, w->c->lock.ttl_ms);
}

void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    check_hints(&sh->hints);
    if (r->type != REDIS_REPLY_ARRAY) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh, lw_malformed(why, r, "hints.lua", "an array of strings"));
        return;
    }
    for (size_t i = 0; i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_STRING)
            push(sh, lw_bytes(r->element[i]->str, r->element[i]->len));
    if (r->elements > 0) sh->hints.more = true;
}
