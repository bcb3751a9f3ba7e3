/* SPDX-License-Identifier: Apache-2.0 */
/* exec: a handler in any language. A slot drives one long-lived subprocess: request line out, answer line in, one at a time.
 *
 *            spawn                    request            answer
 *   (none) --------> idle process ------------> asked ------------> idle process
 *      ^                  |                        |
 *      +---- ended <------+--- died, talked -------+--- died, bad answer, timed out, lease ended
 *
 * A subprocess that is no longer trusted is ended with its whole group before run() returns, and replaced by the next run.
 *
 * When a process dies with a request, the message is normally at fault and the death costs an attempt.
 * But a command that cannot start (a missing module, a bad path) would turn every message into a dead
 * letter. So a process that never answered anything gives its message back without an attempt if it has
 * not read the request, or if no process of this command has answered recently. The handler is then
 * "unable" for a pause that doubles up to 30 s. After the pause, one message at a time tests it. */
#include "handlers/exec/child.h"
#include "handlers/exec/line.h"
#include "handlers/exec/stderr_log.h"
#include "handlers/exec/warden.h"
#include "handlers/handler.h"
#include "handlers/reason.h"
#include "handlers/section.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 1 << 20,
    LOOK_MS = 20, /* how often a running request checks its lease */
    CANCEL_GRACE_MS = 500,
    LAST_WORDS_MS = 200, /* time to read stderr after stdout was closed */
    CLOSE_MS = 2000,
    BACKOFF_MS = 100,
    BACKOFF_MAX_MS = 5000,
    UNABLE_MS = 500,
    UNABLE_MAX_MS = 30000,
    UNPROVEN = 1 << 20, /* value of `doubt` after a process could not start, until one answers */
};

struct lw_handler {
    char **argv;
    int64_t margin_ms, timeout_ms;
    struct lw_warden warden;
    struct lw_stderr_log *log;
    struct lw_slot **slots;
    int n_slots;
    int64_t closing_ms; /* by this time all processes must have ended; 0: not closing */
    _Atomic int doubt;  /* processes in a row that ended without ever answering */
    int doubt_max;      /* while `doubt` is not above this, failures are blamed on messages */
    /* True while the handler is unable. The lock guards the members below. */
    atomic_bool unable;
    _Atomic int64_t unable_until_ms;
    pthread_mutex_t lock;
    int64_t unable_ms; /* length of the present pause */
    char trouble[LW_REASON_MAX];
};

struct lw_slot {
    int index;
    struct lw_child child;
    struct lw_last_words *words; /* last stderr line of the process; NULL: none was started yet */
    struct lw_buf said;          /* bytes of stdout that do not make a line yet */
    bool answered;               /* this process has answered at least one request */
    int useless;                 /* processes in a row that ended without an answer */
    int64_t start_ms;            /* earliest time of the next start */
};

/* --- configuration ------------------------------------------------------------------------------------------------------------ */

static void check(const struct lw_config *c, struct lw_problems *problems) {
    static const char *const known[] = {"type", "command", "processes", "timeout_ms", NULL};
    lw_section_known(c->handler.json, known, problems);
    const json_t *command = json_object_get(c->handler.json, "command"), *word;
    if (!json_is_array(command) || !json_array_size(command)) {
        lw_problem(problems, "handler.command: %s: a non-empty array of strings, as [\"python3\", \"handler.py\"]",
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
    for (size_t i = 0; i < n; i++) argv[i] = lw_strdup(json_string_value(json_array_get(command, i)));
    return argv;
}

/* --- opening and closing ------------------------------------------------------------------------------------------------------- */

/* Ignores SIGPIPE, so that a subprocess that closed its stdin causes an EPIPE and does not end the
 * worker. A handler that the program installed stays. */
static void survive_sigpipe(void) {
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

static void close_handler(struct lw_handler *h) {
    pthread_mutex_destroy(&h->lock);
    lw_warden_close(&h->warden);
    if (h->log) lw_stderr_log_close(h->log);
    for (char **a = h->argv; *a; a++) free(*a);
    free(h->argv);
    free(h->slots);
    free(h);
}

static struct lw_handler *open_handler(const struct lw_config *c, int worker, struct lw_err *err) {
    (void)worker;
    struct lw_handler *h = lw_alloc(sizeof *h);
    int64_t tenth = c->lock.ttl_ms / 10;
    h->margin_ms = tenth > 50 ? tenth : 50;
    h->timeout_ms = c->handler.timeout_ms;
    pthread_mutex_init(&h->lock, NULL);
    h->doubt = UNPROVEN;
    h->doubt_max = c->retry.max_attempts > c->handler.threads ? c->retry.max_attempts : c->handler.threads;
    h->argv = copy_command(json_object_get(c->handler.json, "command"));
    h->n_slots = c->handler.threads;
    h->slots = lw_alloc((size_t)h->n_slots * sizeof(struct lw_slot *));
    survive_sigpipe();
    if (lw_warden_open(&h->warden, h->n_slots, err) || !(h->log = lw_stderr_log_open(err))) {
        close_handler(h);
        return NULL;
    }
    return h;
}

static int start(struct lw_handler *h, struct lw_slot *s, struct lw_err *err) {
    if (lw_child_spawn(&s->child, h->argv, &h->warden.groups[s->index], err)) return -1;
    char label[48];
    snprintf(label, sizeof label, "handler %d[%d]", s->index, (int)s->child.pid);
    lw_last_words_drop(s->words);
    s->words = lw_stderr_log_add(h->log, s->child.err, label);
    s->child.err = -1;
    s->said.n = 0;
    s->answered = false;
    return 0;
}

/* Ends the process: it may end by itself until `until_ms`. Then sets the earliest time of the next
 * start. */
static void end(struct lw_slot *s, int64_t until_ms, char *text, size_t size) {
    lw_child_end(&s->child, until_ms, text, size);
    s->useless = s->answered ? 0 : s->useless + 1;
    if (s->useless < 2) return;
    int shift = s->useless - 2;
    int64_t wait = shift > 10 ? BACKOFF_MAX_MS : (int64_t)BACKOFF_MS << shift;
    if (wait > BACKOFF_MAX_MS) wait = BACKOFF_MAX_MS;
    s->start_ms = lw_boot_ms() + wait;
    lw_warn("handler %d: %d processes in a row ended without an answer; the next starts in %" PRId64 " ms", s->index, s->useless, wait);
}

static struct lw_slot *open_slot(struct lw_handler *h, int index, struct lw_err *err) {
    if (index < 0 || index >= h->n_slots) {
        lw_fail(err, "exec: slot %d of %d", index, h->n_slots);
        return NULL;
    }
    struct lw_slot *s = lw_alloc(sizeof *s);
    s->index = index;
    if (start(h, s, err)) {
        free(s);
        return NULL;
    }
    h->slots[index] = s;
    return s;
}

/* On the first call, closes the input of all processes, so that they end side by side within one
 * CLOSE_MS. */
static void say_goodbye(struct lw_handler *h) {
    if (h->closing_ms) return;
    h->closing_ms = lw_boot_ms() + CLOSE_MS;
    for (int i = 0; i < h->n_slots; i++) {
        struct lw_slot *s = h->slots[i];
        if (!s || s->child.pid <= 0) continue;
        close(s->child.in);
        s->child.in = -1;
    }
}

static void close_slot(struct lw_handler *h, struct lw_slot *s) {
    say_goodbye(h);
    lw_child_end(&s->child, h->closing_ms, NULL, 0);
    h->slots[s->index] = NULL;
    lw_last_words_drop(s->words);
    lw_buf_free(&s->said);
    free(s);
}

/* --- can it work at all? ------------------------------------------------------------------------------------------------------------ */

static void add_last_words(struct lw_slot *s, char *text, size_t size) {
    char words[256] = "";
    if (s->words) lw_last_words_get(s->words, LAST_WORDS_MS, words, sizeof words);
    size_t n = strlen(text);
    if (words[0] && n < size) snprintf(text + n, size - n, ": %s", words);
}

/* Starts a pause. Processes of other slots that fail during the pause do not extend it. */
static void become_unable(struct lw_handler *h, const char *why) {
    int64_t now = lw_boot_ms();
    pthread_mutex_lock(&h->lock);
    snprintf(h->trouble, sizeof h->trouble, "%s", why);
    if (!h->unable || now >= h->unable_until_ms) {
        h->unable_ms = !h->unable ? UNABLE_MS : 2 * h->unable_ms < UNABLE_MAX_MS ? 2 * h->unable_ms : UNABLE_MAX_MS;
        h->unable_until_ms = now + h->unable_ms;
        h->unable = true;
        lw_warn("handler: %s; pausing for %" PRId64 " ms, then one message tests it", why, h->unable_ms);
    }
    pthread_mutex_unlock(&h->lock);
}

static void has_answered(struct lw_handler *h) {
    atomic_store(&h->doubt, 0);
    if (!atomic_load(&h->unable)) return;
    pthread_mutex_lock(&h->lock);
    if (h->unable) lw_info("handler: a process has answered; resuming");
    h->unable = false;
    pthread_mutex_unlock(&h->lock);
}

static enum lw_health health(struct lw_handler *h, char *why, size_t size) {
    if (!atomic_load(&h->unable)) return LW_WELL;
    int64_t left = atomic_load(&h->unable_until_ms) - lw_boot_ms();
    if (why) {
        pthread_mutex_lock(&h->lock);
        snprintf(why, size, "handler: %s", h->trouble);
        pthread_mutex_unlock(&h->lock);
    }
    return left > 0 ? LW_UNABLE : LW_ON_TRIAL;
}

static int slot_check(struct lw_handler *h, struct lw_slot *s, int wait_ms, struct lw_err *err) {
    (void)h;
    char how[128], text[LW_REASON_MAX];
    for (int64_t until = lw_boot_ms() + wait_ms; lw_boot_ms() < until; lw_sleep_ms(5)) {
        if (!lw_child_ended(&s->child, how, sizeof how)) continue;
        lw_child_end(&s->child, 0, NULL, 0);
        snprintf(text, sizeof text, "its process %s before it was asked anything", how);
        add_last_words(s, text, sizeof text);
        return lw_fail(err, "%s", text);
    }
    return 0;
}

/* --- one request --------------------------------------------------------------------------------------------------------------- */

struct request {
    struct lw_handler *h;
    struct lw_slot *s;
    struct lw_job *job;
    struct lw_buf text;
    size_t sent;
    bool deaf;        /* the process closed its stdin */
    int64_t grace_ms; /* it was told of the cancellation and may answer until then; 0: it was not told */
};

/* When the group has to be killed in order to be gone before the lease ends. Moves on while the
 * lease is renewed. */
static int64_t lease_end(const struct request *r) { return atomic_load(&r->job->lease->deadline_ms) - r->h->margin_ms; }

/* True if the process has not read a byte of the request, so the request cannot be why it failed. */
static bool unread(const struct request *r) {
    int left = 0;
    if (!r->sent) return true;
    return r->s->child.in >= 0 && ioctl(r->s->child.in, FIONREAD, &left) == 0 && (size_t)left >= r->sent;
}

/* True if the process failed because of the command and not because of its message. */
static bool is_innocent(const struct request *r) {
    struct lw_handler *h = r->h;
    if (r->s->answered) return false;
    if (unread(r)) atomic_store(&h->doubt, UNPROVEN);
    return atomic_fetch_add(&h->doubt, 1) >= h->doubt_max;
}

/* Gives a message back without an attempt, because it is not at fault. The whole handler pauses, so
 * the slot needs no backoff of its own. */
static void give_back(struct request *r, const char *why) {
    r->s->start_ms = 0;
    r->s->useless = 0;
    become_unable(r->h, why);
    lw_job_answer(r->job, LW_BACK, "");
}

/* Whether the time is over. If so, the process is gone and the job has its outcome. */
static bool time_up(struct request *r, int64_t now) {
    bool lost = now >= lease_end(r) || (r->grace_ms && now >= r->grace_ms);
    bool late = now >= r->job->give_up_ms;
    if (!lost && !late) return false;
    bool never_read = !lost && !r->grace_ms && !r->s->answered && unread(r);
    end(r->s, 0, NULL, 0);
    r->s->useless = 0; /* we ended the process, so this does not show that it cannot work */
    char why[LW_REASON_MAX] = "";
    if (never_read) {
        atomic_store(&r->h->doubt, UNPROVEN);
        snprintf(why, sizeof why, "its process did not read its first request within %" PRId64 " ms", r->h->timeout_ms);
        add_last_words(r->s, why, sizeof why);
        give_back(r, why);
        return true;
    }
    if (!lost) snprintf(why, sizeof why, "timed out after %" PRId64 " ms", r->h->timeout_ms);
    lw_job_answer(r->job, lost || r->grace_ms ? LW_BACK : LW_RETRY, lost || r->grace_ms ? "" : why);
    return true;
}

static void tell_cancelled(struct request *r, int64_t now) {
    if (r->grace_ms || !atomic_load(&r->job->lease->cancelled)) return;
    lw_exec_cancel(&r->text, r->job);
    r->grace_ms = now + CANCEL_GRACE_MS;
}

static void send_some(struct request *r) {
    while (r->sent < r->text.n && !r->deaf) {
        ssize_t n = write(r->s->child.in, r->text.p + r->sent, r->text.n - r->sent);
        if (n > 0)
            r->sent += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno == EAGAIN)
            return;
        else
            r->deaf = true;
    }
}

enum heard { HEARD_NOTHING, HEARD_SOME, HEARD_END };

static enum heard hear(struct lw_slot *s) {
    char chunk[16384];
    ssize_t n = read(s->child.out, chunk, sizeof chunk);
    if (n > 0) return lw_buf_add(&s->said, chunk, (size_t)n), HEARD_SOME;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? HEARD_NOTHING : HEARD_END;
}

static bool blank(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r' && p[i] != '\n') return false;
    return true;
}

static void forget_said(struct lw_slot *s, size_t n) {
    s->said.n -= n;
    memmove(s->said.p, s->said.p + n, s->said.n);
}

/* The process broke the protocol or died: replaces it and has the job tried again with that reason.
 * If the lease was lost meanwhile, no attempt is counted. */
static void fail(struct request *r, const char *reason) {
    lw_job_answer(r->job, r->grace_ms ? LW_BACK : LW_RETRY, r->grace_ms ? "" : reason);
    lw_warn("handler %d: %s; the process is replaced", r->s->index, reason);
}

static void fail_talk(struct request *r, const char *reason) {
    end(r->s, 0, NULL, 0);
    fail(r, reason);
}

static void fail_end(struct request *r) {
    char how[128], reason[LW_REASON_MAX];
    int64_t until = lw_boot_ms() + LAST_WORDS_MS, stop = lease_end(r);
    bool itself = lw_child_ended(&r->s->child, how, sizeof how), innocent = is_innocent(r);
    end(r->s, until < stop ? until : stop, how, sizeof how);
    if (!itself && strcmp(how, "was killed") == 0) snprintf(how, sizeof how, "closed its stdout");
    snprintf(reason, sizeof reason, innocent ? "its process %s before it ever answered" : "handler process %s before it answered", how);
    add_last_words(r->s, reason, sizeof reason);
    if (innocent && !r->grace_ms)
        give_back(r, reason);
    else
        fail(r, reason);
}

static void take_answer(struct request *r, struct lw_bytes line) {
    struct lw_err err = {0};
    enum lw_outcome outcome;
    char reason[LW_REASON_MAX];
    if (lw_exec_answer(line, r->job->identity, &outcome, reason, &err)) {
        fail_talk(r, err.text);
        return;
    }
    r->s->answered = true;
    r->s->useless = 0;
    has_answered(r->h);
    /* The lease is lost. An effect that has happened counts all the same; anything else is left to
     * the next holder. */
    if (r->grace_ms && outcome != LW_DONE)
        lw_job_answer(r->job, LW_BACK, "");
    else
        lw_job_answer(r->job, outcome, reason);
    if (r->sent < r->text.n) end(r->s, 0, NULL, 0); /* part of the request was not sent, so this pipe cannot carry another one */
}

/* Looks for a complete line. Returns true if the job has its outcome. */
static bool find_answer(struct request *r, size_t *scanned) {
    struct lw_slot *s = r->s;
    for (;;) {
        char *nl = s->said.n > *scanned ? memchr(s->said.p + *scanned, '\n', s->said.n - *scanned) : NULL;
        size_t n = nl ? (size_t)(nl - s->said.p) : s->said.n;
        if (n > ANSWER_MAX) return fail_talk(r, "handler's answer is longer than 1 MiB"), true;
        *scanned = n;
        if (!nl) return false;
        if (blank(s->said.p, n)) {
            forget_said(s, n + 1);
            *scanned = 0;
            continue;
        }
        take_answer(r, lw_bytes(s->said.p, n));
        if (s->child.pid > 0) forget_said(s, n + 1);
        return true;
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Waits for something to do, at most until the next check of the lease. */
static void wait_turn(const struct request *r, int64_t now, bool *readable) {
    struct pollfd pf[2] = {{.fd = r->s->child.out, .events = POLLIN}, {.fd = r->s->child.in, .events = POLLOUT}};
    int64_t until = least(least(now + LOOK_MS, lease_end(r)), r->job->give_up_ms);
    if (r->grace_ms) until = least(until, r->grace_ms);
    bool sending = r->sent < r->text.n && !r->deaf;
    int n = poll(pf, sending ? 2 : 1, until > now ? (int)(until - now) : 0);
    *readable = n > 0 && pf[0].revents;
}

/* Exchanges lines with the process until the job has its outcome. */
static void converse(struct request *r) {
    size_t scanned = 0;
    for (;;) {
        int64_t now = lw_boot_ms();
        if (time_up(r, now)) return;
        tell_cancelled(r, now);
        send_some(r);
        bool readable;
        wait_turn(r, now, &readable);
        enum heard heard = readable ? hear(r->s) : HEARD_NOTHING;
        if (heard == HEARD_SOME && find_answer(r, &scanned)) return;
        /* a grandchild may hold stdout open, so the end of the process itself counts */
        if (heard == HEARD_NOTHING && lw_child_ended(&r->s->child, NULL, 0)) heard = hear(r->s) == HEARD_SOME ? HEARD_SOME : HEARD_END;
        if (heard == HEARD_SOME && find_answer(r, &scanned)) return;
        if (heard == HEARD_END) {
            fail_end(r);
            return;
        }
    }
}

/* Checks a process between requests. One that writes or has ended is replaced, and no message is
 * blamed. */
static void look_after(struct lw_slot *s) {
    if (s->child.pid <= 0) return;
    enum heard heard;
    do heard = hear(s);
    while (heard == HEARD_SOME && s->said.n <= ANSWER_MAX);
    bool silent = blank(s->said.p, s->said.n);
    s->said.n = silent ? 0 : s->said.n;
    char how[128];
    if (heard == HEARD_END || lw_child_ended(&s->child, how, sizeof how)) {
        end(s, lw_boot_ms() + LAST_WORDS_MS, how, sizeof how);
        lw_warn("handler %d: the process %s while it had nothing to do; it is replaced", s->index, how);
    } else if (!silent) {
        end(s, 0, NULL, 0);
        lw_warn("handler %d: the process wrote on stdout though nothing was asked; it is replaced", s->index);
    }
}

/* Waits until the next start is allowed. Returns false if the lease or the time ended first: the
 * job was not run. */
static bool wait_start(const struct request *r) {
    for (;;) {
        int64_t now = lw_boot_ms(), left = r->s->start_ms - now;
        if (now >= lease_end(r) || now >= r->job->give_up_ms || atomic_load(&r->job->lease->cancelled)) return false;
        if (left <= 0) return true;
        lw_sleep_ms(least(left, LOOK_MS));
    }
}

/* Makes sure that a process runs. Returns false if there is none: the job has its outcome then. */
static bool ready(struct request *r) {
    bool unable = atomic_load(&r->h->unable) && lw_boot_ms() < atomic_load(&r->h->unable_until_ms);
    if (unable || lw_boot_ms() >= lease_end(r)) return lw_job_answer(r->job, LW_BACK, ""), false;
    look_after(r->s);
    if (r->s->child.pid <= 0 && !wait_start(r)) return lw_job_answer(r->job, LW_BACK, ""), false;
    if (r->s->child.pid > 0) return true;
    struct lw_err err = {0};
    if (start(r->h, r->s, &err) == 0) return true;
    give_back(r, err.text);
    return false;
}

static void run(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct request r = {.h = h, .s = s, .job = jobs[i]};
        if (!ready(&r)) continue;
        lw_last_words_clear(s->words);
        lw_exec_request(&r.text, jobs[i]);
        converse(&r);
        lw_buf_free(&r.text);
    }
}

static size_t batch_max(const struct lw_handler *h) {
    (void)h;
    return 1;
}

const struct lw_handler_type lw_handler_exec = {
    .name = "exec",
    .check = check,
    .open = open_handler,
    .slot_open = open_slot,
    .batch_max = batch_max,
    .run = run,
    .health = health,
    .slot_check = slot_check,
    .slot_close = close_slot,
    .close = close_handler,
};
