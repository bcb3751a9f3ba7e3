/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that several steps of the worker share. */
#ifndef LW_CONSUMER_WORKER_LIMITS_H
#define LW_CONSUMER_WORKER_LIMITS_H

#include "queue/codes.h"

enum {
    /* BATCH is the maximum number of messages per call. With more, a script would take too long,
     * and little would be gained: beyond 64, larger batches save little time per message. */
    BATCH = 256,
    /* AHEAD_MAX is the maximum number of messages of a lane that one call grants; they run one
     * after the other without another call */
    AHEAD_MAX = 64,
};
enum { WATCH_MS = 100, HOLD_BAD_MS = 1000 };

#endif
