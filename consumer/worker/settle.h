/* SPDX-License-Identifier: Apache-2.0 */
/* settle: the step that records the outcomes of runs and decides how their lanes go on. */
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

/* names a message of the local chain by identity, because the message may be freed before the reply
 * comes */
struct named {
    struct part *part;
    int64_t offset;
};

struct settle_item {
    struct hold *hold;
    int n_runs; /* number of runs that the settle of this hold reports, counted from the first */
    enum lw_outcome outcome;
    enum lw_go go;
    /* index of the hold's first message among the messages that the call names, and their number */
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
    bool urgent; /* the next settle is sent at once, because somebody waits for a listed hold */
};

void settle_choose(struct lw_worker *w, struct shard *sh, struct settle_item *it, bool again);
/* returns when the next settle is due; INT64_MAX: never */
int64_t settle_due_ms(struct lw_worker *w, const struct shard *sh);
bool settle_due(const struct lw_worker *w, const struct hold *h, int64_t now);
void settle_open(struct shard *sh);
/* called when a pipeline begins; empties the list of holds that the call settles */
void settle_begin(struct shard *sh);
/* called when the hold has finished runs; lists the hold for a settle */
void settle_list(struct shard *sh, struct hold *h);
/* does nothing if the hold is not in the list */
void settle_unlist(struct shard *sh, struct hold *h);
/* called when somebody waits for a listed hold; makes the next settle urgent */
void settle_urge(struct shard *sh);
void settle_again(struct lw_worker *w, struct shard *sh, bool may_have_executed);
/* marks the outcomes of a settle that will never be answered as owed */
void settle_forget(struct lw_worker *w, struct shard *sh);
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
