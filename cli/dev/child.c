/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the child processes of `latchwork dev`, waits until they are ready, and ends them. */
#include "cli/dev/private.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_MS = 20000, LOOK_MS = 5 };

/* A child reports through a pipe: "+" means that it is ready, and "!" with a text means that it
 * failed. A child that becomes another program by exec() reports nothing, but closes the pipe. */
void dev_child_ready(int ready_fd, const char *failure) {
    char text[sizeof(struct lw_err)];
    int n = snprintf(text, sizeof text, "%s%s", failure ? "!" : "+", failure ? failure : "");
    if (n >= (int)sizeof text) n = (int)sizeof text - 1;
    if (write(ready_fd, text, (size_t)n) != n)
        lw_error("the coordinator does not listen: %s", strerror(errno));
    close(ready_fd);
}

static void redirect(const char *log) {
    int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (in < 0 || out < 0) _exit(1);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (in > STDERR_FILENO) close(in);
    if (out > STDERR_FILENO) close(out);
}

static void become_child(pid_t parent, const char *name, const char *log) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1 || getppid() != parent) _exit(1);
    setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    redirect(log);
    lw_log_setup(LW_LOG_INFO, false, name);
}

/* Reads the child's report until it is complete or the time is up. Returns the number of bytes
 * read, or -1 if the time is up. */
static ssize_t listen_to(int fd, char *text, size_t size) {
    size_t n = 0;
    int64_t until = lw_boot_ms() + READY_MS, left;
    while (n < size - 1 && (left = until - lw_boot_ms()) > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)left) <= 0) continue;
        ssize_t r = read(fd, text + n, size - 1 - n);
        if (r > 0) n += (size_t)r;
        if (r == 0) {
            text[n] = '\0';
            return (ssize_t)n;
        }
    }
    return -1;
}

static int hear(struct dev_child *c, int fd, struct lw_err *err) {
    char text[sizeof err->text];
    ssize_t n = listen_to(fd, text, sizeof text);
    if (n > 0 && text[0] == '!')
        lw_fail(err, "%s", text + 1);
    else if (n == 0 && dev_child_ended(c))
        lw_fail(err, "%s ended at once", c->name);
    else if (n < 0)
        lw_fail(err, "%s is not ready after %d s", c->name, READY_MS / 1000);
    else
        return 0;
    dev_child_end(c, 0);
    return -1;
}

int dev_child_start(struct dev_child *c, const char *name, const char *log,
                    dev_child_main *child_main, void *ctx, struct lw_err *err) {
    *c = (struct dev_child){.name = name};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return lw_fail(err, "%s: pipe: %s", name, strerror(errno));
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        become_child(parent, name, log);
        int status = child_main(ctx, ends[1]);
        fflush(NULL);
        _exit(status);
    }
    close(ends[1]);
    int r = pid < 0 ? lw_fail(err, "%s: fork: %s", name, strerror(errno)) : 0;
    if (pid > 0) {
        c->pid = pid;
        r = hear(c, ends[0], err);
    }
    close(ends[0]);
    return r;
}

bool dev_child_ended(struct dev_child *c) {
    if (!c->pid || waitpid(c->pid, &c->status, WNOHANG) != c->pid) return false;
    c->pid = 0;
    return true;
}

void dev_child_describe(const struct dev_child *c, char *out, size_t size) {
    if (WIFSIGNALED(c->status))
        snprintf(out, size, "%s was ended by signal %d (%s)", c->name, WTERMSIG(c->status),
                 strsignal(WTERMSIG(c->status)));
    else
        snprintf(out, size, "%s ended with status %d", c->name, WEXITSTATUS(c->status));
}

void dev_child_end(struct dev_child *c, int64_t limit_ms) {
    if (!c->pid) return;
    int64_t until = lw_boot_ms() + limit_ms;
    if (limit_ms > 0) kill(c->pid, SIGTERM);
    while (!dev_child_ended(c)) {
        if (lw_boot_ms() >= until) kill(c->pid, SIGKILL);
        lw_sleep_ms(LOOK_MS);
    }
}
