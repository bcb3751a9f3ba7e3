/* SPDX-License-Identifier: Apache-2.0 */
/* vanished: waiting lists that others have deleted, and the messages that waited there. */
#ifndef LW_CONSUMER_WORKER_VANISHED_H
#define LW_CONSUMER_WORKER_VANISHED_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct shard;

/* Lanes of a shard whose lists have vanished: of what is delivered in lo <= offset < hi, what is parked there is to be read again
 * (vanished.c). */
struct missing {
    struct stream_id {
        uint64_t ms, seq;
    } seen;        /* how far this assignment has read the stream `vanished` */
    bool asked;    /* the call under way reads on from there */
    uint8_t *tags; /* bitmap over tags; NULL: none */
    bool more;     /* the last call was full */
    int64_t lo, hi;
    uint32_t serial; /* counts changes of the above */
};

struct vanished { /* vanished.c */
    struct unparking {
        struct part *part;
        uint32_t gen, serial;
        int64_t to; /* all that is missing below it is in the call */
    } unpark;
    int64_t unpark_ms;
    struct stream_id said;
    int64_t failed_ms; /* when the log last said that the stream can't be read; 0: it can */
};

void vanished_build(struct lw_worker *w, struct shard *sh);
void vanished_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void vanished_failed(struct lw_worker *w, struct shard *sh, const char *why); /* the stream could not be read */
void unpark_build(struct lw_worker *w, struct shard *sh);
void unpark_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
bool unpark_busy(const struct part *p, int shard);      /* more of it is to be unparked at once */
void missing_open(struct lw_worker *w, struct part *p); /* a new partition */
void missing_forget(struct lw_worker *w, struct part *p);

#endif
