/* SPDX-License-Identifier: Apache-2.0 */
/* vanished: the part of the worker that handles waiting lists that were deleted from outside, and
 * the messages that waited in these lists. */
#ifndef LW_CONSUMER_WORKER_VANISHED_H
#define LW_CONSUMER_WORKER_VANISHED_H

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct shard;

/* Describes the lanes of a shard whose lists have vanished. Messages of the partition that were
 * parked in these lanes must be read from Kafka again if lo <= offset < hi (vanished.c). */
struct missing {
    struct stream_id {
        uint64_t ms, seq;
    } seen;     /* position in the stream `vanished` up to which this assignment has read */
    bool asked; /* true: the call under way also reads the stream for this partition */
    /* `tags` is a bitmap of the tags of the lanes whose lists have vanished; NULL: there are
     * none */
    uint8_t *tags;
    bool more; /* true: the last unpark call was full, so another one must follow at once */
    int64_t lo, hi;
    uint32_t serial; /* number of changes of this struct, by which a late answer is recognized */
};

struct vanished { /* only vanished.c changes this struct */
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

void vanished_build(struct lw_worker *w, struct shard *sh);
void vanished_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Logs that the stream `vanished` could not be read. */
void vanished_failed(struct lw_worker *w, struct shard *sh, const char *why);
void unpark_build(struct lw_worker *w, struct shard *sh);
void unpark_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
/* Returns true if the last unpark call was full. Then another one must follow at once. */
bool unpark_busy(const struct part *p, int shard);
/* Allocates the array of vanished lanes of a new partition, with an element per shard. */
void missing_open(struct lw_worker *w, struct part *p);
void missing_forget(struct lw_worker *w, struct part *p);

static inline void check_missing(const struct missing *m) {
    assert(!m->more || m->tags);
    assert(!m->tags || m->lo <= m->hi);
}

#endif
