/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger compares what Kafka and Redis contain about an application, while workers run.
 *
 * One pass reads, in this order:
 *
 *   - the group's commits;
 *   - for each shard, the states of all offsets, then the waiting lists, then again the state of
 *     each message whose state and list disagreed;
 *   - the ends of the logs, and the commits again.
 *
 * A state never decreases, and each step of a message is made by one call of a script. So a message
 * whose state was waiting both before and after the lists were read was waiting all the time, and
 * must be in exactly one list. A message in a list must be waiting, or must have been finished
 * since the list was read. If a state and a list disagree in one pass, the reason may still be that
 * the list changed while it was read, because a list is read in several requests. So a difference
 * is reported only if LW_LEDGER_PASSES passes find the same difference.
 *
 * The ledger writes nothing. It reads keys with cursors, and each long list in several requests. */
#ifndef LW_OPS_LEDGER_PRIVATE_H
#define LW_OPS_LEDGER_PRIVATE_H

#include "base/bytes.h"
#include "base/err.h"
#include "ops/ledger/ledger.h"
#include "config/config.h"

#include <stdatomic.h>
#include <stdint.h>

enum { LW_LEDGER_PASSES = 3, LW_LEDGER_PAUSE_MS = 300, LW_LEDGER_TIMEOUT_MS = 10000 };

struct ledger_part {
    char *topic;
    int32_t partition;
    bool in_kafka;
    /* `begin` and `end` are the offsets of the beginning and the end of the log. They are read at
     * the end of the pass. */
    int64_t begin, end;
    int64_t committed;       /* the group's committed offset, read before all else; -1: none */
    int64_t committed_after; /* the group's committed offset, read again at the end of the pass */
    /* `done`, `dead` and `waiting` are the numbers of records in these states at or above the
     * offset `committed`. */
    int64_t done, dead, waiting;
    /* `listed` is the number of waiting records at or above `committed` that are in waiting lists.
     * `replays` is the number of replays in waiting lists. */
    int64_t listed, replays;
    /* `floor` is the highest floor of the partition in any shard, read between the two reads of the
     * group's commit. */
    int64_t floor;
    int floor_shard;
    int64_t top; /* one more than the highest offset that has a state */
};

enum ledger_kind {
    LEDGER_MISSING, /* a message's state is waiting, but the message is in no waiting list */
    /* LEDGER_UNMARKED: a message is in a waiting list, but its state is not waiting, so a
     * redelivered record would be parked a second time */
    LEDGER_UNMARKED,
    LEDGER_TWICE, /* a message is in two waiting lists */
    /* LEDGER_COMMITTED: a message below the group's commit is waiting, so it would never run if its
     * waiting list were lost */
    LEDGER_COMMITTED,
    LEDGER_FLOOR,  /* the floor of a shard is above the group's commit */
    LEDGER_BEYOND, /* an offset at or above the end of the log has a state */
    /* LEDGER_UNSEEN: the lane of a waiting list is missing in the Redis zset `lanes`, so tend
     * never looks at that lane */
    LEDGER_UNSEEN,
    LEDGER_TORN, /* an element of a waiting list is not a message */
};

struct ledger_wrong {
    enum ledger_kind kind;
    /* `part` is the index of the partition in `parts`; -1: the difference concerns no partition */
    int shard, part;
    int64_t offset, replay;
    char *lane; /* name of the lane in printable form; NULL: the difference concerns no lane */
};

struct ledger {
    const struct lw_config *c;
    /* `watch` lets another thread see the progress of the comparison, and stop it. NULL: no other
     * thread does so. */
    struct ledger_watch *watch;
    struct ledger_part *parts;
    size_t n_parts, cap_parts;
    struct ledger_wrong *wrong; /* the differences that the current pass found */
    size_t n_wrong, cap_wrong;
    /* `lanes` is the number of waiting lists, `locks` the number of lock keys (those of a backoff
     * included), and `dead_letters` the number of dead letters in Redis. */
    int64_t lanes, locks, dead_letters;
};

/* Returns the partition of this topic and number. Adds the partition to the ledger if it is new. */
struct ledger_part *ledger_part(struct ledger *l, const char *topic, size_t n, int32_t partition);
void ledger_wrong(struct ledger *l, enum ledger_kind kind, int shard, const struct ledger_part *p,
                  int64_t offset,
                  struct lw_bytes lane); /* if lane.p is NULL, the difference concerns no lane */

/* Adds `n` to the progress that the watch shows: the number of waiting lists and segments of states
 * that were read. Returns -1 with *err if the watch's `cancel` is true. */
int ledger_step(struct ledger *l, int64_t n, struct lw_err *err);

/* A Kafka client that serves all passes. ops/ledger/kafka.c defines its functions. */
struct ledger_kafka;
struct ledger_kafka *ledger_kafka_open(const struct lw_config *c, struct lw_err *err);
void ledger_kafka_close(struct ledger_kafka *k);
/* Reads offsets of all partitions from Kafka. If `first` is true, fills `committed`; otherwise
 * fills `begin`, `end` and `committed_after`. */
int ledger_kafka_ask(struct ledger_kafka *k, struct ledger *l, bool first, struct lw_err *err);

/* Reads the states and the lists of one shard, then rereads the states of messages whose state and
 * lists disagree. ops/ledger/redis.c defines this function. */
int ledger_redis_read(struct ledger *l, int shard, struct lw_err *err);

#endif
