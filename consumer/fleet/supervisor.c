/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/fleet/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "consumer/fleet/service.h"
#include "consumer/fleet/table.h"
#include "consumer/process/member.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCH_MS = 100, STATUS_STOPPED = -2, SIDE_MS = 1000, FLUSH_MS = 2000 };

/* Describes a helper process that runs beside the workers and serves all of them, such as the
 * metrics exporter. The process uses only the board. */
struct side {
    pid_t pid; /* process id; 0: the process is not running */
    int64_t due_ms;
};

struct run {
    /* the member `sup` must stand first, because spawn() casts a pointer to `sup` to a pointer to
     * struct run */
    struct lw_sup sup;
    struct lw_sup_report report;
    struct lw_service service;
    int signals; /* the signalfd, through which signals arrive */
    int claim;   /* descriptor that holds the claim of member_slot; -1: no slot is claimed */
    sigset_t watched, inherited;
    /* `reloaded` is the configuration of the last reload, and is freed with this struct; NULL: no
     * reload has happened */
    struct lw_config *reloaded;
    /* `rolling` is the index of the worker that a rolling reload is replacing; -1: no reload is
     * under way */
    int rolling;
    /* the rolling reload replaces the workers whose index is less than `rolling_end` */
    int rolling_end;
    /* `rolling_from` is the number of starts that the worker `rolling` had when the reload asked it
     * to end */
    unsigned rolling_from;
    int64_t rolling_until_ms;
    bool drained;
    struct side exporter, follower, tracer;
};

/* --- processes -------------------------------------------------------------------------------- */

/* Prepares a child process: it will end when the supervisor ends, its signals are unblocked, and
 * Ctrl-C on the terminal reaches only the supervisor. */
static void become_child(struct run *r, pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1 || getppid() != parent) _exit(LW_EXIT_FAILED);
    setpgid(0, 0);
    close(r->signals);
    lw_notify_close(&r->service.notify);
    /* The child closes its copy of the descriptor that claims the slot of static membership.
     * Otherwise the slot would not become free if the supervisor dies and this child continues to
     * run. */
    if (r->claim >= 0) close(r->claim);
    sigprocmask(SIG_SETMASK, &r->inherited, NULL);
}

static void be_worker(struct run *r, struct lw_sup_worker *w) {
    const struct lw_config *c = r->sup.c;
    char who[32];
    snprintf(who, sizeof who, "worker %d", w->index);
    lw_log_setup(c->log.level, c->log.json, who);
    int status = r->sup.o->worker_main(c, r->sup.board, w->index);
    atomic_store(&r->sup.board->workers[w->index].returned, true);
    fflush(NULL);
    _exit(status);
}

static pid_t spawn(struct lw_sup *s, struct lw_sup_worker *w) {
    struct run *r = (struct run *)s;
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    become_child(r, parent);
    be_worker(r, w);
    return -1; /* the compiler wants a return value, but this line is never reached */
}

/* --- processes beside the workers: metrics and health, tracing, commits of the group ---------- */

/* Forks a process that runs beside the workers and serves all of them. Returns true in the new
 * process, and false in the supervisor. */
static bool fork_side(struct run *r, struct side *side, const char *who) {
    struct lw_sup *s = &r->sup;
    if (side->pid || s->stopping || s->now() < side->due_ms) return false;
    side->due_ms = s->now() + SIDE_MS;
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == -1)
        lw_warn("%s: can't start the process: fork: %s; retrying in %d ms", who, strerror(errno),
                SIDE_MS);
    if (pid > 0) side->pid = pid;
    if (pid) return false;
    become_child(r, parent);
    lw_log_setup(s->c->log.level, s->c->log.json, who);
    return true;
}

/* Makes the shared ring buffers for spans before the processes that use them are forked. If there
 * is no memory for the ring buffers, the workers run without tracing. */
static void prepare_spans(struct run *r) {
    struct lw_err err = {0};
    if (!r->sup.c->tracing.endpoint || !r->sup.o->tracer_main) return;
    if (lw_board_add_spans(r->sup.board, &err))
        lw_warn("%s; the run goes on, and nothing is traced", err.text);
}

static bool sends_spans(const struct run *r) {
    return r->sup.o->tracer_main && r->sup.c->tracing.endpoint && r->sup.board->spans;
}

static void start_sides(struct run *r) {
    struct lw_sup *s = &r->sup;
    if (s->o->exporter_main && fork_side(r, &r->exporter, "metrics"))
        _exit(s->o->exporter_main(s->c, s->board));
    if (s->o->drain && s->o->follow && fork_side(r, &r->follower, "drain"))
        _exit(s->o->follow(s->c, s->board));
    if (sends_spans(r) && fork_side(r, &r->tracer, "tracing"))
        _exit(s->o->tracer_main(s->c, s->board));
}

static void end_side(struct side *side) {
    if (!side->pid) return;
    kill(side->pid, SIGKILL);
    waitpid(side->pid, NULL, 0);
    *side = (struct side){0};
}

/* Sends SIGTERM to a process, and kills the process if it has not ended within the time limit. */
static void finish_side(struct side *side, int64_t within_ms) {
    int64_t until = lw_boot_ms() + within_ms;
    if (!side->pid) return;
    kill(side->pid, SIGTERM);
    for (; lw_boot_ms() < until; lw_sleep_ms(10)) {
        if (waitpid(side->pid, NULL, WNOHANG) == 0) continue;
        *side = (struct side){0};
        return;
    }
    end_side(side);
}

static void reap_side(struct side *side, pid_t pid, const char *what) {
    if (pid != side->pid) return;
    side->pid = 0;
    lw_warn("%s ended; restarting it", what);
}

/* --- the end offsets, asked by a short-lived child -------------------------------------------- */

struct ends {
    struct lw_board *board;
    int n; /* number of partitions, of which the board has room for LW_BOARD_PARTITIONS */
};

static void note_end(void *ctx, const char *topic, int32_t partition, int64_t end) {
    struct ends *e = ctx;
    e->n++;
    if (e->board->n_drain == LW_BOARD_PARTITIONS) return;
    struct lw_drain_partition *p = &e->board->drain[e->board->n_drain++];
    snprintf(p->topic, sizeof p->topic, "%s", topic);
    p->partition = partition;
    p->end = end;
    atomic_store(&p->committed, -1);
}

static int ask_ends(struct run *r) {
    struct ends e = {.board = r->sup.board};
    struct lw_err err = {0};
    if (r->sup.o->ends(r->sup.c, r->sup.times.ends_ms, note_end, &e, &err) == -1) {
        lw_error("--drain: the end offsets could not be read: %s; nothing is drained", err.text);
        return err.permanent ? LW_EXIT_REFUSED : LW_EXIT_FAILED;
    }
    if (e.n > LW_BOARD_PARTITIONS) {
        lw_error(
            "--drain: %d partitions, but at most %d can be drained; drain fewer topics per run",
            e.n, LW_BOARD_PARTITIONS);
        return LW_EXIT_FAILED;
    }
    return LW_EXIT_OK;
}

/* Waits until the child that reads the end offsets for `run --drain` ends, or until the supervisor
 * is asked to end. The child has a time limit. If it hangs, the supervisor kills it after twice
 * that limit and a margin. */
static int await_child(struct run *r, pid_t pid) {
    int64_t until = lw_boot_ms() + 2 * r->sup.times.ends_ms + r->sup.times.margin_ms;
    for (;;) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : LW_EXIT_FAILED;
        int64_t left = until - lw_boot_ms();
        struct timespec ts = {.tv_sec = left > 0 ? left / 1000 : 0,
                              .tv_nsec = left > 0 ? left % 1000 * 1000000 : 0};
        int sig = sigtimedwait(&r->watched, NULL, &ts);
        if (sig != SIGTERM && sig != SIGINT && left > 0) continue;
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        if (left <= 0)
            lw_error("--drain: the end offsets did not come within %" PRId64
                     " ms; nothing is drained",
                     2 * r->sup.times.ends_ms + r->sup.times.margin_ms);
        return left <= 0 ? LW_EXIT_FAILED : STATUS_STOPPED;
    }
}

static int take_ends(struct run *r) {
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == -1) {
        lw_error(
            "--drain: can't start the process that reads the end offsets: fork: %s; nothing is "
            "drained",
            strerror(errno));
        return LW_EXIT_FAILED;
    }
    if (pid == 0) {
        become_child(r, parent);
        _exit(ask_ends(r));
    }
    int status = await_child(r, pid);
    if (status == LW_EXIT_OK) {
        atomic_store(&r->sup.board->draining, true);
        lw_info("draining %d partitions up to their present ends", r->sup.board->n_drain);
    }
    return status;
}

/* --- the workers' ids in the group ------------------------------------------------------------ */

static void claim_slot(struct run *r) {
    struct lw_sup *s = &r->sup;
    if (r->claim >= 0) close(r->claim);
    r->claim = -1;
    s->board->member_slot = s->o->member_claim ? s->o->member_claim(s->c, &r->claim) : -1;
}

/* Claims the slot of static membership (member.h) again after a reload, because the workers' ids
 * depend on the name, kafka.member_id and the topics. Notes whether the ids have changed. */
static void claim_again(struct run *r, const struct lw_config *before) {
    struct lw_sup *s = &r->sup;
    char was[LW_MEMBER_MAX], is[LW_MEMBER_MAX];
    lw_member_id(before, s->board->member_slot, 0, was);
    claim_slot(r);
    lw_member_id(s->c, s->board->member_slot, 0, is);
    s->renamed = strcmp(was, is) != 0;
    for (int i = 0; s->renamed && i < s->board->n_workers; i++)
        atomic_store(&s->board->workers[i].fenced, LW_FENCED_NO);
}

/* --- the rolling reload: one worker at a time ------------------------------------------------- */

static void take_turn(struct run *r, int worker) {
    struct lw_sup *s = &r->sup;
    for (; worker < r->rolling_end && s->workers[worker].state == LW_SUP_GONE; worker++) continue;
    if (worker >= r->rolling_end) {
        lw_info("reload: done; %d workers", s->board->n_wanted);
        r->rolling = -1;
        lw_service_reloaded(&r->service, "reload: done");
        return;
    }
    r->rolling = worker;
    r->rolling_from = s->workers[worker].lives;
    r->rolling_until_ms =
        s->now() + s->c->shutdown.grace_ms + s->times.margin_ms + s->times.ready_ms;
    lw_info("reload: replacing worker %d", worker);
    lw_sup_step(s, &s->workers[worker], LW_SUP_RELOAD);
}

/* Starts the workers that a reload added. If a former worker with the same number has not ended
 * yet, a later call starts the new one. */
static void start_missing(struct run *r) {
    struct lw_sup *s = &r->sup;
    if (s->stopping || s->refused) return;
    for (int i = 0; i < s->board->n_wanted; i++) {
        enum lw_sup_state state = s->workers[i].state;
        if (state == LW_SUP_IDLE || state == LW_SUP_GONE)
            lw_sup_step(s, &s->workers[i], LW_SUP_START);
    }
}

/* Starts missing workers, and stops surplus workers, which are those with the highest numbers. All
 * other workers are replaced one at a time. */
static void resize(struct run *r, int n) {
    struct lw_sup *s = &r->sup;
    struct lw_board *b = s->board;
    int was = b->n_wanted;
    r->rolling_end = was < n ? was : n;
    if (n != was) lw_info("reload: changing the number of workers from %d to %d", was, n);
    atomic_store(&b->n_wanted, n);
    if (n > b->n_workers) atomic_store(&b->n_workers, n);
    start_missing(r);
    for (int i = n; i < was; i++) lw_sup_step(s, &s->workers[i], LW_SUP_STOP);
}

/* Returns the new configuration. Returns NULL if the configuration has errors, or if the program
 * was started without a configuration file. */
static struct lw_config *read_again(struct run *r) {
    const struct lw_supervise_options *o = r->sup.o;
    if (!o->reload) {
        lw_warn("SIGHUP: this run has no configuration file to read again");
        lw_service_reloaded(&r->service, "reload: there is no configuration file to read again");
        return NULL;
    }
    struct lw_config *c = o->reload(o->ctx);
    if (c) return c;
    lw_error("reload: the configuration has errors; the old one stays");
    lw_service_reloaded(&r->service,
                        "reload: the configuration has errors (see the log); the old one stays");
    return NULL;
}

static void reload(struct run *r) {
    struct lw_sup *s = &r->sup;
    if (s->stopping) return;
    lw_service_reloading(&r->service);
    struct lw_config *c = read_again(r);
    if (!c) return;
    const struct lw_config *before = s->c;
    s->c = c;
    claim_again(r, before);
    if (r->reloaded && s->o->config_free) s->o->config_free(r->reloaded);
    r->reloaded = c;
    /* The metrics exporter is ended, and the next tick starts it again with the new
     * configuration. */
    end_side(&r->exporter);
    /* The next tick starts the tracer again. The spans that it has not sent stay in the rings. */
    end_side(&r->tracer);
    prepare_spans(r);
    lw_log_setup(c->log.level, c->log.json, "supervisor");
    resize(r, c->workers);
    take_turn(r, 0);
}

static void roll_on(struct run *r) {
    struct lw_sup *s = &r->sup;
    if (r->rolling < 0 || s->stopping) return;
    struct lw_sup_worker *w = &s->workers[r->rolling];
    bool ready = w->lives != r->rolling_from && w->state == LW_SUP_RUNNING &&
                 atomic_load(&s->board->workers[w->index].ready);
    bool late = s->now() >= r->rolling_until_ms;
    if (!ready && !late) return;
    if (!ready) lw_warn("reload: worker %d is not ready yet; going on with the next", w->index);
    take_turn(r, r->rolling + 1);
}

/* --- events ----------------------------------------------------------------------------------- */

static void step_all(struct run *r, enum lw_sup_event e) {
    for (int i = 0; i < r->sup.board->n_workers; i++) lw_sup_step(&r->sup, &r->sup.workers[i], e);
}

static void stop_all(struct run *r) {
    r->sup.stopping = true;
    r->rolling = -1;
    lw_service_stopping(&r->service, &r->sup);
    step_all(r, LW_SUP_STOP);
}

static void asked_to_stop(struct run *r, const char *by) {
    if (r->sup.stopping) {
        lw_warn("%s again: ending at once; messages in a handler run again", by);
        atomic_store(&r->sup.board->quick, true);
    } else {
        lw_info("%s: finishing what is in a handler, at most %" PRId64 " ms", by,
                r->sup.c->shutdown.grace_ms);
    }
    stop_all(r);
}

static void reap(struct run *r) {
    struct lw_sup *s = &r->sup;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        reap_side(&r->exporter, pid, "metrics: the HTTP process");
        reap_side(&r->follower, pid, "--drain: the process that reads the group's commits");
        reap_side(&r->tracer, pid, "tracing: the process that sends spans");
        for (int i = 0; i < s->board->n_workers; i++) {
            struct lw_sup_worker *w = &s->workers[i];
            if (w->pid == pid) {
                lw_sup_step(s, w, lw_sup_classify(s, w, status));
                break;
            }
        }
    }
}

static void hand_on(struct run *r, int sig) {
    for (int i = 0; i < r->sup.board->n_workers; i++)
        if (r->sup.workers[i].pid) kill(r->sup.workers[i].pid, sig);
}

static void take_signals(struct run *r) {
    struct signalfd_siginfo si;
    while (read(r->signals, &si, sizeof si) == (ssize_t)sizeof si) {
        if (si.ssi_signo == SIGTERM) asked_to_stop(r, "SIGTERM");
        if (si.ssi_signo == SIGINT) asked_to_stop(r, "SIGINT");
        if (si.ssi_signo == SIGHUP) reload(r);
        if (si.ssi_signo == SIGUSR1) hand_on(r, SIGUSR1);
    }
    /* pending signals of one kind merge, so one SIGCHLD may stand for several dead children */
    reap(r);
}

static void fire_deadlines(struct run *r) {
    int64_t now = r->sup.now();
    for (int i = 0; i < r->sup.board->n_workers; i++)
        if (r->sup.workers[i].deadline_ms <= now)
            lw_sup_step(&r->sup, &r->sup.workers[i], LW_SUP_TIMER);
}

/* If `run --drain` has made no progress for a while, finds out whether only paused lanes still have
 * messages, because the drain would wait for a paused lane without end. */
static void look_for_paused(struct run *r) {
    struct lw_sup *s = &r->sup;
    int64_t now = s->now();
    if (!s->o->drain || !s->o->paused || s->stopping ||
        now - r->report.moved_ms < s->times.stuck_ms)
        return;
    r->report.moved_ms = now; /* the next check comes after another stuck_ms without progress */
    struct lw_buf names = {0};
    int n = s->o->paused(s->o->ctx, &names);
    if (n > 0) {
        lw_error(
            "--drain: only paused lanes are left (%d): %.*s; ending; resume them with `latchwork "
            "queue resume`",
            n, (int)names.n, names.p ? names.p : "");
        s->failed = true;
        stop_all(r);
    }
    lw_buf_free(&names);
}

static void tick(struct run *r) {
    struct lw_sup *s = &r->sup;
    int64_t now = s->now();
    if (now - r->report.last_tick_ms < s->times.tick_ms) return;
    r->report.last_tick_ms = now;
    atomic_store(&s->board->ticked_ms, now);
    lw_board_forget_old(s->board, now);
    start_sides(r);
    for (int i = 0; i < s->board->n_workers; i++)
        if (lw_sup_stands_still(s, &s->workers[i])) lw_sup_step(s, &s->workers[i], LW_SUP_HUNG);
    lw_sup_report_tick(&r->report, s, now);
    lw_service_tick(&r->service, s, now);
    if (s->o->watch) s->o->watch(s->o->ctx, s->board);
    look_for_paused(r);
}

static void end_where_due(struct run *r) {
    struct lw_sup *s = &r->sup;
    if (s->stopping) return;
    if (s->refused) stop_all(r);
    if (!s->o->drain || !lw_board_drained(s->board)) return;
    r->drained = true;
    stop_all(r);
}

/* --- the loop --------------------------------------------------------------------------------- */

static bool all_gone(const struct lw_sup *s) {
    for (int i = 0; i < s->board->n_workers; i++)
        if (s->workers[i].state != LW_SUP_GONE) return false;
    return true;
}

static void sleep_until_event(struct run *r) {
    struct lw_sup *s = &r->sup;
    int64_t now = s->now(), until = r->report.last_tick_ms + s->times.tick_ms;
    /* During a drain or a reload, the loop reads the board every WATCH_MS, because a change of the
     * board does not wake it. */
    bool watching = !s->stopping && (s->o->drain || r->rolling >= 0);
    if (watching && until > now + WATCH_MS) until = now + WATCH_MS;
    for (int i = 0; i < s->board->n_workers; i++)
        if (s->workers[i].deadline_ms < until) until = s->workers[i].deadline_ms;
    struct pollfd p = {.fd = r->signals, .events = POLLIN};
    if (until > now && poll(&p, 1, (int)(until - now)) == -1 && errno != EINTR)
        lw_error("poll: %s; retrying", strerror(errno));
}

static void loop(struct run *r) {
    start_sides(r);
    step_all(r, LW_SUP_START);
    while (!all_gone(&r->sup)) {
        sleep_until_event(r);
        take_signals(r);
        fire_deadlines(r);
        tick(r);
        start_missing(r);
        roll_on(r);
        end_where_due(r);
    }
}

static int exit_status(const struct run *r) {
    if (r->sup.refused) return LW_EXIT_REFUSED;
    if (r->sup.o->drain) return r->drained ? 0 : 1;
    return r->sup.failed ? 1 : 0;
}

static int run_all(struct run *r) {
    lw_sup_report_init(&r->report, r->sup.now());
    if (r->sup.o->drain) {
        int status = take_ends(r);
        if (status != LW_EXIT_OK)
            return status == LW_EXIT_REFUSED ? LW_EXIT_REFUSED : LW_EXIT_FAILED;
    }
    prepare_spans(r);
    loop(r);
    int64_t within_ms = atomic_load(&r->sup.board->quick) ? 0 : FLUSH_MS;
    finish_side(&r->tracer, within_ms);
    finish_side(&r->exporter, within_ms);
    end_side(&r->follower);
    if (r->sup.o->watch) r->sup.o->watch(r->sup.o->ctx, r->sup.board);
    lw_sup_report_summary(&r->report, &r->sup, r->sup.now());
    if (r->sup.o->drain && !r->drained && !r->sup.refused)
        lw_warn("--drain: stopped before everything was drained; run it again for the rest");
    return exit_status(r);
}

/* Opens the descriptor through which signals arrive from now on. Also computes the signal mask of
 * the child processes. */
static int open_signals(struct run *r) {
    sigemptyset(&r->watched);
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        sigaddset(&r->watched, watched[i]);
    if (sigprocmask(SIG_BLOCK, &r->watched, &r->inherited) == -1) return -1;
    /* workers must receive these signals even if the parent of the supervisor has blocked them */
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        sigdelset(&r->inherited, watched[i]);
    /* SIGUSR1 stays blocked, so that the signal does not kill a worker that has not installed its
     * signal handler yet */
    sigaddset(&r->inherited, SIGUSR1);
    /* if SIGCHLD were still ignored, as the parent of the supervisor may have arranged, the kernel
     * would not report the deaths of children */
    signal(SIGCHLD, SIG_DFL);
    r->signals = signalfd(-1, &r->watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signals == -1 ? -1 : 0;
}

int lw_supervise(const struct lw_config *c, const struct lw_supervise_options *o) {
    struct lw_err err = {0};
    struct lw_board *board = lw_board_open(c->workers, &err);
    if (!board) {
        lw_error("%s", err.text);
        return 1;
    }
    struct run *r = lw_alloc(sizeof *r);
    lw_sup_init(&r->sup, c, o, board);
    r->sup.spawn = spawn;
    r->rolling = -1;
    r->claim = -1;
    claim_slot(r);
    lw_service_open(&r->service, &r->sup);
    int status = 1;
    if (open_signals(r) == -1) {
        lw_error("can't receive signals: %s; no worker is started", strerror(errno));
    } else {
        status = run_all(r);
        close(r->signals);
        sigprocmask(SIG_SETMASK, &r->inherited, NULL);
    }
    lw_notify_close(&r->service.notify);
    if (r->claim >= 0) close(r->claim);
    if (r->reloaded && o->config_free) o->config_free(r->reloaded);
    free(r);
    lw_board_close(board);
    return status;
}
