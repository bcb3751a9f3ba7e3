/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: an audit of an application from Kafka and Redis alone, while it runs.
 *
 * A pass reads, in this order: the group's commits; in each shard the states of all offsets, then the waiting lists, then again the state
 * of each message that did not fit; last the ends of the logs and the commits again. A state never goes down, and each step of a message is
 * done by one call of a script. So a message whose state is waiting both before and after the lists were read was waiting all the time, and
 * must be in exactly one list; and a message in a list must be waiting, or finished by now. If a message does not fit in one pass, the
 * reason may still be a list that moved while it was read page by page. So only what is wrong in the same way in LW_LEDGER_PASSES passes is
 * reported as a difference.
 *
 * The ledger writes nothing, and reads in pages and with cursors. */
#ifndef LW_CLI_LEDGER_PRIVATE_H
#define LW_CLI_LEDGER_PRIVATE_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

#include <stdint.h>

enum { LW_LEDGER_PASSES = 3, LW_LEDGER_PAUSE_MS = 300, LW_LEDGER_TIMEOUT_MS = 10000 };

struct ledger_part {
    char *topic;
    int32_t partition;
    bool in_kafka;
    int64_t begin, end;          /* offsets of the log's begin and end; the end is read last */
    int64_t committed;           /* the group's commit, read first; -1: there is none */
    int64_t committed_after;     /* the group's commit, read again last */
    int64_t done, dead, waiting; /* number of states at or above `committed` */
    int64_t listed, replays;     /* number of unfinished messages in waiting lists: listed those of records, replays those of replays */
    int64_t floor;               /* the highest floor of all shards, read between the two commits */
    int floor_shard;
    int64_t top; /* one above the highest offset with a state */
};

enum ledger_kind {
    LEDGER_MISSING,   /* a message's state is waiting, but it is in no list */
    LEDGER_UNMARKED,  /* a message is in a list, but its state is not waiting, so a redelivery would be parked a second time */
    LEDGER_TWICE,     /* a message is in two lists */
    LEDGER_COMMITTED, /* a message waits below the group's commit, so it would never run if its list were lost */
    LEDGER_FLOOR,     /* the floor of a shard is above the group's commit */
    LEDGER_BEYOND,    /* there is a state at or above the end of the log */
    LEDGER_UNSEEN,    /* the Redis set `lanes` lacks the lane of a list, so tend never looks at that lane */
    LEDGER_TORN,      /* an element of a list is not a message */
};
extern const char *const ledger_kind_text[];

struct ledger_wrong {
    enum ledger_kind kind;
    int shard, part; /* part: index into parts; -1: no partition */
    int64_t offset, replay;
    char *lane; /* name of the lane in printable form; NULL: none */
};

struct ledger {
    const struct lw_config *c;
    struct ledger_part *parts;
    size_t n_parts, cap_parts;
    struct ledger_wrong *wrong; /* the differences that the current pass found */
    size_t n_wrong, cap_wrong;
    int64_t lanes, locks, dead_letters; /* number of waiting lists; of lock keys, those of a backoff included; of dead letters in Redis */
};

struct ledger_part *ledger_part(struct ledger *l, const char *topic, size_t n,
                                int32_t partition); /* returns the partition, and adds it if it is new */
void ledger_wrong(struct ledger *l, enum ledger_kind kind, int shard, const struct ledger_part *p, int64_t offset,
                  struct lw_bytes lane); /* if lane.p is NULL, no lane is named */

/* Defined in cli/ledger/kafka.c. One client serves all passes. */
struct ledger_kafka;
struct ledger_kafka *ledger_kafka_open(const struct lw_config *c, struct lw_err *err);
void ledger_kafka_close(struct ledger_kafka *k);
/* Fills `committed` if `first` is true; else begin, end and committed_after. */
int ledger_kafka_ask(struct ledger_kafka *k, struct ledger *l, bool first, struct lw_err *err);

/* Defined in cli/ledger/redis.c. Reads the states and the lists of one shard, then again the
 * states of messages that do not fit. */
int ledger_redis_read(struct ledger *l, int shard, struct lw_err *err);

#endif
