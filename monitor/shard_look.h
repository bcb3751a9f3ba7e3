/* SPDX-License-Identifier: Apache-2.0 */
/* What the exporter knows of a shard by asking its Redis now and then: a few commands of constant or logarithmic cost and one look at a
 * bounded number of lanes; never a scan, and no more than one question at a time. Blocking, with a timeout: for a process of its own. */
#ifndef LW_MONITOR_SHARD_LOOK_H
#define LW_MONITOR_SHARD_LOOK_H

#include <stdbool.h>
#include <stdint.h>

enum { LW_LOOK_LANES = 128, LW_LOOK_OLD = 8, LW_LOOK_TIMEOUT_MS = 1000 };

struct lw_shard_look {
    bool up;
    int64_t lanes;     /* that have waiters */
    int64_t ready;     /* hints not popped yet */
    int64_t dead;      /* dead letters that stay in Redis */
    int64_t paused;    /* lanes */
    int64_t oldest_ms; /* wall clock: first arrival of the oldest head found so far; 0 nobody waits */
};

struct lw_shard_looker; /* a connection, and where the round through the lanes has come to */

/* `url` is lent for its life. */
struct lw_shard_looker *lw_shard_looker_open(const char *name, int shard, const char *url);
void lw_shard_looker_close(struct lw_shard_looker *k);
/* Asks, connecting where needed. On failure `up` is false and the rest as before; it is logged when that begins. */
void lw_shard_look(struct lw_shard_looker *k, struct lw_shard_look *out);

#endif
