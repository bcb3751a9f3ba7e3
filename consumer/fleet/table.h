/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the supervisor: one worker's states and events, and what they do. Shared by its files and its tests. */
#ifndef LW_CONSUMER_FLEET_TABLE_H
#define LW_CONSUMER_FLEET_TABLE_H

#include "consumer/fleet/supervisor.h"

#include <sys/types.h>

enum lw_sup_state {
    LW_SUP_IDLE,     /* never started */
    LW_SUP_RUNNING,  /* a process lives */
    LW_SUP_WAITING,  /* none lives; at `deadline_ms` one is started */
    LW_SUP_ROLLING,  /* asked to end, to be started anew; killed at `deadline_ms` */
    LW_SUP_STOPPING, /* asked to end for good; killed at `deadline_ms` */
    LW_SUP_GONE,     /* ended for good */
    LW_SUP_STATES
};

enum lw_sup_event {
    LW_SUP_START,       /* the run begins */
    LW_SUP_EXIT_CLEAN,  /* the worker returned 0 */
    LW_SUP_EXIT_FAILED, /* it returned anything else */
    LW_SUP_CRASHED,     /* a crash signal, an exit that was not its own, or a hang */
    LW_SUP_KILLED,      /* by a signal from outside */
    LW_SUP_REFUSED,     /* it returned LW_EXIT_REFUSED: no restart will help */
    LW_SUP_TIMER,       /* deadline_ms is reached */
    LW_SUP_STOP,        /* the run is to end; a second time: at once */
    LW_SUP_RELOAD,      /* this worker's turn in a rolling reload */
    LW_SUP_HUNG,        /* its main loop or a handler in it stands still */
    LW_SUP_EVENTS
};

/* Stillness is counted in ticks that the supervisor lived through, not in time: a machine that slept, or a supervisor that was stopped,
 * wakes up without taking everybody for hung. */
struct lw_sup_still {
    int64_t seen;
    int64_t for_ms;
};

struct lw_sup_worker {
    int index;
    enum lw_sup_state state;
    pid_t pid;
    int64_t started_ms, deadline_ms; /* boot clock; deadline INT64_MAX: none */
    int64_t backoff_ms;              /* the next wait */
    unsigned lives;                  /* how often it was started */
    bool hung;                       /* the supervisor killed it for standing still */
    bool killed;                     /* the supervisor killed it at the end of its patience */
    char why[LW_REASON_MAX];         /* how it ended, in words */
    struct lw_sup_still beat, seats[LW_BOARD_SEATS];
};

struct lw_sup {
    const struct lw_config *c;
    const struct lw_supervise_options *o;
    struct lw_supervise_times times;
    struct lw_board *board;
    bool refused, failed; /* the run ends with status 78, or 1 */
    bool stopping;
    bool renamed; /* a reload changed the ids under which workers join */
    int64_t (*now)(void);
    pid_t (*spawn)(struct lw_sup *s, struct lw_sup_worker *w); /* -1: could not */
    int (*signal)(pid_t pid, int sig);
    struct lw_sup_worker workers[LW_BOARD_WORKERS]; /* board->n_workers of them */
};

extern const char *const lw_sup_state_name[LW_SUP_STATES];
extern const char *const lw_sup_event_name[LW_SUP_EVENTS];

void lw_sup_init(struct lw_sup *s, const struct lw_config *c, const struct lw_supervise_options *o, struct lw_board *board);
/* The one place where a worker's state changes. */
void lw_sup_step(struct lw_sup *s, struct lw_sup_worker *w, enum lw_sup_event e);
/* Reads how a worker ended, puts it in words into w->why, and names the event. */
enum lw_sup_event lw_sup_classify(struct lw_sup *s, struct lw_sup_worker *w, int wait_status);
/* Counts a tick of still ticks; true where the worker's main loop or a handler stood still for too long (w->why says which). */
bool lw_sup_stands_still(struct lw_sup *s, struct lw_sup_worker *w);

/* consumer/fleet/report.c: what people see. */
struct lw_sup_totals {
    uint64_t done, dead, dropped, skipped, waiting, parked, drained, reruns, finished;
};
struct lw_sup_report {
    int64_t started_ms, moved_ms; /* moved: when the totals last changed */
    int64_t idle_until_ms;        /* last look before the first message finished; the rate is measured from here */
    uint64_t last_finished, last_moves;
    int64_t last_line_ms, last_log_ms, last_tick_ms;
};
struct lw_sup_totals lw_sup_totals(const struct lw_board *b);
void lw_sup_report_init(struct lw_sup_report *r, int64_t now_ms);
/* Logs what is in a worker's handlers, in a bounded number of lines, before a hung worker is killed. */
void lw_sup_report_handlers(const struct lw_sup *s, int worker);
void lw_sup_report_tick(struct lw_sup_report *r, const struct lw_sup *s, int64_t now_ms);
void lw_sup_report_summary(const struct lw_sup_report *r, const struct lw_sup *s, int64_t now_ms);

#endif
