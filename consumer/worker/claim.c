/* SPDX-License-Identifier: Apache-2.0 */
/* claim: the step that takes the lanes that hints name, and gets their heads. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

void claim_begin(struct shard *sh) { sh->claim.n = 0; }

void claim_encode(struct lw_worker *w, struct shard *sh) {
    char token[LW_TOKEN_TEXT];
    check_claim(&sh->claim);
    assert(epoch_joined(sh));
    assert(sh->claim.n > 0 && sh->claim.n <= CLAIM_BATCH);
    int64_t taken = (int64_t)hints_taken(sh);
    struct lw_lane_call c = pipe_lane_call(w, sh, &lw_script_claim);
    lw_claim_begin(&c, sh->claim.n);
    for (int i = 0; i < sh->claim.n; i++)
        lw_call_lane(&c, lw_bytes(sh->claim.item[i].lane, sh->claim.item[i].n_lane));
    struct lw_claim_call l = {.taken = taken,
                              .token = lw_token_text(token, w->set.id, sh->claim.token),
                              .want = (int64_t)wanted_heads(w),
                              .bounds = pipe_bounds(w)};
    lw_claim_args(&c, &l);
}

size_t claim_build(struct lw_worker *w, struct shard *sh, size_t most) {
    check_claim(&sh->claim);
    assert(!sh->claim.n && sh->phase == READY);
    /* If memory has no room for more heads, no lane is claimed until some of the heads in memory
     * have finished. */
    if (!heads_fit(w)) return 0;
    while (hints_listed(sh) && sh->claim.n < CLAIM_BATCH && (size_t)sh->claim.n < most) {
        struct lw_bytes id = hints_pop(sh);
        struct lane *l = lane_get(w, id);
        /* The hint is dropped if this worker already works on the lane, because the lane's next
         * settle or gate sees the waiting messages as well. */
        if (l->hold || l->lost || l->in_call) {
            free((void *)(uintptr_t)id.p);
            continue;
        }
        lane_call(l);
        sh->claim.item[sh->claim.n++] = (struct claim_item){(char *)(uintptr_t)id.p, id.n};
    }
    if (!sh->claim.n) return 0;
    sh->claim.token = token_new(w);
    pipe_call(sh, CALL_CLAIM);
    claim_encode(w, sh);
    hints_told(sh);
    return (size_t)sh->claim.n;
}

/* Returns the lane of an item. The lane is always found while an unanswered call names it. */
static struct lane *lane_of(struct lw_worker *w, struct shard *sh, const struct claim_item *it) {
    return lane_find(w, sh, lw_bytes(it->lane, it->n_lane));
}

/* Empties the list of lanes to claim, after the call was answered or given up. */
static void drop_items(struct lw_worker *w, struct shard *sh) {
    check_claim(&sh->claim);
    for (int i = 0; i < sh->claim.n; i++) {
        struct lane *l = lane_of(w, sh, &sh->claim.item[i]);
        if (l) lane_wake(w, l);
        free(sh->claim.item[i].lane);
    }
    sh->claim.n = 0;
}

void claim_forget(struct lw_worker *w, struct shard *sh) {
    check_claim(&sh->claim);
    for (int i = 0; i < sh->claim.n; i++) {
        struct lane *l = lane_of(w, sh, &sh->claim.item[i]);
        if (l) lane_answered(l);
    }
    drop_items(w, sh);
}

void claim_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    check_claim(&sh->claim);
    int n = sh->claim.n;
    assert(n > 0 && n <= CLAIM_BATCH);
    const redisReply *const *e = (const redisReply *const *)r->element;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 6 || !e[0]->str || !e[1]->str ||
        e[1]->len != (size_t)n || e[3]->type != REDIS_REPLY_ARRAY ||
        e[4]->type != REDIS_REPLY_ARRAY || !e[5]->str || e[5]->len != (size_t)n) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh,
                       lw_malformed(why, r, "claim.lua",
                                    "[string, string of %d bytes, integer, array, array, string "
                                    "of %d bytes]",
                                    n, n));
        return;
    }
    struct grants g = {.fence = strtoull(e[0]->str, NULL, 10), .tries = e[3], .heads = e[4]};
    for (int i = 0; i < n; i++) {
        struct lane *l = lane_of(w, sh, &sh->claim.item[i]);
        if (!l) continue;
        lane_answered(l);
        count_acquire(w, &e[1]->str[i], 1);
        take_heads(w, sh, l, NULL, &g, (unsigned char)e[5]->str[i], sh->claim.token);
    }
    if (e[2]->type == REDIS_REPLY_INTEGER) count_n(&w->counts->dropped, (uint64_t)e[2]->integer);
    drop_items(w, sh);
}
