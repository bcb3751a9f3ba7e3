/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a test lists all deliveries of messages in their order, and stores the result of each
 * delivery. The plan is in shared memory: the rig, a child process, writes the results, and the
 * test reads them while the rig runs and after it has ended.
 *
 * A plan has rounds, one after the other. Each round delivers every message once. */
#ifndef LW_CLI_HANDLER_PLAN_H
#define LW_CLI_HANDLER_PLAN_H

#include "cli/handler/messages.h"
#include "handlers/handler.h"

enum handler_round {
    ROUND_FIRST,
    /* In ROUND_AGAIN, each message is delivered again, as after a crash: it has the same identity
     * and a larger fence. */
    ROUND_AGAIN,
    ROUND_CANCEL, /* each message is cancelled while it runs, as if its lease were lost */
    ROUND_AFTER,  /* the cancelled messages are delivered again, as to the next holder of the key */
    /* In ROUND_STALE, new messages with the same contents and with smaller fences are delivered, as
     * by a holder that was suspended and continues after the end of its lease. */
    ROUND_STALE,
    ROUNDS
};

struct handler_delivery {
    /* `m` does not point into shared memory; the rig has had its own copy of the message since
     * fork(). */
    const struct handler_message *m;
    enum handler_round round;
    int64_t offset; /* offset of the message; in ROUND_STALE each message has a new offset */
    char identity[LW_IDENTITY_MAX];
    uint64_t fence;
    /* true if the rig died while this message and others were in handlers; the message now runs
     * alone */
    bool alone;
    /* The rig writes `result` last. If `result` is set, the test may read `took_us` and
     * `reason`. */
    atomic_int result; /* an enum handler_result; RESULT_NONE: the delivery is not finished */
    int64_t took_us;
    char reason[LW_REASON_MAX];
};

/* Describes how the rig ended. */
enum handler_end {
    /* END_NONE: the rig has not stored how it ended, because it still runs or has crashed, or
     * because the handler has called exit() */
    END_NONE,
    END_GOOD,
    /* END_GAVE_UP: the handler cannot be opened, or its command cannot start; `failure` has the
     * reason */
    END_GAVE_UP,
    END_STUCK /* a handler did not finish a message in time */
};

struct handler_plan {
    size_t n; /* number of deliveries per round */
    int rounds;
    atomic_int end;     /* an enum handler_end */
    char failure[1024]; /* the reason why the test cannot continue; "": no such reason was found */
    struct handler_delivery d[];
};

#endif
