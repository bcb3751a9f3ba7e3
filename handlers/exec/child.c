/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/child.h"

#include "base/clock.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXEC_WAIT_MS = 10000, KILL_WAIT_MS = 5000, FIRST_FREE = 5 };

struct pipes {
    /* `failed` is the pipe on which the child sends errno if exec fails. If exec succeeds, the pipe
     * is closed, and the child has sent nothing. */
    int in[2], out[2], err[2], side[2], failed[2];
};

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Opens a pipe whose descriptors are greater than 4, because the child replaces the descriptors 0
 * to 4 before its exec. */
static int open_pipe(int p[2]) {
    int q[2];
    p[0] = p[1] = -1;
    if (pipe2(q, O_CLOEXEC)) return -1;
    p[0] = fcntl(q[0], F_DUPFD_CLOEXEC, FIRST_FREE);
    p[1] = fcntl(q[1], F_DUPFD_CLOEXEC, FIRST_FREE);
    int e = errno;
    close(q[0]);
    close(q[1]);
    errno = e;
    return p[0] < 0 || p[1] < 0 ? -1 : 0;
}

static void close_pipes(struct pipes *p) {
    int *const all[] = {p->in, p->out, p->err, p->side, p->failed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        close_fd(&all[i][0]);
        close_fd(&all[i][1]);
    }
}

static int open_pipes(struct pipes *p) {
    memset(p, -1, sizeof *p);
    if (open_pipe(p->in) || open_pipe(p->out) || open_pipe(p->err) || open_pipe(p->side) ||
        open_pipe(p->failed))
        return -1;
    return 0;
}

/* Runs in the child between fork and exec. The parent has several threads, so the child may call
 * only async-signal-safe functions. */
static _Noreturn void become(const struct pipes *p, char *const *argv, char *const *envp,
                             _Atomic pid_t *listed) {
    setpgid(0, 0);
    atomic_store(listed, getpid());
    for (int s = 1; s < NSIG; s++)
        if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int from[] = {p->in[0], p->out[1], p->err[1], p->in[0], p->side[1]};
    int fd = 0;
    while (fd < FIRST_FREE && dup2(from[fd], fd) >= 0) fd++;
    /* Closes what this process inherited from whoever started it, without O_CLOEXEC. `failed` is
     * open until exec succeeds. */
    int failed = p->failed[1];
    if (failed > FIRST_FREE) close_range(FIRST_FREE, (unsigned)failed - 1, 0);
    close_range((unsigned)failed + 1, ~0U, 0);
    if (fd == FIRST_FREE) execvpe(argv[0], argv, envp);
    int e = errno;
    if (write(p->failed[1], &e, sizeof e) < 0) _exit(126);
    _exit(127);
}

/* Blocks signals from fork until become() has reset their handlers, so that the parent's handlers
 * never run in the child. */
static pid_t fork_quietly(const struct pipes *p, char *const *argv, char *const *envp,
                          _Atomic pid_t *listed) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = fork();
    if (pid == 0) become(p, argv, envp, listed);
    int e = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = e;
    return pid;
}

/* Returns 0 if exec succeeded in the child, or the errno with which exec failed, or ETIMEDOUT if
 * neither is known after EXEC_WAIT_MS. */
static int exec_result(int fd) {
    struct pollfd pf = {.fd = fd, .events = POLLIN};
    int64_t until = lw_boot_ms() + EXEC_WAIT_MS;
    while (lw_boot_ms() < until) {
        if (poll(&pf, 1, 100) <= 0) continue;
        int e = 0;
        ssize_t n = read(fd, &e, sizeof e);
        if (n < 0 && errno == EINTR) continue;
        return n == sizeof e ? e : 0;
    }
    return ETIMEDOUT;
}

/* Sets the error for a command that cannot start. If the command is a relative path that does not
 * exist, the error also names the current folder, because the path is relative to it. */
static int fail_start(const char *command, int e, struct lw_err *err) {
    char folder[PATH_MAX];
    bool missing = e == ENOENT && strchr(command, '/') && access(command, F_OK);
    if (e == ENOENT && !strchr(command, '/'))
        return lw_fail(err, "cannot start \"%s\": not found in PATH", command);
    if (!missing) return lw_fail(err, "cannot start \"%s\": %s", command, strerror(e));
    if (command[0] == '/' || !getcwd(folder, sizeof folder))
        return lw_fail(err, "cannot start \"%s\": %s (build it first?)", command, strerror(e));
    return lw_fail(err, "cannot start \"%s\": %s in %s (build it first?)", command, strerror(e),
                   folder);
}

static void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

int lw_child_spawn(struct lw_child *c, char *const *argv, char *const *envp, _Atomic pid_t *listed,
                   struct lw_err *err) {
    struct pipes p;
    *c = (struct lw_child){.in = -1, .out = -1, .err = -1, .side = -1, .listed = listed};
    pid_t pid = open_pipes(&p) ? -1 : fork_quietly(&p, argv, envp, listed);
    if (pid < 0) {
        fail_start(argv[0], errno, err);
        close_pipes(&p);
        return -1;
    }
    /* Parent and child both put the child into its group, because either may run first. The
     * parent's call fails harmlessly if the child has already called exec. */
    setpgid(pid, pid);
    c->pid = pid;
    close_fd(&p.failed[1]);
    int e = exec_result(p.failed[0]);
    c->in = p.in[1];
    c->out = p.out[0];
    c->err = p.err[0];
    c->side = p.side[0];
    p.in[1] = p.out[0] = p.err[0] = p.side[0] = -1;
    close_pipes(&p);
    if (e) {
        lw_child_end(c, 0, NULL, 0);
        return fail_start(argv[0], e, err);
    }
    unblock(c->in);
    unblock(c->out);
    unblock(c->err);
    unblock(c->side);
    return 0;
}

static void say_end(const siginfo_t *si, char *text, size_t size) {
    if (!text) return;
    if (si->si_code == CLD_EXITED)
        snprintf(text, size, "exited with status %d", si->si_status);
    else
        snprintf(text, size, "was killed by signal %d (%s)", si->si_status,
                 strsignal(si->si_status));
}

bool lw_child_ended(const struct lw_child *c, char *text, size_t size) {
    siginfo_t si = {0};
    if (text) snprintf(text, size, "ended");
    if (waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT)) return errno != EINTR;
    if (si.si_pid == 0) return false;
    say_end(&si, text, size);
    return true;
}

static bool wait_ended(const struct lw_child *c, int64_t until_ms, char *text, size_t size) {
    for (int64_t nap = 1;; nap = nap < 10 ? nap + 1 : 10) {
        if (lw_child_ended(c, text, size)) return true;
        if (lw_boot_ms() >= until_ms) return false;
        lw_sleep_ms(nap);
    }
}

/* Returns true if the process with the id `pid` belongs to the group and is not a zombie. */
static bool lives_in(const char *pid, pid_t group) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    /* The program's name in /proc/PID/stat may contain any character, also ')', so the name ends at
     * the last ')' of the line. */
    const char *after = strrchr(line, ')');
    char state;
    int parent, its_group;
    if (!after || sscanf(after + 1, " %c %d %d", &state, &parent, &its_group) != 3) return false;
    return its_group == group && state != 'Z' && state != 'X';
}

static bool any_lives_in(pid_t group) {
    DIR *proc = opendir("/proc");
    if (!proc) return true;
    bool any = false;
    for (const struct dirent *e; !any && (e = readdir(proc));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9') any = lives_in(e->d_name, group);
    closedir(proc);
    return any;
}

/* Waits until no live process is left in the group, but at most LW_CHILD_GONE_MS. Zombies do not
 * count: killed grandchildren become children of init, and some containers have an init that never
 * reaps them. */
static void wait_group_gone(pid_t group) {
    int64_t until = lw_boot_ms() + LW_CHILD_GONE_MS;
    for (int tries = 0; kill(-group, 0) == 0 && lw_boot_ms() < until; tries++) {
        if (tries >= 3 && !any_lives_in(group)) return;
        lw_sleep_ms(1);
    }
}

void lw_child_end(struct lw_child *c, int64_t until_ms, char *text, size_t size) {
    if (c->pid <= 0) return;
    close_fd(&c->in);
    if (!wait_ended(c, until_ms, text, size)) {
        if (text) snprintf(text, size, "was killed");
        kill(-c->pid, SIGKILL);
        kill(c->pid, SIGKILL); /* the child may have left the group that was just killed */
        if (!wait_ended(c, lw_boot_ms() + KILL_WAIT_MS, NULL, 0))
            lw_error("exec: process %d still lives %d ms after SIGKILL; going on without it",
                     (int)c->pid, KILL_WAIT_MS);
    }
    /* Kill the processes that the child left in its group. The child is not reaped yet, so the
     * system cannot have given the group's number to another process. */
    kill(-c->pid, SIGKILL);
    atomic_store(c->listed, 0);
    while (waitpid(c->pid, NULL, WNOHANG) < 0 && errno == EINTR) {}
    wait_group_gone(c->pid);
    close_fd(&c->out);
    close_fd(&c->err);
    close_fd(&c->side);
    c->pid = 0;
}
