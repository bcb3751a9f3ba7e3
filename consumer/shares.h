/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps how much of a worker's handlers each group takes (`group.from`), in shared memory: the
 * worker writes it while the exporter reads it.
 *
 * A share holds the last minute in steps of 5 s, so a reader needs no history. The worker writes to
 * it when a message enters or leaves a handler. The time of a message that runs counts while it
 * runs, not at its end. One thread writes and never waits; a reader copies a share, and copies it
 * again if the worker has changed it meanwhile.
 *
 * A worker has shares of the LW_SHARES groups that ran last, and one of all messages. So a million
 * groups cost no more memory than 64. */
#ifndef LW_CONSUMER_SHARES_H
#define LW_CONSUMER_SHARES_H

#include "base/bytes.h"
#include "queue/lane.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    LW_SHARES = 64,
    LW_SHARE_STEP_MS = 5000,
    LW_SHARE_STEPS = 13, /* a minute, and the step that has begun */
};

struct lw_share {
    _Atomic uint32_t version; /* odd while the worker writes */
    _Atomic uint32_t n_name;
    _Atomic uint64_t name[LW_LANE_ROOM / 8]; /* of the group, as lw_lane_id() makes it */
    _Atomic int64_t running;                 /* number of messages in handlers */
    _Atomic int64_t at_ms; /* boot clock: time up to which `busy_ms` is counted; 0: not in use */
    /* of each step: messages that started, and the sum of their time in handlers */
    _Atomic int64_t starts[LW_SHARE_STEPS], busy_ms[LW_SHARE_STEPS];
};

struct lw_shares {
    struct lw_share all, group[LW_SHARES];
};

/* Empties the shares. A worker's process calls this before its first message. */
void lw_shares_reset(struct lw_shares *s);
/* Returns the share of a group. If it has none, it gets the one that was not in use for longest.
 * Returns NULL if each share has messages that run. */
struct lw_share *lw_share_take(struct lw_shares *s, struct lw_bytes group, int64_t now_ms);
/* Notes that a message enters (`by` is 1) or leaves (-1) a handler. */
void lw_share_run(struct lw_share *s, int by, int64_t now_ms);

/* What a share says of a time. */
struct lw_share_look {
    char name[LW_LANE_ROOM];
    size_t n_name;
    int64_t running, busy_ms; /* messages in handlers, and time in handlers in the last minute */
    double per_second;        /* starts per second in the last 10 to 15 s */
};
/* Returns false if the share is not in use. Another process than the worker may call this. */
bool lw_share_look(const struct lw_share *s, int64_t now_ms, struct lw_share_look *out);

#endif
