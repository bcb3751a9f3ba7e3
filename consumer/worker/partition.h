/* SPDX-License-Identifier: Apache-2.0 */
/* partition: the part of the worker that knows a topic's partition and the records that it read
 * there. */
#ifndef LW_CONSUMER_WORKER_PARTITION_H
#define LW_CONSUMER_WORKER_PARTITION_H

#include "consumer/worker/rival.h"
#include "consumer/worker/watch.h"
#include "queue/offsets.h"

#include <assert.h>
#include <uthash.h>

struct lw_worker;
struct missing;
struct msg;

/* Describes a topic's partition; `gen` is 0 while the partition is not assigned to this worker. A
 * partition of Kafka exists until the process ends. A partition of replays is freed soon after its
 * last message (parts_sweep), because operators create any number of them. Only partition.c assigns
 * a field, unless the field's comment names another file (tests/cli/test_owners.py checks it). */
struct part {
    UT_hash_handle hh;
    size_t n_msgs; /* number of the partition's messages in memory (msg.c) */
    /* next in the list of partitions to free; `idle`: the partition is in that list */
    struct part *next_idle;
    bool idle;
    /* name of the partition, "topic:partition"; replays are in a partition of their own that nobody
     * owns: "topic:partition#replay" */
    char *name;
    char *topic;
    int32_t partition;
    int64_t replay;       /* number of the replay; 0: a partition of Kafka */
    struct looked looked; /* the group's commit when it was last read (rival.c) */
    uint32_t gen;         /* number of the present assignment (its generation) */
    uint32_t pass;        /* number of rewinds; deliveries of an earlier pass are ignored */
    struct lw_offsets *offsets;
    /* begin: where reading began; log_begin: where the log began at assignment; log_end: where it
     * ended then, or the end of what was read before the last rewind, if that is further;
     * committed: the commit that Kafka has accepted, -1: none yet. */
    int64_t begin, log_begin, log_end, committed;
    int64_t new_from; /* first offset that no earlier epoch can have granted; INT64_MAX: unknown */
    bool had_commit;
    /* true while the partition is being revoked: no more of its messages start, and the partition
     * is not rewound */
    bool leaving;
    /* ranges above the committed offset that commit metadata lists as finished; believed only if
     * Redis agrees */
    struct lw_range *meta;
    size_t n_meta;
    /* the group's metadata may list as finished some messages that will run again here */
    bool claims;
    struct part_watch watch;
    int64_t *floor_sent; /* for each shard, the floor that was sent to it (commit.c) */
    bool held;
    /* records that were known to be finished before the last rewind, which repair writes back */
    struct kept {
        int64_t offset;
        uint32_t tag;
    } * kept;
    size_t n_kept, cap_kept;
    /* per shard, the lanes whose waiting lists have vanished (vanished.c) */
    struct missing *missing;
    /* time when the log last said that the partition tracks too many records; 0: never */
    int64_t full_ms;
    /* the partition's entry on the board (observe.c); NULL: there is none yet */
    struct lw_board_partition *slot;
    /* index, plus 1, of a slot on the board with this partition's name (outcome.c); -1: the board
     * has no room; 0: not looked up yet */
    int32_t named;
    /* bitmap over tags: keys of delivered records that the metadata does not list as finished */
    uint8_t *meta_open;
};

struct part *part_get(struct lw_worker *w, const char *topic, size_t n, int32_t partition,
                      int64_t replay);
/* called when the last message of a partition of replays is freed; lists the partition to be
 * freed */
void part_idle(struct lw_worker *w, struct part *p);
void parts_sweep(struct lw_worker *w); /* frees partitions that are still idle */
void part_free(struct lw_worker *w, struct part *p);
struct part *part_of_gen(struct lw_worker *w, uint32_t gen);
void part_mark(struct lw_worker *w, struct part *p, int64_t offset, enum lw_offset_state s);
/* called when Kafka has accepted a commit of the partition; notes the commit */
void part_committed(struct part *p, int64_t offset);
/* forgets what survived the last rewind; called when it is too late to write these records back */
void part_forget_kept(struct part *p);
void part_drop(struct lw_worker *w, struct part *p);
void parts_rewind(struct lw_worker *w, bool keep);
/* rewinds the partition to its watermark; messages known to be done stay known */
void part_again(struct lw_worker *w, struct part *p);
void part_pause(struct lw_worker *w, struct part *p);
void parts_pause(struct lw_worker *w); /* pauses or resumes every assigned partition */
/* maximum number of tracked records per partition */
size_t part_records_max(const struct lw_worker *w);
/* true if the epochs of all shards are joined */
bool all_joined(const struct lw_worker *w);
bool part_closed(const struct part *p, const struct msg *m);
/* called when a record arrives; finds out whether commit metadata lists the record as finished */
void part_look_in_meta(struct lw_worker *w, struct part *p, const struct msg *m);
void part_forget_meta(struct part *p);
/* called when the partition's states have been read; compares them with the commit metadata */
void part_check_claims(struct lw_worker *w, struct part *p);

/* Asserts that the fields of a partition agree with each other. */
static inline void check_part(const struct part *p) {
    assert(p->name && p->topic);
    assert((p->gen != 0) == (p->offsets != NULL));
    assert(!p->gen || !p->replay);
    assert(p->n_kept <= p->cap_kept);
    assert(!p->n_meta || (p->meta && p->meta_open));
}

#endif
