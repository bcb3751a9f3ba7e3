/* SPDX-License-Identifier: Apache-2.0 */
/* Implements struct lw_io, the functions by which the worker's logic reaches Redis, Kafka, handlers
 * and clocks, and the callbacks that bring the answers. */
#include "consumer/process/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

#include <stdlib.h>

/* --- clocks and chance ------------------------------------------------------------------------ */

static int64_t io_boot_ms(void *ctx) {
    (void)ctx;
    return lw_boot_ms();
}

static int64_t io_wall_ms(void *ctx) {
    (void)ctx;
    return lw_wall_ms();
}

/* Returns the next number of this process's random generator. The seed of the generator is a random
 * number from the kernel (process.c). */
static uint64_t io_random(void *ctx) { return lw_random_next(&((struct process *)ctx)->random); }

/* --- Redis ------------------------------------------------------------------------------------ */

static void io_connect(void *ctx, int shard) {
    lw_wire_connect(((struct process *)ctx)->links[shard].wire);
}

static void io_send(void *ctx, int shard, const struct lw_commands *c) {
    struct link *l = &((struct process *)ctx)->links[shard];
    l->sent_us = lw_boot_us();
    l->unanswered = c->n;
    lw_wire_send(l->wire, c);
}

static void io_hints(void *ctx, int shard, const char *ready, const char *claimed, bool want) {
    lw_hints_want(((struct process *)ctx)->links[shard].hints, ready, claimed, want);
}

void process_up(void *link) {
    const struct link *l = link;
    lw_worker_connected(l->process->logic, l->shard);
}

void process_reply(void *link, const redisReply *reply) {
    struct link *l = link;
    if (l->unanswered && !--l->unanswered)
        lw_hist_add(&l->process->self->counts.redis, &lw_bounds_redis, lw_boot_us() - l->sent_us);
    lw_worker_reply(l->process->logic, l->shard, reply);
}

void process_down(void *link, const char *why) {
    const struct link *l = link;
    lw_worker_disconnected(l->process->logic, l->shard, why);
}

void process_hint(void *process, int shard, struct lw_bytes lane) {
    lw_worker_hint(((struct process *)process)->logic, shard, lane);
}

/* --- handlers, dead letters ------------------------------------------------------------------- */

static void io_run(void *ctx, struct lw_job **jobs, size_t n) {
    const struct process *p = ctx;
    if (p->server)
        lw_server_submit(p->server, jobs, n);
    else
        lw_pool_submit(p->pool, jobs, n);
}

void process_trace(void *process, struct lw_job *job, const struct lw_waited *waited) {
    lw_tracer_begin(((struct process *)process)->tracer, job, waited);
}

/* Describes a dead letter on its way to its topic. */
struct sending {
    struct process *process;
    void *run;
};

static void on_sent(void *ctx, enum lw_letter_end how, const char *reason) {
    struct sending *s = ctx;
    lw_worker_sent(s->process->logic, s->run, how, reason);
    free(s);
}

static int io_letter(void *ctx, const struct lw_dead_letter *l, struct lw_err *err) {
    struct process *p = ctx;
    struct sending *s = lw_alloc(sizeof *s);
    *s = (struct sending){p, l->run};
    int bad = lw_sink_send(p->sink, l->topic, l->key, l->payload, l->headers, l->n_headers, on_sent,
                           s, err);
    if (bad) free(s);
    return bad;
}

/* --- Kafka ------------------------------------------------------------------------------------ */

static void io_pause(void *ctx, uint32_t gen, bool pause) {
    lw_source_pause(((struct process *)ctx)->source, gen, pause);
}

static int io_seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err) {
    return lw_source_seek(((struct process *)ctx)->source, gen, offset, err);
}

static int io_commit(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err) {
    return lw_source_commit(((struct process *)ctx)->source, c, n, err);
}

static bool io_commit_busy(void *ctx) {
    return lw_source_commit_busy(((struct process *)ctx)->source);
}

static int io_commit_sync(void *ctx, const struct lw_commit *c, size_t n, bool *ok,
                          struct lw_err *err) {
    struct process *p = ctx;
    return lw_source_commit_sync(p->source, c, n, ok, p->commit_ms, err);
}

static int io_committed(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                        struct lw_err *err) {
    return lw_source_committed(((struct process *)ctx)->source, topic, partition, offset, err);
}

static bool io_look(void *ctx) {
    const struct process *p = ctx;
    return p->source && lw_source_look(p->source, true);
}

static void io_release(void *ctx, void *origin) {
    (void)ctx;
    rd_kafka_message_destroy(origin);
}

static void io_passed(void *ctx, const char *topic, int32_t partition, int64_t watermark) {
    struct process *p = ctx;
    if (p->type->passed) p->type->passed(p->handler, topic, partition, watermark);
}

int64_t process_log_end(void *process, uint32_t gen) {
    return lw_source_log_end(((struct process *)process)->source, gen);
}

static void on_assign(void *ctx, const struct lw_assigned *a) {
    lw_worker_assign(((struct process *)ctx)->logic, a);
}

static bool on_revoke(void *ctx, const uint32_t *gens, size_t n, bool lost) {
    struct process *p = ctx;
    /* a worker that was refused must not commit offsets when its partitions are revoked */
    bool refused = p->ended && p->status == LW_EXIT_REFUSED;
    return lw_worker_revoke(p->logic, gens, n, lost || refused || p->leaving);
}

static size_t take_headers(struct process *p, rd_kafka_message_t *m) {
    rd_kafka_headers_t *all;
    if (rd_kafka_message_headers(m, &all)) return 0; /* the message has no headers */
    size_t n = rd_kafka_header_cnt(all);
    if (n > p->cap_headers) {
        p->headers = lw_realloc(p->headers, n * sizeof *p->headers);
        p->cap_headers = n;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name;
        const void *value;
        size_t size;
        if (rd_kafka_header_get_all(all, i, &name, &value, &size)) return i;
        p->headers[i] = (struct lw_header){lw_bytes_of(name), lw_bytes(value, value ? size : 0)};
    }
    return n;
}

static void on_record(void *ctx, uint32_t gen, rd_kafka_message_t *m) {
    struct process *p = ctx;
    size_t n_headers = take_headers(p, m);
    struct lw_arrival a = {
        .record = {.key = lw_bytes(m->key, m->key_len),
                   .payload = lw_bytes(m->payload, m->len),
                   .headers = p->headers,
                   .n_headers = n_headers},
        .offset = m->offset,
        .timestamp_ms = rd_kafka_message_timestamp(m, NULL),
        .origin = m,
    };
    lw_worker_arrived(p->logic, gen, &a);
}

static void on_end(void *ctx, uint32_t gen, int64_t offset) {
    lw_worker_end(((struct process *)ctx)->logic, gen, offset);
}

static void on_looked(void *ctx, const struct lw_group_offset *o) {
    lw_worker_looked(((struct process *)ctx)->logic, o);
}

static void on_listed(void *ctx, bool known, size_t commits) {
    lw_worker_listed(((struct process *)ctx)->logic, known, commits);
}

static void on_committed(void *ctx, uint32_t gen, int64_t offset, bool ok) {
    lw_worker_committed(((struct process *)ctx)->logic, gen, offset, ok);
}

static void on_fatal(void *ctx, const char *reason) {
    struct process *p = ctx;
    process_end(p, lw_source_refused(p->source) ? LW_EXIT_REFUSED : LW_EXIT_FAILED, reason);
    if (!lw_source_fenced(p->source)) return;
    lw_warn("this worker restarts as a dynamic member of the group; when it dies, the whole group "
            "waits session.timeout.ms");
    atomic_store(&p->self->fenced, LW_FENCED_NOW);
}

const struct lw_source_events process_kafka = {
    .assign = on_assign,
    .revoke = on_revoke,
    .record = on_record,
    .end = on_end,
    .committed = on_committed,
    .looked = on_looked,
    .listed = on_listed,
    .fatal = on_fatal,
};

static void io_stop(void *ctx, int status, const char *reason) { process_end(ctx, status, reason); }

const struct lw_io process_io = {
    .boot_ms = io_boot_ms,
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
    .look = io_look,
    .release = io_release,
    .passed = io_passed,
    .stop = io_stop,
};
