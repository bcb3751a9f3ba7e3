/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LW_CONSUMER_WORKER_COMMIT_H
#define LW_CONSUMER_WORKER_COMMIT_H

#include "queue/commit_meta.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

struct lw_worker;
struct part;
struct shard;

/* META_RANGES is the maximum number of ranges of offsets in the metadata of a commit. */
enum { FLOOR_BATCH = 256, META_RANGES = 512 };

struct floor_item {
    struct part *part;
    uint32_t gen;
    int64_t to;
};

struct floors {
    struct floor_item item[FLOOR_BATCH];
    int n;
};

struct commits { /* a worker's commits to Kafka */
    /* `confirm` is true if Kafka must accept a commit of the watermark of every partition before
     * the worker sends a pipeline to any shard */
    bool confirm;
    int64_t at_ms; /* time when the next commit is due */
    int64_t confirm_ms;
    size_t from;     /* index of the partition with which the next commit begins */
    size_t meta_max; /* current limit of commit metadata in bytes */
    size_t
        meta_tried; /* size limit, in bytes, that was applied to the metadata of the last commit */
};

void commits_open(struct lw_worker *w);
/* Makes Kafka confirm the watermarks again, because an epoch is lost or the metadata of the last
 * commit is no longer true. */
void commit_must_confirm(struct lw_worker *w);
void commit_soon(struct lw_worker *w); /* makes a commit due in the next turn */
/* Forgets which floors were sent to a shard whose epoch is lost. */
void floor_unknown(struct lw_worker *w, const struct shard *sh);
/* Notes the floor of a partition that watch has read from a shard. If `again` is true, the floor is
 * sent to that shard once more, even if the shard has it already. */
void floor_known(const struct shard *sh, struct part *p, int64_t floor, bool again);
/* Empties the list of floors to send, when a new pipeline begins. */
void floor_begin(struct shard *sh);
void floor_build(struct lw_worker *w, struct shard *sh);
void floor_reply(struct lw_worker *w, struct shard *sh, const redisReply *r);
void commit_step(struct lw_worker *w);
/* Writes the metadata of a partition's commit to `out`. Returns false if no offset above the
 * watermark is finished. */
bool commit_encode(struct lw_worker *w, const struct part *p, char *out);
bool commit_confirm(struct lw_worker *w);
/* Commits the watermarks of partitions that this worker gives up, and waits for the answer. */
void commit_now(struct lw_worker *w, struct part **parts, size_t n);

static inline void check_commits(const struct commits *x) {
    assert(x->meta_max <= LW_META_MAX && x->meta_tried <= LW_META_MAX);
}

static inline void check_floors(const struct floors *x) {
    assert(x->n >= 0 && x->n <= FLOOR_BATCH);
}

enum { FLEETS = 8 };

/* Describes another fleet in this fleet's consumer group. `first_ms` and `last_ms` are the times at
 * which this worker first and last saw that the other fleet's commits had advanced. */
struct rival {
    /* `fleet` is the name of the other fleet, and `part` is the partition in which its last commit
     * was seen */
    char fleet[17], part[320];
    int n; /* number of times that the other fleet's commits were seen to have advanced */
    int64_t first_ms, last_ms, said_ms;
};

/* Makes the fleet's name from the id of shard 0's epoch, when this worker has joined that epoch. */
void rival_epoch(struct lw_worker *w, const char *epoch);

#endif
