/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/world.h"

#include "base/random.h"
#include "tests/sim/world/bytes.h"
#include "tests/sim/world/operator.h"
#include "tests/sim/world/rules.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- chance ----------------------------------------------------------------------------------- */

uint64_t rnd(struct world *w) { return lw_random_next(&w->rng); }
int rnd_below(struct world *w, int n) { return (int)(rnd(w) % (uint64_t)n); }
double rnd_unit(struct world *w) { return (double)(rnd(w) >> 11) / 9007199254740992.0; }

_Noreturn void world_bad(struct world *w, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->bad, sizeof w->bad, fmt, ap);
    va_end(ap);
    longjmp(w->out, 1);
}

void trace(struct world *w, const char *fmt, ...) {
    if (!w->o->trace) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%6" PRId64 " ", w->now_ms);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* --- handlers --------------------------------------------------------------------------------- */

static void start(struct sim_worker *me, struct lw_job *job) {
    struct world *w = me->world;
    struct exec x = {.job = job, .worker = me->index, .key = key_of_name(job->key)};
    if (x.key < 0) world_bad(w, "a handler got a foreign key");
    trace(w, "worker %d starts %s key %d fence %" PRIu64 " attempt %d", me->index, job->identity,
          x.key, job->fence, job->attempt);
    atomic_store(&job->started_ms, w->now_ms);
    oracle_start(w, &x);
    bytes_started(w, job);
    w->exec[w->n_exec++] = x;
}

static void io_run(void *ctx, struct lw_job **jobs, size_t n) {
    struct sim_worker *me = ctx;
    for (size_t i = 0; i < n; i++) {
        revoke_started(me->world, me->index, jobs[i]);
        start(me, jobs[i]);
    }
}

/* Starts the next message of a hold, or gives the message back if the lease has ended. */
static void go_on(struct sim_worker *me, struct lw_job *next) {
    struct lw_job_lease *lease = next->lease;
    if (!atomic_load(&lease->cancelled) && me->world->now_ms < atomic_load(&lease->deadline_ms)) {
        start(me, next);
    } else {
        next->outcome = LW_BACK;
        next->reason[0] = 0;
        lw_job_end(next);
        me->ended[me->n_ended++] = next;
    }
}

/* Starts the follower of a job that has ended on the thread of that job, or puts the follower at
 * the end of the pool's queue. */
static void follow(struct sim_worker *me, struct lw_job *next) {
    struct world *w = me->world;
    if (w->f->pool && rnd_below(w, 3) == 0)
        w->exec[w->n_exec++] = (struct exec){
            .job = next, .worker = me->index, .key = key_of_name(next->key), .queued = true};
    else
        go_on(me, next);
}

static void step_reports(struct world *w, struct sim_worker *me) {
    while (me->n_ended) {
        if (rnd_unit(w) < 0.3) return;
        struct lw_job *job = me->ended[0];
        memmove(me->ended, me->ended + 1, (size_t)--me->n_ended * sizeof me->ended[0]);
        lw_worker_finished(me->lw, job);
    }
}

static void step_finish(struct world *w, struct sim_worker *me) {
    int mine[512], n = 0;
    for (int i = 0; i < w->n_exec; i++)
        if (w->exec[i].worker == me->index) mine[n++] = i;
    if (!n || me->n_ended == 60) return;
    int at = mine[rnd_below(w, n)];
    struct exec x = w->exec[at];
    if (x.queued) {
        w->exec[at] = w->exec[--w->n_exec];
        int others = w->n_exec;
        go_on(me, x.job);
        if (w->n_exec > others) w->exec[others].before_revoke = x.before_revoke;
        return;
    }
    if (trouble_lingers(w, &x)) return;
    double v = rnd_unit(w);
    enum lw_outcome wish = v > 0.1 ? LW_DONE : v < 0.02 ? LW_DEAD : LW_RETRY;
    if (atomic_load(&x.job->lease->cancelled) && rnd_unit(w) < 0.5) wish = LW_BACK;
    if (w->f->prompt && atomic_load(&x.job->lease->deadline_ms) <= w->now_ms) wish = LW_BACK;
    x.job->outcome = oracle_finish(w, &x, wish);
    snprintf(x.job->reason, sizeof x.job->reason, "%s", wish == LW_DONE ? "" : "chance");
    trace(w, "worker %d ends %s key %d: %d", me->index, x.job->identity, x.key, x.job->outcome);
    w->exec[at] = w->exec[--w->n_exec];
    struct lw_job *next = lw_job_end(x.job);
    /* The worker's main thread learns only later that the handler has ended. */
    me->ended[me->n_ended++] = x.job;
    if (next) follow(me, next);
}

/* Returns the last digit of the message's offset, which decides what happens to its dead letter. If
 * the digit is 0, the producer always refuses the letter as too large. If it is 8, the topic never
 * accepts the letter. Otherwise the topic accepts the letter in the end. */
static char last_digit(const struct lw_dead_letter *l) {
    const struct lw_bytes origin = l->headers[l->n_headers - 3].value;
    return origin.n ? origin.p[origin.n - 1] : '?';
}

static int io_letter(void *ctx, const struct lw_dead_letter *l, struct lw_err *err) {
    struct sim_worker *me = ctx;
    if (me->n_letter == 64 || rnd_unit(me->world) < 0.1) return lw_fail(err, "queue full");
    if (last_digit(l) == '0') return lw_fail(err, "too large for the producer") ? 1 : 0;
    me->never[me->n_letter] = last_digit(l) == '8';
    me->letter[me->n_letter++] = l->run;
    return 0;
}

static void step_letters(struct world *w, struct sim_worker *me) {
    if (!me->n_letter) return;
    void *run = me->letter[--me->n_letter];
    enum lw_letter_end how = rnd_unit(w) >= 0.8        ? LW_SENT_LATER
                             : me->never[me->n_letter] ? LW_SENT_NEVER
                                                       : LW_SENT;
    lw_worker_sent(me->lw, run, how, "refused by chance");
}

/* --- the worker's process --------------------------------------------------------------------- */

static int64_t io_boot_ms(void *ctx) { return ((struct sim_worker *)ctx)->world->now_ms; }
static int64_t io_wall_ms(void *ctx) {
    return ((struct sim_worker *)ctx)->world->now_ms + 1000000000;
}
static uint64_t io_random(void *ctx) { return rnd(((struct sim_worker *)ctx)->world); }
static void io_passed(void *ctx, const char *topic, int32_t partition, int64_t watermark) {
    (void)ctx, (void)topic, (void)partition, (void)watermark;
}
static void io_stop(void *ctx, int status, const char *reason) {
    /* A worker stops itself after a failed seek, which is no violation. The next step of the world
     * ends it. */
    if (((struct sim_worker *)ctx)->ending) return;
    world_bad(((struct sim_worker *)ctx)->world, "stopped with %d: %s", status, reason);
}

static const struct lw_io io = {.boot_ms = io_boot_ms,
                                .wall_ms = io_wall_ms,
                                .random = io_random,
                                .connect = wire_connect,
                                .send = wire_send,
                                .hints = wire_hints,
                                .run = io_run,
                                .letter = io_letter,
                                .pause = kafka_pause,
                                .seek = kafka_seek,
                                .commit = kafka_commit,
                                .commit_busy = kafka_commit_busy,
                                .commit_sync = kafka_commit_sync,
                                .committed = kafka_committed,
                                .look = kafka_look,
                                .release = bytes_release,
                                .passed = io_passed,
                                .stop = io_stop};

const struct lw_config *world_config(const struct world *w, const struct sim_worker *me) {
    return w->f->longer && me->index == 1 ? &w->longer : &w->config;
}

static void birth(struct world *w, struct sim_worker *me) {
    snprintf(me->id, sizeof me->id, "w%d-%06x", me->index, (unsigned)(rnd(w) & 0xffffff));
    me->joined = true;
    me->ending = false;
    me->n_commit = me->n_letter = me->n_ended = 0;
    me->look = NO_LOOK;
    me->held_bytes = 0;
    for (int p = 0; p < PARTS; p++) me->gen[p] = 0;
    for (int s = 0; s < SHARDS; s++) me->conn[s] = 0, me->want[s] = false;
    me->lw = lw_worker_open(&(struct lw_worker_setup){.config = world_config(w, me),
                                                      .board = rules_board(w, me->index),
                                                      .counts = &w->counts,
                                                      .id = me->id,
                                                      .host = "h",
                                                      .cluster_id = "",
                                                      .bytes = bytes_bounds(w),
                                                      .repair_batch = w->f->repairs,
                                                      .io = &io,
                                                      .ctx = me});
}

static void death(struct world *w, struct sim_worker *me) {
    trace(w, "worker %d dies", me->index);
    me->ending = false;
    rules_death(w, me);
    for (int i = w->n_exec - 1; i >= 0; i--)
        if (w->exec[i].worker == me->index) w->exec[i] = w->exec[--w->n_exec];
    wire_drop(w, me);
    lw_worker_free(me->lw);
    me->lw = NULL;
    me->joined = false;
    for (int p = 0; p < PARTS; p++) {
        if (w->part[p].owner == me->index) w->part[p].owner = -1;
        me->gen[p] = 0;
    }
}

void world_kill(struct world *w, struct sim_worker *me, int ms) {
    death(w, me);
    me->dead_until_ms = w->now_ms + ms;
}

/* --- faults ----------------------------------------------------------------------------------- */

void world_snapshot(struct world *w, int s) {
    /* While a slot moves between two nodes, no snapshot is made, because a copy of one node would
     * lack the keys that are on the other node. */
    if (w->slot[s].moving) return;
    store_close(w->snap[s]);
    w->snap[s] = store_copy(w->master[s]->store);
}

void world_wipe(struct world *w, int s) {
    trace(w, "shard %d is wiped", s);
    rules_lost_data(w);
    store_flushall(w->master[s]->store);
    world_snapshot(w, s);
}

static void fail_over(struct world *w, int s) {
    trace(w, "shard %d fails over", s);
    rules_lost_data(w);
    struct store *st = store_copy(w->snap[s]);
    store_promote(st);
    w->master[s]->until_ms = w->now_ms + w->f->split_ms;
    struct server *fresh = server_new(w, st, s);
    fresh->skew_ms = w->master[s]->skew_ms;
    if (w->f->move > 0) cluster_failed_over(w, w->master[s], fresh);
    w->master[s] = fresh;
    world_snapshot(w, s);
}

bool world_revoking(const struct world *w, const struct sim_worker *me) {
    return w->revoke.on && w->revoke.worker == me->index;
}

/* Makes the server a replica of another server that lacks some writes, and promotes it again before
 * any worker can connect. Calls that were under way are never executed, because the server refused
 * them while it was a replica. */
static void fail_back(struct world *w, int s) {
    trace(w, "shard %d fails over and back", s);
    rules_lost_data(w);
    store_resync(w->master[s]->store, w->snap[s]);
    for (int i = 0; i < WORKERS; i++)
        if (w->w[i].lw && w->w[i].conn[s] && w->w[i].dead_until_ms <= w->now_ms)
            wire_cut(w, &w->w[i], s);
    wire_refuse(w, w->master[s]);
}

static bool fault(struct world *w) {
    const struct faults *f = w->f;
    if (rnd_unit(w) < 0.003 * f->crash) {
        struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
        if (!me->lw || world_revoking(w, me)) return true;
        world_kill(w, me, 200 + rnd_below(w, 2500));
        return true;
    }
    if (rnd_unit(w) < 0.004 * f->pause) {
        struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
        if (!me->lw) return true;
        if (me->dead_until_ms <= w->now_ms)
            me->dead_until_ms = w->now_ms + 200 + rnd_below(w, 2500);
        trace(w, "worker %d pauses until %" PRId64, me->index, me->dead_until_ms);
        if (rnd_unit(w) < 0.6)
            for (int p = 0; p < PARTS; p++)
                if (w->part[p].owner == me->index) w->part[p].owner = -1;
        return true;
    }
    if (f->commits > 0 && trouble_begin(w)) return true;
    if (f->cut_repairs > 0 && trouble_cut_repair(w)) return true;
    if (f->disaster > 0 && trouble_disaster(w)) return true;
    if ((f->full > 0 || f->refusals > 0) && errors_begin(w)) return true;
    if (rnd_unit(w) < 0.002 * (w->f->churn > 0 ? w->f->churn : 1)) {
        if (!w->revoke.on) kafka_rebalance(w);
        return true;
    }
    if (rnd_unit(w) < 0.0015 * f->wipe) {
        int s = rnd_below(w, SHARDS);
        bool all = rnd_unit(w) >= 0.7;
        for (int k = 0; k < SHARDS; k++)
            if (k == s || all) world_wipe(w, k);
        return true;
    }
    if (rnd_unit(w) < 0.003 * f->failover) {
        fail_over(w, rnd_below(w, SHARDS));
        return true;
    }
    if (rnd_unit(w) < 0.002 * f->attach) {
        int s = rnd_below(w, SHARDS);
        trace(w, "shard %d: a replica is attached", s);
        store_attach(w->master[s]->store);
        return true;
    }
    if (f->move > 0 && cluster_fault(w)) return true;
    if (f->vanish > 0 && rnd_unit(w) < 0.01 * f->vanish) {
        lane_vanishes(w, rnd_below(w, SHARDS), rnd_below(w, KEYS), true);
        return true;
    }
    if (f->unlist > 0 && rnd_unit(w) < 0.01 * f->unlist) {
        lane_vanishes(w, rnd_below(w, SHARDS), rnd_below(w, KEYS), false);
        return true;
    }
    if (rnd_unit(w) < 0.002 * f->failback) {
        fail_back(w, rnd_below(w, SHARDS));
        return true;
    }
    if (rnd_unit(w) < (w->f->lag ? 0.002 : 0.02)) world_snapshot(w, rnd_below(w, SHARDS));
    if (rnd_unit(w) < 0.001 * f->clock) {
        enum { HOUR_MS = 3600 * 1000 };
        static const int jumps[] = {1250, 3000, 15000, HOUR_MS, -2000, -HOUR_MS};
        int s = rnd_below(w, SHARDS), j = jumps[rnd_below(w, f->back ? 6 : 4)];
        w->master[s]->skew_ms += j;
        limits_jump(w, s);
        trace(w, "clock of shard %d jumps by %d", s, j);
        return true;
    }
    if (rnd_unit(w) < 0.001) store_forget_scripts(w->master[rnd_below(w, SHARDS)]->store);
    if (f->retune > 0 && w->faults_on && rnd_unit(w) < 0.01 * f->retune) limits_retune(w);
    if (f->operate > 0) operator_tend(w);
    if (f->operate > 0 && rnd_unit(w) < 0.01 * f->operate) {
        operator_act(w);
        return true;
    }
    if (rnd_unit(w) < 0.006 * f->loss) {
        struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
        int s = rnd_below(w, SHARDS);
        if (me->lw && me->dead_until_ms <= w->now_ms && wire_open(w, me->index, s))
            wire_cut(w, me, s);
        return true;
    }
    return false;
}

/* --- a step ----------------------------------------------------------------------------------- */

void world_step(struct world *w) {
    static const int dt[] = {0, 0, 0, 0, 0, 10, 20};
    w->now_ms += dt[rnd_below(w, 7)] * (w->f->pace ? w->f->pace : 1) / (w->f->fine ? 10 : 1);
    if (w->faults_on && fault(w)) return;
    if (rules_step(w) || step_wire(w)) return;
    struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
    if (me->dead_until_ms > w->now_ms) return;
    if (me->ending && !world_revoking(w, me)) {
        world_kill(w, me, 100);
        return;
    }
    if (!me->lw) birth(w, me);
    me->joined = true;
    for (int p = 0; p < PARTS; p++)
        if (w->part[p].owner < 0 && !world_revoking(w, me)) kafka_assign(w, me, p);
    for (int s = 0; s < SHARDS; s++) {
        struct server *srv = me->srv[s];
        if (me->conn[s] && srv != w->master[s] &&
            (!serves(w, srv) || rnd_unit(w) < (w->f->move > 0 ? 0.001 : 0.03)))
            wire_cut(w, me, s);
    }
    step_connect(w, me);
    step_deliver(w, me);
    switch (rnd_below(w, 18)) {
    case 0:
    case 1:
    case 2:
        if (!world_revoking(w, me)) step_poll(w, me);
        break;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7: lw_worker_turn(me->lw); break;
    case 8:
    case 9:
        if (rnd_below(w, 10) >= w->f->idle) step_finish(w, me);
        break;
    case 10:
    case 11:
    case 12:
        if (rnd_below(w, 10) >= w->f->idle) step_renew(w, me);
        break;
    case 13:
        if (world_revoking(w, me)) break;
        step_commits(w, me);
        if (rnd_unit(w) < 0.5) step_look(w, me);
        break;
    case 14: step_hints(w, me); break;
    case 15: step_letters(w, me); break;
    case 16:
    case 17: step_reports(w, me); break;
    }
}

/* --- a run ------------------------------------------------------------------------------------ */

static bool all_committed(const struct world *w) {
    for (int p = 0; p < PARTS; p++)
        if (w->part[p].committed <= w->part[p].offset[w->part[p].n - 1]) return false;
    return true;
}

static void set_up(struct world *w) {
    struct lw_config *c = &w->config;
    c->name = "t";
    c->redis.shards = SHARDS;
    c->key.from.from = LW_KEY_MESSAGE;
    c->key.from_text = "message-key";
    c->kafka.group_id = "t";
    c->lock.ttl_ms = w->f->ttl_ms ? w->f->ttl_ms : TTL_MS;
    c->lock.max_run = w->f->max_run ? w->f->max_run : 3;
    c->lock.run_ahead = (int[]){1, 7, 64, 64}[w->rng % 4];
    c->queue.max_waiting = 60;
    if (w->f->latest && !w->o->skip_order) c->queue.on_busy = LW_BUSY_LATEST;
    c->retry.max_attempts = 4;
    c->retry.backoff_ms = 200;
    c->retry.backoff_max_ms = 700;
    c->retry.max_age_s = 8;
    c->retry.order = w->o->skip_order ? LW_ORDER_SKIP : LW_ORDER_BLOCK;
    c->dead.to = w->o->dead_topic ? LW_DEAD_TOPIC : LW_DEAD_REDIS;
    c->dead.topic = w->o->dead_topic ? "dead" : NULL;
    c->handler.threads = 3;
    c->limits.fleet.running = w->f->running;
    c->limits.fleet.per_second = w->f->per_second;
    c->limits.fleet.burst = LIMIT_BURST;
    limits_configure(w);
    /* A revoke never reaches this timeout: revoke.c reports a slow revoke long before. */
    c->shutdown.grace_ms = c->shutdown.revoke_ms = 3600000;
    w->longer = *c;
    w->longer.lock.ttl_ms *= w->f->longer;
    w->now_ms = 100000;
    if (w->f->fresh) w->fresh_until_ms = w->now_ms + 2000 + rnd_below(w, 25000);
    w->operator= operator_new();
    for (int s = 0; s < SHARDS; s++) w->master[s] = server_new(w, store_open(rnd(w)), s);
    if (w->f->move > 0) cluster_open(w);
    /* The first snapshots are made after cluster_open(), because a server that restarts from a
     * snapshot must still know that it is a node of a cluster. */
    for (int s = 0; s < SHARDS; s++) w->snap[s] = store_copy(w->master[s]->store);
    for (int p = 0; p < PARTS; p++) {
        struct sim_part *part = &w->part[p];
        part->n = w->o->records;
        part->committed = -1;
        part->owner = -1;
        /* The first offset is chosen so that a segment ends among the records. */
        int64_t at = LW_SEGMENT * (p + 1) - 1 - rnd_below(w, w->o->records);
        for (int i = 0; i < part->n; i++) {
            part->key[i] = rnd_below(w, KEYS);
            part->offset[i] = at;
            /* Some offsets are skipped, as in a log with compaction or transaction markers. */
            double gap = rnd_unit(w);
            at += w->f->sparse  ? 1 + rnd_below(w, 2 * w->f->sparse)
                  : gap < 0.9   ? 1
                  : gap < 0.995 ? 2 + rnd_below(w, 5)
                                : 5000 + rnd_below(w, 20000);
        }
    }
    rules_open(w);
    for (int i = 0; i < WORKERS; i++) {
        w->w[i].world = w;
        w->w[i].index = i;
        birth(w, &w->w[i]);
    }
}

static void tear_down(struct world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (w->w[i].lw) lw_worker_free(w->w[i].lw);
    wire_close(w);
    for (int s = 0; s < SHARDS; s++) store_close(w->snap[s]);
    for (int i = 0; i < w->n_servers; i++) {
        store_close(w->servers[i]->store);
        free(w->servers[i]);
    }
    free(w->effects);
    operator_free(w->operator);
    rules_close(w);
}

const char *world_run(uint64_t seed, const struct faults *f, const struct options *o,
                      const struct mutation *m, struct lw_counts *totals) {
    static char bad[512];
    struct world *w = lw_alloc(sizeof *w);
    w->rng = seed * 7919 + 17;
    w->f = f;
    w->o = o;
    w->mutation = m;
    w->faults_on = true;
    if (setjmp(w->out) == 0) {
        set_up(w);
        for (int i = 0; i < o->steps; i++) world_step(w);
        w->faults_on = false; /* oracle O6: once faults stop, everything must get done */
        w->calm_ms = w->now_ms;
        operator_rest(w);
        limits_resume(w);
        if (f->move > 0) cluster_rest(w);
        trace(w, "faults stop");
        int i = 0;
        for (; i < 150000 && !all_committed(w); i++) {
            world_step(w);
            limits_idle(w);
        }
        if (!all_committed(w) && o->trace) world_dump(w);
        if (!all_committed(w))
            world_bad(w,
                      "stuck: commits %" PRId64 " %" PRId64 " %" PRId64 " of %" PRId64 " %" PRId64
                      " %" PRId64,
                      w->part[0].committed, w->part[1].committed, w->part[2].committed,
                      w->part[0].offset[o->records - 1] + 1, w->part[1].offset[o->records - 1] + 1,
                      w->part[2].offset[o->records - 1] + 1);
        for (i = 0; i < 8000; i++) world_step(w);
        oracle_end(w);
        if (f->move > 0) cluster_judge(w);
    }
    if (totals) {
        totals->done += w->counts.done;
        totals->parked += w->counts.parked;
        totals->drained += w->counts.drained;
        totals->retried += w->dups;
        totals->stale += w->counts.stale;
        totals->dead += w->counts.dead;
        totals->epochs_lost += w->counts.epochs_lost;
        totals->received += w->runs;
        totals->redelivered += w->cuts;
    }
    snprintf(bad, sizeof bad, "%s", w->bad);
    tear_down(w);
    free(w);
    return bad[0] ? bad : NULL;
}
