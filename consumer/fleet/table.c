/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/fleet/table.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

const char *const lw_sup_state_name[LW_SUP_STATES] = {"idle",    "running",  "waiting",
                                                      "rolling", "stopping", "gone"};
const char *const lw_sup_event_name[LW_SUP_EVENTS] = {
    "start",   "clean exit", "failed exit", "crash",  "kill",
    "refusal", "timer",      "stop",        "reload", "hang"};

static int64_t or_default(int64_t v, int64_t d) { return v ? v : d; }

static struct lw_supervise_times times_of(const struct lw_config *c, struct lw_supervise_times t) {
    return (struct lw_supervise_times){
        .backoff_ms = or_default(t.backoff_ms, 200),
        .backoff_max_ms = or_default(t.backoff_max_ms, 10000),
        .calm_ms = or_default(t.calm_ms, 30000),
        .tick_ms = or_default(t.tick_ms, 1000),
        .heartbeat_ms = or_default(t.heartbeat_ms, 90000 + c->shutdown.grace_ms),
        .margin_ms = or_default(t.margin_ms, 5000),
        .quick_ms = or_default(t.quick_ms, 1000),
        .ready_ms = or_default(t.ready_ms, 60000),
        .ends_ms = or_default(t.ends_ms, 30000),
        .stuck_ms = or_default(t.stuck_ms, 10000),
    };
}

static int signal_process(pid_t pid, int sig) { return kill(pid, sig); }

void lw_sup_init(struct lw_sup *s, const struct lw_config *c, const struct lw_supervise_options *o,
                 struct lw_board *board) {
    memset(s, 0, sizeof *s);
    s->c = c;
    s->o = o;
    s->board = board;
    s->times = times_of(c, o->times);
    s->now = lw_boot_ms;
    s->signal = signal_process;
    for (int i = 0; i < LW_BOARD_WORKERS; i++) {
        s->workers[i].index = i;
        s->workers[i].deadline_ms = INT64_MAX;
        s->workers[i].backoff_ms = s->times.backoff_ms;
    }
}

/* --- small steps that the cells of the table are made of -------------------------------------- */

static void to(struct lw_sup_worker *w, enum lw_sup_state state, int64_t deadline_ms) {
    w->state = state;
    w->deadline_ms = deadline_ms;
}

static void send(struct lw_sup *s, struct lw_sup_worker *w, int sig) {
    if (s->signal(w->pid, sig) == -1 && errno != ESRCH)
        lw_error("worker %d: can't send signal %d: %s", w->index, sig, strerror(errno));
}

static void bury(struct lw_sup *s, struct lw_sup_worker *w) {
    struct lw_board_worker *b = &s->board->workers[w->index];
    atomic_store(&b->pid, 0);
    atomic_store(&b->ready, false);
    /* The counts `waiting` and `in_handler` of a dead worker are 0. Other workers take over its
     * partitions, and count the messages of these partitions that wait in Redis. */
    atomic_store(&b->waiting, 0);
    atomic_store(&b->in_handler, 0);
    lw_board_disown_all(s->board, w->index);
    w->pid = 0;
}

/* Returns the number of messages that have become suspects. */
static int accuse(struct lw_sup *s, struct lw_sup_worker *w) {
    int n = s->o->runs_in_worker ? lw_board_suspect(s->board, w->index) : 0;
    for (int i = 0; i < LW_BOARD_SEATS; i++) lw_seat_leave(&s->board->workers[w->index].seats[i]);
    return n;
}

static uint64_t done_by(const struct lw_sup *s, const struct lw_sup_worker *w) {
    return atomic_load(&s->board->workers[w->index].counts.done);
}

/* A worker that did a message since its start is started again at once. Otherwise a few messages on
 * which a plugin dies would keep all others waiting for the backoff. Retries and dead letters do
 * not count, because a plugin that dies of every message causes them as well. The backoff does not
 * grow after a death with new suspects, because these do not end the worker again. */
static void wait_for_restart(struct lw_sup *s, struct lw_sup_worker *w, int new_suspects) {
    bool progress = done_by(s, w) != w->done;
    if (progress || new_suspects || s->now() - w->started_ms >= s->times.calm_ms)
        w->backoff_ms = s->times.backoff_ms;
    int64_t wait_ms = progress ? 0 : w->backoff_ms;
    lw_warn("worker %d %s; started again in %" PRId64 " ms", w->index, w->why, wait_ms);
    to(w, LW_SUP_WAITING, s->now() + wait_ms);
    if (progress || new_suspects) return;
    w->backoff_ms =
        w->backoff_ms * 2 < s->times.backoff_max_ms ? w->backoff_ms * 2 : s->times.backoff_max_ms;
}

static void forget_life(struct lw_sup *s, struct lw_sup_worker *w) {
    struct lw_board_worker *b = &s->board->workers[w->index];
    atomic_store(&b->heartbeat_ms, 0);
    atomic_store(&b->ready, false);
    atomic_store(&b->returned, false);
    atomic_store(&b->ending, LW_END_REPLACED);
    for (int i = 0; i < LW_BOARD_SEATS; i++) lw_seat_leave(&b->seats[i]);
    w->hung = w->killed = false;
    w->why[0] = 0;
    memset(&w->beat, 0, sizeof w->beat);
    memset(w->seats, 0, sizeof w->seats);
}

/* --- the cells -------------------------------------------------------------------------------- */

static void ignore(struct lw_sup *s, struct lw_sup_worker *w) { (void)s, (void)w; }

static void start(struct lw_sup *s, struct lw_sup_worker *w) {
    forget_life(s, w);
    w->started_ms = s->now();
    w->done = done_by(s, w);
    w->pid = s->spawn(s, w);
    if (w->pid == -1) {
        w->pid = 0;
        snprintf(w->why, sizeof w->why, "could not be forked (%s)", strerror(errno));
        wait_for_restart(s, w, 0);
        return;
    }
    w->lives++;
    atomic_fetch_add(&s->board->workers[w->index].starts, 1);
    atomic_store(&s->board->workers[w->index].pid, (int32_t)w->pid);
    to(w, LW_SUP_RUNNING, INT64_MAX);
    lw_debug("worker %d is process %d", w->index, (int)w->pid);
}

static void ended(struct lw_sup *s, struct lw_sup_worker *w) {
    bury(s, w);
    wait_for_restart(s, w, accuse(s, w));
}

static void rolled(struct lw_sup *s, struct lw_sup_worker *w) {
    bury(s, w);
    start(s, w);
}

static void kill_rolled(struct lw_sup *s, struct lw_sup_worker *w) {
    bury(s, w);
    int suspects = accuse(s, w);
    if (w->killed)
        start(s, w); /* the supervisor itself killed the worker, so the restart needs no backoff */
    else
        wait_for_restart(s, w, suspects);
}

static void gone(struct lw_sup *s, struct lw_sup_worker *w) {
    if (w->pid) bury(s, w);
    to(w, LW_SUP_GONE, INT64_MAX);
}

static void gone_badly(struct lw_sup *s, struct lw_sup_worker *w) {
    accuse(s, w);
    /* If another member has taken the worker's group.instance.id, the worker ends unasked, and its
     * end does not count as a failure. */
    bool fenced = atomic_load(&s->board->workers[w->index].fenced) == LW_FENCED_NOW;
    bool asked = fenced || (w->killed && atomic_load(&s->board->quick));
    if (!asked) {
        lw_warn("worker %d %s while it was stopping", w->index, w->why);
        s->failed = true;
    }
    gone(s, w);
}

static void gone_crashed(struct lw_sup *s, struct lw_sup_worker *w) {
    accuse(s, w);
    lw_warn("worker %d %s while it was stopping", w->index, w->why);
    s->failed = true;
    gone(s, w);
}

static void refused(struct lw_sup *s, struct lw_sup_worker *w) {
    lw_error("worker %d refused to run (reason: see above); the run ends with status %d because a "
             "restart would fail in the same way",
             w->index, LW_EXIT_REFUSED);
    s->refused = true;
    gone(s, w);
}

static void ask_to_end(struct lw_sup *s, struct lw_sup_worker *w, enum lw_sup_state state) {
    bool rolls = state == LW_SUP_ROLLING;
    /* the id of a surplus worker is not used again, so its membership is given up */
    bool leaves = rolls ? s->renamed : !s->stopping;
    atomic_store(&s->board->workers[w->index].ending, leaves  ? LW_END_LEAVES
                                                      : rolls ? LW_END_REPLACED
                                                              : LW_END_STOPPED);
    send(s, w, SIGTERM);
    to(w, state, s->now() + s->c->shutdown.grace_ms + s->times.margin_ms);
}

static void stop(struct lw_sup *s, struct lw_sup_worker *w) { ask_to_end(s, w, LW_SUP_STOPPING); }
static void roll(struct lw_sup *s, struct lw_sup_worker *w) { ask_to_end(s, w, LW_SUP_ROLLING); }

static void stop_again(struct lw_sup *s, struct lw_sup_worker *w) {
    /* The worker has already got SIGTERM. A second one is sent only if the program must end at
     * once. */
    if (!atomic_load(&s->board->quick)) return;
    send(s, w, SIGTERM);
    to(w, LW_SUP_STOPPING, s->now() + s->times.quick_ms);
}

static void out_of_patience(struct lw_sup *s, struct lw_sup_worker *w) {
    lw_warn("worker %d did not end in time; killing it", w->index);
    w->killed = true;
    send(s, w, SIGKILL);
    w->deadline_ms = INT64_MAX;
}

static void kill_hung(struct lw_sup *s, struct lw_sup_worker *w) {
    if (w->hung || w->killed) return;
    lw_warn("worker %d %s; killing it", w->index, w->why);
    lw_sup_report_handlers(s, w->index);
    w->hung = true;
    send(s, w, SIGKILL);
}

typedef void cell(struct lw_sup *s, struct lw_sup_worker *w);

#define NEVER NULL /* this event cannot happen in this state */
/* clang-format off */
static cell *const table[LW_SUP_STATES][LW_SUP_EVENTS] = {
    /* The columns are the events in the order of enum lw_sup_event: START, EXIT_CLEAN, EXIT_FAILED,
     * CRASHED, KILLED, REFUSED, TIMER, STOP, RELOAD, HUNG. */
    [LW_SUP_IDLE]     = {start,     NEVER,     NEVER,      NEVER,        NEVER,       NEVER,   NEVER,           gone,       ignore, NEVER},
    [LW_SUP_RUNNING]  = {NEVER,     ended,     ended,      ended,      ended,       refused, NEVER,           stop,       roll,   kill_hung},
    [LW_SUP_WAITING]  = {NEVER,     NEVER,     NEVER,      NEVER,        NEVER,       NEVER,   start,           gone,       start,  NEVER},
    [LW_SUP_ROLLING]  = {NEVER,     rolled,    ended,      ended,      kill_rolled, refused, out_of_patience, stop,       ignore, kill_hung},
    [LW_SUP_STOPPING] = {NEVER,     gone,      gone_badly, gone_crashed, gone_badly,  refused, out_of_patience, stop_again, ignore, ignore},
    [LW_SUP_GONE]     = {start,     NEVER,     NEVER,      NEVER,        NEVER,       NEVER,   NEVER,           ignore,     ignore, NEVER},
};
/* clang-format on */

void lw_sup_step(struct lw_sup *s, struct lw_sup_worker *w, enum lw_sup_event e) {
    lw_debug("worker %d: %s while %s", w->index, lw_sup_event_name[e], lw_sup_state_name[w->state]);
    if (table[w->state][e])
        table[w->state][e](s, w);
    else
        lw_error("worker %d: unexpected event \"%s\" in state \"%s\"; ignored", w->index,
                 lw_sup_event_name[e], lw_sup_state_name[w->state]);
}

/* --- how a worker ended, and whether it stands still ------------------------------------------ */

static bool is_crash(int sig) {
    static const int crash[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < sizeof crash / sizeof *crash; i++)
        if (crash[i] == sig) return true;
    return false;
}

static enum lw_sup_event classify_signal(struct lw_sup_worker *w, int sig) {
    /* a hung worker was killed by the supervisor, and w->why already says which part of it hung */
    if (w->hung && sig == SIGKILL) return LW_SUP_CRASHED;
    bool asked = w->state == LW_SUP_STOPPING || w->state == LW_SUP_ROLLING;
    /* a worker that gets SIGTERM before it has installed its signal handler dies of the signal,
     * which counts as a clean end */
    if (asked && sig == SIGTERM) return LW_SUP_EXIT_CLEAN;
    snprintf(w->why, sizeof w->why, "died of signal %d (%s)", sig, strsignal(sig));
    return is_crash(sig) ? LW_SUP_CRASHED : LW_SUP_KILLED;
}

enum lw_sup_event lw_sup_classify(struct lw_sup *s, struct lw_sup_worker *w, int wait_status) {
    if (WIFSIGNALED(wait_status)) return classify_signal(w, WTERMSIG(wait_status));
    int status = WEXITSTATUS(wait_status);
    if (!atomic_load(&s->board->workers[w->index].returned)) {
        snprintf(w->why, sizeof w->why,
                 "exited unasked with status %d (from inside a handler or a library)", status);
        return LW_SUP_CRASHED;
    }
    snprintf(w->why, sizeof w->why, "ended with status %d", status);
    return status == LW_EXIT_OK        ? LW_SUP_EXIT_CLEAN
           : status == LW_EXIT_REFUSED ? LW_SUP_REFUSED
                                       : LW_SUP_EXIT_FAILED;
}

static bool still_for(struct lw_sup_still *k, int64_t value, int64_t tick_ms, int64_t limit_ms) {
    k->for_ms = k->seen == value ? k->for_ms + tick_ms : 0;
    k->seen = value;
    return k->for_ms > limit_ms;
}

/* Counts this tick for a seat whose job has not changed. Returns true if the job has exceeded its
 * timeout by so much that only the end of the worker can stop its handler. */
static bool seat_stands_still(struct lw_sup *s, struct lw_sup_worker *w, int seat) {
    struct lw_seat *b = &s->board->workers[w->index].seats[seat];
    int64_t since = atomic_load(&b->busy) ? atomic_load(&b->since_ms) : INT64_MIN,
            limit = 2 * s->c->handler.timeout_ms + 5000;
    if (since == INT64_MIN) {
        w->seats[seat].for_ms = 0;
        w->seats[seat].seen = since;
        return false;
    }
    if (!still_for(&w->seats[seat], since, s->times.tick_ms, limit)) return false;
    snprintf(w->why, sizeof w->why, "had a handler that hung for more than %" PRId64 " ms", limit);
    return true;
}

bool lw_sup_stands_still(struct lw_sup *s, struct lw_sup_worker *w) {
    if (w->state != LW_SUP_RUNNING && w->state != LW_SUP_ROLLING) return false;
    int64_t beat = atomic_load(&s->board->workers[w->index].heartbeat_ms);
    if (beat && still_for(&w->beat, beat, s->times.tick_ms, s->times.heartbeat_ms)) {
        snprintf(w->why, sizeof w->why,
                 "hung: its main loop stood still for more than %" PRId64 " ms",
                 s->times.heartbeat_ms);
        return true;
    }
    if (!s->o->runs_in_worker || !s->c->handler.timeout_ms) return false;
    for (int i = 0; i < LW_BOARD_SEATS; i++)
        if (seat_stands_still(s, w, i)) return true;
    return false;
}
