/* SPDX-License-Identifier: Apache-2.0 */
/* repair: the step that tells a Redis server that has lost its data what this worker knows to be
 * finished. */
#ifndef LW_CONSUMER_WORKER_REPAIR_H
#define LW_CONSUMER_WORKER_REPAIR_H

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct shard;

/* maximum number of ranges and of offsets per repair call */
enum { REPAIR_BATCH = 1024, REPAIR_OFFSETS = 4096 };

struct repair_item {
    struct part *part;
    uint32_t gen;
    int64_t lo, hi;
    struct run *late; /* if the handler ended after the epoch, its run; otherwise NULL */
    bool meta;        /* only commit metadata lists this range as finished */
};

struct repair { /* only repair.c changes this struct */
    struct repair_item item[REPAIR_BATCH];
    int n;
    /* progress of the repair after enter: index of the partition, and index in its `kept` */
    size_t part, at;
    /* floors_sent: the floors are written; over: everything is written, so gate and claim may be
     * sent */
    bool floors_sent, over;
    /* number of runs of lost holds that ended as done and may be written back */
    size_t n_late;
    /* messages that commit metadata lists as finished; written back while the quarantine lasts */
    struct repair_item *meta;
    size_t n_meta, cap_meta;
};

void repair_open(struct shard *sh); /* called when an epoch was entered; begins the repair */
void repair_drop(struct shard *sh); /* called when the epoch is lost; ends the repair */
void repair_free(struct shard *sh);
void repair_build(struct lw_worker *w, struct shard *sh);
void repair_restart(struct shard *sh);
/* called when a pipeline begins; empties the list of records to write back */
void repair_begin(struct shard *sh);
/* allows the late runs of a repair call that will never be answered to be sent again */
void repair_forget(struct shard *sh);
/* notes a message to be written back, because commit metadata lists it as finished */
void repair_meta(struct shard *sh, struct part *p, int64_t offset);
/* changes the number of late runs that wait for a repair */
void late_count(struct shard *sh, int by);
/* starts the repair of every shard over, because the set of messages known as done has changed */
void repairs_restart(struct lw_worker *w);
void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void late_build(struct lw_worker *w, struct shard *sh);

static inline void check_repair(const struct repair *x) {
    assert(x->n >= 0 && x->n <= REPAIR_BATCH);
    assert(x->n_meta <= x->cap_meta && x->n_meta <= REPAIR_OFFSETS);
}

#endif
