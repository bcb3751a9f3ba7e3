/* SPDX-License-Identifier: Apache-2.0 */
/* watch: the step that reads the states of messages from Redis. */
#ifndef LW_CONSUMER_WORKER_WATCH_H
#define LW_CONSUMER_WORKER_WATCH_H

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct shard;

enum { LOOK_BATCH = 64 }; /* maximum number of segments per watch call */

struct look_item {
    struct part *part;
    uint32_t gen, pass;
    /* `segment` is the number of the segment that the call reads. `next` is the offset after the
     * last record that had been delivered when the call was sent. */
    int64_t segment, next;
    int lo, hi; /* first and last byte of the segment that the call reads */
    /* `fresh` is true if the segment is read for a new assignment. `last` is true if no further
     * segment of the partition is read for that assignment. */
    bool fresh;
    bool last;
};

struct watch { /* only watch.c changes this struct */
    struct look_item item[LOOK_BATCH];
    int n;
    int64_t at_ms; /* time at which states are read next */
    size_t from;   /* counter that decides with which partition the next call begins */
};

/* Holds what this worker has read of a partition's states. */
struct part_watch { /* only watch.c changes this struct */
    /* `fresh` has an element per shard, which is 1 if the floor and the segments in that shard were
     * read for this assignment */
    uint8_t *fresh;
    int n_fresh; /* number of shards whose states were read for this assignment */
    /* `recheck_ms` is the time at which the group's committed offset is read again, because it did
     * not fit the floor */
    int64_t recheck_ms;
    int64_t *at; /* `at` holds, for each shard, the offset from which the watch continues */
};

/* Allocates the arrays that the watch needs for a new partition. */
void watch_open(struct lw_worker *w, struct part *p);
/* Forgets what was read for an earlier assignment of the partition. */
void watch_assigned(struct lw_worker *w, struct part *p);
void watch_free(struct part *p);
/* Empties the list of segments to read, when a new pipeline begins. */
void watch_begin(struct shard *sh);
void watch_build(struct lw_worker *w, struct shard *sh);
void watch_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_watch(const struct watch *x) { assert(x->n >= 0 && x->n <= LOOK_BATCH); }

static inline void check_part_watch(const struct part_watch *x) {
    assert(x->fresh && x->at);
    assert(x->n_fresh >= 0);
}

#endif
