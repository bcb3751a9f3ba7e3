/* SPDX-License-Identifier: Apache-2.0 */
/* claim: the step that takes the lanes that hints name, and gets their heads. */
#ifndef LW_CONSUMER_WORKER_CLAIM_H
#define LW_CONSUMER_WORKER_CLAIM_H

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdint.h>

struct lw_worker;
struct shard;

enum { CLAIM_BATCH = 64 };

struct claim_item {
    char *lane;
    size_t n_lane;
};

struct claim { /* only claim.c changes this struct */
    struct claim_item item[CLAIM_BATCH];
    int n;
    uint64_t token; /* the token that all locks taken by one call share */
};

/* Empties the list of lanes to claim, when a new pipeline begins. */
void claim_begin(struct shard *sh);
size_t claim_build(struct lw_worker *w, struct shard *sh, size_t most);
void claim_encode(struct lw_worker *w, struct shard *sh);
void claim_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void claim_forget(struct lw_worker *w, struct shard *sh);

static inline void check_claim(const struct claim *c) {
    assert(c->n >= 0 && c->n <= CLAIM_BATCH);
    assert(!c->n || c->token);
}

#endif
