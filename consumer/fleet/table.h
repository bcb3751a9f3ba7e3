/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the states and events of one worker as its supervisor sees them, and what each event
 * causes. Only the supervisor's files and its tests include this header. */
#ifndef LW_CONSUMER_FLEET_TABLE_H
#define LW_CONSUMER_FLEET_TABLE_H

#include "consumer/fleet/supervisor.h"

#include <sys/types.h>

enum lw_sup_state {
    LW_SUP_IDLE,    /* the worker was never started */
    LW_SUP_RUNNING, /* the worker's process is running */
    LW_SUP_WAITING, /* the worker has no process; a process is started at `deadline_ms` */
    /* LW_SUP_ROLLING: a reload asked the worker to end and will start it again; the worker is
     * killed at `deadline_ms` */
    LW_SUP_ROLLING,
    /* LW_SUP_STOPPING: the worker was asked to end and will not be started again; it is killed at
     * `deadline_ms` */
    LW_SUP_STOPPING,
    LW_SUP_GONE, /* the worker has ended and will not be started again */
    LW_SUP_STATES
};

enum lw_sup_event {
    /* LW_SUP_START: the worker should start, because the supervisor begins its work or a reload has
     * added the worker */
    LW_SUP_START,
    LW_SUP_EXIT_CLEAN,  /* the worker exited with 0 */
    LW_SUP_EXIT_FAILED, /* the worker exited with a status that is neither 0 nor LW_EXIT_REFUSED */
    /* LW_SUP_CRASHED: the worker died of a crash signal, exited unasked, or was killed because it
     * hung */
    LW_SUP_CRASHED,
    LW_SUP_KILLED,  /* the worker was killed by a signal from outside */
    LW_SUP_REFUSED, /* the worker exited with LW_EXIT_REFUSED: no restart will help */
    LW_SUP_TIMER,   /* the time deadline_ms is reached */
    /* LW_SUP_STOP: the worker should end for good, because the supervisor should end or a reload
     * has removed the worker; after a second signal to end, the event comes again */
    LW_SUP_STOP,
    LW_SUP_RELOAD, /* a rolling reload has reached this worker */
    LW_SUP_HUNG,   /* the worker's main loop or one of its handlers hangs */
    LW_SUP_EVENTS
};

/* Measures for how long a value has not changed, in ticks of the supervisor. Ticks are counted
 * instead of elapsed time, because otherwise all workers would look hung after the machine slept or
 * the supervisor was stopped for a while. */
struct lw_sup_still {
    int64_t seen;
    int64_t for_ms;
};

struct lw_sup_worker {
    int index;
    enum lw_sup_state state;
    pid_t pid;
    /* `started_ms` and `deadline_ms` are times on the boot clock. If the worker has no deadline,
     * `deadline_ms` is INT64_MAX. */
    int64_t started_ms, deadline_ms;
    int64_t backoff_ms; /* time to wait before the next restart */
    unsigned lives;     /* number of times that the worker was started */
    uint64_t done;      /* number of messages that the worker had done when it was last started */
    bool hung;          /* the supervisor killed the worker because it hung */
    /* `killed` is true if the supervisor killed the worker because it did not end in time */
    bool killed;
    char why[LW_REASON_MAX]; /* text that says how the worker ended */
    struct lw_sup_still beat, seats[LW_BOARD_SEATS];
};

struct lw_sup {
    const struct lw_config *c;
    const struct lw_supervise_options *o;
    struct lw_supervise_times times;
    struct lw_board *board;
    /* If `refused` is set, the program will end with status 78. If only `failed` is set, the
     * program will end with status 1, except after `run --drain`: then the status says whether
     * everything was drained. */
    bool refused, failed;
    bool stopping;
    bool renamed; /* true: a reload changed the ids under which workers join the consumer group */
    int64_t (*now)(void);
    /* `spawn` starts the process of a worker; returns -1 if that fails */
    pid_t (*spawn)(struct lw_sup *s, struct lw_sup_worker *w);
    int (*signal)(pid_t pid, int sig);
    /* Only the first board->n_workers elements of `workers` are in use. */
    struct lw_sup_worker workers[LW_BOARD_WORKERS];
};

extern const char *const lw_sup_state_name[LW_SUP_STATES];
extern const char *const lw_sup_event_name[LW_SUP_EVENTS];

void lw_sup_init(struct lw_sup *s, const struct lw_config *c, const struct lw_supervise_options *o,
                 struct lw_board *board);
/* Handles an event of a worker. The state of a worker changes only within this function. */
void lw_sup_step(struct lw_sup *s, struct lw_sup_worker *w, enum lw_sup_event e);
/* Interprets the wait status of a dead worker: writes into w->why how the worker ended, and returns
 * the event for the table. */
enum lw_sup_event lw_sup_classify(struct lw_sup *s, struct lw_sup_worker *w, int wait_status);
/* Call this function once per tick. Returns true if the worker's main loop or one of its handlers
 * has not moved for too long, and writes into w->why which of the two hangs. */
bool lw_sup_stands_still(struct lw_sup *s, struct lw_sup_worker *w);

/* Holds the sums over all workers that consumer/fleet/report.c shows. */
struct lw_sup_totals {
    uint64_t done, dead, dropped, skipped, waiting, parked, drained, retried, finished;
};
struct lw_sup_report {
    int64_t started_ms, moved_ms; /* `moved_ms` is the time at which the totals last changed. */
    /* `idle_until_ms` is the time of the last tick before the first message finished. The rate in
     * the summary (finished messages per second) is measured from this time. */
    int64_t idle_until_ms;
    uint64_t last_finished, last_moves;
    int64_t last_line_ms, last_log_ms, last_tick_ms;
};
struct lw_sup_totals lw_sup_totals(const struct lw_board *b);
void lw_sup_report_init(struct lw_sup_report *r, int64_t now_ms);
/* Logs which messages are in a worker's handlers, in a bounded number of lines. The supervisor
 * calls this function before it kills a hung worker. */
void lw_sup_report_handlers(const struct lw_sup *s, int worker);
void lw_sup_report_tick(struct lw_sup_report *r, const struct lw_sup *s, int64_t now_ms);
void lw_sup_report_summary(const struct lw_sup_report *r, const struct lw_sup *s, int64_t now_ms);

#endif
