/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the handler section of the configuration, and whether the handler can be opened. */
#include "base/clock.h"
#include "cli/check/check.h"
#include "cli/check/servers.h"
#include "handlers/handler.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void lw_config_check_handler(const struct lw_config *c, struct lw_problems *problems) {
    struct lw_err err = {0};
    const struct lw_handler_type *type = lw_handler_find(c->handler.type, &err);
    if (type)
        type->check(c, problems);
    else
        lw_problem(problems, "%s", err.text);
}

struct lw_config *lw_config_load_checked(const char *path, const struct lw_override *set,
                                         size_t n_set, struct lw_problems *problems) {
    problems->check_handler = lw_config_check_handler;
    return lw_config_load(path, set, n_set, problems);
}

/* Returns true if the program can be run, as execvp() would look for it. */
static bool is_program(const char *name) {
    const char *path = getenv("PATH");
    if (strchr(name, '/')) return !access(name, X_OK);
    for (const char *p = path ? path : "/bin:/usr/bin"; p; p = strchr(p, ':')) {
        char file[PATH_MAX];
        if (*p == ':') p++;
        int n = (int)strcspn(p, ":");
        snprintf(file, sizeof file, "%.*s/%s", n, n ? p : ".", name);
        if (!access(file, X_OK)) return true;
    }
    return false;
}

void lw_check_program(const struct lw_config *c, struct lw_problems *problems) {
    const json_t *command = json_object_get(c->handler.json, "command");
    const char *name = json_string_value(json_array_get(command, 0));
    if (strcmp(c->handler.type, "exec") != 0 || is_program(name)) return;
    lw_problem_warn(problems,
                    "handler.command: there is no program %s %s; install it where the workers run, "
                    "or name another",
                    name, strchr(name, '/') ? "here" : "in PATH");
}

/* START_MS is the time within which a handler process that lacks a module or has a wrong setting
 * usually fails. */
enum { START_MS = 2000 };

static int try_slot(const struct lw_handler_type *type, struct lw_handler *h, struct lw_err *err) {
    struct lw_slot *s = type->slot_open(h, 0, err);
    if (!s) return -1;
    type->slot_close(h, s);
    return 0;
}

static int try_start(const struct lw_handler_type *type, struct lw_handler *h, int wait_ms,
                     struct lw_err *err) {
    if (type->start(h, 1, err)) return -1;
    return type->start_check ? type->start_check(h, wait_ms, err) : 0;
}

static int open_and_close(const struct lw_config *c, int wait_ms, struct lw_err *err) {
    const struct lw_handler_type *type = lw_handler_find(c->handler.type, err);
    if (!type) return -1;
    struct lw_handler *h = type->open(c, 0, err);
    if (!h) return -1;
    int failed = type->serve ? try_start(type, h, wait_ms, err) : try_slot(type, h, err);
    type->close(h);
    return failed;
}

static _Noreturn void child(const struct lw_config *c, int wait_ms, int out) {
    struct lw_err err = {0};
    setpgid(0, 0);
    int failed = open_and_close(c, wait_ms, &err);
    size_t n = strlen(err.text);
    bool told = !n || write(out, err.text, n) == (ssize_t)n;
    _exit(failed || !told ? 1 : 0);
}

/* Reads what the child process reports, until the child closes the pipe or the time is up. Returns
 * false if the time is up. */
static bool read_answer(int fd, char *text, size_t size, int wait_ms) {
    int64_t end = lw_boot_ms() + wait_ms, left;
    size_t n = 0;
    while ((left = end - lw_boot_ms()) > 0 && n + 1 < size) {
        struct pollfd p = {fd, POLLIN, 0};
        /* If poll() was interrupted by a signal, the loop continues. If the time is up, the loop's
         * condition ends it. */
        if (poll(&p, 1, (int)left) <= 0) continue;
        ssize_t got = read(fd, text + n, size - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    text[n] = '\0';
    return left > 0;
}

/* Waits up to a second for the end of the child. A second is usually enough, because the pipe is
 * closed when the child dies. Then kills all processes that are left in the child's process group,
 * and the child itself if it has not ended. Returns the wait status of the child. */
static int reap(pid_t pid) {
    int status = 0;
    int64_t end = lw_boot_ms() + 1000;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && lw_boot_ms() < end) lw_sleep_ms(5);
    kill(-pid, SIGKILL);
    if (got == 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) == -1 && errno == EINTR) continue;
    }
    return status;
}

static void judge(const struct lw_config *c, int status, const char *text,
                  struct lw_check_report *r) {
    if (WIFSIGNALED(status))
        lw_problem(&r->problems, "handler: it crashed while opening: %s",
                   strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        lw_problem(&r->problems, "handler: %s",
                   *text ? text : "it ended the process while opening");
    else
        lw_buf_addf(&r->notes, "handler: %s opens\n", c->handler.type);
}

void lw_check_handler_opens(const struct lw_config *c, struct lw_check_report *r) {
    int fds[2];
    char text[sizeof(struct lw_err)];
    fflush(NULL);
    if (pipe(fds)) {
        lw_problem(&r->problems, "handler: pipe: %s", strerror(errno));
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        child(c, r->wait_ms / 2 < START_MS ? r->wait_ms / 2 : START_MS, fds[1]);
    }
    close(fds[1]);
    if (pid < 0) {
        lw_problem(&r->problems, "handler: fork: %s", strerror(errno));
    } else if (!read_answer(fds[0], text, sizeof text, r->wait_ms)) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        reap(pid);
        lw_problem(&r->problems, "handler: it did not open within %d ms", r->wait_ms);
    } else {
        judge(c, reap(pid), text, r);
    }
    close(fds[0]);
}
