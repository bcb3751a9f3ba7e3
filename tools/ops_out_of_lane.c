#include "tools/ops_out_of_lane.h"

#include "base/clock.h"
#include "consumer/source.h"
#include "handlers/handler.h"
#include "tools/ops_job.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY = 64, ACK_MS = 60000, CLOSE_MS = 5000, SPARE_MS = 5000, NO_LIMIT_MS = 600000, HELD_MS = 3000, LOOK_MS = 20 };

/* ---- to a topic ---- */

struct sending {
    struct ops_job *j;
    struct lw_sink *sink;
    int under_way;
};
struct letter {
    struct sending *s;
    char identity[320];
};

static void answered(void *ctx, bool ok, const char *reason) {
    struct letter *l = ctx;
    l->s->under_way--;
    if (ok)
        ops_job_done(l->s->j, l->identity, 'T', "");
    else if (ops_job_problem(l->s->j, l->identity, reason))
        l->s->j->stopped = true;
    free(l);
}

static void wait_for(struct sending *s, int most) {
    int64_t until = lw_boot_ms() + ACK_MS;
    while (s->under_way > most && lw_boot_ms() < until) {
        lw_sink_poll(s->sink);
        if (s->under_way > most) lw_sleep_ms(1);
    }
}

static int send_one(struct ops *o, struct ops_message *m, void *ctx) {
    struct sending *s = ctx;
    char identity[320];
    ops_identity(&m->e, identity, sizeof identity);
    if (m->bad) return ops_job_problem(s->j, m->id, "not a message of this version");
    int stop = ops_job_take(s->j);
    if (stop < 0 || s->j->stopped) return -1;
    if (s->j->dry) return ops_job_done(s->j, identity, 'T', "") || stop;
    struct letter *l = lw_alloc(sizeof *l);
    l->s = s;
    snprintf(l->identity, sizeof l->identity, "%s", identity);
    struct lw_header *h = lw_alloc((m->e.n_headers + 1) * sizeof *h);
    if (m->e.n_headers) memcpy(h, m->e.headers, m->e.n_headers * sizeof *h);
    h[m->e.n_headers] = (struct lw_header){lw_bytes_of("latchwork-origin"), lw_bytes_of(l->identity)};
    int bad = lw_sink_send(s->sink, o->args.to_topic, m->e.key, m->e.payload, h, m->e.n_headers + 1, answered, l, &o->err);
    free(h);
    if (bad) {
        free(l);
        return -1;
    }
    s->under_way++;
    wait_for(s, UNDER_WAY);
    return stop || s->j->stopped;
}

int ops_to_topic(struct ops *o, ops_each_fn *each) {
    static struct ops_job j;
    if (ops_job_begin(o, &j, OPS_PUT)) return OPS_FAILED;
    struct sending s = {.j = &j};
    if (!j.dry) s.sink = lw_sink_open(o->c, &o->err);
    int stop = j.dry || s.sink ? each(o, send_one, &s) : -1;
    if (s.sink) {
        wait_for(&s, 0);
        lw_sink_close(s.sink, CLOSE_MS); /* what is left is answered within */
    }
    return ops_job_end(&j, stop);
}

/* ---- to a handler ---- */

struct trial {
    struct ops_job *j;
    const struct lw_handler_type *type;
    struct lw_handler *handler;
    struct lw_slot *slot;
};

static void hold_script(struct trial *t, struct lw_bytes lane, const char *what, int64_t ttl_ms) {
    struct ops *o = t->j->o;
    struct ops_shard *sh = ops_shard_of(o, lane);
    struct lw_bytes none = lw_bytes("", 0);
    char token[80];
    snprintf(token, sizeof token, "trial-%s.1", t->j->token);
    ops_script(o, &lw_op_hold, 6);
    ops_key(o, sh, "epoch", none), ops_key(o, sh, "lanes", none), ops_key(o, sh, "floor", none), ops_key(o, sh, "fence", none);
    ops_key(o, sh, "ready", none), ops_key(o, sh, "lock:", lane);
    lw_arg_text(&o->cmd, what), lw_arg_copy(&o->cmd, token, strlen(token)), lw_arg_i64(&o->cmd, ttl_ms),
        lw_arg_i64(&o->cmd, o->c->lock.ttl_ms / 2);
}

/* 0: it is ours; 1: another's; -1 */
static int take_lane(struct trial *t, struct lw_bytes lane, int64_t ttl_ms, uint64_t *fence) {
    struct ops *o = t->j->o;
    hold_script(t, lane, "take", ttl_ms);
    redisReply *r = ops_ask_for(o, ops_shard_of(o, lane), REDIS_REPLY_STRING);
    if (!r) return -1;
    *fence = strtoull(r->str, NULL, 10);
    int answer = *fence ? 0 : r->len ? lw_fail(&o->err, "shard %d is not ready: %s", ops_shard_of(o, lane)->index, r->str) : 1;
    freeReplyObject(r);
    return answer;
}

static void run_job(struct trial *t, struct ops_message *m, const char *identity, uint64_t fence, int64_t limit_ms, struct lw_job *job) {
    static char topic[256];
    static struct lw_job_lease lease;
    atomic_store(&lease.deadline_ms, lw_boot_ms() + limit_ms + SPARE_MS / 2);
    atomic_store(&lease.cancelled, false);
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
                           .fence = fence,
                           .lease = &lease,
                           .give_up_ms = lw_boot_ms() + limit_ms};
    snprintf(job->identity, sizeof job->identity, "%s", identity);
    t->type->run(t->handler, t->slot, (struct lw_job *[]){job}, 1);
}

static int try_one(struct ops *o, struct ops_message *m, void *ctx) {
    static const char *const outcomes[] = {[LW_DONE] = "done", [LW_RETRY] = "retry", [LW_DEAD] = "dead", [LW_BACK] = "not run"};
    struct trial *t = ctx;
    static struct lw_job job;
    char identity[320], more[700];
    if (m->bad || !m->lane.p) return ops_job_problem(t->j, m->id, "it has no lane, so it can't be tried");
    struct lw_envelope e = m->e;
    e.replay = t->j->number;
    ops_identity(&e, identity, sizeof identity);
    int stop = ops_job_take(t->j);
    if (stop < 0) return -1;
    if (t->j->dry) return ops_job_done(t->j, identity, 'R', "") || stop;
    int64_t limit_ms = o->c->handler.timeout_ms ? o->c->handler.timeout_ms : NO_LIMIT_MS;
    uint64_t fence;
    int held;
    int64_t until = lw_boot_ms() + HELD_MS; /* beside loaded workers a lane is seldom free at once */
    while ((held = take_lane(t, m->lane, limit_ms + SPARE_MS, &fence)) > 0 && lw_boot_ms() < until) lw_sleep_ms(LOOK_MS);
    if (held < 0) return -1;
    if (held) return ops_job_problem(t->j, identity, "its lane is held; try again, or pause the lane first") || stop;
    int64_t from = lw_boot_ms();
    run_job(t, m, identity, fence, limit_ms, &job);
    hold_script(t, m->lane, "free", 0);
    long long was_ours;
    if (ops_ask_int(o, ops_shard_of(o, m->lane), &was_ours)) return -1;
    snprintf(more, sizeof more, "%s in %lld ms%s%s", outcomes[job.outcome], (long long)(lw_boot_ms() - from), job.reason[0] ? ": " : "",
             job.reason);
    if (job.outcome != LW_DONE) return ops_job_problem(t->j, identity, more) || stop;
    return ops_job_done(t->j, identity, 'R', more) || stop;
}

int ops_try(struct ops *o, ops_each_fn *each) {
    static struct ops_job j;
    if (ops_job_begin(o, &j, OPS_PUT)) return OPS_FAILED;
    signal(SIGPIPE, SIG_IGN); /* a handler's process may end while we write to it */
    struct trial t = {.j = &j};
    int bad = 0;
    if (!j.dry) {
        t.type = lw_handler_find(o->c->handler.type, &o->err);
        t.handler = t.type ? t.type->open(o->c, 0, &o->err) : NULL;
        t.slot = t.handler ? t.type->slot_open(t.handler, 0, &o->err) : NULL;
        bad = t.slot ? 0 : -1;
    }
    int stop = bad ? -1 : each(o, try_one, &t);
    if (t.slot) t.type->slot_close(t.handler, t.slot);
    if (t.handler) t.type->close(t.handler);
    return ops_job_end(&j, stop);
}
