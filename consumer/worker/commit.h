/* SPDX-License-Identifier: Apache-2.0 */
/* commit: the watermark goes to Kafka; what Kafka accepted goes to the shards as their floor. */
#ifndef LW_CONSUMER_WORKER_COMMIT_H
#define LW_CONSUMER_WORKER_COMMIT_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct shard;

enum { FLOOR_BATCH = 256, META_RANGES = 512 }; /* META_RANGES: in the metadata of a commit */

struct floor_item {
    struct part *part;
    uint32_t gen;
    int64_t to;
};

struct floors { /* commit.c */
    struct floor_item item[FLOOR_BATCH];
    int n;
};

void floor_begin(struct shard *sh); /* of a pipeline */
void floor_build(struct lw_worker *w, struct shard *sh);
void floor_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void commit_step(struct lw_worker *w);
bool commit_encode(struct lw_worker *w, const struct part *p, char *out); /* metadata of its commit; false: no ranges */
bool commit_confirm(struct lw_worker *w);

#endif
