/* SPDX-License-Identifier: Apache-2.0 */
/* exec: a handler in any language, which runs in long-lived processes. A process reads one line per
 * request, writes one line per answer, and may have many requests at a time.
 *
 *     loop.c         the one thread that drives the processes: which process gets which message,
 *                    and when leases and timeouts end
 *     proc.c         one process: its start, its end, its requests
 *     hear.c         reads what a process writes
 *     fate.c         what becomes of the messages of a process that ends, and what is at fault
 *     suspects.c     which message kills processes
 *     trouble.c      whether the command works
 *     line.c         the format of the lines
 *     child.c        starts and kills processes of the system
 *     warden.c       kills the processes of a worker that has died
 *     stderr_log.c   copies the stderr of processes to the log
 *
 * A process that breaks the protocol, or that must end because of a timeout or a lease, is killed
 * with its whole group. Its messages get their outcomes only when the group is gone. A new process
 * is started when there are messages for it. */
#include "handlers/exec/private.h"
#include "handlers/feed.h"
#include "handlers/section.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { CLOSE_MS = 2000 };

/* --- configuration ---------------------------------------------------------------------------- */

static void check(const struct lw_config *c, struct lw_problems *problems) {
    static const char *const known[] = {"type",  "command",    "processes", "in_flight",
                                        "batch", "timeout_ms", NULL};
    lw_section_known(c->handler.json, known, problems);
    const json_t *command = json_object_get(c->handler.json, "command"), *word;
    if (!json_is_array(command) || !json_array_size(command)) {
        lw_problem(
            problems,
            "handler.command: %s: a non-empty array of strings, as [\"python3\", \"handler.py\"]",
            command ? "must be" : "required");
        return;
    }
    size_t i;
    json_array_foreach(command, i, word) {
        if (!json_is_string(word))
            lw_problem(problems, "handler.command[%zu]: must be a string", i);
        else if (strlen(json_string_value(word)) != json_string_length(word))
            lw_problem(problems, "handler.command[%zu]: holds a NUL character", i);
        else if (i == 0 && !json_string_length(word))
            lw_problem(problems, "handler.command[0]: must be the program to run, and is empty");
    }
}

static char **copy_command(const json_t *command) {
    size_t n = json_array_size(command);
    char **argv = lw_alloc((n + 1) * sizeof *argv);
    for (size_t i = 0; i < n; i++)
        argv[i] = lw_strdup(json_string_value(json_array_get(command, i)));
    return argv;
}

/* Copies the environment and sets LATCHWORK_FDS in the copy. */
static char **copy_environment(void) {
    static char fds[] = "LATCHWORK_FDS=" LW_CHILD_FDS;
    size_t n = 0, name = strlen("LATCHWORK_FDS=");
    while (environ[n]) n++;
    char **envp = lw_alloc((n + 2) * sizeof *envp), **end = envp;
    for (char **e = environ; *e; e++)
        if (strncmp(*e, fds, name) != 0) *end++ = *e;
    *end = fds;
    return envp;
}

/* --- opening and closing ---------------------------------------------------------------------- */

/* Ignores SIGPIPE if the signal has its default action, so that a write to a subprocess that has
 * closed its stdin returns EPIPE and does not end the worker. A SIGPIPE handler that the program
 * has installed stays in place. */
static void survive_sigpipe(void) {
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

static void free_handler(struct lw_handler *h) {
    lw_warden_close(&h->warden);
    if (h->log) lw_stderr_log_close(h->log);
    for (int i = 0; i < h->n_procs; i++) proc_free(&h->procs[i]);
    for (struct request *r = h->free, *next; r; r = next) next = r->next, free(r);
    for (char **a = h->argv; *a; a++) free(*a);
    if (h->epoll >= 0) close(h->epoll);
    if (h->errands >= 0) close(h->errands);
    trouble_close(&h->trouble);
    lw_trial_close(&h->trial);
    suspects_close(&h->suspects);
    lw_exec_said_free(&h->heard);
    free(h->argv);
    free(h->envp);
    free(h->procs);
    free(h->chunk);
    free(h);
}

static int open_loop(struct lw_handler *h, struct lw_err *err) {
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->errands = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->ch_errands = (struct channel){NULL, CH_ERRANDS};
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &h->ch_errands};
    if (h->epoll >= 0 && h->errands >= 0 &&
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->errands, &ev) == 0)
        return 0;
    return lw_fail(err, "exec: epoll: %s", strerror(errno));
}

static void make_procs(struct lw_handler *h, int n) {
    h->n_procs = n;
    h->procs = lw_alloc((size_t)n * sizeof *h->procs);
    for (int i = 0; i < n; i++) {
        h->procs[i] = (struct proc){.h = h,
                                    .index = i,
                                    .child = {.in = -1, .out = -1, .err = -1, .side = -1},
                                    .limit = ANY_COMPANY};
        h->procs[i].table = lw_alloc(request_buckets(h) * sizeof(struct request *));
    }
}

static struct lw_handler *open_handler(const struct lw_config *c, int worker, struct lw_err *err) {
    (void)worker;
    struct lw_handler *h = lw_alloc(sizeof *h);
    h->margin_ms = lw_feed_margin_ms(c->lock.ttl_ms);
    h->timeout_ms = c->handler.timeout_ms;
    h->in_flight = c->handler.in_flight > 0 ? c->handler.in_flight : 1;
    h->batch = c->handler.batch > 0 ? c->handler.batch : 1;
    trouble_open(&h->trouble, c->retry.max_attempts > c->handler.threads ? c->retry.max_attempts
                                                                         : c->handler.threads);
    h->trouble.pause_max_ms = c->retry.backoff_max_ms;
    lw_trial_open(&h->trial, c->handler.threads);
    h->argv = copy_command(json_object_get(c->handler.json, "command"));
    h->envp = copy_environment();
    h->chunk = lw_alloc(EXEC_CHUNK);
    make_procs(h, c->handler.threads);
    survive_sigpipe();
    if (!open_loop(h, err) && !lw_warden_open(&h->warden, h->n_procs, err) &&
        (h->log = lw_stderr_log_open(err)))
        return h;
    free_handler(h);
    return NULL;
}

static int start(struct lw_handler *h, int most, struct lw_err *err) {
    for (; h->n_used < most && h->n_used < h->n_procs; h->n_used++) {
        struct proc *p = &h->procs[h->n_used];
        if (proc_spawn(p, err)) return -1;
        if (exec_watch(p)) return lw_fail(err, "exec: epoll: %s", strerror(errno));
    }
    return 0;
}

/* Closes the stdin of all processes first, so that they end in parallel within one CLOSE_MS. */
static void say_goodbye(struct lw_handler *h) {
    for (int i = 0; i < h->n_procs; i++) {
        struct lw_child *c = &h->procs[i].child;
        if (c->pid <= 0 || c->in < 0) continue;
        close(c->in);
        c->in = -1;
    }
}

static void close_handler(struct lw_handler *h) {
    for (int i = 0; i < h->n_procs; i++) proc_await_errand(&h->procs[i]);
    say_goodbye(h);
    int64_t until = lw_boot_ms() + CLOSE_MS;
    for (int i = 0; i < h->n_procs; i++) lw_child_end(&h->procs[i].child, until, NULL, 0);
    free_handler(h);
}

/* --- what it is asked ------------------------------------------------------------------------- */

static enum lw_health health(struct lw_handler *h, char *why, size_t size) {
    return trouble_health(&h->trouble, why, size);
}

static int loads(const struct lw_handler *h, uint32_t *out, int max) {
    for (int i = 0; i < h->n_procs && i < max; i++)
        out[i] = atomic_load_explicit(&h->procs[i].load, memory_order_relaxed);
    return h->n_procs;
}

static int start_check(struct lw_handler *h, int wait_ms, struct lw_err *err) {
    struct proc *p = &h->procs[0];
    char how[128], text[LW_REASON_MAX];
    for (int64_t until = lw_boot_ms() + wait_ms; lw_boot_ms() < until; lw_sleep_ms(5)) {
        if (!lw_child_ended(&p->child, how, sizeof how)) continue;
        lw_child_end(&p->child, 0, NULL, 0);
        snprintf(text, sizeof text, "its process %s before it was asked anything", how);
        proc_read_last_words(p);
        proc_add_last_words(p, text, sizeof text);
        return lw_fail(err, "%s", text);
    }
    return 0;
}

const struct lw_handler_type lw_handler_exec = {
    .name = "exec",
    .check = check,
    .open = open_handler,
    .start = start,
    .serve = exec_serve,
    .loads = loads,
    .health = health,
    .start_check = start_check,
    .close = close_handler,
};
