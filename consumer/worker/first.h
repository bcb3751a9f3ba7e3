/* SPDX-License-Identifier: Apache-2.0 */
/* first: the part of the worker that handles the first run of a name, which needs no quarantine. */
#ifndef LW_CONSUMER_WORKER_FIRST_H
#define LW_CONSUMER_WORKER_FIRST_H

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct shard;

/* Holds what the worker knows about one shard to decide whether the application runs for the first
 * time and so needs no quarantine. Only first.c changes this struct. */
struct first {
    /* `waits` is true if no commit of the group is known yet, so handlers are given nothing */
    bool waits;
    /* `look` is the state of the query for the group's commits in this epoch */
    enum { LOOK_NOT, LOOK_ASKED, LOOK_EMPTY, LOOK_USED } look;
    /* `lift_ms` is the time at which the worker next calls the script lift, whose reply says
     * whether the quarantine has ended */
    int64_t lift_ms;
};

/* Returns true while nothing may be granted, because no commit of the group is known yet. */
bool first_waits(const struct shard *sh);
/* Forgets what was known in the earlier epoch of the shard, and sets the field `waits`. */
void first_begin(struct shard *sh, bool waits);
/* Notes that Kafka has accepted a commit of this worker. */
void first_committed(struct lw_worker *w);
void first_look(struct lw_worker *w);
/* Returns true while the worker waits for the list of the group's commits. */
bool first_looks(struct lw_worker *w);
void lift_build(struct lw_worker *w, struct shard *sh, int64_t now);
void lift_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_first(const struct first *x) {
    assert(x->look <= LOOK_USED);
    assert(x->lift_ms >= 0);
}

#endif
