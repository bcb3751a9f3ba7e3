/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LW_CONSUMER_WORKER_WATCH_H
#define LW_CONSUMER_WORKER_WATCH_H

#include "consumer/worker/part.h"

#include <assert.h>
#include <hiredis/hiredis.h>

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

struct watch {
    struct look_item item[LOOK_BATCH];
    int n;
    int64_t at_ms; /* time at which states are read next */
    size_t from;   /* counter that decides with which partition the next call begins */
};

struct vanished {
    struct unparking {
        struct part *part;
        uint32_t gen, serial;
        int64_t to; /* the unanswered unpark call covers messages below this offset */
    } unpark;
    int64_t unpark_ms;
    struct stream_id said;
    /* `failed_ms` is the time of the last log line that says that the stream cannot be read; 0: it
     * can be read */
    int64_t failed_ms;
};

/* Empties the list of segments to read, when a new pipeline begins. */
void watch_begin(struct shard *sh);
void watch_build(struct lw_worker *w, struct shard *sh);
void watch_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void vanished_build(struct lw_worker *w, struct shard *sh);
void vanished_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Logs that the stream `vanished` could not be read. */
void vanished_failed(struct lw_worker *w, struct shard *sh, const char *why);
void unpark_build(struct lw_worker *w, struct shard *sh);
void unpark_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

static inline void check_watch(const struct watch *x) { assert(x->n >= 0 && x->n <= LOOK_BATCH); }

#endif
