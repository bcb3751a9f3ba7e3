/* claim: lanes that a hint says may be runnable hand over their head. Hints come by a blocking pop on a connection of its own (BRPOPLPUSH
 * into claimed:<worker>); once one has come, more are fetched in the turn's pipeline. A hint that is lost is made again by the janitor. */
#include "consumer/worker/state.h"

#include <stdlib.h>

void hints_want(struct lw_worker *w, struct shard *sh, bool want) {
    if (want == sh->hints_on) return;
    sh->hints_on = want;
    w->io->hints(w->ctx, sh->index, sh->key_ready, sh->key_claimed, want);
}

static void push(struct shard *sh, struct lw_bytes lane) {
    if (lane.n > LW_LANE_MAX) return; /* not one of ours */
    if (sh->n_hints == sh->cap_hints) {
        size_t cap = sh->cap_hints ? sh->cap_hints * 2 : 64;
        struct lw_bytes *ring = lw_alloc(cap * sizeof *ring);
        for (size_t i = 0; i < sh->n_hints; i++) ring[i] = sh->hints[(sh->hints_head + i) % sh->cap_hints];
        free(sh->hints);
        sh->hints = ring;
        sh->hints_head = 0;
        sh->cap_hints = cap;
    }
    sh->hints[(sh->hints_head + sh->n_hints++) % sh->cap_hints] = lw_bytes(lw_memdup(lane.p, lane.n), lane.n);
}

void lw_worker_hint(struct lw_worker *w, int shard, struct lw_bytes lane) {
    struct shard *sh = &w->shards[shard];
    if (sh->n_hints >= 4096) return; /* lost: made again */
    push(sh, lane);
    sh->more_hints = true;
}

void hints_build(struct lw_worker *w, struct shard *sh, size_t most) {
    if (!sh->more_hints || sh->n_hints >= CLAIM_BATCH || !most || !heads_fit(w)) return;
    sh->more_hints = false;
    pipe_call(sh, CALL_HINTS);
    pipe_script(sh, &lw_script_hints, 3);
    struct lw_commands *c = &sh->commands;
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_ready), lw_arg_text(c, sh->key_claimed);
    lw_arg_text(c, sh->epoch), lw_arg_i64(c, most < CLAIM_BATCH ? (int64_t)most : CLAIM_BATCH), lw_arg_i64(c, w->c->lock.ttl_ms);
}

void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    (void)w;
    if (r->type != REDIS_REPLY_ARRAY) return;
    for (size_t i = 0; i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_STRING) push(sh, lw_bytes(r->element[i]->str, r->element[i]->len));
    if (r->elements > 0) sh->more_hints = true;
}

void claim_encode(struct lw_worker *w, struct shard *sh) {
    struct lw_commands *c = &sh->commands;
    pipe_script(sh, &lw_script_claim, 6 + sh->n_claim);
    lw_arg_text(c, sh->key_epoch), lw_arg_text(c, sh->key_lanes), lw_arg_text(c, sh->key_floor), lw_arg_text(c, sh->key_fence);
    lw_arg_text(c, sh->key_ready), lw_arg_text(c, sh->key_claimed);
    for (int i = 0; i < sh->n_claim; i++) arg_lock(sh, lw_bytes(sh->claim[i].lane, sh->claim[i].n_lane));
    lw_arg_text(c, sh->epoch), lw_arg_i64(c, now_ms(w) + sh->offset_ms), lw_arg_i64(c, w->c->lock.ttl_ms / 4);
    lw_arg_i64(c, w->c->lock.ttl_ms), lw_arg_i64(c, w->c->lock.ttl_ms / 2);
    lw_arg_text(c, w->c->retry.order == LW_ORDER_SKIP ? "skip" : "block"), lw_arg_i64(c, (int64_t)sh->hints_taken);
    arg_token(w, sh, sh->claim_token), lw_arg_i64(c, AHEAD_MAX), lw_arg_i64(c, (int64_t)wanted_heads(w));
    arg_bounds(w, sh);
}

size_t claim_build(struct lw_worker *w, struct shard *sh, size_t most) {
    if (!heads_fit(w)) return 0; /* running heads free memory when they finish */
    while (sh->n_hints && sh->n_claim < CLAIM_BATCH && (size_t)sh->n_claim < most) {
        struct lw_bytes id = sh->hints[sh->hints_head];
        sh->hints_head = (sh->hints_head + 1) % sh->cap_hints;
        sh->n_hints--;
        sh->hints_taken++;
        struct lane *l = lane_get(w, id);
        if (l->hold || l->stale || l->in_call) { /* its own settle sees the waiters */
            free((void *)(uintptr_t)id.p);
            continue;
        }
        l->in_call = true;
        sh->claim[sh->n_claim++] = (struct claim_item){(char *)(uintptr_t)id.p, id.n};
    }
    if (!sh->n_claim) return 0;
    sh->claim_token = ++w->next_token;
    pipe_call(sh, CALL_CLAIM);
    claim_encode(w, sh);
    sh->hints_taken = 0;
    return (size_t)sh->n_claim;
}

void claim_forget(struct lw_worker *w, struct shard *sh) {
    for (int i = 0; i < sh->n_claim; i++) {
        struct lane *l = lane_find(w, sh, lw_bytes(sh->claim[i].lane, sh->claim[i].n_lane));
        if (l) {
            l->in_call = false;
            lane_wake(w, l);
        }
        free(sh->claim[i].lane);
    }
    sh->n_claim = 0;
}

void claim_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    int n = sh->n_claim;
    const redisReply *const *e = (const redisReply *const *)r->element;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 6 || !e[0]->str || !e[1]->str || e[1]->len != (size_t)n ||
        e[3]->type != REDIS_REPLY_ARRAY || e[4]->type != REDIS_REPLY_ARRAY || !e[5]->str || e[5]->len != (size_t)n) {
        lw_error("shard %d: claim answered nonsense", sh->index);
        claim_forget(w, sh);
        return;
    }
    struct grants g = {.fence = strtoull(e[0]->str, NULL, 10), .tries = e[3], .heads = e[4]};
    for (int i = 0; i < n; i++) {
        struct claim_item *it = &sh->claim[i];
        struct lane *l = lane_find(w, sh, lw_bytes(it->lane, it->n_lane));
        if (!l) continue; /* it is in the call, so it is there */
        l->in_call = false;
        count_acquire(w, &e[1]->str[i], 1);
        take_heads(w, sh, l, NULL, &g, (unsigned char)e[5]->str[i], sh->claim_token);
    }
    if (e[2]->type == REDIS_REPLY_INTEGER) count_n(&w->counts->dropped, (uint64_t)e[2]->integer);
    claim_forget(w, sh);
}
