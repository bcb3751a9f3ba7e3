/* SPDX-License-Identifier: Apache-2.0 */
/* The rig runs the deliveries of a plan in the handler, in a separate process.
 *
 * The rig opens the handler and gives it messages as a worker does: through a pool of threads
 * (struct lw_pool) or, if the handler type has serve(), through one thread (struct lw_server).
 * There is no Redis: the rig itself gives each message a lease and the fence from the plan, and
 * renews the lease. Messages of one key run in order. Messages of different keys run in
 * parallel. */
#include "cli/handler/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "consumer/process/pool.h"
#include "consumer/process/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    TICK_MS = 10,
    CANCEL_MS = 20, /* time between the start of a delivery and its cancellation */
    /* TRIALS is the maximum number of messages with which the rig tests a command that seems unable
     * to start. Before each of these tests there is a pause. */
    TRIALS = 2,
    /* TRIES is the maximum number of deliveries of a message that is given back each time because
     * the handler's process died. */
    TRIES = 12,
    /* A supervisor replaces a worker if a handler runs longer than twice handler.timeout_ms plus a
     * fixed time of 5 s. The rig uses the same limit, with STUCK_MS as the fixed time. */
    STUCK_MS = 5000,
    CLOSE_MS = 2000,
    JOBS = 64
};

/* One delivery of a message, with its state in the rig. */
struct run {
    /* `job` must be the first member, because the pool returns a pointer to it */
    struct lw_job job;
    struct lw_job_lease lease;
    struct handler_delivery *d;
    struct run *next; /* the next delivery of the same key */
    int tries;
    /* `begun_ms` is the time at which this delivery was submitted. Followers have the time at which
     * the first delivery of their chain was submitted. */
    int64_t begun_ms;
    bool under_way; /* true: the delivery was submitted and is not answered yet, or it is `held` */
    /* `held` is true if the message was given back because the command could not start. The message
     * will be submitted again later. */
    bool held;
};

struct rig {
    const struct lw_config *c;
    struct handler_plan *plan;
    const struct lw_handler_type *type;
    struct lw_handler *handler;
    struct lw_server *server;
    struct lw_pool *pool;
    int notify_fd;
    struct run *runs; /* array with one element per message of the round */
    size_t left;      /* number of runs that are under way */
    enum handler_round round;
    /* `progress_ms` is the time at which the last delivery ended; until a delivery has ended, it is
     * the time at which wait_for_all() began */
    int64_t progress_ms;
    size_t held;
    /* `answered` is true if the handler has answered any message. `on_trial` is true while one
     * message is used to test the command. */
    bool answered, on_trial;
    int trials;
    struct lw_err err;
};

static enum handler_result result_of(enum lw_outcome outcome) {
    switch (outcome) {
    case LW_DONE: return RESULT_DONE;
    case LW_RETRY: return RESULT_RETRY;
    case LW_DEAD: return RESULT_DEAD;
    default: return RESULT_BACK;
    }
}

/* --- submitting ------------------------------------------------------------------------------- */

/* Returns true if the deliveries of a key run as followers of each other. In the round of
 * cancellations each delivery is submitted alone, so that each can be cancelled while it runs. */
static bool chained(const struct rig *r) { return r->round != ROUND_CANCEL; }

static void prepare(const struct rig *r, struct run *run) {
    const struct handler_delivery *d = run->d;
    const struct handler_message *m = d->m;
    int64_t now = lw_boot_ms();
    atomic_store(&run->lease.deadline_ms, now + r->c->lock.ttl_ms);
    atomic_store(&run->lease.cancelled, false);
    run->begun_ms = now;
    struct lw_job *job = &run->job;
    memcpy(job->identity, d->identity, sizeof job->identity);
    job->topic = m->topic;
    job->partition = m->partition;
    job->offset = d->offset;
    job->timestamp_ms = m->timestamp_ms;
    job->key = m->key;
    job->payload = m->payload;
    job->headers = m->headers;
    job->n_headers = m->n_headers;
    job->attempt = m->attempt;
    job->fence = d->fence;
    lw_job_begin(job, &run->lease);
    atomic_store(&job->then, chained(r) && run->next ? &run->next->job : NULL);
}

/* Submits a delivery. If the later deliveries of its key run as its followers, they are submitted
 * together with it. */
static void submit(struct rig *r, struct run *first) {
    for (struct run *run = first; run; run = chained(r) ? run->next : NULL) {
        prepare(r, run);
        run->under_way = true;
    }
    struct lw_job *job = &first->job;
    if (r->server)
        lw_server_submit(r->server, &job, 1);
    else
        lw_pool_submit(r->pool, &job, 1);
}

/* --- ending ----------------------------------------------------------------------------------- */

/* Returns true if the rig must deliver a message again, as a worker would. All of these conditions
 * must be met: the handler works with processes and gave the message back, the message's lease was
 * not cancelled, and the message was delivered fewer than TRIES times. Such a handler gives a
 * message back if, for example, its process died before it read the message, or while it had
 * several messages. */
static bool comes_again(struct rig *r, struct run *run) {
    bool back = run->job.outcome == LW_BACK && !atomic_load(&run->lease.cancelled);
    return back && r->type->loads && ++run->tries < TRIES;
}

static enum lw_health health(const struct rig *r, char *why, size_t size) {
    return r->type->health ? r->type->health(r->handler, why, size) : LW_WELL;
}

/* Keeps a message that was given back because the command could not start, so that release() can
 * submit it again. Sets `err`, which ends `handler test`, if the handler has answered no message
 * and has given back enough messages with which it was on trial. */
static void hold(struct rig *r, struct run *run) {
    static const char prefix[] = "handler: ";
    char why[512] = "";
    run->held = true;
    r->held++;
    r->trials += r->on_trial;
    r->on_trial = false;
    health(r, why, sizeof why);
    if (r->trials && !r->answered && (r->trials >= TRIALS || r->left == 1))
        lw_fail(&r->err, "the handler cannot start: %s",
                strncmp(why, prefix, sizeof prefix - 1) == 0 ? why + sizeof prefix - 1 : why);
}

/* Submits messages that hold() kept. If the command works, submits all of them. If the command is
 * on trial and its pause is over, submits one message, unless another message already tests the
 * command. */
static void release(struct rig *r) {
    enum lw_health now = r->held ? health(r, NULL, 0) : LW_UNABLE;
    if (now == LW_UNABLE || (now == LW_ON_TRIAL && r->on_trial)) return;
    /* Submit the messages from the last to the first. If the command is on trial, only one message
     * is submitted, and the first may be the one that makes the command fail again and again. */
    for (size_t i = r->plan->n; i > 0; i--) {
        struct run *run = &r->runs[i - 1];
        if (!run->held) continue;
        run->held = false;
        r->held--;
        submit(r, run);
        r->on_trial = now == LW_ON_TRIAL;
        if (r->on_trial) return;
    }
}

static void record(struct rig *r, struct run *run) {
    struct handler_delivery *d = run->d;
    snprintf(d->reason, sizeof d->reason, "%s", run->job.reason);
    d->took_us = run->job.took_us;
    d->wait_ms = run->job.wait_ms;
    d->uncounted = run->job.uncounted;
    atomic_store(&d->result, result_of(run->job.outcome));
    run->under_way = false;
    r->left--;
}

static void ended(struct rig *r, struct run *run) {
    bool done = run->job.outcome == LW_DONE;
    r->progress_ms = lw_boot_ms();
    if (comes_again(r, run)) {
        if (health(r, NULL, 0) == LW_WELL)
            submit(r, run);
        else
            hold(r, run);
        return;
    }
    r->answered = true;
    r->on_trial = false;
    record(r, run);
    if (run->next && (!done || !chained(r))) submit(r, run->next);
}

static void reap(struct rig *r) {
    struct lw_job *jobs[JOBS];
    size_t n;
    uint64_t count;
    if (read(r->notify_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        lw_error("eventfd: %s", strerror(errno));
    do {
        n = r->server ? lw_server_reap(r->server, jobs, JOBS) : lw_pool_reap(r->pool, jobs, JOBS);
        for (size_t i = 0; i < n; i++) ended(r, (struct run *)(void *)jobs[i]);
    } while (n == JOBS);
}

/* --- a round ---------------------------------------------------------------------------------- */

/* Renews the leases of the deliveries under way. In ROUND_CANCEL, cancels each delivery that was
 * submitted at least CANCEL_MS ago, instead of renewing its lease. */
static void tend(struct rig *r) {
    int64_t now = lw_boot_ms();
    for (size_t i = 0; i < r->plan->n; i++) {
        struct run *run = &r->runs[i];
        if (!run->under_way || run->held) continue;
        if (r->round == ROUND_CANCEL && now - run->begun_ms >= CANCEL_MS)
            atomic_store(&run->lease.cancelled, true);
        else
            atomic_store(&run->lease.deadline_ms, now + r->c->lock.ttl_ms);
    }
}

/* Returns true if no delivery has ended for so long that a handler in the pool must be stuck. The
 * handler's thread cannot be ended, so the whole rig must end. A handler type with the function
 * serve() has no thread in the pool, and ends slow processes or requests without the rig's
 * help. */
static bool is_stuck(const struct rig *r) {
    int64_t timeout_ms = r->c->handler.timeout_ms;
    bool limited = timeout_ms > 0 || r->round == ROUND_CANCEL;
    return r->pool && limited && lw_boot_ms() - r->progress_ms > 2 * timeout_ms + STUCK_MS;
}

static enum handler_end wait_for_all(struct rig *r) {
    r->progress_ms = lw_boot_ms();
    while (r->left && !r->err.text[0]) {
        struct pollfd fd = {r->notify_fd, POLLIN, 0};
        if (poll(&fd, 1, TICK_MS) > 0) reap(r);
        tend(r);
        release(r);
        if (r->left && is_stuck(r)) return END_STUCK;
    }
    return r->err.text[0] ? END_GAVE_UP : END_NONE;
}

/* Links the runs without a result into one chain per key, and submits the first run of each chain.
 * If `alone` is true, only the suspects are submitted, one chain after the other, so that no two
 * suspects run at the same time. Otherwise only the runs that are not suspects are submitted, all
 * chains at once. */
static void start_round(struct rig *r, struct handler_delivery *d, bool alone) {
    const struct handler_message *messages = d[0].m;
    for (size_t i = 0; i < r->plan->n; i++) {
        struct run *last = NULL, *first = NULL;
        for (int at = messages[i].first ? (int)i : HANDLER_NO_NEXT; at != HANDLER_NO_NEXT;
             at = messages[at].next) {
            struct run *run = &r->runs[at];
            if (atomic_load(&d[at].result) || d[at].alone != alone) continue;
            *run = (struct run){.d = &d[at]};
            if (last) last->next = run;
            if (!first) first = run;
            last = run;
            r->left++;
        }
        if (!first) continue;
        submit(r, first);
        if (alone && wait_for_all(r)) return;
    }
}

static enum handler_end run_round(struct rig *r, enum handler_round round) {
    struct handler_delivery *d = r->plan->d + (size_t)round * r->plan->n;
    r->round = round;
    bool suspects = false;
    for (size_t i = 0; i < r->plan->n; i++) suspects |= d[i].alone && !atomic_load(&d[i].result);
    if (suspects) start_round(r, d, true);
    if (r->left || r->err.text[0]) return r->err.text[0] ? END_GAVE_UP : END_STUCK;
    start_round(r, d, false);
    return wait_for_all(r);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static int open_handler(struct rig *r, struct lw_board_worker *seats) {
    int n = r->c->handler.threads;
    if ((size_t)n > r->plan->n) n = (int)r->plan->n;
    r->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->notify_fd < 0) return lw_fail(&r->err, "eventfd: %s", strerror(errno));
    r->type = lw_handler_find(r->c->handler.type, &r->err);
    r->handler = r->type ? r->type->open(r->c, 0, &r->err) : NULL;
    if (!r->handler) return -1;
    if (r->type->serve)
        r->server = lw_server_open(r->type, r->handler, n, r->c->handler.timeout_ms, NULL,
                                   r->notify_fd, &r->err);
    else
        r->pool = lw_pool_open(r->type, r->handler, n, r->c->handler.timeout_ms, seats,
                               r->notify_fd, &r->err);
    return r->server || r->pool ? 0 : -1;
}

static enum handler_end close_handler(struct rig *r) {
    if (r->server && !lw_server_close(r->server, CLOSE_MS)) return END_STUCK;
    if (r->pool && !lw_pool_close(r->pool, CLOSE_MS)) return END_STUCK;
    r->type->close(r->handler);
    close(r->notify_fd);
    return END_GOOD;
}

void handler_rig(const struct lw_config *c, struct handler_plan *plan,
                 struct lw_board_worker *seats) {
    struct rig r = {.c = c, .plan = plan, .runs = lw_alloc((plan->n + 1) * sizeof *r.runs)};
    signal(SIGPIPE, SIG_IGN);
    lw_log_setup(c->log.level, false, "handler");
    enum handler_end end = open_handler(&r, seats) ? END_GAVE_UP : END_NONE;
    for (int round = 0; round < plan->rounds && !end; round++)
        end = run_round(&r, (enum handler_round)round);
    if (end == END_GAVE_UP) snprintf(plan->failure, sizeof plan->failure, "%s", r.err.text);
    if (!end) end = close_handler(&r);
    if (end == END_GOOD) free(r.runs);
    atomic_store(&plan->end, (int)end);
}
