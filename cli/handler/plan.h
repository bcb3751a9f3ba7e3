/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a test: which message is delivered when, and what became of it. It lies in shared
 * memory: the rig, a child process, writes the results, and the test reads them while the rig runs
 * and after it has died.
 *
 * A plan has rounds, one after the other. Each round delivers every message once. */
#ifndef LW_CLI_HANDLER_PLAN_H
#define LW_CLI_HANDLER_PLAN_H

#include "cli/handler/messages.h"
#include "handlers/handler.h"

enum handler_round {
    ROUND_FIRST,
    /* each message once more, as after a crash: with the same identity and a larger fence */
    ROUND_AGAIN,
    ROUND_CANCEL, /* each message is cancelled while it runs, as if its lease were lost */
    ROUND_AFTER,  /* the cancelled messages come once more, as to the next holder of the key */
    /* new messages with the same contents and with smaller fences, as from a holder that was
     * frozen */
    ROUND_STALE,
    ROUNDS
};

struct handler_delivery {
    const struct handler_message *m; /* not in shared memory: the rig has a copy from the fork */
    enum handler_round round;
    int64_t offset; /* offset of the message; a new one in ROUND_STALE */
    char identity[LW_IDENTITY_MAX];
    uint64_t fence;
    /* this message was one of several in handlers when the rig died, so it now runs alone */
    bool alone;
    /* The rig writes `result` last: once it is set, the test may read `took_us` and `reason`. */
    atomic_int result; /* enum handler_result; RESULT_NONE: the delivery is not over */
    int64_t took_us;
    char reason[LW_REASON_MAX];
};

/* Says how the rig ended. */
enum handler_end {
    /* the rig has not ended by itself: it runs, has crashed, or its handler called exit */
    END_NONE,
    END_GOOD,
    END_GAVE_UP, /* the handler cannot be opened, or its command cannot start: see `failure` */
    END_STUCK    /* a handler did not end its run of a message */
};

struct handler_plan {
    size_t n; /* deliveries per round */
    int rounds;
    atomic_int end;     /* enum handler_end */
    char failure[1024]; /* why the test cannot go on; "" if it can */
    struct handler_delivery d[];
};

#endif
