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

/* A call of repair carries at most REPAIR_BATCH ranges, with at most REPAIR_OFFSETS offsets in
 * all. */
enum { REPAIR_BATCH = 1024, REPAIR_OFFSETS = 4096 };

struct repair_item {
    struct part *part;
    uint32_t gen;
    int64_t lo, hi;
    /* the run of the message, if its handler ended after the run's epoch was lost; otherwise
     * NULL */
    struct run *late;
    bool meta; /* true: only commit metadata lists this range as finished */
};

struct repair { /* only repair.c changes this struct */
    struct repair_item item[REPAIR_BATCH];
    int n;
    /* `part` and `at` are the position of the repair after enter: `part` is the index of the
     * partition, and `at` is the index in the partition's list of kept records */
    size_t part, at;
    /* `floors_sent` is true when a call with the floors has been sent. `over` is true when Redis
     * has answered the last call; then gate and claim may be sent. */
    bool floors_sent, over;
    /* `n_late` is the number of runs of lost holds that ended as done and may still be written
     * back */
    size_t n_late;
    /* `meta` holds the messages that commit metadata lists as finished; they are written back while
     * the quarantine lasts */
    struct repair_item *meta;
    size_t n_meta, cap_meta;
};

/* Returns true if Redis knows all that the repair after enter writes; then gate and claim may be
 * sent. */
bool repair_over(const struct shard *sh);
/* Returns true if repair_meta() may note one more message. */
bool repair_has_room(const struct shard *sh);
void repair_open(struct shard *sh); /* begins the repair, after enter */
void repair_drop(struct shard *sh); /* ends the repair, because the epoch is lost */
void repair_free(struct shard *sh);
void repair_build(struct lw_worker *w, struct shard *sh);
void repair_restart(struct shard *sh);
/* Empties the list of ranges that a call of repair names, when a new pipeline begins. */
void repair_begin(struct shard *sh);
/* Makes late runs ready for another repair call, because the repair call that names them will never
 * be answered. */
void repair_forget(struct shard *sh);
/* Notes a message to be written back, because commit metadata lists it as finished. */
void repair_meta(struct shard *sh, struct part *p, int64_t offset);
/* Adds `by`, which is 1 or -1, to the number of late runs that wait for a repair. */
void late_count(struct shard *sh, int by);
/* Begins the repair of every shard again, because the set of messages known as done has changed. */
void repairs_restart(struct lw_worker *w);
void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void late_build(struct lw_worker *w, struct shard *sh);

static inline void check_repair(const struct repair *x) {
    assert(x->n >= 0 && x->n <= REPAIR_BATCH);
    assert(x->n_meta <= x->cap_meta && x->n_meta <= REPAIR_OFFSETS);
}

#endif
