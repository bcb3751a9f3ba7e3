/* SPDX-License-Identifier: Apache-2.0 */
/* part: a partition of a topic, as this worker knows it. intake.c takes records of it in, and
 * assigns its fields, unless the comment of a field or struct names another file
 * (tests/cli/test_owners.py). */
#ifndef LW_CONSUMER_WORKER_PART_H
#define LW_CONSUMER_WORKER_PART_H

#include "kafka/source.h"
#include "queue/epoch.h"
#include "queue/offsets.h"

#include <assert.h>
#include <uthash.h>

struct lw_worker;
struct msg;

/* OPEN_TAGS is the number of bits in a bitmap of tags. Each tag, modulo OPEN_TAGS, is the index of
 * its bit. So two keys may share a bit, and then count as one key. */
enum { OPEN_TAGS = 1 << 16 };

static inline bool tag_test(const uint8_t *map, uint32_t tag) {
    return map[tag % OPEN_TAGS / 8] >> (tag % 8) & 1;
}
static inline void tag_set(uint8_t *map, uint32_t tag) {
    map[tag % OPEN_TAGS / 8] |= (uint8_t)(1u << (tag % 8));
}

struct stream_id {
    uint64_t ms, seq;
};

/* Describes the lanes of one shard whose waiting lists have vanished, for one partition. Records
 * that waited in these lanes must be read from Kafka again if lo <= offset < hi (watch.c). */
struct missing {
    struct stream_id seen; /* last entry of the stream `vanished` that is known */
    bool asked;            /* true: the unanswered call covers this partition */
    uint8_t *tags;         /* bitmap of the tags of these lanes; NULL: there are none */
    bool more; /* true: the last unpark call was full, so another one must follow at once */
    int64_t lo, hi;
    uint32_t serial; /* number of changes of this struct, by which a late answer is recognized */
};

struct part {
    /* which partition it is */
    UT_hash_handle hh;
    /* `name` is "topic:partition"; the replays of a job are in a partition of their own,
     * "topic:partition#replay", which has no owner */
    char *name, *topic;
    int32_t partition;
    int64_t replay; /* number of the replay; 0: a partition of Kafka */

    /* how long the struct stays: that of a partition of Kafka until the process ends, that of
     * replays until soon after the last message, because operators may create any number of them */
    size_t n_msgs; /* number of the partition's messages in memory (lane.c) */
    struct part *next_idle;
    bool idle; /* true: it is in the list of partitions to free */

    /* The assignment. `gen` is its number, or 0 while the partition is not assigned to this worker.
     * `pass` grows by 1 at each assignment, rewind and revocation; deliveries of an earlier pass
     * are ignored. */
    uint32_t gen, pass;
    struct lw_offsets *offsets; /* the records above the watermark; NULL while `gen` is 0 */
    /* `begin` is the offset at which reading began. At the assignment, the log began at `log_begin`
     * and ended at `log_end`. If records above that end were read before the last rewind, `log_end`
     * is the end of these records. `committed` is the commit that Kafka has accepted, or -1 if
     * there is none yet. */
    int64_t begin, log_begin, log_end, committed;
    bool leaving; /* true: it is being revoked: no more messages start, and it is not rewound */
    bool paused;  /* true: nothing is read from Kafka for now */
    /* time of the last log line that says that the partition tracks too many records; 0: never */
    int64_t full_ms;

    /* records that were known to be finished before the last rewind; repair writes them back */
    struct kept {
        struct kept_record {
            int64_t offset;
            uint32_t tag;
        } * at;
        size_t n, cap;
    } kept;
    /* what was read of it in Redis for this assignment (watch.c) */
    struct part_watch {
        int n_fresh; /* number of shards whose states were read */
        /* time at which the group's committed offset is read again, because it did not fit the
         * floor */
        int64_t recheck_ms;
    } watch;
    struct part_in { /* the same, by shard */
        /* true: the floor and the segments in that shard were read for this assignment (watch.c) */
        bool fresh;
        int64_t look_from;      /* offset from which the watch continues (watch.c) */
        int64_t floor_sent;     /* floor that the shard is known to have; -1: unknown (commit.c) */
        struct missing missing; /* (watch.c) */
    } * in;
    /* the group's commit, as it was last read (commit.c) */
    struct looked {
        bool known;
        int64_t offset;
    } looked;
    struct part_board {                  /* its place on the board (tell.c) */
        struct lw_board_partition *slot; /* NULL: it has none yet */
        /* index of a slot with this partition's name, plus 1; -1: the board has no room for it; 0:
         * not looked up yet */
        int32_t named;
    } board;
};

/* Asserts that the fields of a partition agree with each other. */
static inline void check_part(const struct part *p) {
    assert((p->gen != 0) == (p->offsets != NULL));
    assert(!p->gen || !p->replay);
}

/* --- intake.c -------------------------------------------------------------------------------- */

struct part *part_get(struct lw_worker *w, const char *topic, size_t n, int32_t partition,
                      int64_t replay);
struct part *part_of_gen(struct lw_worker *w, uint32_t gen);
void part_free(struct lw_worker *w, struct part *p);
/* Adds a partition of replays to the list of partitions to free, because it has no messages any
 * more. */
void part_idle(struct lw_worker *w, struct part *p);
/* Frees each partition in the list of partitions to free, unless the partition has messages again
 * or a settle that may still be sent again names its messages. */
void parts_sweep(struct lw_worker *w);
void part_mark(struct part *p, int64_t offset, enum lw_offset_state s);
/* Notes a commit of the partition that Kafka has accepted. */
void part_committed(struct part *p, int64_t offset);
void part_drop(struct lw_worker *w, struct part *p); /* ends the assignment */
/* Rewinds all partitions to their watermarks. If `keep` is true, messages known to be done stay
 * known, as far as the order of their keys allows it. */
void parts_rewind(struct lw_worker *w, bool keep);
/* Rewinds the partition to its watermark. Messages known to be done stay known. */
void part_again(struct lw_worker *w, struct part *p);
/* Returns true if the records in memory take half of the room for them. */
bool intake_crowded(const struct lw_worker *w);
/* Holds back or resumes reading. */
void part_pause(struct lw_worker *w, struct part *p);
void parts_pause(struct lw_worker *w);
/* Returns true if all messages of the partition before `m` were delivered, and those with the tag
 * of `m` are known to be done. */
bool part_closed(const struct part *p, const struct msg *m);
/* Forgets the finished records that were to be written back after the last rewind, because it is
 * too late to write them back. */
void part_forget_kept(struct part *p);

#endif
