/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lock/run.h"

#include "base/clock.h"
#include "handlers/exec/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_AFTER_MS = 1000, MARGIN_DIVISOR = 20, POLL_MAX_MS = 60000 };

static const int taken[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
                            SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("latchwork lock exec: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* --- signals ---------------------------------------------------------------------------------- */

bool lock_signals_begin(struct lock_signals *s) {
    *s = (struct lock_signals){.fd = -1, .lost = -1, .stop = -1};
    sigset_t watched, blocked;
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct sigaction now;
        /* a signal that was ignored when this process started stays ignored, as under nohup */
        bool ignored = sigaction(taken[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN;
        if (!ignored) sigaddset(&watched, taken[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* if SIGCHLD were ignored, the command's exit status would be lost */
    sigaddset(&watched, SIGCHLD);
    blocked = watched;
    /* if stdout is a pipe whose reader has ended, the command must still continue */
    sigaddset(&blocked, SIGPIPE);
    /* unless SIGTTOU is blocked, this process would stop when it takes the terminal back from the
     * command */
    sigaddset(&blocked, SIGTTOU);
    s->fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    s->lost = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return s->fd >= 0 && s->lost >= 0 && s->stop >= 0 &&
           pthread_sigmask(SIG_BLOCK, &blocked, &s->before) == 0;
}

void lock_signals_end(struct lock_signals *s) {
    if (s->fd >= 0) close(s->fd);
    if (s->lost >= 0) close(s->lost);
    if (s->stop >= 0) close(s->stop);
}

static int next_signal(struct lock_signals *s) {
    struct signalfd_siginfo info;
    return read(s->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

static void *watch_wait(void *ctx) {
    struct lock_signals *s = ctx;
    struct pollfd fds[] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->stop, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return NULL;
        if (fds[1].revents) return NULL;
        for (int sig; (sig = next_signal(s));) {
            if (sig == SIGTSTP) kill(getpid(), SIGSTOP);
            if (sig == SIGTSTP || sig == SIGCONT || sig == SIGWINCH || sig == SIGCHLD) continue;
            atomic_store(&s->ended_by, sig);
            latchwork_client_interrupt(s->client);
            return NULL;
        }
    }
}

bool lock_wait_begin(struct lock_signals *s, struct latchwork_client *client) {
    s->client = client;
    s->watching = pthread_create(&s->thread, NULL, watch_wait, s) == 0;
    return s->watching;
}

int lock_wait_end(struct lock_signals *s) {
    uint64_t one = 1;
    if (s->watching && write(s->stop, &one, sizeof one) == sizeof one)
        pthread_join(s->thread, NULL);
    s->watching = false;
    return atomic_load(&s->ended_by);
}

void lock_lost(void *ctx, struct latchwork_hold *hold, enum latchwork_loss why) {
    (void)hold;
    struct lock_signals *s = ctx;
    uint64_t one = 1;
    atomic_store(&s->why, (int)why);
    /* a write to this eventfd cannot fail, because its counter cannot overflow */
    if (write(s->lost, &one, sizeof one) != sizeof one) abort();
}

/* --- the command ------------------------------------------------------------------------------ */

struct run {
    struct lock_signals *s;
    struct latchwork_hold *hold;
    struct lw_warden warden;
    pid_t pid;
    /* `kill_ms` is the time at which the command will be killed with SIGKILL because the lock is
     * lost; 0: the lock is not lost */
    int64_t kill_after_ms, kill_ms;
    /* `terminal` is true if stdin is a terminal. This process may then be in the terminal's
     * foreground. */
    bool terminal;
    bool stop_asked; /* true: this process received SIGTSTP and passed it on */
    bool ended, killed;
    int wait_status;
    struct lock_ran ran;
};

static bool in_foreground(void) { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }
static void to_group(const struct run *r, int sig) { kill(-r->pid, sig); }

/* Starts the command in the child process. Between fork() and exec() only async-signal-safe
 * functions may be called. */
static _Noreturn void begin(struct run *r, char *const *argv, int report, bool foreground) {
    setpgid(0, 0);
    atomic_store(&r->warden.groups[0], getpid());
    if (foreground) tcsetpgrp(STDIN_FILENO, getpid());
    sigprocmask(SIG_SETMASK, &r->s->before, NULL);
    execvp(argv[0], argv);
    int why = errno;
    if (write(report, &why, sizeof why) < 0) _exit(126);
    _exit(why == ENOENT ? 127 : 126);
}

static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static void not_begun(struct run *r, const char *command, int why) {
    say("%s: %s", command, strerror(why));
    r->ran = (struct lock_ran){.status = why == ENOENT ? 127 : 126, .not_begun = true};
}

static bool start(struct run *r, char *const *argv) {
    int report[2], why = 0;
    if (pipe2(report, O_CLOEXEC)) return not_begun(r, argv[0], errno), false;
    bool foreground = r->terminal && in_foreground();
    r->pid = fork();
    if (r->pid == 0) begin(r, argv, report[1], foreground);
    why = r->pid < 0 ? errno : 0;
    close(report[1]);
    if (r->pid > 0) {
        /* Parent and child both call setpgid(). So the process group exists, no matter which of
         * them runs first. */
        setpgid(r->pid, r->pid);
        while (read(report[0], &why, sizeof why) < 0 && errno == EINTR) continue;
    }
    close(report[0]);
    if (!why) return true;
    if (r->pid > 0) {
        atomic_store(&r->warden.groups[0], 0);
        wait_for(r->pid);
        if (foreground) tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    not_begun(r, argv[0], why);
    return false;
}

/* --- while it runs ---------------------------------------------------------------------------- */

static const char *loss_text(int why) {
    if (why == LATCHWORK_LOSS_UNCONFIRMED) return "it could not be renewed in time";
    return why == LATCHWORK_LOSS_NOT_OWNER ? "it was broken, taken or wiped"
                                           : "its lease has ended";
}

static void lose(struct run *r) {
    if (r->ran.lost) return;
    int why = atomic_load(&r->s->why);
    int64_t now = lw_boot_ms();
    int64_t end = latchwork_hold_deadline_ms(r->hold);
    r->ran.lost = true;
    r->kill_ms = now + r->kill_after_ms;
    if (why == LATCHWORK_LOSS_UNCONFIRMED) {
        /* the lease was not renewed, but nobody else can get the lock before the lease ends; so the
         * command is killed shortly before the end of the lease at the latest */
        int64_t last = end - (end - now) / MARGIN_DIVISOR;
        if (last < r->kill_ms) r->kill_ms = last;
    }
    say("the lock is lost: %s; ending the command", loss_text(why));
    to_group(r, SIGTERM);
    to_group(r, SIGCONT);
}

static void kill_now(struct run *r) {
    r->killed = true;
    to_group(r, SIGKILL);
}

/* Stops this process, too, if the command was stopped by the terminal or by the SIGTSTP that this
 * process passed on. If something else stopped the command, this process continues to run and to
 * renew the lease. */
static void stopped(struct run *r, int sig) {
    bool by_terminal = r->terminal && (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU);
    if (!by_terminal && !(r->stop_asked && sig == SIGTSTP)) return;
    r->stop_asked = false;
    if (r->terminal && tcgetpgrp(STDIN_FILENO) == r->pid) tcsetpgrp(STDIN_FILENO, getpgrp());
    kill(getpid(), SIGSTOP);
}

static void go_on(struct run *r) {
    if (latchwork_hold_lost(r->hold)) {
        lose(r);
        return;
    }
    if (r->terminal && in_foreground()) tcsetpgrp(STDIN_FILENO, r->pid);
    to_group(r, SIGCONT);
}

static void look_at_child(struct run *r) {
    int status;
    while (!r->ended && waitpid(r->pid, &status, WNOHANG | WUNTRACED) > 0) {
        if (WIFSTOPPED(status)) {
            stopped(r, WSTOPSIG(status));
            continue;
        }
        r->ended = true;
        r->wait_status = status;
    }
}

/* Finds out whether the command has ended or was stopped. If the command has ended and the lock is
 * lost, kills the rest of the command's process group. The group is killed before the command is
 * reaped, because afterwards the group's number may belong to other processes. */
static void look(struct run *r) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == r->pid) {
        atomic_store(&r->warden.groups[0], 0);
        /* the lock is lost, so no process of the command's group may continue */
        if (r->ran.lost || latchwork_hold_lost(r->hold)) to_group(r, SIGKILL);
    }
    look_at_child(r);
}

static void handle(struct run *r, int sig) {
    switch (sig) {
    case SIGCHLD: look(r); break;
    case SIGCONT: go_on(r); break;
    case SIGTSTP:
        r->stop_asked = true;
        to_group(r, SIGTSTP);
        break;
    case SIGTERM:
    case SIGHUP:
        to_group(r, sig);
        to_group(r, SIGCONT); /* SIGCONT wakes a stopped command, so that it receives the signal */
        break;
    default: to_group(r, sig);
    }
}

static int until_kill_ms(const struct run *r) {
    if (!r->kill_ms || r->killed) return -1;
    int64_t left = r->kill_ms - lw_boot_ms();
    return left < 0 ? 0 : left > POLL_MAX_MS ? POLL_MAX_MS : (int)left;
}

static void watch(struct run *r) {
    struct pollfd fds[] = {{.fd = r->s->fd, .events = POLLIN},
                           {.fd = r->s->lost, .events = POLLIN}};
    while (!r->ended) {
        int ready = poll(fds, 2, until_kill_ms(r));
        if (ready > 0 && fds[1].revents) {
            fds[1].fd = -1;
            lose(r);
        }
        for (int sig; !r->ended && (sig = next_signal(r->s));) handle(r, sig);
        if (!r->ended && until_kill_ms(r) == 0) kill_now(r);
    }
}

struct lock_ran lock_run(struct lock_signals *s, struct latchwork_hold *hold, char *const *argv,
                         int64_t kill_after_ms) {
    struct run r = {
        .s = s, .hold = hold, .kill_after_ms = kill_after_ms ? kill_after_ms : KILL_AFTER_MS};
    struct lw_err err = {0};
    char fence[24];
    snprintf(fence, sizeof fence, "%" PRIu64, latchwork_hold_fence(hold));
    setenv("LATCHWORK_FENCE", fence, 1);
    r.terminal = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) != -1;
    if (lw_warden_open(&r.warden, 1, &err)) {
        say("%s", err.text);
        return (struct lock_ran){.status = 126, .not_begun = true};
    }
    if (start(&r, argv)) {
        watch(&r);
        if (r.terminal && tcgetpgrp(STDIN_FILENO) == r.pid) tcsetpgrp(STDIN_FILENO, getpgrp());
        r.ran.status =
            WIFEXITED(r.wait_status) ? WEXITSTATUS(r.wait_status) : 128 + WTERMSIG(r.wait_status);
    }
    lw_warden_close(&r.warden);
    return r.ran;
}
