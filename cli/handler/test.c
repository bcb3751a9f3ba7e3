/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork handler test`. */
#include "cli/check/check.h"
#include "cli/handler/handler.h"
#include "cli/handler/private.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 10, SIGNALLED = 128 };

/* number of the signal that ends the test; 0: no signal was received */
static volatile sig_atomic_t stopped;
static void stop(int sig) { stopped = sig; }

/* The state of one run of the test. */
struct trial {
    const struct handler_args *a;
    char messages_path[PATH_MAX];
    struct lw_config *c;
    struct handler_messages messages;
    struct handler_scratch scratch;
    struct handler_plan *plan;
    size_t plan_size;
    /* shared memory in which the seats of the first worker name the messages that handlers are
     * processing */
    struct lw_board *board;
    struct lw_err err;
};

/* --- configuration and messages --------------------------------------------------------------- */

/* Finds the file of messages: the argument or, without an argument, messages.jsonl in the folder of
 * the configuration. */
static void find_messages(struct trial *t) {
    const struct cli_args *cli = &t->a->cli;
    const char *slash = strrchr(cli->config, '/');
    if (cli->n_words)
        snprintf(t->messages_path, sizeof t->messages_path, "%s", cli->words[0]);
    else
        snprintf(t->messages_path, sizeof t->messages_path, "%.*smessages.jsonl",
                 slash ? (int)(slash + 1 - cli->config) : 0, cli->config);
}

/* Loads the configuration. For an insert handler, replaces the configured store by a temporary one.
 * Returns 0, or the exit status of a failure. */
static int load_config(struct trial *t) {
    t->c = cli_config(&t->a->cli);
    if (!t->c) return CLI_USAGE;
    if (handler_scratch_open(&t->scratch, t->c, &t->err)) {
        fprintf(stderr, "latchwork handler test: %s\n", t->err.text);
        return t->err.permanent ? CLI_USAGE : CLI_FAILED;
    }
    struct cli_args own = t->a->cli;
    if (t->scratch.store[0])
        own.set[own.n_set++] = (struct lw_override){"handler.store", t->scratch.store};
    if (t->scratch.table[0])
        own.set[own.n_set++] = (struct lw_override){"handler.table", t->scratch.table};
    if (own.n_set == t->a->cli.n_set) return 0;
    lw_config_free(t->c);
    t->c = cli_config(&own);
    return t->c ? 0 : CLI_USAGE;
}

static int load_messages(struct trial *t) {
    struct lw_problems problems = {0};
    int bad = handler_messages_read(&t->messages, t->c, t->messages_path, &problems);
    if (problems.errors.n) fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return bad ? CLI_USAGE : 0;
}

/* --- the plan --------------------------------------------------------------------------------- */

static void plan_delivery(struct trial *t, struct handler_delivery *d, size_t i, uint64_t fence) {
    /* `elsewhere` is the offset of the first new message of ROUND_STALE. It is larger than any
     * offset that the file of messages is likely to contain. */
    static const int64_t elsewhere = 1000000000000;
    const struct handler_message *m = &t->messages.m[i];
    bool stale = d->round == ROUND_STALE;
    d->m = m;
    d->offset = stale ? elsewhere + (int64_t)i : m->offset;
    d->fence = stale ? fence - 1 - i : fence + (uint64_t)d->round * t->messages.n + i;
    snprintf(d->identity, sizeof d->identity, "%.250s/%d/%lld", m->topic, m->partition,
             (long long)d->offset);
    if (!m->decided) return;
    snprintf(d->reason, sizeof d->reason, "%s", m->why);
    atomic_store(&d->result, (int)m->decided);
}

/* Writes all deliveries to shared memory. Fences begin with the time in µs since 1970, because the
 * fences from Redis are such times, too. */
static int make_plan(struct trial *t) {
    int rounds = t->a->chaos ? ROUNDS : 1;
    size_t n = t->messages.n;
    t->plan_size = sizeof *t->plan + n * (size_t)rounds * sizeof *t->plan->d;
    t->plan = mmap(NULL, t->plan_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t->plan == MAP_FAILED) {
        t->plan = NULL;
        return lw_fail(&t->err, "cannot map shared memory for %zu messages: %s", n,
                       strerror(errno));
    }
    t->plan->n = n;
    t->plan->rounds = rounds;
    uint64_t fence = (uint64_t)lw_wall_ms() * 1000;
    for (size_t i = 0; i < n * (size_t)rounds; i++) {
        t->plan->d[i].round = (enum handler_round)(i / n);
        plan_delivery(t, &t->plan->d[i], i % n, fence);
    }
    t->board = lw_board_open(1, &t->err);
    return t->board ? 0 : -1;
}

/* --- the rig's process ------------------------------------------------------------------------ */

static pid_t start_rig(struct trial *t) {
    pid_t parent = getpid();
    atomic_store(&t->plan->end, END_NONE);
    fflush(NULL);
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (getppid() != parent) _exit(CLI_FAILED);
    handler_rig(t->c, t->plan, &t->board->workers[0]);
    _exit(0);
}

/* Waits until the rig has ended, and meanwhile prints each delivery that is finished. If a signal
 * ends the test, kills the rig. */
static int wait_for_rig(struct handler_report *r, pid_t pid) {
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        handler_report_more(r);
        if (stopped) kill(pid, SIGKILL);
        lw_sleep_ms(LOOK_MS);
    }
    return status;
}

/* Returns the delivery with this identity that has no result yet, or NULL if there is no such
 * delivery. */
static struct handler_delivery *find_delivery(struct trial *t, const char *identity) {
    size_t n = t->plan->n * (size_t)t->plan->rounds;
    for (size_t i = 0; i < n; i++) {
        struct handler_delivery *d = &t->plan->d[i];
        if (!atomic_load(&d->result) && strcmp(d->identity, identity) == 0) return d;
    }
    return NULL;
}

/* Finds the messages that were in a handler when the rig ended. The rig is the process that runs
 * the handler under test. If there was only one such message, it gets `result`. If there were
 * several, each of them runs alone after the rig is restarted. Returns false if no message was in a
 * handler. */
static bool charge(struct trial *t, enum handler_result result, const char *why) {
    struct handler_delivery *found[LW_BOARD_SEATS];
    int n = 0;
    for (int i = 0; i < LW_BOARD_SEATS; i++) {
        struct lw_seat *s = &t->board->workers[0].seats[i];
        if (!atomic_load(&s->busy)) continue;
        lw_seat_leave(s);
        struct handler_delivery *d = find_delivery(t, s->identity);
        if (d) found[n++] = d;
    }
    for (int i = 0; i < n; i++) found[i]->alone = true;
    if (n != 1) return n > 0;
    snprintf(found[0]->reason, sizeof found[0]->reason, "%s", why);
    atomic_store(&found[0]->result, (int)result);
    return true;
}

/* Decides how the test continues after the end of the rig, which is the process that runs the
 * handler under test. Returns true if the rig must be started again for the remaining
 * deliveries. */
static bool goes_on(struct trial *t, int status) {
    char why[LW_REASON_MAX];
    int end = atomic_load(&t->plan->end);
    if (end == END_GOOD || end == END_GAVE_UP) return false;
    if (end == END_STUCK)
        snprintf(why, sizeof why,
                 "the handler did not return after handler.timeout_ms or a cancellation");
    else if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "the handler died of signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(why, sizeof why, "the handler ended the process with status %d",
                 WEXITSTATUS(status));
    if (charge(t, end == END_STUCK ? RESULT_STUCK : RESULT_CRASHED, why)) return true;
    snprintf(t->plan->failure, sizeof t->plan->failure, "%s while it had no message", why);
    return false;
}

static int run_plan(struct trial *t) {
    struct handler_report r = {
        .plan = t->plan, .messages = t->messages_path, .json = t->a->cli.json};
    bool more = true;
    while (more && !stopped) {
        pid_t pid = start_rig(t);
        if (pid < 0) return lw_fail(&t->err, "fork: %s", strerror(errno)), CLI_FAILED;
        int status = wait_for_rig(&r, pid);
        more = !stopped && goes_on(t, status);
        handler_report_more(&r);
    }
    if (stopped) return SIGNALLED + stopped;
    if (t->plan->failure[0]) fprintf(stderr, "latchwork handler test: %s\n", t->plan->failure);
    return handler_report_end(&r) ? 0 : CLI_FAILED;
}

/* --- the verb --------------------------------------------------------------------------------- */

static void close_trial(struct trial *t) {
    if (t->plan) munmap(t->plan, t->plan_size);
    lw_board_close(t->board);
    handler_messages_free(&t->messages);
    handler_scratch_close(&t->scratch);
    if (t->c) lw_config_free(t->c);
}

static int run_once(const struct handler_args *a, struct handler_watch *w) {
    struct trial t = {.a = a};
    find_messages(&t);
    int status = load_config(&t);
    if (w) handler_watch_begin(w, a->cli.config, t.messages_path, t.c);
    if (!status) status = load_messages(&t);
    if (!status && make_plan(&t)) status = CLI_FAILED;
    if (!status) status = run_plan(&t);
    if (t.err.text[0] && status == CLI_FAILED)
        fprintf(stderr, "latchwork handler test: %s\n", t.err.text);
    close_trial(&t);
    if (w) handler_watch_run_over(w);
    return status;
}

/* Waits until a file has changed and the test can run again. If a changed source file is newer than
 * the program, the program must be built first, so the wait continues. Returns the name of the
 * changed file, or NULL if a signal ends the test. */
static const char *wait_for_change(struct handler_watch *w) {
    const char *name, *binary;
    while ((name = handler_watch_wait(w, &stopped)) && (binary = handler_watch_unbuilt(w, name)))
        fprintf(stderr, "-- %s is newer than %s: build it --\n", name, binary);
    return name;
}

static int watch(const struct handler_args *a) {
    struct lw_err err = {0};
    struct handler_watch *w = handler_watch_open(&err);
    if (!w) {
        fprintf(stderr, "latchwork handler test: %s\n", err.text);
        return CLI_FAILED;
    }
    while (!stopped) {
        run_once(a, w);
        if (!stopped && !a->cli.json) printf("-- waiting for a changed file; Ctrl-C ends --\n");
        fflush(stdout);
        const char *name = wait_for_change(w);
        if (name && !a->cli.json) printf("\n-- %s has changed --\n", name);
    }
    handler_watch_close(w);
    return SIGNALLED + stopped;
}

int handler_test(const struct handler_args *a) {
    struct sigaction end = {.sa_handler = stop};
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    int status = a->watch ? watch(a) : run_once(a, NULL);
    return cli_written(&a->cli, status);
}
