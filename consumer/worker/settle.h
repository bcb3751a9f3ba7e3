/* SPDX-License-Identifier: Apache-2.0 */
/* settle: records the outcomes of runs and decides how their lanes go on. */
#ifndef LW_CONSUMER_WORKER_SETTLE_H
#define LW_CONSUMER_WORKER_SETTLE_H

#include "consumer/worker/limits.h"
#include "consumer/worker/run.h"

#include <assert.h>
#include <hiredis/hiredis.h>

struct hold;
struct lw_worker;
struct part;
struct shard;

struct named { /* A message of the local chain, noted by identity because the message may be freed before the reply comes */
    struct part *part;
    int64_t offset;
};

struct settle_item {
    struct hold *hold;
    int n_runs; /* number of runs that the item reports, from the first on */
    enum lw_outcome outcome;
    enum lw_go go;
    int first_named, n_named; /* index of the item's first message among the call's named messages, and number of its messages there */
    int want, before;
    int64_t backoff_ms;
};

struct settle { /* only settle.c changes it */
    struct settle_item item[BATCH];
    struct named named[BATCH];
    int n, n_named;
    struct hold *listed, **tail; /* holds that have runs to settle */
    size_t n_listed;
    bool urgent; /* the settle of a listed hold is sent at once, because its lane or others wait for it */
};

void settle_choose(struct lw_worker *w, struct shard *sh, struct settle_item *it, bool again);
int64_t settle_due_ms(struct lw_worker *w, const struct shard *sh); /* returns when the next settle is due; INT64_MAX: never */
bool settle_due(const struct lw_worker *w, const struct hold *h, int64_t now);
void settle_open(struct shard *sh);
void settle_begin(struct shard *sh);                  /* called when a pipeline begins */
void settle_list(struct shard *sh, struct hold *h);   /* called when the hold has finished runs */
void settle_unlist(struct shard *sh, struct hold *h); /* does nothing if the hold is not in the list */
void settle_urge(struct shard *sh);                   /* called when somebody waits for a listed hold */
void settle_again(struct lw_worker *w, struct shard *sh, bool may_have_executed);
void settle_forget(struct lw_worker *w, struct shard *sh); /* called when the call will never be answered */
void settle_build(struct lw_worker *w, struct shard *sh);
void settle_encode(struct lw_worker *w, struct shard *sh);
void settle_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void settle_back(struct lw_worker *w, struct shard *sh);

static inline void check_settle(const struct settle *s) {
    assert(s->n >= 0 && s->n <= BATCH);
    assert(s->n_named >= 0 && s->n_named <= BATCH);
    assert((s->listed != NULL) == (s->n_listed > 0));
    assert(s->tail && (s->listed || s->tail == &s->listed));
}

#endif
