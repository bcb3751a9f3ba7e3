#include "tests/sim/world.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- chance ------------------------------------------------------------------------------------------------------------------------ */

uint64_t rnd(struct world *w) { /* splitmix64 */
    uint64_t z = (w->rng += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
int rnd_below(struct world *w, int n) { return (int)(rnd(w) % (uint64_t)n); }
double rnd_unit(struct world *w) { return (double)(rnd(w) >> 11) / 9007199254740992.0; }

_Noreturn void world_bad(struct world *w, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->bad, sizeof w->bad, fmt, ap);
    va_end(ap);
    longjmp(w->out, 1);
}

static void trace(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void trace(struct world *w, const char *fmt, ...) {
    if (!w->o->trace) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%6" PRId64 " ", w->now_ms);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

int key_of_name(struct lw_bytes key) { return key.n == 2 ? key.p[1] - '0' : -1; }
static const char *const key_names[KEYS] = {"k0", "k1", "k2", "k3"};

/* --- Redis ------------------------------------------------------------------------------------------------------------------------- */

static struct server *server_new(struct world *w, struct store *st, int shard) {
    if (w->n_servers == SERVERS) world_bad(w, "too many servers for one run");
    struct server *s = lw_alloc(sizeof *s);
    s->store = st;
    s->until_ms = -1;
    s->shard = shard;
    w->servers[w->n_servers++] = s;
    return s;
}

static bool serves(struct world *w, const struct server *s) { return s->until_ms < 0 || w->now_ms < s->until_ms; }

static redisReply *call(struct world *w, struct server *s, int argc, const char *const *argv, const size_t *len) {
    store_set_time_us(s->store, (w->now_ms + s->skew_ms + 1000000000) * 1000 + 123);
    if (w->o->trace) {
        fprintf(stderr, "%6" PRId64 "   redis %d:", w->now_ms, s->shard);
        for (int i = 0; i < argc && i < 60; i++) {
            size_t n = len ? len[i] : strlen(argv[i]);
            if (n > 60 && !strcmp(argv[0], "SCRIPT")) break;
            fprintf(stderr, " %.*s", n > 40 ? 40 : (int)n, argv[i]);
        }
        fputc('\n', stderr);
    }
    redisReply *r = store_call(s->store, argc, argv, len);
    if (r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOSCRIPT", 8) && strncmp(r->str, "OOM", 3)) world_bad(w, "script: %s", r->str);
    if (w->o->trace && !strcmp(argv[0], "EVALSHA")) {
        fprintf(stderr, "         ->");
        if (r->type == REDIS_REPLY_ARRAY)
            for (size_t i = 0; i < r->elements; i++) fprintf(stderr, " [%.30s]", r->element[i]->str ? r->element[i]->str : "");
        else
            fprintf(stderr, " %s", r->str ? r->str : "int");
        fputc('\n', stderr);
    }
    return r;
}

static int int_arg(const char *p, size_t n) {
    char t[24];
    snprintf(t, sizeof t, "%.*s", (int)(n > 20 ? 20 : n), p);
    return atoi(t);
}

static int64_t i64_arg(const char *p, size_t n) {
    char t[24];
    snprintf(t, sizeof t, "%.*s", (int)(n > 20 ? 20 : n), p);
    return strtoll(t, NULL, 10);
}

static bool finished_in(const struct server *s, int part, int64_t offset) {
    char name[100];
    const char *v;
    size_t n;
    int len = snprintf(name, sizeof name, "lw:{t.%d}:floor", s->shard);
    char field[20];
    int flen = snprintf(field, sizeof field, "t:%d", part);
    if (store_peek_hash(s->store, name, (size_t)len, field, (size_t)flen, &v, &n) && offset < i64_arg(v, n)) return true;
    len = snprintf(name, sizeof name, "lw:{t.%d}:state:t:%d:%" PRId64, s->shard, part, offset / 16384);
    if (!store_peek_string(s->store, name, (size_t)len, &v, &n)) return false;
    int64_t index = offset % 16384;
    if ((size_t)(index / 4) >= n) return false;
    return ((unsigned char)v[index / 4] >> (2 * (3 - index % 4)) & 3) >= 2;
}

/* A settle that makes dead letters: which of its messages die by it? */
struct dying {
    int n, item[256], part[256];
    int64_t offset[256];
    bool finished[256], letter[256];
};
static void look_for_dying(const struct server *s, int argc, char **argv, const size_t *len, struct dying *d) {
    int a = 2 + int_arg(argv[2], len[2]), n = (int)len[a + 7] / 7;
    const unsigned char *item = (const unsigned char *)argv[a + 7], *place = (const unsigned char *)argv[a + 8];
    (void)argc;
    for (int i = 0; i < n; i++, item += 7) {
        const unsigned char *last = place + 3 * (item[1] - 1);
        place += 3 * (item[1] + item[4]);
        if (!item[1] || (item[2] != 'x' && item[2] != 's')) continue;
        int g = a + 10 + 4 * (last[0] - 1), part = argv[g][2] - '0';
        int64_t offset = 16384 * i64_arg(argv[g + 1], len[g + 1]) + last[1] * 256 + last[2];
        d->finished[d->n] = finished_in(s, part, offset);
        d->letter[d->n] = item[2] == 'x'; /* not sent to its topic */
        d->item[d->n] = i;
        d->part[d->n] = part;
        d->offset[d->n++] = offset;
    }
}

static int64_t dead_letters(const struct server *s) {
    char name[40];
    snprintf(name, sizeof name, "lw:{t.%d}:dead", s->shard);
    redisReply *r = store_call(s->store, 2, (const char *const[]){"XLEN", name}, NULL);
    int64_t n = r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
    freeReplyObject(r);
    return n;
}

static redisReply *run_command(struct world *w, struct server *s, struct pcmd *c) {
    struct dying dying = {0};
    bool settle = !strcmp(c->argv[0], "EVALSHA") && w->settle_sha[0] && !strcmp(c->argv[1], w->settle_sha);
    int64_t letters = 0;
    if (settle) {
        look_for_dying(s, c->argc, c->argv, c->len, &dying);
        letters = dead_letters(s);
    }
    redisReply *r = call(w, s, c->argc, (const char *const *)c->argv, c->len);
    for (int i = 0; i < dying.n; i++) {
        if (r->type != REDIS_REPLY_ARRAY || r->element[1]->str[dying.item[i]] == 'S' || dying.finished[i]) continue;
        oracle_died(w, dying.part[i], dying.offset[i]);
        letters += dying.letter[i];
    }
    if (settle && dead_letters(s) != letters) world_bad(w, "a dead letter of a finished message");
    if (!strcmp(c->argv[0], "SCRIPT") && !w->settle_sha[0] && strstr(c->argv[2], "\n-- settle:"))
        snprintf(w->settle_sha, sizeof w->settle_sha, "%s", r->str);
    return r;
}

/* --- the wire ---------------------------------------------------------------------------------------------------------------------- */

static void pipe_free(struct pipe *p) {
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < p->cmd[i].argc; k++) free(p->cmd[i].argv[k]);
        free(p->cmd[i].argv);
        free(p->cmd[i].len);
        if (p->reply[i]) freeReplyObject(p->reply[i]);
    }
    free(p->cmd);
    free(p->reply);
    free(p);
}

static void pipe_remove(struct world *w, struct pipe *p) {
    for (int i = 0; i < w->n_pipes; i++)
        if (w->pipe[i] == p) {
            w->pipe[i] = w->pipe[--w->n_pipes];
            pipe_free(p);
            return;
        }
}

static struct pipe *pipe_of(struct world *w, int worker, int shard) {
    for (int i = 0; i < w->n_pipes; i++)
        if (w->pipe[i]->live && w->pipe[i]->worker == worker && w->pipe[i]->shard == shard) return w->pipe[i];
    return NULL;
}

/* The connection is gone: what did not execute yet may execute later all the same, or never. */
static void sever(struct world *w, struct pipe *p) {
    p->live = false;
    if (p->busy) return; /* in the middle of an answer: step_deliver ends it */
    if (p->done == p->n || rnd_unit(w) < 0.5) pipe_remove(w, p);
}

static const char *mutated(struct world *w, const char *text) {
    static char *made;
    const struct mutation *m = w->mutation;
    if (!m || !m->script) return text;
    char head[60];
    snprintf(head, sizeof head, "-- %s:", m->script);
    const char *at = strstr(text, m->from);
    if (!strstr(text, head) || !at) return text;
    free(made);
    struct lw_buf b = {0};
    lw_buf_add(&b, text, (size_t)(at - text));
    lw_buf_addf(&b, "%s%s%c", m->to, at + strlen(m->from), 0);
    made = b.p;
    return made;
}

static void io_send(void *ctx, int shard, const struct lw_commands *c) {
    struct sim_worker *me = ctx;
    struct world *w = me->world;
    if (w->n_pipes == PIPES) world_bad(w, "too many pipelines");
    if (pipe_of(w, me->index, shard)) world_bad(w, "two pipelines at once on shard %d", shard);
    struct pipe *p = lw_alloc(sizeof *p);
    *p = (struct pipe){.srv = me->srv[shard], .worker = me->index, .shard = shard, .conn = me->conn[shard], .live = true, .n = c->n};
    p->cmd = lw_alloc((size_t)c->n * sizeof *p->cmd);
    p->reply = lw_alloc((size_t)c->n * sizeof *p->reply);
    for (int i = 0; i < c->n; i++) {
        struct pcmd *to = &p->cmd[i];
        to->argc = c->cmd[i].argc;
        to->argv = lw_alloc((size_t)to->argc * sizeof(char *));
        to->len = lw_alloc((size_t)to->argc * sizeof(size_t));
        for (int k = 0; k < to->argc; k++) {
            const char *text = c->argv[c->cmd[i].first + k];
            size_t n = c->len[c->cmd[i].first + k];
            if (k == 2 && !strcmp(to->argv[0], "SCRIPT")) n = strlen(text = mutated(w, text));
            to->argv[k] = lw_memdup(text, n);
            to->len[k] = n;
        }
    }
    w->pipe[w->n_pipes++] = p;
}

static void io_connect(void *ctx, int shard) {
    struct sim_worker *me = ctx;
    struct pipe *p = pipe_of(me->world, me->index, shard);
    if (p) sever(me->world, p);
    me->conn[shard] = 0;
    me->connecting[shard] = true;
}

static void cut(struct world *w, struct sim_worker *me, int shard) {
    struct pipe *p = pipe_of(w, me->index, shard);
    w->cuts++;
    trace(w, "worker %d shard %d: connection cut", me->index, shard);
    me->conn[shard] = 0;
    if (p) {
        int got = p->delivered + rnd_below(w, p->done - p->delivered + 1); /* some replies had come, the rest are lost */
        p->live = false;                                                   /* no answer may be sent on it */
        while (p->delivered < got && !me->connecting[shard]) {
            redisReply *r = p->reply[p->delivered++];
            lw_worker_reply(me->lw, shard, r);
        }
        sever(w, p);
    }
    if (!me->connecting[shard]) lw_worker_disconnected(me->lw, shard, "cut");
}

static void io_hints(void *ctx, int shard, const char *ready, const char *claimed, bool want) {
    struct sim_worker *me = ctx;
    me->want[shard] = want;
    snprintf(me->ready[shard], sizeof me->ready[shard], "%s", ready);
    snprintf(me->claimed[shard], sizeof me->claimed[shard], "%s", claimed);
}

/* --- handlers ---------------------------------------------------------------------------------------------------------------------- */

static void start(struct sim_worker *me, struct lw_job *job) {
    struct world *w = me->world;
    struct exec x = {.job = job, .worker = me->index, .key = key_of_name(job->key)};
    if (x.key < 0) world_bad(w, "a handler got a foreign key");
    trace(w, "worker %d starts %s key %d fence %" PRIu64 " attempt %d", me->index, job->identity, x.key, job->fence, job->attempt);
    oracle_start(w, &x);
    w->exec[w->n_exec++] = x;
}

static void io_run(void *ctx, struct lw_job **jobs, size_t n) {
    for (size_t i = 0; i < n; i++) start(ctx, jobs[i]);
}

/* A follower starts, or comes back where the lease is over. */
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

/* On the same thread, or from the end of the pool's queue. */
static void follow(struct sim_worker *me, struct lw_job *next) {
    struct world *w = me->world;
    if (w->f->pool && rnd_below(w, 3) == 0)
        w->exec[w->n_exec++] = (struct exec){.job = next, .worker = me->index, .key = key_of_name(next->key), .queued = true};
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
        go_on(me, x.job);
        return;
    }
    double v = rnd_unit(w);
    enum lw_outcome wish = v > 0.1 ? LW_DONE : v < 0.02 ? LW_DEAD : LW_RETRY;
    if (atomic_load(&x.job->lease->cancelled) && rnd_unit(w) < 0.5) wish = LW_BACK;
    if (w->f->prompt && atomic_load(&x.job->lease->deadline_ms) <= w->now_ms) wish = LW_BACK;
    x.job->outcome = oracle_finish(w, &x, wish);
    snprintf(x.job->reason, sizeof x.job->reason, "%s", wish == LW_DONE ? "" : "chance");
    trace(w, "worker %d ends %s key %d: %d", me->index, x.job->identity, x.key, x.job->outcome);
    w->exec[at] = w->exec[--w->n_exec];
    struct lw_job *next = lw_job_end(x.job);
    me->ended[me->n_ended++] = x.job; /* the main thread hears of it later */
    if (next) follow(me, next);
}

static int io_letter(void *ctx, const struct lw_letter *l, struct lw_err *err) {
    struct sim_worker *me = ctx;
    if (me->n_letter == 64 || rnd_unit(me->world) < 0.1) return lw_fail(err, "queue full");
    me->letter[me->n_letter++] = l->run;
    return 0;
}

static void step_letters(struct world *w, struct sim_worker *me) {
    if (!me->n_letter) return;
    void *run = me->letter[--me->n_letter];
    lw_worker_sent(me->lw, run, rnd_unit(w) < 0.8, "refused by chance");
}

/* --- Kafka ------------------------------------------------------------------------------------------------------------------------- */

static bool owns(const struct world *w, const struct sim_worker *me, int p) {
    return me->gen[p] && w->part[p].owner == me->index && w->part[p].gen == me->gen[p];
}

static int part_of(const struct sim_worker *me, uint32_t gen) {
    for (int p = 0; p < PARTS; p++)
        if (me->gen[p] == gen) return p;
    return -1;
}

static int first_at(const struct sim_part *p, int64_t offset) {
    int i = 0;
    while (i < p->n && p->offset[i] < offset) i++;
    return i;
}

static void let_go(struct world *w, struct sim_worker *me, int p, bool lost) {
    if (!me->gen[p]) return;
    trace(w, "worker %d lets partition %d go%s", me->index, p, lost ? " (lost)" : "");
    uint32_t gen = me->gen[p];
    lw_worker_revoke(me->lw, &gen, 1, lost);
    me->gen[p] = 0;
}

static void assign(struct world *w, struct sim_worker *me, int p) {
    struct sim_part *part = &w->part[p];
    let_go(w, me, p, true); /* a new assignment: nothing of an earlier one survives */
    part->owner = me->index;
    part->gen = me->gen[p] = ++w->gens;
    me->hold[p] = false;
    int64_t begin = part->committed >= 0 ? part->committed : part->offset[0];
    me->pos[p] = first_at(part, begin);
    trace(w, "worker %d gets partition %d at %" PRId64 " (generation %u)", me->index, p, begin, part->gen);
    lw_worker_assign(me->lw, &(struct lw_assigned){.topic = "t",
                                                   .partition = p,
                                                   .gen = part->gen,
                                                   .committed = part->committed,
                                                   .begin = begin,
                                                   .log_begin = part->offset[0],
                                                   .log_end = part->offset[part->n - 1] + 1,
                                                   .metadata = part->meta,
                                                   .metadata_len = strlen(part->meta)});
}

static void rebalance(struct world *w) {
    int live[WORKERS], n = 0;
    for (int i = 0; i < WORKERS; i++)
        if (w->w[i].joined && w->w[i].lw) live[n++] = i;
    if (!n) return;
    for (int p = 0; p < PARTS; p++) {
        int to = live[rnd_below(w, n)], from = w->part[p].owner;
        if (from == to && rnd_unit(w) < 0.7) continue;
        if (from >= 0 && w->w[from].dead_until_ms <= w->now_ms && w->w[from].lw && owns(w, &w->w[from], p))
            let_go(w, &w->w[from], p, rnd_unit(w) < 0.3);
        if (w->w[to].dead_until_ms > w->now_ms) { /* it will hear of it when it wakes: ownership moves now, delivery then */
            w->part[p].owner = -1;
            continue;
        }
        assign(w, &w->w[to], p);
    }
}

static void learn(struct world *w, struct sim_worker *me) { /* a zombie hears of what it lost */
    for (int p = 0; p < PARTS; p++)
        if (me->gen[p] && !owns(w, me, p)) let_go(w, me, p, true);
}

static void io_hold(void *ctx, uint32_t gen, bool hold) {
    struct sim_worker *me = ctx;
    int p = part_of(me, gen);
    if (p >= 0) me->hold[p] = hold;
}

static int io_seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err) {
    struct sim_worker *me = ctx;
    int p = part_of(me, gen);
    if (p < 0) return lw_fail(err, "not assigned");
    me->pos[p] = first_at(&me->world->part[p], offset);
    trace(me->world, "worker %d partition %d: back to %" PRId64, me->index, p, offset);
    return 0;
}

static bool take_commit(struct world *w, struct sim_worker *me, const struct lw_commit *c) {
    int p = part_of(me, c->gen);
    if (p < 0 || !owns(w, me, p)) return false;
    trace(w, "commit %d: %" PRId64 " by %d", p, c->offset, me->index);
    oracle_commit(w, p, c->offset);
    snprintf(w->part[p].meta, sizeof w->part[p].meta, "%s", c->metadata);
    return true;
}

static int io_commit(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err) {
    struct sim_worker *me = ctx;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        me->commit[me->n_commit].gen = c[i].gen;
        me->commit[me->n_commit].offset = c[i].offset;
        snprintf(me->commit_meta[me->n_commit++], sizeof me->commit_meta[0], "%s", c[i].metadata);
    }
    return 0;
}

static void step_commits(struct world *w, struct sim_worker *me) {
    int n = me->n_commit;
    for (int i = 0; i < n; i++) {
        struct lw_commit c = {me->commit[i].gen, me->commit[i].offset, me->commit_meta[i]};
        bool ok = take_commit(w, me, &c);
        lw_worker_committed(me->lw, c.gen, c.offset, ok, !ok);
    }
    me->n_commit = 0;
}

static bool io_commit_busy(void *ctx) { return ((struct sim_worker *)ctx)->n_commit > 0; }

static int io_commit_sync(void *ctx, const struct lw_commit *c, size_t n, bool *ok, struct lw_err *err) {
    struct sim_worker *me = ctx;
    (void)err;
    step_commits(me->world, me); /* what was sent before is answered before */
    for (size_t i = 0; i < n; i++) {
        bool taken = take_commit(me->world, me, &c[i]);
        if (ok) ok[i] = taken;
        lw_worker_committed(me->lw, c[i].gen, c[i].offset, taken, !taken);
    }
    return 0;
}

static int io_committed(void *ctx, const char *topic, int32_t partition, int64_t *offset, struct lw_err *err) {
    (void)topic, (void)err;
    *offset = ((struct sim_worker *)ctx)->world->part[partition].committed;
    return 0;
}

static struct lw_bytes payload_of(struct world *w, int part, int at) {
    static char large[250000];
    return w->f->big && (at + part) % 16 == 0 ? lw_bytes(large, sizeof large) : lw_bytes_of("{}");
}

static void step_poll(struct world *w, struct sim_worker *me) {
    if (rnd_unit(w) < (w->f->deaf ? 0.01 : 0.3)) learn(w, me);
    int p = rnd_below(w, PARTS);
    struct sim_part *part = &w->part[p];
    if (!me->gen[p] || me->hold[p] || lw_worker_appetite(me->lw) == 0) return;
    for (int i = 0, n = 1 + rnd_below(w, 3 + w->f->burst); i < n && me->gen[p]; i++) {
        if (me->pos[p] >= part->n) {
            lw_worker_end(me->lw, me->gen[p], part->offset[part->n - 1] + 1 + p); /* markers at the end */
            return;
        }
        int at = me->pos[p]++;
        struct lw_arrival a = {.record = {.key = lw_bytes_of(key_names[part->key[at]]), .payload = payload_of(w, p, at)},
                               .offset = part->offset[at],
                               .timestamp_ms = 1};
        lw_worker_arrived(me->lw, me->gen[p], &a);
    }
}

/* --- the worker's process ---------------------------------------------------------------------------------------------------------- */

static int64_t io_boot_ms(void *ctx) { return ((struct sim_worker *)ctx)->world->now_ms; }
static int64_t io_wall_ms(void *ctx) { return ((struct sim_worker *)ctx)->world->now_ms + 1000000000; }
static uint64_t io_random(void *ctx) { return rnd(((struct sim_worker *)ctx)->world); }
static void io_release(void *ctx, void *origin) { (void)ctx, (void)origin; }
static void io_passed(void *ctx, const char *topic, int32_t partition, int64_t watermark) {
    (void)ctx, (void)topic, (void)partition, (void)watermark;
}
static void io_stop(void *ctx, int status, const char *reason) {
    world_bad(((struct sim_worker *)ctx)->world, "stopped with %d: %s", status, reason);
}

static const struct lw_io io = {.boot_ms = io_boot_ms,
                                .wall_ms = io_wall_ms,
                                .random = io_random,
                                .connect = io_connect,
                                .send = io_send,
                                .hints = io_hints,
                                .run = io_run,
                                .letter = io_letter,
                                .hold = io_hold,
                                .seek = io_seek,
                                .commit = io_commit,
                                .commit_busy = io_commit_busy,
                                .commit_sync = io_commit_sync,
                                .committed = io_committed,
                                .release = io_release,
                                .passed = io_passed,
                                .stop = io_stop};

static void birth(struct world *w, struct sim_worker *me) {
    snprintf(me->id, sizeof me->id, "w%d-%06x", me->index, (unsigned)(rnd(w) & 0xffffff));
    me->joined = true;
    me->n_commit = me->n_letter = me->n_ended = 0;
    for (int p = 0; p < PARTS; p++) me->gen[p] = 0;
    for (int s = 0; s < SHARDS; s++) me->conn[s] = 0, me->want[s] = false;
    me->lw = lw_worker_open(&(struct lw_worker_setup){
        .config = &w->config, .counts = &w->counts, .id = me->id, .host = "h", .cluster_id = "", .io = &io, .ctx = me});
}

static void death(struct world *w, struct sim_worker *me) {
    trace(w, "worker %d dies", me->index);
    for (int i = w->n_exec - 1; i >= 0; i--)
        if (w->exec[i].worker == me->index) w->exec[i] = w->exec[--w->n_exec];
    for (int i = w->n_pipes - 1; i >= 0; i--)
        if (w->pipe[i]->live && w->pipe[i]->worker == me->index) sever(w, w->pipe[i]);
    lw_worker_free(me->lw);
    me->lw = NULL;
    me->joined = false;
    for (int p = 0; p < PARTS; p++) {
        if (w->part[p].owner == me->index) w->part[p].owner = -1;
        me->gen[p] = 0;
    }
}

static void step_connect(struct world *w, struct sim_worker *me) {
    for (int s = 0; s < SHARDS; s++) {
        if (!me->connecting[s] || rnd_unit(w) < 0.3) continue;
        me->connecting[s] = false;
        me->conn[s] = ++w->conns;
        me->srv[s] = w->master[s];
        lw_worker_connected(me->lw, s);
    }
}

static void step_deliver(struct world *w, struct sim_worker *me) {
    for (int s = 0; s < SHARDS; s++) {
        struct pipe *p = pipe_of(w, me->index, s);
        if (!p) continue;
        int conn = me->conn[s];
        while (p->delivered < p->done && me->conn[s] == conn) {
            bool last = p->delivered + 1 == p->n;
            redisReply *r = p->reply[p->delivered++];
            if (last) p->live = false; /* the answer may send the next pipeline */
            p->busy = true;
            lw_worker_reply(me->lw, s, r);
            p->busy = false;
            if (last) break;
        }
        if (p->delivered == p->n || !p->live) p->delivered == p->n ? pipe_remove(w, p) : sever(w, p);
    }
}

static void step_renew(struct world *w, struct sim_worker *me) {
    static struct lw_due due[LW_RENEW_BATCH];
    for (int s = 0; s < SHARDS; s++) {
        char epoch[64];
        if (!me->conn[s] || !serves(w, me->srv[s]) || !lw_worker_epoch(me->lw, s, epoch, sizeof epoch)) continue;
        size_t n = lw_leases_due(lw_worker_leases(me->lw), s, w->now_ms, due, LW_RENEW_BATCH);
        if (!n) continue;
        const char *argv[2 * LW_RENEW_BATCH + 8];
        char count[20], keys[LW_RENEW_BATCH][700], tokens[LW_RENEW_BATCH][100], ttl[20], epoch_key[100];
        size_t len[2 * LW_RENEW_BATCH + 8];
        int k = 0;
        snprintf(count, sizeof count, "%zu", n + 1);
        snprintf(ttl, sizeof ttl, "%d", TTL_MS);
        snprintf(epoch_key, sizeof epoch_key, "%sepoch", lw_worker_prefix(me->lw, s));
        argv[k++] = "EVAL", argv[k++] = lw_script_renew.text, argv[k++] = count, argv[k++] = epoch_key;
        for (size_t i = 0; i < n; i++) {
            snprintf(keys[i], sizeof keys[i], "%slock:%.*s", lw_worker_prefix(me->lw, s), (int)due[i].n_lane, due[i].lane);
            argv[k++] = keys[i];
        }
        argv[k++] = epoch, argv[k++] = ttl;
        for (size_t i = 0; i < n; i++) {
            snprintf(tokens[i], sizeof tokens[i], "%s.%" PRIu64, me->id, due[i].token);
            argv[k++] = tokens[i];
        }
        for (int i = 0; i < k; i++) len[i] = strlen(argv[i]);
        redisReply *r = call(w, me->srv[s], k, argv, len);
        if (r->type == REDIS_REPLY_STATUS && r->len == n) lw_leases_renewed(lw_worker_leases(me->lw), due, n, r->str, w->now_ms);
        freeReplyObject(r);
    }
    lw_leases_fence(lw_worker_leases(me->lw), w->now_ms);
}

static void step_hints(struct world *w, struct sim_worker *me) {
    for (int s = 0; s < SHARDS; s++) {
        if (!me->want[s] || !me->conn[s] || !serves(w, me->srv[s])) continue;
        const char *argv[] = {"RPOPLPUSH", me->ready[s], me->claimed[s]};
        redisReply *r = call(w, me->srv[s], 3, argv, NULL);
        if (r->type == REDIS_REPLY_STRING) lw_worker_hint(me->lw, s, lw_bytes(r->str, r->len));
        freeReplyObject(r);
    }
}

/* --- faults ------------------------------------------------------------------------------------------------------------------------ */

static void snapshot(struct world *w, int s) {
    store_close(w->snap[s]);
    w->snap[s] = store_copy(w->master[s]->store);
}

static void fail_over(struct world *w, int s) {
    trace(w, "shard %d fails over", s);
    struct store *st = store_copy(w->snap[s]);
    store_restart(st, true);
    w->master[s]->until_ms = w->now_ms + w->f->split_ms;
    struct server *fresh = server_new(w, st, s);
    fresh->skew_ms = w->master[s]->skew_ms;
    w->master[s] = fresh;
    snapshot(w, s);
}

static bool fault(struct world *w) {
    const struct faults *f = w->f;
    if (rnd_unit(w) < 0.003 * f->crash) {
        struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
        if (!me->lw) return true;
        death(w, me);
        me->dead_until_ms = w->now_ms + 200 + rnd_below(w, 2500);
        return true;
    }
    if (rnd_unit(w) < 0.004 * f->pause) {
        struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
        if (!me->lw) return true;
        if (me->dead_until_ms <= w->now_ms) me->dead_until_ms = w->now_ms + 200 + rnd_below(w, 2500);
        trace(w, "worker %d pauses until %" PRId64, me->index, me->dead_until_ms);
        if (rnd_unit(w) < 0.6)
            for (int p = 0; p < PARTS; p++)
                if (w->part[p].owner == me->index) w->part[p].owner = -1;
        return true;
    }
    if (rnd_unit(w) < 0.002 * (w->f->churn > 0 ? w->f->churn : 1)) {
        rebalance(w);
        return true;
    }
    if (rnd_unit(w) < 0.0015 * f->wipe) {
        int s = rnd_below(w, SHARDS);
        bool all = rnd_unit(w) >= 0.7;
        for (int k = 0; k < SHARDS; k++)
            if (k == s || all) {
                trace(w, "shard %d is wiped", k);
                store_flushall(w->master[k]->store);
                snapshot(w, k);
            }
        return true;
    }
    if (rnd_unit(w) < 0.003 * f->failover) {
        fail_over(w, rnd_below(w, SHARDS));
        return true;
    }
    if (rnd_unit(w) < (w->f->lag ? 0.002 : 0.02)) snapshot(w, rnd_below(w, SHARDS));
    if (rnd_unit(w) < 0.001 * f->clock) {
        static const int jumps[] = {1250, 3000, 15000, -2000};
        int s = rnd_below(w, SHARDS), j = jumps[rnd_below(w, f->back ? 4 : 3)];
        w->master[s]->skew_ms += j;
        trace(w, "clock of shard %d jumps by %d", s, j);
        return true;
    }
    if (rnd_unit(w) < 0.001) store_forget_scripts(w->master[rnd_below(w, SHARDS)]->store);
    if (rnd_unit(w) < 0.006 * f->loss) {
        struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
        int s = rnd_below(w, SHARDS);
        if (me->lw && me->dead_until_ms <= w->now_ms && pipe_of(w, me->index, s)) cut(w, me, s);
        return true;
    }
    return false;
}

/* --- a step ------------------------------------------------------------------------------------------------------------------------ */

static bool wire_step(struct world *w) {
    if (!w->n_pipes || rnd_unit(w) >= 0.5) return false;
    struct pipe *p = w->pipe[rnd_below(w, w->n_pipes)];
    if (p->done == p->n) return false;
    if (!p->live && rnd_unit(w) < 0.8) return true;
    if (!serves(w, p->srv)) {
        if (!p->live) pipe_remove(w, p);
        return true;
    }
    bool load;
    do { /* scripts load at one go: they change nothing that others see */
        load = !strcmp(p->cmd[p->done].argv[0], "SCRIPT");
        p->reply[p->done] = run_command(w, p->srv, &p->cmd[p->done]);
        p->done++;
    } while (load && p->done < p->n);
    if (!p->live && p->done == p->n) pipe_remove(w, p);
    return true;
}

static void step(struct world *w) {
    static const int dt[] = {0, 0, 0, 0, 0, 10, 20};
    w->now_ms += dt[rnd_below(w, 7)] * (w->f->pace ? w->f->pace : 1);
    if (w->faults_on && fault(w)) return;
    if (wire_step(w)) return;
    struct sim_worker *me = &w->w[rnd_below(w, WORKERS)];
    if (me->dead_until_ms > w->now_ms) return;
    if (!me->lw) birth(w, me);
    me->joined = true;
    for (int p = 0; p < PARTS; p++)
        if (w->part[p].owner < 0) assign(w, me, p);
    for (int s = 0; s < SHARDS; s++) {
        struct server *srv = me->srv[s];
        if (me->conn[s] && srv != w->master[s] && (!serves(w, srv) || rnd_unit(w) < 0.03)) cut(w, me, s);
    }
    step_connect(w, me);
    step_deliver(w, me);
    switch (rnd_below(w, 18)) {
    case 0:
    case 1:
    case 2: step_poll(w, me); break;
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
    case 13: step_commits(w, me); break;
    case 14: step_hints(w, me); break;
    case 15: step_letters(w, me); break;
    case 16:
    case 17: step_reports(w, me); break;
    }
}

/* --- a run ------------------------------------------------------------------------------------------------------------------------- */

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
    c->lock.ttl_ms = TTL_MS;
    c->lock.max_run = w->f->max_run ? w->f->max_run : 3;
    c->lock.run_ahead = (int[]){1, 7, 64, 64}[w->rng % 4];
    c->queue.max_waiting = 60;
    c->retry.max_attempts = 4;
    c->retry.backoff_ms = 200;
    c->retry.backoff_max_ms = 700;
    c->retry.order = w->o->skip_order ? LW_ORDER_SKIP : LW_ORDER_BLOCK;
    c->dead.to = w->o->dead_topic ? LW_DEAD_TOPIC : LW_DEAD_REDIS;
    c->dead.topic = w->o->dead_topic ? "dead" : NULL;
    c->handler.threads = 3;
    c->shutdown.grace_ms = 1000;
    w->now_ms = 100000;
    for (int s = 0; s < SHARDS; s++) {
        w->master[s] = server_new(w, store_open(rnd(w)), s);
        w->snap[s] = store_copy(w->master[s]->store);
    }
    for (int p = 0; p < PARTS; p++) {
        struct sim_part *part = &w->part[p];
        part->n = w->o->records;
        part->committed = -1;
        part->owner = -1;
        int64_t at = 16384 * (p + 1) - 1 - rnd_below(w, w->o->records); /* a segment ends among them */
        for (int i = 0; i < part->n; i++) {
            part->key[i] = rnd_below(w, KEYS);
            part->offset[i] = at;
            double gap = rnd_unit(w); /* compaction, transaction markers */
            at += w->f->sparse  ? 1 + rnd_below(w, 2 * w->f->sparse)
                  : gap < 0.9   ? 1
                  : gap < 0.995 ? 2 + rnd_below(w, 5)
                                : 5000 + rnd_below(w, 20000);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        w->w[i].world = w;
        w->w[i].index = i;
        birth(w, &w->w[i]);
    }
}

static void tear_down(struct world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (w->w[i].lw) lw_worker_free(w->w[i].lw);
    while (w->n_pipes) pipe_remove(w, w->pipe[0]);
    for (int s = 0; s < SHARDS; s++) store_close(w->snap[s]);
    for (int i = 0; i < w->n_servers; i++) {
        store_close(w->servers[i]->store);
        free(w->servers[i]);
    }
    free(w->effects);
}

const char *world_run(uint64_t seed, const struct faults *f, const struct options *o, const struct mutation *m, struct lw_counts *totals) {
    static char bad[512];
    struct world *w = lw_alloc(sizeof *w);
    w->rng = seed * 7919 + 17;
    w->f = f;
    w->o = o;
    w->mutation = m;
    w->faults_on = true;
    if (setjmp(w->out) == 0) {
        set_up(w);
        for (int i = 0; i < o->steps; i++) step(w);
        w->faults_on = false; /* O6: once faults stop, all gets done */
        trace(w, "faults stop");
        int i = 0;
        for (; i < 150000 && !all_committed(w); i++) step(w);
        if (!all_committed(w) && o->trace) world_dump(w);
        if (!all_committed(w))
            world_bad(w, "stuck: commits %" PRId64 " %" PRId64 " %" PRId64 " of %" PRId64 " %" PRId64 " %" PRId64, w->part[0].committed,
                      w->part[1].committed, w->part[2].committed, w->part[0].offset[o->records - 1] + 1,
                      w->part[1].offset[o->records - 1] + 1, w->part[2].offset[o->records - 1] + 1);
        for (i = 0; i < 8000; i++) step(w);
        oracle_end(w);
    }
    if (totals) {
        totals->done += w->counts.done;
        totals->parked += w->counts.parked;
        totals->drained += w->counts.drained;
        totals->reruns += w->dups;
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
