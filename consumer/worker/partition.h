/* SPDX-License-Identifier: Apache-2.0 */
/* partition: the part of the worker that handles a partition of a topic and the records that the
 * worker has read from it. */
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

/* Describes a topic's partition. `gen` is 0 while the partition is not assigned to this worker. The
 * struct of a partition of Kafka exists until the process ends. The struct of a partition of
 * replays is freed soon after its last message (parts_sweep), because operators may create any
 * number of such partitions. Only partition.c assigns to a field, unless the field's comment names
 * another file (tests/cli/test_owners.py checks this). */
struct part {
    UT_hash_handle hh;
    size_t n_msgs; /* number of the partition's messages in memory (msg.c) */
    /* `next_idle` links the list of partitions to free. `idle` is true while the partition is in
     * that list. */
    struct part *next_idle;
    bool idle;
    /* `name` is the name of the partition, "topic:partition"; the replays of a job are in a
     * partition of their own, "topic:partition#replay", which has no owner */
    char *name;
    char *topic;
    int32_t partition;
    int64_t replay;       /* number of the replay; 0: a partition of Kafka */
    struct looked looked; /* the group's commit, as it was last read (rival.c) */
    uint32_t gen;         /* number of the present assignment (its generation) */
    /* `pass` grows by 1 at each assignment, rewind and revocation. Deliveries of an earlier pass
     * are ignored. */
    uint32_t pass;
    struct lw_offsets *offsets;
    /* `begin` is the offset at which reading began. At the assignment, the log began at `log_begin`
     * and ended at `log_end`. If records above that end were read before the last rewind, `log_end`
     * is the end of these records. `committed` is the commit that Kafka has accepted, or -1 if
     * there is none yet. */
    int64_t begin, log_begin, log_end, committed;
    bool had_commit;
    /* `leaving` is true if the partition is being revoked, so no more of its messages start, and it
     * is not rewound */
    bool leaving;
    /* `meta` holds the ranges above the committed offset that commit metadata lists as finished;
     * they count only if Redis agrees that these messages are finished */
    struct lw_range *meta;
    size_t n_meta;
    /* `claims` is true if this worker may run messages again that the group's commit metadata lists
     * as finished */
    bool claims;
    struct part_watch watch;
    /* `floor_sent` holds, for each shard, the floor of the partition that the shard has as far as
     * this worker knows; -1: unknown (commit.c) */
    int64_t *floor_sent;
    bool held;
    /* `kept` is an array of the records that were known to be finished before the last rewind;
     * repair writes them back to Redis */
    struct kept {
        int64_t offset;
        uint32_t tag;
    } * kept;
    size_t n_kept, cap_kept;
    /* `missing` describes, for each shard, the lanes whose waiting lists have vanished
     * (vanished.c) */
    struct missing *missing;
    /* `full_ms` is the time of the last log line that says that the partition tracks too many
     * records; 0: never */
    int64_t full_ms;
    /* `slot` is the slot of the partition on the board (tell.c); NULL: it has none yet */
    struct lw_board_partition *slot;
    /* `named` is the index of a slot on the board with this partition's name, plus 1 (tell.c);
     * -1: the board has no room for it; 0: not looked up yet */
    int32_t named;
    /* `meta_open` is a bitmap of the tags of delivered records that the commit metadata does not
     * list as finished */
    uint8_t *meta_open;
};

struct part *part_get(struct lw_worker *w, const char *topic, size_t n, int32_t partition,
                      int64_t replay);
/* Adds a partition of replays to the list of partitions to free. The partition
 * has no messages any more. */
void part_idle(struct lw_worker *w, struct part *p);
/* Frees each partition in the list of partitions to free, unless the partition has messages again
 * or a settle that may still be sent again names its messages. */
void parts_sweep(struct lw_worker *w);
void part_free(struct lw_worker *w, struct part *p);
struct part *part_of_gen(struct lw_worker *w, uint32_t gen);
void part_mark(struct lw_worker *w, struct part *p, int64_t offset, enum lw_offset_state s);
/* Notes a commit of the partition that Kafka has accepted. */
void part_committed(struct part *p, int64_t offset);
/* Forgets the finished records that were to be written back after the last rewind, because it is
 * too late to write them back. */
void part_forget_kept(struct part *p);
void part_drop(struct lw_worker *w, struct part *p);
void parts_rewind(struct lw_worker *w, bool keep);
/* Rewinds the partition to its watermark. Messages known to be done stay known. */
void part_again(struct lw_worker *w, struct part *p);
void part_pause(struct lw_worker *w, struct part *p);
void parts_pause(struct lw_worker *w); /* holds back or resumes each assigned partition */
/* Returns the maximum number of records that one partition may track (queue/offsets.h). */
size_t part_records_max(const struct lw_worker *w);
/* Returns true if this worker has joined the epochs of all shards. */
bool all_joined(const struct lw_worker *w);
bool part_closed(const struct part *p, const struct msg *m);
/* Checks whether commit metadata lists an arriving record as finished. If so, and if the metadata
 * lists all earlier records of the key, too, plans to write the record back to Redis during a
 * quarantine. */
void part_look_in_meta(struct lw_worker *w, struct part *p, const struct msg *m);
void part_forget_meta(struct part *p);
/* Compares the partition's states with the commit metadata, as soon as they have been read. */
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
