/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor forks the workers, restarts those that end unasked, and stops all of them when the
 * program should end.
 *
 * The supervisor is a table [state][event] of small functions (consumer/fleet/table.c); the loop
 * (supervisor.c) only turns signals, deaths and deadlines into events. The supervisor has no
 * threads, and no connections to Kafka or Redis. What it needs from Kafka and the configuration
 * comes through the functions of lw_supervise_options, which tests replace.
 *
 *               START              STOP            exit
 *        IDLE ---------> RUNNING ---------> STOPPING ----> GONE
 *                         |   ^ \             ^
 *          unasked exit,  |   |  \ RELOAD     | STOP
 *          crash, kill    v   |   v           |
 *                      WAITING <- ROLLING ----+      (a worker that ends well in ROLLING starts
 *                                                    again at once)
 *
 * A worker whose main function returns sets `returned` on the board. The exit status of such a
 * worker says whether its end is clean, failed or refused. Any other exit is assumed to come from a
 * handler, and counts as a crash. The end by a crash signal, and the kill of a hung worker by the
 * supervisor, count as a crash, too. If any other signal ends a worker, the signal is taken for a
 * kill from outside, for which no message is blamed. */
#ifndef LW_CONSUMER_FLEET_SUPERVISOR_H
#define LW_CONSUMER_FLEET_SUPERVISOR_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"
#include "consumer/board.h"

#include <stdbool.h>
#include <stdint.h>

/* Holds times and limits. A value of 0 stands for the default, which each comment gives in square
 * brackets. Tests set shorter times. */
struct lw_supervise_times {
    /* `backoff_ms` and `backoff_max_ms` are the first and the longest wait before a worker is
     * restarted; the wait doubles each time [200 ms, 10 s] */
    int64_t backoff_ms, backoff_max_ms;
    /* `calm_ms`: a worker that has lived this long starts with the shortest backoff again at its
     * next restart [30 s] */
    int64_t calm_ms;
    int64_t tick_ms; /* time between two checks for hung workers [1 s] */
    /* `heartbeat_ms`: a worker counts as hung if its main loop has not turned for this long [90 s +
     * shutdown.grace_ms, because joining a group may block the loop for a minute] */
    int64_t heartbeat_ms;
    /* `margin_ms` is the time beyond shutdown.grace_ms after which a stopping worker is killed [5
     * s] */
    int64_t margin_ms;
    int64_t quick_ms; /* time within which workers must end after a second signal [1 s] */
    /* `ready_ms`: in a rolling reload, the next worker is replaced after this time even if the
     * worker that was just started is not ready [60 s] */
    int64_t ready_ms;
    int64_t ends_ms; /* time limit for reading the end offsets for `run --drain` [30 s] */
    /* `stuck_ms`: `run --drain` checks after this time without progress whether only paused lanes
     * are left [10 s] */
    int64_t stuck_ms;
};

struct lw_supervise_options {
    /* `drain` is true if the program ends as soon as everything that was in the topics at the start
     * of the program is committed */
    bool drain;
    bool json;     /* true: the summary is printed as one JSON object */
    bool progress; /* true: a live line is shown on stderr */
    /* `worker_main` runs a worker process, and returns the exit status of the process. */
    int (*worker_main)(const struct lw_config *c, struct lw_board *board, int worker);
    /* `reload` is called on SIGHUP. It returns a new configuration, or NULL if the configuration
     * has errors, which this function has logged. The function may change `runs_in_worker` of these
     * options to match the new configuration. If `reload` is NULL, SIGHUP only causes a warning. */
    struct lw_config *(*reload)(void *ctx);
    void (*config_free)(struct lw_config *c);
    /* `ends` reads the end offsets of the topics for `run --drain`, and calls `fn` for each
     * partition. It runs in a process of its own, because it starts threads, and a process with
     * threads must not fork. */
    int (*ends)(const struct lw_config *c, int64_t timeout_ms,
                void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                void *fn_ctx, struct lw_err *err);
    /* `follow` follows the group's commits for `run --drain`, and writes them to the board
     * (lw_drain_follow()). It runs in a process of its own, which is started again if it ends. If
     * `follow` is NULL, only commits of this supervisor's workers count. */
    int (*follow)(const struct lw_config *c, struct lw_board *board);
    /* `paused` is called during `run --drain` when no progress was made for a while. If only paused
     * lanes have waiting messages, it appends the names of these lanes to `names` and returns the
     * number of these lanes. Then the program ends with status 1. If the drain should go on,
     * `paused` returns 0. `paused` may be NULL. */
    int (*paused)(void *ctx, struct lw_buf *names);
    /* `exporter_main` serves metrics and health in a process of its own, and tells the fleet about
     * this supervisor. It is started again if it ends. When the workers have ended, it gets SIGTERM
     * and two seconds. The process only reads the board. `exporter_main` may be NULL. */
    int (*exporter_main)(const struct lw_config *c, const struct lw_board *board);
    /* `tracer_main` sends the spans of the workers, if the configuration has tracing.endpoint. It
     * runs in a process of its own, which is started again if it ends. When the workers have ended,
     * the process gets SIGTERM and some seconds for the spans that are left. If `tracer_main` is
     * NULL, nothing is traced. */
    int (*tracer_main)(const struct lw_config *c, struct lw_board *board);
    /* `watch` is called with the board at every tick, and once more after the last worker has
     * ended. `watch` may be NULL. */
    void (*watch)(void *ctx, const struct lw_board *board);
    /* `member_claim` claims the slot of static membership, by which the group tells this
     * supervisor's workers from other workers (lw_member_claim()). If `member_claim` is NULL, the
     * workers are dynamic members. */
    int (*member_claim)(const struct lw_config *c, int *fd);
    void *ctx;
    /* `runs_in_worker` is true if the handler runs inside the worker. A message in a seat of the
     * board then becomes a suspect when the worker crashes. */
    bool runs_in_worker;
    struct lw_supervise_times times;
};

/* Runs until stopped or drained, and returns the exit status of the program. Call this function in
 * a process without other threads, because the function forks, and because a worker ends when the
 * thread that forked it ends. The function handles SIGTERM, SIGINT, SIGHUP, SIGCHLD and SIGUSR1,
 * and reaps every child of the process. It passes SIGUSR1 on to the workers, which then log the
 * state in their memory. */
int lw_supervise(const struct lw_config *c, const struct lw_supervise_options *o);

#endif
