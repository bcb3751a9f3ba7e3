/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `latchwork handler test` need of each other. handler.h shows how they work
 * together; rig.c, report.c, watch.c and scratch.c say what each part does. */
#ifndef LW_CLI_HANDLER_PRIVATE_H
#define LW_CLI_HANDLER_PRIVATE_H

#include "base/err.h"
#include "cli/handler/messages.h"
#include "config/config.h"
#include "consumer/board.h"
#include "handlers/handler.h"

#include <signal.h>

/* --- the plan --------------------------------------------------------------------------------- */

/* The plan of a test lists all deliveries of messages in their order, and stores the result of each
 * delivery. The plan is in shared memory: the rig, a child process, writes the results, and the
 * test reads them while the rig runs and after it has ended.
 *
 * A plan has rounds, one after the other. Each round delivers every message once. */

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
    /* The rig writes `result` last. If `result` is set, the test may read the fields
     * after it. */
    atomic_int result; /* an enum handler_result; RESULT_NONE: the delivery is not finished */
    int64_t took_us;
    int64_t wait_ms; /* the wait that a retry has asked for; 0: none */
    bool uncounted;  /* true: the retry counts no attempt */
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

/* --- rig.c ------------------------------------------------------------------------------------ */

/* Runs every delivery that has no result yet, round by round, and writes the results to the plan.
 * The handler threads write to `seats` which messages they are processing. Stores in plan->end how
 * the rig ended. The calling process must then call _exit(). */
void handler_rig(const struct lw_config *c, struct handler_plan *plan,
                 struct lw_board_worker *seats);

/* --- report.c --------------------------------------------------------------------------------- */

struct handler_report {
    const struct handler_plan *plan;
    const char *messages; /* path of the file with the messages */
    bool json;
    /* `printed` is the number of deliveries, counted from the beginning of the plan, that were
     * printed or left out. */
    size_t printed;
    size_t counts[RESULT_N];
    /* `judged` is the number of printed deliveries. The delivery of a message that no handler gets
     * is printed only in the first round. */
    size_t judged;
    size_t wrong; /* number of deliveries with an unexpected result */
};

/* Prints the finished deliveries in the order of the plan, up to the first unfinished delivery. */
void handler_report_more(struct handler_report *r);
/* Prints the summary. Returns true if the test reached its end and all results were as expected. */
bool handler_report_end(struct handler_report *r);

/* --- watch.c ---------------------------------------------------------------------------------- */

struct handler_watch;

struct handler_watch *handler_watch_open(struct lw_err *err);
/* Starts to watch the folders that contain the configuration, the file of messages, and the files
 * that the handler section names. No longer watches any other folder. `c` is NULL if the
 * configuration has errors. Only changes after this call are noticed. */
void handler_watch_begin(struct handler_watch *w, const char *config, const char *messages,
                         const struct lw_config *c);
/* Call this function when a run of the test is over. Then a file that the run itself wrote does not
 * count as a change, unless it is the configuration, the file of messages, or a file that the
 * handler section names. */
void handler_watch_run_over(struct handler_watch *w);
/* Waits until a file has changed and no file has changed for a moment after that. Returns the name
 * of the changed file, or NULL if *stop became non-zero. */
const char *handler_watch_wait(struct handler_watch *w, const volatile sig_atomic_t *stop);
/* Returns the path of the handler's program or plugin if it must be built again before a test,
 * because the changed file `name` is a source file that is newer than the program. Otherwise
 * returns NULL. `name` is a result of handler_watch_wait(). */
const char *handler_watch_unbuilt(const struct handler_watch *w, const char *name);
void handler_watch_close(struct handler_watch *w);

/* --- scratch.c -------------------------------------------------------------------------------- */

struct handler_scratch {
    char folder[256];     /* folder of the SQLite file; "": the store is not SQLite */
    struct pg_conn *conn; /* connection to PostgreSQL; NULL: the store is not PostgreSQL */
    char schema[64];
    char store[300]; /* value to use for handler.store; "": the configured value */
    char table[256]; /* value to use for handler.table; "": the configured value */
};

/* Creates the store if the handler is of type insert; otherwise does nothing. Returns -1 with *err
 * on failure. */
int handler_scratch_open(struct handler_scratch *s, const struct lw_config *c, struct lw_err *err);
void handler_scratch_close(struct handler_scratch *s); /* removes the temporary store */

/* scratch_postgres.c defines these functions, which create and remove the schema in PostgreSQL.
 * Only scratch.c calls them. */
int handler_scratch_open_schema(struct handler_scratch *s, const struct lw_config *c,
                                const char *url, struct lw_err *err);
void handler_scratch_close_schema(struct handler_scratch *s);

#endif
