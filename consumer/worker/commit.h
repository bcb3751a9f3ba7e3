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

struct commits {   /* commit.c: of the worker */
    bool confirm;  /* Kafka must accept a commit of every watermark before anything else is said */
    int64_t at_ms; /* when the next commit is due */
    int64_t confirm_ms;
    size_t from;       /* the partition that the next commit begins with */
    size_t meta_max;   /* current limit of commit metadata in bytes */
    size_t meta_tried; /* the limit of the last commit */
};

void commits_open(struct lw_worker *w);
void commit_must_confirm(struct lw_worker *w);                   /* an epoch is lost, or the metadata of the last commit no longer holds */
void commit_soon(struct lw_worker *w);                           /* with the next turn */
void floors_open(struct lw_worker *w, struct part *p);           /* a new partition */
void floors_assigned(struct lw_worker *w, struct part *p);       /* which floors the shards have is not known */
void floor_unknown(struct lw_worker *w, const struct shard *sh); /* of any partition: the shard's epoch is lost */
void floor_known(const struct shard *sh, struct part *p, int64_t floor,
                 bool again);       /* as watch read it; again: it is to be told once more */
void floor_begin(struct shard *sh); /* of a pipeline */
void floor_build(struct lw_worker *w, struct shard *sh);
void floor_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void commit_step(struct lw_worker *w);
bool commit_encode(struct lw_worker *w, const struct part *p, char *out); /* metadata of its commit; false: no ranges */
bool commit_confirm(struct lw_worker *w);

#endif
