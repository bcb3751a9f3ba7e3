/* SPDX-License-Identifier: Apache-2.0 */
/* settle: the step that records the outcomes of runs and decides how their lanes go on. */
#ifndef LW_CONSUMER_WORKER_SETTLE_H
#define LW_CONSUMER_WORKER_SETTLE_H

#include "consumer/worker/limits.h"

#include <assert.h>
#include <hiredis/hiredis.h>

struct hold;
struct lw_worker;
struct part;
struct shard;

/* Names a message of the local chain by its identity, because the message may be freed before the
 * reply comes. */
struct named {
    struct part *part;
    int64_t offset;
};

struct settle_item {
    struct hold *hold;
    int n_runs; /* number of runs at the front of the hold that this settle reports */
    enum lw_outcome outcome;
    enum lw_go go;
    /* `first_named` is the index of the hold's first message among the messages that the call
     * names, and `n_named` is their number */
    int first_named, n_named;
    int want, before;
    int64_t backoff_ms;
};

struct settle { /* only settle.c changes this struct */
    struct settle_item item[BATCH];
    struct named named[BATCH];
    int n, n_named;
    struct hold *listed, **tail; /* holds that have runs to settle */
    size_t n_listed;
    /* `urgent` is true if the next settle is sent at once, because the lane of a listed hold waits
     * for it */
    bool urgent;
};

void settle_choose(struct lw_worker *w, struct shard *sh, struct settle_item *it, bool again);
/* Returns the number of holds that have runs to settle. */
size_t settle_listed(const struct shard *sh);
/* Returns true if the next settle is sent at once: because the lane of a hold in the list `listed`
 * waits for it, or because the list is long. */
bool settle_urgent(const struct shard *sh);
/* Returns true while a settle that may still be sent again names messages of this partition. */
bool settle_names(const struct shard *sh, const struct part *p);
/* Returns the time at which the next settle is due, or INT64_MAX if none is. */
int64_t settle_due_ms(struct lw_worker *w, const struct shard *sh);
bool settle_due(const struct lw_worker *w, const struct hold *h, int64_t now);
void settle_open(struct shard *sh);
/* Empties the list of items of the next settle. Called when a new pipeline begins. */
void settle_begin(struct shard *sh);
/* Adds a hold that has finished runs to the list of holds to settle. */
void settle_list(struct shard *sh, struct hold *h);
/* Takes a hold out of the list of holds to settle. Does nothing if the hold is not in the list. */
void settle_unlist(struct shard *sh, struct hold *h);
/* Makes the next settle urgent, because the lane of one of the holds to settle waits for it. */
void settle_urge(struct shard *sh);
void settle_again(struct lw_worker *w, struct shard *sh, bool may_have_executed);
/* Gives up a settle that will never be answered. */
void settle_forget(struct shard *sh);
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
