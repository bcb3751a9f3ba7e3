/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter looks at each shard periodically: it asks the shard's Redis for a few figures, at
 * constant or logarithmic cost, and reads a limited number of lanes. The exporter never scans the
 * database, and has at most one request in flight. It waits for each answer, with a timeout, and
 * must therefore not run in the process of a worker. */
#ifndef LW_MONITOR_SHARD_LOOK_H
#define LW_MONITOR_SHARD_LOOK_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

enum { LW_LOOK_LANES = 128, LW_LOOK_OLD = 8, LW_LOOK_TIMEOUT_MS = 1000 };

struct lw_shard_look {
    bool up;
    int64_t lanes;  /* number of lanes with waiting messages */
    int64_t ready;  /* number of hints that were not popped yet */
    int64_t dead;   /* number of dead letters kept in Redis */
    int64_t paused; /* number of paused lanes */
    /* `oldest_ms` is the time at which the oldest head found so far first arrived, ms since 1970;
     * 0: no message waits */
    int64_t oldest_ms;
    /* `down_ms` is the time, ms on the boot clock, since when the shard has not answered; 0: it
     * answers, or was not asked yet */
    int64_t down_ms;
};

/* A connection to a shard, with a position in the round through the shard's lanes. */
struct lw_shard_looker;

/* Makes a connection object for a shard, without connecting yet. The object borrows the
 * configuration, and stays until the process ends. */
struct lw_shard_looker *lw_shard_looker_open(const struct lw_config *c, int shard);
/* Asks the shard for its figures, and connects first if necessary. After a failure `up` is false
 * and the figures keep their old values. Of several failures in a row, only the first is
 * logged. */
void lw_shard_look(struct lw_shard_looker *k, struct lw_shard_look *out);
enum { LW_LOOK_WAITING = 16 };
/* Asks in one pipeline how many messages wait in these lanes of the shard (at most
 * LW_LOOK_WAITING lanes). waiting[i] becomes -1 if the Redis key of the waiting list is not a
 * list. Returns false if the shard does not answer, or did not answer the last lw_shard_look(). */
bool lw_shard_waiting(struct lw_shard_looker *k, const struct lw_bytes *lanes, size_t n,
                      int64_t *waiting);

#endif
