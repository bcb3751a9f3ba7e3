/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LW_CONSUMER_WORKER_CLAIM_H
#define LW_CONSUMER_WORKER_CLAIM_H

#include "base/bytes.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct shard;
struct lane;
struct hold;

enum { CLAIM_BATCH = 64 };

struct claim_item {
    char *lane;
    size_t n_lane;
};

struct claim {
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

struct hints {             /* the list of lanes that hints name */
    struct lw_bytes *ring; /* ids of the lanes; the list owns these bytes */
    size_t head, n, cap;
    size_t taken; /* number of hints that were taken and not yet reported to Redis */
    bool on;      /* true: the blocking pop should run */
    bool more;    /* true: the list `ready` in Redis may hold more hints */
};

/* Returns true if the list has a hint, or if the list `ready` in Redis may hold more hints. */
bool hints_known(const struct shard *sh);
void hints_forget(struct shard *sh);
void hints_free(struct shard *sh);
void hints_want(struct lw_worker *w, struct shard *sh, bool want);
void hints_build(struct lw_worker *w, struct shard *sh, size_t most);
void hints_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_hints(const struct hints *h) {
    assert(h->n <= h->cap);
    assert(h->ring ? h->head < h->cap : !h->cap);
}

/* Holds the position in a reply whose grants are read one after the other. */
struct grants {
    uint64_t fence;
    const redisReply *tries, *heads;
    size_t n, at_tries, at_heads;
};

int grants_tries(struct grants *g); /* returns how many attempts the next granted message has had */
/* Adds the heads that a reply hands over to a hold: to h or, if h is NULL, to a new hold. */
void take_heads(struct lw_worker *w, struct shard *sh, struct lane *l, struct hold *h,
                struct grants *g, size_t n, uint64_t token);

#endif
