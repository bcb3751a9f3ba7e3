/* SPDX-License-Identifier: Apache-2.0 */
/* fate: what becomes of the messages of a process that ends.
 *
 *     what is at fault                                this message   other messages of the process
 *     the command: no process has answered lately     back           back; the handler pauses
 *     a message: its answer is malformed or not
 *       complete, it has timed out, or the process
 *       had read only this message                    retry          back
 *     no message: the process has answered, and it
 *       had read none of its unanswered messages      -              back
 *     unknown                                         -              back, as suspects (suspects.c)
 *     nothing: a lease has ended                      back           back
 *
 * "this message" is the message that the row names, or the message whose lease has ended. "back"
 * counts no attempt. A message whose lease was lost is given back in any case. */
#include "handlers/exec/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "handlers/feed.h"
#include "handlers/reason.h"

#include <inttypes.h>
#include <stdio.h>

/* LAST_WORDS_MS is the maximum wait for a process to end after it has closed the pipe of its
 * answers */
enum { LAST_WORDS_MS = 200 };

/* --- the end of a message --------------------------------------------------------------------- */

static void discount(struct proc *p, int n) {
    p->n_messages -= n;
    p->h->held -= n;
    assert(p->n_messages >= 0 && p->h->held >= 0);
    if (!p->n_messages) p->limit = ANY_COMPANY;
}

void exec_ended(struct request *r, int64_t took_us) {
    struct lw_job *job = r->jobs[r->at], *next = r->at == r->n - 1 ? lw_job_end(job) : NULL;
    bool goes_on = job->outcome == LW_DONE && (next || r->at < r->n - 1);
    for (int i = r->at; i < (goes_on ? r->at + 1 : r->upto); i++) proc_note_ended(r->p, r->jobs[i]);
    discount(r->p, goes_on ? 1 : r->upto - r->at);
    lw_feed_ended(r->p->h->feed, job, took_us > 0 ? took_us : 1);
    if (goes_on) {
        exec_go_on(r, next);
    } else {
        request_leave(r);
        request_free(r->p->h, r);
    }
}

static void answer(struct request *r, enum lw_outcome outcome, const char *reason) {
    lw_job_answer(r->jobs[r->at], outcome, reason);
    exec_ended(r, r->p->h->now_us - r->begun_us);
}

/* --- a process is to end ---------------------------------------------------------------------- */

void exec_wrong(struct proc *p, struct request *blamed, const char *reason) {
    p->why = END_WRONG;
    p->blamed = blamed;
    lw_reason_copy(p->reason, reason);
    proc_end(p, 0);
}

static bool lease_over(const struct request *r) {
    const struct lw_handler *h = r->p->h;
    return h->now_ms >= lw_feed_lease_end(r->jobs[r->at], h->margin_ms) ||
           (r->grace_ms && !r->late);
}

/* Returns the message that a process died of, if only one can be: the one that it was answering, or
 * its only one. */
static struct request *only_one(const struct proc *p) {
    if (p->blamed) return p->blamed;
    return p->n_messages == 1 && p->first ? p->first : NULL;
}

/* Returns true if the process died of a message that is at fault itself, because it had failed
 * before and other messages have been answered since. */
static bool own_fault(struct proc *p) {
    struct request *one = only_one(p);
    if (!one || !proc_has_read(p)) return false;
    if (!lw_trial_failed(&p->h->trial, one->jobs[one->at]->identity)) return false;
    p->blamed = one;
    p->own_fault = true;
    return true;
}

void exec_unable(struct lw_handler *h, const char *why) {
    if (!trouble_on_trial(&h->trouble, lw_boot_ms()) || lw_trial_over(&h->trial))
        trouble_unable(&h->trouble, why);
}

void exec_time_over(struct request *r) {
    struct proc *p = r->p;
    p->why = END_TIME;
    p->blamed = r;
    if (!lease_over(r)) r->late = true;
    p->innocent = r->late && !p->answered && !proc_has_read(p);
    if (p->innocent) trouble_innocent(&p->h->trouble, false);
    proc_end(p, 0);
}

/* Returns the time at which the process group of an ending process must be killed: LAST_WORDS_MS
 * from now, but at the latest margin_ms before the first lease of the process's messages ends. */
static int64_t end_by(const struct proc *p) {
    int64_t until = p->h->now_ms + LAST_WORDS_MS;
    for (const struct request *r = p->first; r; r = r->next) {
        int64_t stop = lw_feed_lease_end(r->jobs[r->at], p->h->margin_ms);
        if (stop < until) until = stop;
    }
    return until;
}

void exec_died(struct proc *p) {
    const struct lw_buf *text = p->hello ? &p->side.text : &p->said.text;
    struct lw_bytes id = lw_exec_begun(lw_bytes(text->p, text->n));
    p->why = END_DIED;
    p->itself = lw_child_ended(&p->child, p->how, sizeof p->how);
    p->blamed = id.p ? request_find(p, id) : NULL;
    p->innocent = p->n_requests && !own_fault(p) && !p->answered &&
                  trouble_innocent(&p->h->trouble, proc_has_read(p) > 0);
    proc_end(p, end_by(p));
}

/* --- it has ended: its messages --------------------------------------------------------------- */

static bool was_read(const struct request *r) { return r->place < r->p->has_read; }

/* Counts the messages that may have ended the process: the ones that it had read. If it had read
 * none, no message is at fault. The exception is a process that has never answered: all its
 * messages count, because a command that breaks the protocol from the start would otherwise get the
 * same messages again for ever. */
static int company(struct proc *p) {
    int n = 0;
    for (const struct request *r = p->first; r; r = r->next) n += was_read(r) ? r->upto - r->at : 0;
    if (n || p->answered) return n;
    p->has_read = UINT64_MAX;
    return p->n_messages;
}

static void suspect(struct request *r, int n) {
    for (int i = r->at; i < r->upto; i++) suspects_add(&r->p->h->suspects, r->jobs[i]->identity, n);
}

static void decide(struct request *r, int n) {
    struct proc *p = r->p;
    char late[LW_REASON_MAX];
    snprintf(late, sizeof late, "timed out after %" PRId64 " ms", p->h->timeout_ms);
    proc_add_last_words(p, late, sizeof late); /* they may say what took the time */
    bool at_fault = r == p->blamed || (!p->blamed && n == 1 && was_read(r));
    /* `beside` is true if this request has not timed out, but the process was ended because another
     * of its requests timed out, or because the lease of one of its messages was about to end. */
    bool cancelled = r->grace_ms && !r->late, beside = p->why == END_TIME && !r->late;
    if (p->innocent) {
        /* Should it be the message after all, it runs by itself, and others come first. */
        if (n == 1 && was_read(r)) suspect(r, 1);
        r->jobs[r->at]->wait_ms = lw_trial_rest_ms(p->h->trouble.pause_ms);
        answer(r, LW_BACK, "");
    } else if (cancelled || beside)
        answer(r, LW_BACK, "");
    else if (r->late)
        answer(r, LW_RETRY, late);
    else if (at_fault) {
        if (p->why == END_DIED) suspect(r, 1);
        answer(r, LW_RETRY, p->reason);
    } else {
        if (!p->blamed && was_read(r)) suspect(r, n);
        answer(r, LW_BACK, "");
    }
}

static void say_how(struct proc *p) {
    bool closed = !p->itself && strcmp(p->how, "was killed") == 0;
    if (closed)
        snprintf(p->how, sizeof p->how, p->hello ? "closed its descriptor 4" : "closed its stdout");
    if (p->why == END_DIED)
        snprintf(p->reason, sizeof p->reason,
                 p->innocent ? "its process %s before it ever answered"
                             : "handler process %s before it answered",
                 p->how);
    else if (p->why == END_TIME && p->innocent)
        snprintf(p->reason, sizeof p->reason,
                 "its process did not read its first request within %" PRId64 " ms",
                 p->h->timeout_ms);
    if (p->why != END_WRONG) proc_add_last_words(p, p->reason, sizeof p->reason);
}

static void tell(const struct proc *p, int n) {
    if (p->why == END_TIME) return;
    if (n == 1 || p->blamed)
        lw_warn("handler %d: %s; the process is replaced", p->index, p->reason);
    else if (!n)
        lw_warn("handler %d: %s; the process is replaced; it had read none of its messages (%d): "
                "they are given back without an attempt",
                p->index, p->reason, p->n_messages);
    else
        lw_warn("handler %d: %s; the process is replaced; it had %d messages, and any of %d may be "
                "at fault: they are given back without an "
                "attempt, and run in smaller batches",
                p->index, p->reason, p->n_messages, n);
}

static void tell_idle(const struct proc *p) {
    if (p->why == END_WRONG)
        lw_warn("handler %d: the process %s; it is replaced", p->index, p->reason);
    else
        lw_warn("handler %d: the process %s while it had nothing to do; it is replaced", p->index,
                p->how);
}

void exec_settle(struct proc *p) {
    int n = company(p);
    p->state = PROC_NONE;
    say_how(p);
    if (p->innocent)
        exec_unable(p->h, p->reason);
    else if (p->n_requests)
        tell(p, n);
    else
        tell_idle(p);
    while (p->first) decide(p->first, n);
}
