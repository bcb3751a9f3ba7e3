/* SPDX-License-Identifier: Apache-2.0 */
/* watch: the states in Redis of what waits there. */
#ifndef LW_CONSUMER_WORKER_WATCH_H
#define LW_CONSUMER_WORKER_WATCH_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct shard;

enum { LOOK_BATCH = 64 }; /* segments per watch call */

struct look_item {
    struct part *part;
    uint32_t gen, pass;
    int64_t segment, next; /* next: what was delivered when the call was sent */
    int lo, hi;            /* bytes */
    bool fresh;            /* read on assign; last: the last of the partition's */
    bool last;
};

struct watch { /* watch.c */
    struct look_item item[LOOK_BATCH];
    int n;
    int64_t at_ms; /* the next round */
    size_t from;   /* the partition it begins with */
};

void watch_begin(struct shard *sh); /* of a pipeline */
void watch_build(struct lw_worker *w, struct shard *sh);
void watch_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);

#endif
