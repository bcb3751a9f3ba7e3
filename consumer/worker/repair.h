/* SPDX-License-Identifier: Apache-2.0 */
/* repair: what this worker knows to be finished is written back to a Redis that lost its data. */
#ifndef LW_CONSUMER_WORKER_REPAIR_H
#define LW_CONSUMER_WORKER_REPAIR_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct shard;

enum { REPAIR_BATCH = 1024, REPAIR_OFFSETS = 4096 }; /* ranges and offsets per repair call */

struct repair_item {
    struct part *part;
    uint32_t gen;
    int64_t lo, hi;
    struct run *late; /* a handler outlived its epoch */
    bool meta;        /* known by the commit's metadata alone */
};

struct repair { /* repair.c */
    struct repair_item item[REPAIR_BATCH];
    int n;
    size_t part, at;          /* how far the repair after enter has come */
    bool floors_sent, over;   /* over: all was said; only then gate and claim */
    size_t n_late;            /* runs of lost holds that were done after all */
    struct repair_item *meta; /* finished by commit metadata, to be written back while the quarantine lasts */
    size_t n_meta, cap_meta;
};

void repair_open(struct shard *sh); /* an epoch was entered */
void repair_drop(struct shard *sh); /* the epoch is lost */
void repair_free(struct shard *sh);
void repair_build(struct lw_worker *w, struct shard *sh);
void repair_restart(struct shard *sh);
void repair_begin(struct shard *sh);                                /* of a pipeline */
void repair_forget(struct shard *sh);                               /* its call is never answered */
void repair_meta(struct shard *sh, struct part *p, int64_t offset); /* finished by commit metadata: to be written back */
void late_count(struct shard *sh, int by);                          /* how many late runs wait for a repair */
void repairs_restart(struct lw_worker *w);                          /* the set of known dones changed: start every repair over */
void repair_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void late_build(struct lw_worker *w, struct shard *sh);

#endif
