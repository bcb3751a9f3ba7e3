/* SPDX-License-Identifier: Apache-2.0 */
/* hear: reads what processes write. Each line must be a hello or contain answers to messages. A
 * process that writes anything else is ended, except where a malformed line names its message: then
 * only this message fails. */
#include "handlers/exec/private.h"

#include "base/log.h"
#include "handlers/reason.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20, VERSION = 1 };

static bool blank(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r' && p[i] != '\n') return false;
    return true;
}

/* --- answers ---------------------------------------------------------------------------------- */

static void copy_reason(struct lw_job *job, struct lw_bytes reason) {
    static const char *const usual[] = {
        [LW_RETRY] = "handler asked for a retry", [LW_DEAD] = "handler gave the message up"};
    char text[LW_REASON_MAX + 4] = "";
    if (job->outcome == LW_DONE) {
        job->reason[0] = '\0';
        return;
    }
    size_t n = reason.n < sizeof text - 1 ? reason.n : sizeof text - 1;
    if (n) memcpy(text, reason.p, n);
    lw_reason_copy(job->reason, text[0] ? text : usual[job->outcome]);
}

/* Takes one answer from a line. `left` is the number of answers in the line that are not taken yet,
 * including this answer. The time since the last answer or, if there was none, since the request
 * was sent, is divided equally among the messages of these answers. If the message is not done, its
 * request is over. A malformed answer does not show that the command works. */
static void take_answer(struct request *r, const struct lw_exec_answer *a, size_t left) {
    struct lw_handler *h = r->p->h;
    struct lw_job *job = r->jobs[r->at];
    int64_t took_us = (h->now_us - r->begun_us) / (int64_t)left;
    if (!a->malformed) {
        r->p->answered = true;
        r->p->useless = 0;
        trouble_answered(&h->trouble);
        lw_trial_succeeded(&h->trial, job->identity);
        if (h->suspects.n) suspects_drop(&h->suspects, job->identity);
    }
    job->outcome = a->outcome;
    copy_reason(job, a->reason);
    if (a->outcome == LW_RETRY && !r->grace_ms) {
        job->wait_ms = a->retry.wait_ms;
        job->uncounted = a->retry.uncounted;
    }
    if (r->grace_ms && a->outcome != LW_DONE) {
        /* After a cancellation only "done" counts, because it says that the handler's effect has
         * happened. Replace any other outcome. A reason may say what took the time. */
        char text[sizeof job->reason + 64];
        snprintf(text, sizeof text, "timed out after %" PRId64 " ms%s%s", h->timeout_ms,
                 a->reason.n ? ": " : "", a->reason.n ? job->reason : "");
        job->outcome = r->late ? LW_RETRY : LW_BACK;
        lw_reason_copy(job->reason, r->late ? text : "");
    }
    r->begun_us += took_us;
    exec_ended(r, took_us);
}

static const char out_of_turn[] = "wrote a line although it had no request";

static void foreign(struct proc *p, struct lw_bytes id) {
    char text[200];
    snprintf(text, sizeof text, "handler answered for another message: \"%.*s\"",
             id.n < 128 ? (int)id.n : 128, id.p);
    exec_wrong(p, NULL, p->n_requests ? text : out_of_turn);
}

/* Ignores an answer that came too late: the attempt that it belongs to has ended. */
static void ignore(const struct proc *p, const struct lw_exec_answer *a) {
    lw_warn_some(3,
                 "handler %d: ignoring an answer for %.*s that came too late: the attempt that it "
                 "answers has ended",
                 p->index, a->id.n < 128 ? (int)a->id.n : 128, a->id.p);
}

/* Takes the answers of a line. An answer for a message that this process had before, or for another
 * attempt, ends nothing. Such answers are usual behind a member of a batch that is not done. */
static void take_answers(struct proc *p, const struct lw_exec_said *said) {
    bool cut = false;
    for (size_t i = 0; i < said->n && p->state == PROC_UP; i++) {
        const struct lw_exec_answer *a = &said->answers[i];
        struct request *r = request_find(p, a->id);
        if (r && (!a->attempt || a->attempt == r->jobs[r->at]->attempt)) {
            cut |= a->outcome != LW_DONE;
            take_answer(r, a, said->n - i);
        } else if (!r && !proc_has_ended(p, a->id)) {
            foreign(p, a->id);
        } else if (!cut) {
            ignore(p, a);
        }
    }
}

/* --- hello ------------------------------------------------------------------------------------ */

/* Takes the hello of a process. From then on the process answers on its descriptor 4, and its
 * stdout goes to the log. */
static void greet(struct proc *p, int version) {
    char text[96], label[64];
    if (version != VERSION) {
        snprintf(text, sizeof text,
                 "handler speaks version %d of the protocol, this Latchwork version %d", version,
                 VERSION);
        exec_wrong(p, NULL, text);
        /* the command is at fault, because it speaks another version of the protocol */
        p->innocent = true;
        return;
    }
    if (p->hello) return;
    p->hello = true;
    snprintf(label, sizeof label, "handler %d[%d] stdout", p->index, (int)p->child.pid);
    if (p->said.text.n)
        lw_info("%s: %.*s", label, p->said.text.n < 1000 ? (int)p->said.text.n : 1000,
                p->said.text.p);
    lw_buf_clear(&p->said.text);
    p->said.scanned = 0;
    if (p->child.out < 0) return;
    epoll_ctl(p->h->epoll, EPOLL_CTL_DEL, p->child.out, NULL);
    p->out_words = lw_stderr_log_add(p->h->log, p->child.out, label);
    p->child.out = -1;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* Adds a hint to the error for a malformed line on stdout. Programs often print such a line before
 * they load the SDK, which then keeps printed text out of the protocol. */
static void hint(struct lw_err *err) {
    size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, "; was it printed before the SDK was loaded?");
}

static void take_line(struct proc *p, enum channel_kind from, struct lw_bytes line) {
    struct lw_handler *h = p->h;
    struct lw_err err = {0};
    int bad = lw_exec_read(&h->heard, line, &err);
    if (bad && from != CH_SIDE) hint(&err);
    if (!bad && from == CH_SIDE && h->heard.hello) {
        greet(p, h->heard.hello);
        return;
    }
    if (p->n_requests && h->heard.hello)
        exec_wrong(p, NULL, "handler says \"hello\" on stdout; it belongs on descriptor 4");
    else if (p->n_requests && from == CH_SIDE && !p->hello)
        exec_wrong(p, NULL, "handler answers on descriptor 4 without a \"hello\"");
    else
        take_answers(p, &h->heard);
    if (p->state == PROC_UP && (bad || h->heard.hello))
        exec_wrong(p, NULL, p->n_requests ? err.text : out_of_turn);
}

/* Takes the complete lines of `text`. The first `scanned` bytes are known to contain no newline.
 * Returns how many bytes were taken. */
static size_t take_lines(struct proc *p, enum channel_kind from, struct lw_bytes text,
                         size_t scanned) {
    size_t at = 0;
    while (p->state == PROC_UP && at < text.n) {
        const char *nl = memchr(text.p + at + scanned, '\n', text.n - at - scanned);
        size_t n = nl ? (size_t)(nl - text.p) - at : text.n - at;
        if (n > ANSWER_MAX) {
            exec_wrong(p, NULL, "handler's answer is longer than 1 MiB");
            return at;
        }
        if (!nl) break;
        if (!blank(text.p + at, n)) take_line(p, from, lw_bytes(text.p + at, n));
        at += n + 1;
        scanned = 0;
    }
    return at;
}

static void keep(struct said *s, struct lw_bytes rest) {
    memmove(s->text.p, rest.p, rest.n);
    s->text.n = s->scanned = rest.n;
    if (!rest.n) lw_buf_clear(&s->text);
}

static void take_bytes(struct proc *p, enum channel_kind from, struct lw_bytes chunk) {
    struct said *s = from == CH_SIDE ? &p->side : &p->said;
    if (!s->text.n) {
        /* Lines are read in place, without a copy, unless an incomplete line was left by the last
         * read. */
        size_t used = take_lines(p, from, chunk, 0);
        if (used < chunk.n) lw_buf_add(&s->text, chunk.p + used, chunk.n - used);
        s->scanned = s->text.n;
        return;
    }
    lw_buf_add(&s->text, chunk.p, chunk.n);
    size_t used = take_lines(p, from, lw_bytes(s->text.p, s->text.n), s->scanned);
    if (used <= s->text.n) keep(s, lw_bytes(s->text.p + used, s->text.n - used));
}

static enum heard hear(struct proc *p, enum channel_kind from) {
    int fd = from == CH_SIDE ? p->child.side : p->child.out;
    if (fd < 0) return HEARD_NOTHING;
    ssize_t n = read(fd, p->h->chunk, EXEC_CHUNK);
    if (n > 0) return take_bytes(p, from, lw_bytes(p->h->chunk, (size_t)n)), HEARD_SOME;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? HEARD_NOTHING : HEARD_END;
}

/* Reads descriptor 4 before stdout, so that a hello is seen before anything that the process wrote
 * to stdout after it. Once a process has answered on stdout, no hello can come. */
enum heard exec_hear(struct proc *p, enum channel_kind from) {
    bool may_greet = from == CH_STDOUT && !p->hello && !p->answered;
    if (may_greet && hear(p, CH_SIDE) == HEARD_SOME) return HEARD_SOME;
    return hear(p, from);
}

enum heard exec_hear_all(struct proc *p) {
    enum heard heard;
    do heard = exec_hear(p, p->hello ? CH_SIDE : CH_STDOUT);
    while (heard == HEARD_SOME && p->state == PROC_UP);
    return heard;
}
