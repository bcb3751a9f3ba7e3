/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `replay --try`: this process runs the configured handler once on a message, under the
 * lock of the message's lane.
 *
 * The lease is an ordinary lease of the lane (ops/lane_lock.h), which is taken in the current
 * epoch, lasts at most as long as the schema's TTL, and is renewed by the lock library's thread
 * while the handler runs. Another thread passes the deadline to the handler and cancels the handler
 * when the lease is lost. If the handler still runs at the lease's deadline, this process exits,
 * which ends the handler. Before the deadline nobody else can run a message of the key. This is
 * true even if Redis loses its data, because a quarantine lasts as long as the longest lease. */
#include "base/clock.h"
#include "handlers/feed.h"
#include "handlers/handler.h"
#include "ops/job.h"
#include "ops/lane_lock.h"
#include "ops/out_of_lane.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPARE_MS = 5000, NO_LIMIT_MS = 600000, HELD_MS = 3000, LOOK_MS = 10, TTL_LEAST_MS = 10 };

struct trial {
    struct ops_job *j;
    const struct lw_handler_type *type;
    struct lw_handler *handler;
    struct lw_slot *slot;
};

/* --- the guard -------------------------------------------------------------------------------- */

struct guard {
    struct latchwork_hold *hold;
    struct lw_job *job;
    atomic_bool over;
    pthread_t thread;
};

/* Ends this process if the handler did not stop in time. The processes that the handler started end
 * with this process (handlers/exec/warden.h). */
static _Noreturn void end_all(const struct guard *g, const char *why) {
    fprintf(stderr,
            "%s: %s, but the handler still runs; exiting to end it; the effect of the handler is "
            "unknown\n",
            g->job->identity, why);
    _exit(OPS_FAILED);
}

static void *watch_lease(void *arg) {
    struct guard *g = arg;
    while (!atomic_load(&g->over)) {
        int64_t now = lw_boot_ms(), deadline_ms = latchwork_hold_deadline_ms(g->hold);
        atomic_store(&g->job->lease->deadline_ms, deadline_ms);
        if (latchwork_hold_lost(g->hold)) atomic_store(&g->job->lease->cancelled, true);
        if (now >= deadline_ms) end_all(g, "the lease of its lane has ended");
        if (now >= g->job->give_up_ms + SPARE_MS) end_all(g, "handler.timeout_ms is over");
        lw_sleep_ms(LOOK_MS);
    }
    return NULL;
}

static bool guard_begin(struct guard *g) {
    sigset_t all, before;
    sigfillset(&all);
    /* the new thread gets no signals, because the main thread handles them */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&g->thread, NULL, watch_lease, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

static void guard_end(struct guard *g) {
    atomic_store(&g->over, true);
    pthread_join(g->thread, NULL);
}

/* --- one message ------------------------------------------------------------------------------ */

static void fill_job(struct lw_job *job, const struct ops_message *m, const char *identity,
                     const struct ops *o) {
    static char topic[256];
    int64_t limit_ms = o->c->handler.timeout_ms ? o->c->handler.timeout_ms : NO_LIMIT_MS;
    snprintf(topic, sizeof topic, "%.*s", (int)m->e.topic.n, m->e.topic.p);
    *job = (struct lw_job){.topic = topic,
                           .partition = m->e.partition,
                           .offset = m->e.offset,
                           .timestamp_ms = m->e.timestamp_ms,
                           .key = m->e.key,
                           .payload = m->e.payload,
                           .headers = m->e.headers,
                           .n_headers = m->e.n_headers,
                           .attempt = 1,
                           .give_up_ms = lw_boot_ms() + limit_ms};
    snprintf(job->identity, sizeof job->identity, "%s", identity);
}

/* Runs the handler on the message. Returns 0 if the handler was run, with any outcome, and -1 on
 * failure. */
static int run_job(struct trial *t, struct lw_job *job, struct latchwork_hold *hold) {
    static struct lw_job_lease lease;
    struct guard g = {.hold = hold, .job = job};
    atomic_store(&lease.deadline_ms, latchwork_hold_deadline_ms(hold));
    atomic_store(&lease.cancelled, false);
    job->lease = &lease;
    job->fence = latchwork_hold_fence(hold);
    int bad = 0;
    if (!guard_begin(&g))
        return lw_fail(&t->j->o->err, "can't start the thread that watches the lease");
    if (t->type->serve)
        bad = lw_feed_run_one(t->type, t->handler, job, &t->j->o->err);
    else
        t->type->run(t->handler, t->slot, (struct lw_job *[]){job}, 1);
    guard_end(&g);
    return bad;
}

static int report(struct trial *t, const struct lw_job *job, int64_t took_ms, bool lost) {
    bool ran = job->outcome != LW_BACK;
    char more[700];
    if (lost)
        snprintf(more, sizeof more,
                 "the lease of its lane was lost after %" PRId64
                 " ms and the handler was cancelled (outcome: %s); a worker may have run "
                 "the key meanwhile",
                 took_ms, ran ? lw_outcome_word(job->outcome) : "none");
    else
        snprintf(more, sizeof more, "%s in %" PRId64 " ms%s%s",
                 ran ? lw_outcome_word(job->outcome) : "not run", took_ms,
                 job->reason[0] ? ": " : "", job->reason);
    if (lost || job->outcome != LW_DONE) return ops_job_problem(t->j, job->identity, more);
    return ops_job_done(t->j, job->identity, 'R', more);
}

static int run_under(struct trial *t, struct ops_message *m, const char *identity,
                     struct latchwork_hold *hold) {
    static struct lw_job job;
    struct latchwork_error error = {0};
    int64_t from = lw_boot_ms();
    fill_job(&job, m, identity, t->j->o);
    int bad = run_job(t, &job, hold);
    int64_t took_ms = lw_boot_ms() - from;
    bool lost = latchwork_hold_lost(hold);
    enum latchwork_result released = latchwork_hold_release(hold, &error);
    lost = lost || (released == LATCHWORK_LOCK_LOST && error.code != LATCHWORK_E_UNKNOWN);
    return bad ? -1 : report(t, &job, took_ms, lost);
}

static int not_had(struct trial *t, const char *identity, enum latchwork_result result,
                   const struct latchwork_error *error) {
    char why[700];
    if (result != LATCHWORK_LOCK_BUSY)
        return lw_fail(&t->j->o->err, "%s: %s", identity, error->text);
    snprintf(
        why, sizeof why,
        "not tried: its lane was not free within %d ms: %s; try again, or pause the lane first",
        HELD_MS, error->text);
    return ops_job_problem(t->j, identity, why);
}

/* Runs the handler under the lane's lock. Waits up to HELD_MS for the lock, because busy workers
 * seldom leave a lane free. */
static int try_in_lane(struct trial *t, struct ops_message *m, const char *identity) {
    struct latchwork_error error = {0};
    struct latchwork_lock_options options = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                             .max_hold_ms = -1};
    struct lw_lane_lock *l = lw_lane_lock_open(t->j->o->c, m->lane, &options, &error);
    if (!l) return lw_fail(&t->j->o->err, "%s: %s", identity, error.text);
    struct latchwork_hold *hold = NULL;
    lw_lane_lock_take_paused(l);
    enum latchwork_result result =
        latchwork_lock_acquire(lw_lane_lock_lock(l), HELD_MS, &hold, &error);
    int stop = result == LATCHWORK_LOCK_OK ? run_under(t, m, identity, hold)
                                           : not_had(t, identity, result, &error);
    lw_lane_lock_close(l);
    return stop;
}

static int try_one(struct ops *o, struct ops_message *m, void *ctx) {
    struct trial *t = ctx;
    char identity[320];
    (void)o;
    if (m->bad || !m->lane.p)
        return ops_job_problem(t->j, m->id, "it has no lane, so --try cannot run it");
    struct lw_envelope e = m->e;
    e.replay = t->j->number;
    ops_identity(&e, identity, sizeof identity);
    int stop = ops_job_take(t->j);
    if (stop < 0) return -1;
    int more = t->j->dry ? ops_job_done(t->j, identity, 'R', "") : try_in_lane(t, m, identity);
    return more ? more : stop;
}

/* Reduces lock.ttl_ms to the schema's TTL for this command, because no lease may be longer. The
 * handler must see the reduced value: from lock.ttl_ms the handler computes how long before the end
 * of its lease it has to stop. */
static int take_schema_ttl(struct ops *o) {
    for (int s = 0; s < o->c->redis.shards; s++) {
        ops_begin(o, "HGET"), ops_keys(o, &o->shards[s], "epoch"), lw_arg_text(&o->cmd, "ttl_ms");
        redisReply *r = ops_ask(o, &o->shards[s]);
        if (!r) return -1;
        int64_t ttl_ms = r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : 0;
        freeReplyObject(r);
        if (ttl_ms >= TTL_LEAST_MS && ttl_ms < o->c->lock.ttl_ms) o->c->lock.ttl_ms = ttl_ms;
    }
    return 0;
}

/* Opens the handler, and prepares it to run one message at a time. */
static int open_handler(struct trial *t, struct ops *o) {
    t->type = lw_handler_find(o->c->handler.type, &o->err);
    t->handler = t->type ? t->type->open(o->c, 0, &o->err) : NULL;
    if (!t->handler) return -1;
    if (t->type->serve) return t->type->start(t->handler, 1, &o->err);
    t->slot = t->type->slot_open(t->handler, 0, &o->err);
    return t->slot ? 0 : -1;
}

int ops_try(struct ops *o, ops_each_fn *each) {
    static struct ops_job j;
    if (take_schema_ttl(o) || ops_job_begin(o, &j, OPS_PUT)) return OPS_FAILED;
    /* SIGPIPE is ignored, because a handler's process may end while this process writes to it */
    signal(SIGPIPE, SIG_IGN);
    struct trial t = {.j = &j};
    int bad = j.dry ? 0 : open_handler(&t, o);
    int stop = bad ? -1 : each(o, try_one, &t);
    if (t.slot) t.type->slot_close(t.handler, t.slot);
    if (t.handler) t.type->close(t.handler);
    return ops_job_end(&j, stop);
}
