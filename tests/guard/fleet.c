/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guard/fleet.h"
#include "tests/guard/meter.h"

#include "base/log.h"
#include "consumer/process/tracer.h"
#include "consumer/worker/worker.h"
#include "handlers/span.h"
#include "tests/sim/redis/store.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ROUND_MS = 2,
    PAYLOAD = 200,
    BURST = 64 /* maximum number of records of one partition that are delivered in a row */,
    /* Maximum number of records that are delivered to a worker in one round of the fleet. */
    RECORDS = 512,
    JOBS = 4096,
    REPLIES = 64,
    ROUNDS_MAX = 200000
};
enum { TTL_MS = 10000, START_MS = 1000000, WALL_MS = 100000000 };

struct rec {
    char key[16];
    size_t n_key;
    int key_number, runs;
};

struct log { /* the log of one Kafka partition */
    struct rec *rec;
    /* `n`: number of records in the log; `next`: index of the next record to deliver */
    int n, next;
    int ran;
    /* For each key: one more than the largest index of a record of this key that has run. The
     * records of a key must run in the order of their indexes. */
    int *after;
    uint32_t gen;
    bool paused;
    int64_t committed;
};

struct member {
    struct fleet *fleet;
    struct lw_worker *lw;
    struct lw_io io;
    struct lw_tracer *tracer; /* the worker's tracer; NULL if messages are not traced */
    char id[24];
    bool connecting, wants_hints;
    char ready[64], claimed[96];
    redisReply *reply[REPLIES];
    int n_replies;
    /* Jobs that the worker gave to the handler. The handler finishes them in the next round of the
     * fleet. */
    struct lw_job *job[JOBS];
    int n_jobs;
    struct lw_commit commit[FLEET_PARTITIONS];
    int n_commit;
};

struct fleet {
    const struct fleet_shape *shape;
    struct lw_config *config;
    struct lw_board *board; /* the fleet's board; NULL if shape->board is false */
    struct lw_counts counts;
    struct store *store;
    int64_t now_ms;
    uint64_t random;
    struct log log[FLEET_PARTITIONS];
    struct member member[FLEET_WORKERS];
    bool paused;
    int64_t stride;
    uint64_t rounds, commands, bytes;
    char payload[PAYLOAD];
};

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("guard: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* Returns a random number below `below`, made by the generator splitmix64. */
static uint64_t draw(struct fleet *f, uint64_t below) {
    uint64_t z = f->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* --- Redis ------------------------------------------------------------------------------------ */

static size_t digits(size_t n) {
    size_t d = 1;
    for (; n > 9; n /= 10) d++;
    return d;
}

static redisReply *ask(struct fleet *f, int argc, const char *const *argv, const size_t *len) {
    f->commands++;
    f->bytes += 1 + digits((size_t)argc) + 2; /* number of bytes in *ARGC\r\n */
    for (int i = 0; i < argc; i++) {
        size_t n = len ? len[i] : strlen(argv[i]);
        f->bytes += 1 + digits(n) + 2 + n + 2; /* number of bytes in $LEN\r\nBYTES\r\n */
    }
    store_set_time_us(f->store, (f->now_ms + WALL_MS) * 1000);
    redisReply *r = store_call(f->store, argc, argv, len);
    if (r->type == REDIS_REPLY_ERROR) die("%s: Redis: %s", f->shape->name, r->str);
    return r;
}

static void io_connect(void *ctx, int shard) {
    (void)shard;
    ((struct member *)ctx)->connecting = true;
}

/* Executes a worker's pipeline at once. The worker gets the answers in the next round. */
static void io_send(void *ctx, int shard, const struct lw_commands *c) {
    struct member *me = ctx;
    (void)shard;
    meter_leave();
    if (me->n_replies || c->n > REPLIES) die("a pipeline too many, or one of %d commands", c->n);
    for (int i = 0; i < c->n; i++)
        me->reply[me->n_replies++] =
            ask(me->fleet, c->cmd[i].argc, c->argv + c->cmd[i].first, c->len + c->cmd[i].first);
    meter_enter();
}

static void io_hints(void *ctx, int shard, const char *ready, const char *claimed, bool want) {
    struct member *me = ctx;
    (void)shard;
    meter_leave();
    me->wants_hints = want;
    snprintf(me->ready, sizeof me->ready, "%s", ready);
    snprintf(me->claimed, sizeof me->claimed, "%s", claimed);
    meter_enter();
}

static void serve_redis(struct member *me) {
    if (me->connecting) {
        me->connecting = false;
        meter_enter();
        lw_worker_connected(me->lw, 0);
        meter_leave();
        return;
    }
    redisReply *reply[REPLIES];
    int n = me->n_replies;
    memcpy(reply, me->reply, sizeof reply);
    /* Reset the counter before the replies are passed on, because the last reply may make the
     * worker send its next pipeline. */
    me->n_replies = 0;
    for (int i = 0; i < n; i++) {
        meter_enter();
        lw_worker_reply(me->lw, 0, reply[i]);
        meter_leave();
        freeReplyObject(reply[i]);
    }
}

/* Moves one hint per command, as workers do in production, because the number of commands is
 * measured. */
static void serve_hints(struct member *me) {
    struct fleet *f = me->fleet;
    if (!me->wants_hints || !store_length(f->store, me->ready, strlen(me->ready))) return;
    const char *argv[] = {"RPOPLPUSH", me->ready, me->claimed};
    redisReply *r = ask(f, 3, argv, NULL);
    meter_enter();
    lw_worker_hint(me->lw, 0, lw_bytes(r->str, r->len));
    meter_leave();
    freeReplyObject(r);
}

/* --- the handler ------------------------------------------------------------------------------ */

static void io_run(void *ctx, struct lw_job **jobs, size_t n) {
    struct member *me = ctx;
    meter_leave();
    if (me->n_jobs + n > JOBS) die("more than %d jobs at once", JOBS);
    for (size_t i = 0; i < n; i++) me->job[me->n_jobs++] = jobs[i];
    meter_enter();
}

static void run(struct fleet *f, struct lw_job *job) {
    struct log *log = &f->log[job->partition];
    struct rec *r = &log->rec[job->offset / f->stride];
    if (r->runs++) die("%s ran twice", job->identity);
    if (!lw_bytes_eq(job->key, lw_bytes(r->key, r->n_key)) || job->payload.n != PAYLOAD)
        die("%s: another key or payload", job->identity);
    if (job->offset / f->stride < log->after[r->key_number])
        die("%s ran out of order", job->identity);
    log->after[r->key_number] = (int)(job->offset / f->stride) + 1;
    log->ran++;
    job->outcome = LW_DONE;
}

static void io_trace(void *ctx, struct lw_job *job, const struct lw_waited *waited) {
    lw_tracer_begin(((struct member *)ctx)->tracer, job, waited);
}

/* Writes the span of a job as the worker process does, and at once removes the span from the
 * worker's ring (the buffer of spans in consumer/spans.h), so that the ring is never full. */
static void trace_end(struct member *me, struct lw_job *job) {
    struct lw_span_ring *ring = &me->fleet->board->spans[0];
    job->took_us = 1;
    job->span->begun_us = job->span->ended_us = 1000 * me->fleet->now_ms;
    lw_tracer_end(me->tracer, job);
    if (lw_span_count(ring) != 1) die("%s: no span", job->identity);
    lw_span_release(ring, 1);
}

static void serve_handlers(struct member *me) {
    static struct lw_job *ready[JOBS];
    int n = me->n_jobs;
    memcpy(ready, me->job, (size_t)n * sizeof ready[0]);
    me->n_jobs = 0;
    for (int i = 0; i < n; i++)
        for (struct lw_job *job = ready[i], *next; job; job = next) {
            run(me->fleet, job);
            next = lw_job_end(job);
            meter_enter();
            if (me->tracer) trace_end(me, job);
            lw_worker_finished(me->lw, job);
            meter_leave();
        }
}

static int io_letter(void *ctx, const struct lw_dead_letter *l, struct lw_err *err) {
    (void)ctx, (void)l;
    return lw_fail(err, "no dead letters here");
}

/* --- Kafka ------------------------------------------------------------------------------------ */

static struct log *log_of(struct member *me, uint32_t gen) { return &me->fleet->log[gen - 1]; }
static void io_pause(void *ctx, uint32_t gen, bool pause) { log_of(ctx, gen)->paused = pause; }
static int io_seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err) {
    (void)ctx, (void)err;
    die("partition %u goes back to %" PRId64, gen - 1, offset);
}
static int io_commit(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err) {
    struct member *me = ctx;
    (void)err;
    for (size_t i = 0; i < n; i++) me->commit[me->n_commit++] = c[i];
    return 0;
}
static bool io_commit_busy(void *ctx) { return ((struct member *)ctx)->n_commit > 0; }
static int io_commit_sync(void *ctx, const struct lw_commit *c, size_t n, bool *ok,
                          struct lw_err *err) {
    (void)ctx, (void)c, (void)n, (void)ok, (void)err;
    die("a synchronous commit");
}
static int io_committed(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                        struct lw_err *err) {
    (void)topic, (void)err;
    *offset = ((struct member *)ctx)->fleet->log[partition].committed;
    return 0;
}
static void io_release(void *ctx, void *origin) { (void)ctx, (void)origin; }
static void io_passed(void *ctx, const char *topic, int32_t partition, int64_t watermark) {
    (void)ctx, (void)topic, (void)partition, (void)watermark;
}

static void serve_commits(struct member *me) {
    for (int i = 0; i < me->n_commit; i++) {
        const struct lw_commit *c = &me->commit[i];
        log_of(me, c->gen)->committed = c->offset;
        meter_enter();
        lw_worker_committed(me->lw, c->gen, c->offset, true);
        meter_leave();
    }
    me->n_commit = 0;
}

static bool mine(const struct member *me, int partition) {
    return partition % me->fleet->shape->workers == (int)(me - me->fleet->member);
}

static int deliver(struct member *me, int p, int most) {
    struct log *log = &me->fleet->log[p];
    int n = 0;
    for (; n < most && !log->paused && log->next < log->n; n++) {
        struct rec *r = &log->rec[log->next];
        struct lw_arrival a = {.record = {.key = lw_bytes(r->key, r->n_key),
                                          .payload = lw_bytes(me->fleet->payload, PAYLOAD)},
                               .offset = me->fleet->stride * log->next++,
                               .timestamp_ms = WALL_MS,
                               .origin = r};
        meter_enter();
        lw_worker_arrived(me->lw, log->gen, &a);
        meter_leave();
    }
    return n;
}

static void serve_kafka(struct member *me) {
    size_t wanted = lw_worker_wants(me->lw);
    int most = me->fleet->shape->ahead, n = 0, before;
    serve_commits(me);
    for (int p = 0; p < FLEET_PARTITIONS; p++)
        if (mine(me, p)) most -= me->fleet->log[p].next - me->fleet->log[p].ran;
    if (most > RECORDS) most = RECORDS;
    if ((size_t)(most > 0 ? most : 0) > wanted) most = (int)wanted;
    do {
        before = n;
        for (int p = 0; p < FLEET_PARTITIONS && n < most; p++)
            if (mine(me, p)) n += deliver(me, p, most - n < BURST ? most - n : BURST);
    } while (n > before && n < most);
}

/* --- the fleet -------------------------------------------------------------------------------- */

static int64_t io_boot_ms(void *ctx) { return ((struct member *)ctx)->fleet->now_ms; }
static int64_t io_wall_ms(void *ctx) { return ((struct member *)ctx)->fleet->now_ms + WALL_MS; }
static uint64_t io_random(void *ctx) { return draw(((struct member *)ctx)->fleet, UINT64_MAX); }
static void io_stop(void *ctx, int status, const char *reason) {
    (void)ctx;
    die("a worker stops with %d: %s", status, reason);
}

static const struct lw_io io = {.boot_ms = io_boot_ms,
                                .wall_ms = io_wall_ms,
                                .random = io_random,
                                .connect = io_connect,
                                .send = io_send,
                                .hints = io_hints,
                                .run = io_run,
                                .letter = io_letter,
                                .pause = io_pause,
                                .seek = io_seek,
                                .commit = io_commit,
                                .commit_busy = io_commit_busy,
                                .commit_sync = io_commit_sync,
                                .committed = io_committed,
                                .release = io_release,
                                .passed = io_passed,
                                .stop = io_stop};

/* Returns the configuration of a worker: the text below, with the settings that `shape`, the
 * description of the fleet, changes. */
static struct lw_config *configure(const struct fleet_shape *shape) {
    static const char text[] =
        "{\"name\": \"guard\", \"kafka\": {\"topics\": [\"work\"]}, \"lock\": {\"ttl_ms\": 10000},"
        " \"handler\": {\"type\": \"exec\", \"command\": [\"none\"], \"processes\": 4}}";
    struct lw_problems problems = {0};
    struct lw_config *c = lw_config_parse("guard", text, sizeof text - 1, NULL, 0, &problems);
    if (c && shape->traced) c->tracing.endpoint = lw_strdup("http://127.0.0.1:4318/v1/traces");
    if (c && shape->max_waiting) c->queue.max_waiting = shape->max_waiting;
    if (!c) die("%.*s", (int)problems.errors.n, problems.errors.p);
    if (c->lock.ttl_ms != TTL_MS) die("lock.ttl_ms is not %d", TTL_MS);
    lw_problems_free(&problems);
    return c;
}

static void produce(struct fleet *f) {
    for (int p = 0; p < FLEET_PARTITIONS; p++) {
        f->log[p].rec = lw_alloc((size_t)f->shape->records * sizeof(struct rec));
        f->log[p].after = lw_alloc((size_t)f->shape->keys * sizeof(int));
        f->log[p].gen = (uint32_t)p + 1;
        f->log[p].committed = -1;
    }
    for (int i = 0; i < f->shape->records; i++) {
        struct log *log = &f->log[draw(f, FLEET_PARTITIONS)];
        struct rec *r = &log->rec[log->n++];
        bool stays = log == &f->log[0] && log->n % 4 == 1 && log->n < 4 * f->shape->stays;
        /* If some records must stay unfinished until the end, only these records have key 0. */
        int first = f->shape->stays ? 1 : 0;
        r->key_number = stays ? 0 : first + (int)draw(f, (uint64_t)(f->shape->keys - first));
        r->n_key = (size_t)snprintf(r->key, sizeof r->key, "k-%d", r->key_number);
    }
    memset(f->payload, 'x', sizeof f->payload);
}

static void join(struct fleet *f, int index) {
    struct member *me = &f->member[index];
    me->fleet = f;
    me->io = io;
    if (f->shape->traced) me->tracer = lw_tracer_open(f->config, f->board, index, "", 1);
    if (me->tracer) me->io.trace = io_trace;
    snprintf(me->id, sizeof me->id, "host-1-%08d", index);
    meter_enter();
    me->lw =
        lw_worker_open(&(struct lw_worker_setup){.config = f->config,
                                                 .board = f->board,
                                                 .counts = &f->counts,
                                                 .index = index,
                                                 .id = me->id,
                                                 .host = "host",
                                                 .cluster_id = "",
                                                 .io = &me->io,
                                                 .ctx = me,
                                                 .part_records = (size_t)f->shape->part_records});
    for (int p = 0; p < FLEET_PARTITIONS; p++)
        if (mine(me, p))
            lw_worker_assign(me->lw, &(struct lw_assigned){.topic = "work",
                                                           .partition = p,
                                                           .gen = f->log[p].gen,
                                                           .committed = -1,
                                                           .log_end = f->stride * f->log[p].n});
    meter_leave();
}

static void leave(struct fleet *f) {
    for (int i = 0; i < f->shape->workers; i++) {
        struct member *me = &f->member[i];
        for (int k = 0; k < me->n_replies; k++) freeReplyObject(me->reply[k]);
        meter_enter();
        lw_worker_free(me->lw);
        lw_tracer_close(me->tracer);
        meter_leave();
    }
    for (int p = 0; p < FLEET_PARTITIONS; p++) free(f->log[p].rec), free(f->log[p].after);
    store_close(f->store);
    lw_board_close(f->board);
    lw_config_free(f->config);
}

/* Runs one round, in which each worker is served once. During the quarantine of a fresh Redis
 * nothing can run, so no records are delivered, and the clock advances faster. */
static void one_round(struct fleet *f) {
    bool quiet = f->now_ms < START_MS + 2 * TTL_MS;
    for (int i = 0; i < f->shape->workers; i++) {
        struct member *me = &f->member[i];
        serve_handlers(me);
        serve_redis(me);
        serve_hints(me);
        if (!quiet) serve_kafka(me);
        meter_enter();
        lw_worker_turn(me->lw);
        meter_leave();
    }
    f->now_ms += quiet ? 20 * ROUND_MS : ROUND_MS;
    f->rounds++;
}

/* Returns how many commands the fake Redis has run, including the commands called by scripts. */
static uint64_t all_runs(void) {
    uint64_t n = 0;
    for (size_t i = 0; store_command(i); i++) n += store_command_runs(i);
    return n;
}

static uint64_t handled(const struct fleet *f) {
    return f->paused ? f->counts.parked : f->counts.done;
}

static struct fleet_figures figures(const struct fleet *f) {
    return (struct fleet_figures){.messages = handled(f),
                                  .rounds = f->rounds,
                                  .commands = f->commands,
                                  .bytes = f->bytes,
                                  .inside = all_runs() - f->commands,
                                  .allocations = meter_allocations(),
                                  .parked = f->counts.parked,
                                  .drained = f->counts.drained};
}

static struct fleet_figures less(struct fleet_figures a, struct fleet_figures b) {
    return (struct fleet_figures){.messages = a.messages - b.messages,
                                  .rounds = a.rounds - b.rounds,
                                  .commands = a.commands - b.commands,
                                  .bytes = a.bytes - b.bytes,
                                  .inside = a.inside - b.inside,
                                  .allocations = a.allocations - b.allocations,
                                  .parked = a.parked - b.parked,
                                  .drained = a.drained - b.drained};
}

static void lane_paused(struct fleet *f, const char *command, int key) {
    char name[16];
    snprintf(name, sizeof name, "k-%d", key);
    freeReplyObject(ask(f, 3, (const char *[]){command, "lw:{guard.0}:paused", name}, NULL));
}

static void rounds_until(struct fleet *f, uint64_t n) {
    while (handled(f) < n) {
        if (f->rounds == ROUNDS_MAX)
            die("%s: stuck at %" PRIu64 " of %d", f->shape->name, handled(f), f->shape->records);
        one_round(f);
    }
}

/* One record of partition 0 stays unfinished. Runs rounds until the worker holds back partition 0
 * and all records of the other partitions are done. By then, the worker must have taken at least as
 * many records of partition 0 as it may remember, and at most RECORDS more, which is the maximum
 * number of records that one round delivers. */
static void until_full(struct fleet *f) {
    uint64_t most = (uint64_t)f->shape->part_records,
             others = (uint64_t)(f->shape->records - f->log[0].n);
    rounds_until(f, others + most / 2);
    for (int i = 0; i < 2000; i++) one_round(f);
    if (!f->log[0].paused || f->log[0].next < (int)most || f->log[0].next > (int)most + RECORDS ||
        f->log[0].next == f->log[0].n)
        die("%s: %d of %d records were taken, paused: %d", f->shape->name, f->log[0].next,
            f->log[0].n, f->log[0].paused);
    rounds_until(f, others + most - 1);
}

static bool all_ran(const struct fleet *f) {
    for (int p = 0; p < FLEET_PARTITIONS; p++)
        for (int i = 0; i < f->log[p].n; i++)
            if (f->log[p].rec[i].runs != 1) return false;
    return true;
}

void fleet_run(const struct fleet_shape *shape, struct fleet_figures *out) {
    struct fleet *f = lw_alloc(sizeof *f);
    f->shape = shape;
    f->stride = shape->stride ? shape->stride : 1;
    f->now_ms = START_MS;
    f->random = 1;
    f->config = configure(shape);
    f->board = shape->board ? lw_board_open(FLEET_WORKERS, &(struct lw_err){0}) : NULL;
    if (shape->board && !f->board) die("no memory for the board");
    if (shape->traced && lw_board_add_spans(f->board, &(struct lw_err){0}))
        die("no memory for spans");
    lw_log_setup(LW_LOG_WARN, false, shape->name);
    produce(f);
    f->store = store_open(1);
    f->paused = shape->paused;
    for (int k = 0; k < shape->keys && shape->paused; k++) lane_paused(f, "SADD", k);
    if (shape->stays) lane_paused(f, "SADD", 0);
    for (int i = 0; i < shape->workers; i++) join(f, i);
    rounds_until(f, (uint64_t)shape->from);
    struct fleet_figures before = figures(f);
    meter_turn(true);
    rounds_until(f, (uint64_t)shape->to);
    meter_turn(false);
    *out = less(figures(f), before);
    for (int k = 0; k < shape->keys && shape->paused; k++) lane_paused(f, "SREM", k);
    /* The lanes that were paused for the measurement can go on, because tend finds them and makes
     * hints for them. From now on, messages are counted when they are done. */
    f->paused = false;
    if (shape->part_records) {
        until_full(f);
        lane_paused(f, "SREM", 0);
    } else if (shape->stays) {
        rounds_until(f, (uint64_t)(shape->records - shape->stays));
        lane_paused(f, "SREM", 0);
    }
    rounds_until(f, (uint64_t)shape->records);
    if (!all_ran(f)) die("%s: done, though not all ran", shape->name);
    leave(f);
    free(f);
}
