/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates the servers of each shard, and the connections of the workers to these servers: the
 * pipelines under way, which can break at any point, and the connections on which a worker renews
 * leases and waits for hints. This file also checks dead letters when a settle is executed. */
#include "tests/sim/world/world.h"

#include "tests/sim/world/bytes.h"
#include "tests/sim/world/operator.h"
#include "tests/sim/world/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- servers ---------------------------------------------------------------------------------- */

struct server *server_new(struct world *w, struct store *st, int shard) {
    if (w->n_servers == SERVERS) world_bad(w, "too many servers for one run");
    struct server *s = lw_alloc(sizeof *s);
    s->store = st;
    s->until_ms = -1;
    s->shard = shard;
    w->servers[w->n_servers++] = s;
    return s;
}

bool serves(struct world *w, const struct server *s) {
    return s->until_ms < 0 || w->now_ms < s->until_ms;
}

redisReply *server_call(struct world *w, struct server *s, int argc, const char *const *argv,
                        const size_t *len) {
    store_set_time_us(s->store, (w->now_ms + s->skew_ms + 1000000000) * 1000 + 123);
    store_set_oom(s->store, errors_full(w, s->shard));
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
    bool known = r->type != REDIS_REPLY_ERROR || !strncmp(r->str, "NOSCRIPT", 8) ||
                 !strncmp(r->str, "OOM", 3) || errors_meant(r->str) ||
                 (w->f->move > 0 && cluster_meant(r->str));
    if (!known) world_bad(w, "script: %s", r->str);
    if (w->o->trace && !strcmp(argv[0], "EVALSHA")) {
        fprintf(stderr, "         ->");
        if (r->type == REDIS_REPLY_ARRAY)
            for (size_t i = 0; i < r->elements; i++)
                fprintf(stderr, " [%.30s]", r->element[i]->str ? r->element[i]->str : "");
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

int state_in(const struct server *s, const char *tp, int64_t offset) {
    char name[160];
    const char *v;
    size_t n;
    int len = snprintf(name, sizeof name, "lw:{t.%d}:state:%s:%" PRId64, s->shard, tp,
                       offset / LW_SEGMENT);
    if (!store_peek_string(s->store, name, (size_t)len, &v, &n)) return 0;
    int64_t index = offset % LW_SEGMENT;
    if ((size_t)(index / 4) >= n) return 0;
    return (int)lw_state_in(v[index / 4], offset);
}

bool finished_in(const struct server *s, const char *tp, int64_t offset) {
    char name[160];
    const char *v;
    size_t n;
    int len = snprintf(name, sizeof name, "lw:{t.%d}:floor", s->shard);
    if (store_peek_hash(s->store, name, (size_t)len, tp, strlen(tp), &v, &n) &&
        offset < i64_arg(v, n))
        return true;
    return state_in(s, tp, offset) >= LW_STATE_DONE;
}

/* The messages that become dead letters when a call of settle is executed. */
struct dying {
    int n, item[256], part[256];
    int64_t offset[256], replay[256];
    bool finished[256], letter[256];
    char tp[256][40];
};
static void look_for_dying(const struct server *s, int argc, char **argv, const size_t *len,
                           struct dying *d) {
    int a = 2 + int_arg(argv[2], len[2]), n = (int)len[a + 8] / 7;
    const unsigned char *item = (const unsigned char *)argv[a + 8],
                        *place = (const unsigned char *)argv[a + 9];
    (void)argc;
    for (int i = 0; i < n; i++, item += 7) {
        const unsigned char *last = place + 3 * (item[1] - 1);
        place += 3 * (item[1] + item[4]);
        if (!item[1] || (item[2] != LW_DEAD && item[2] != LW_DEAD_SENT)) continue;
        int g = a + 11 + 4 * (last[0] - 1), part = argv[g][2] - '0';
        char tp[40];
        snprintf(tp, sizeof tp, "%.*s", (int)len[g], argv[g]);
        int64_t offset = LW_SEGMENT * i64_arg(argv[g + 1], len[g + 1]) + last[1] * 256 + last[2];
        d->finished[d->n] = finished_in(s, tp, offset);
        d->replay[d->n] = strchr(tp, '#') ? atoll(strchr(tp, '#') + 1) : 0;
        /* `letter` is true if Redis keeps the dead letter, and false if a topic got it. */
        d->letter[d->n] = item[2] == LW_DEAD;
        d->item[d->n] = i;
        d->part[d->n] = part;
        snprintf(d->tp[d->n], sizeof d->tp[d->n], "%s", tp);
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

/* Returns true if the message has become a dead letter. If the script failed in the middle, its
 * answer is missing, so the message's mark is read instead. */
static bool has_died(const struct server *s, const struct dying *d, int i, const redisReply *r,
                     bool torn) {
    if (torn) return finished_in(s, d->tp[i], d->offset[i]);
    return r->type == REDIS_REPLY_ARRAY && r->element[1]->str[d->item[i]] != LW_SETTLED_STALE;
}

static redisReply *run_command(struct world *w, struct server *s, struct pcmd *c) {
    redisReply *refused = errors_refuse(w, s, c->argv[0]);
    if (refused) return refused;
    struct dying dying = {0};
    bool settle =
        !strcmp(c->argv[0], "EVALSHA") && w->settle_sha[0] && !strcmp(c->argv[1], w->settle_sha);
    int64_t letters = 0;
    if (settle) {
        look_for_dying(s, c->argc, c->argv, c->len, &dying);
        letters = dead_letters(s);
    }
    uint64_t list_bytes = store_list_bytes();
    rules_before(w, s, c->argc, c->argv, c->len);
    errors_tear(w, s);
    redisReply *r = server_call(w, s, c->argc, (const char *const *)c->argv, c->len);
    store_fail_script(s->store, 0, NULL);
    bool split = r->type == REDIS_REPLY_ERROR && cluster_meant(r->str),
         torn = split || (r->type == REDIS_REPLY_ERROR && errors_meant(r->str));
    if (torn) rules_lost_data(w); /* the failed script may not have counted all attempts */
    if (torn && !split) torn_look(w, s);
    if (!strcmp(c->argv[0], "EVALSHA"))
        bytes_called(w, c->argc, c->argv, c->len, r, store_list_bytes() - list_bytes);
    for (int i = 0; i < dying.n; i++) {
        if (dying.finished[i] || !has_died(s, &dying, i, r, torn)) continue;
        if (dying.replay[i])
            operator_died(w, dying.part[i], dying.offset[i], dying.replay[i]);
        else
            oracle_died(w, dying.part[i], dying.offset[i]);
        letters += dying.letter[i];
    }
    rules_after(w, r);
    if (settle && !torn && dead_letters(s) != letters)
        world_bad(w, "a dead letter of a finished message");
    if (settle && dead_letters(s) < letters) world_bad(w, "a message is dead without its letter");
    if (!strcmp(c->argv[0], "SCRIPT") && !w->settle_sha[0] && strstr(c->argv[2], "\n-- settle:"))
        snprintf(w->settle_sha, sizeof w->settle_sha, "%s", r->str);
    if (!strcmp(c->argv[0], "SCRIPT") && !w->repair_sha[0] && strstr(c->argv[2], "\n-- repair:"))
        snprintf(w->repair_sha, sizeof w->repair_sha, "%s", r->str);
    return errors_malform(w, s, c->argv[0], r);
}

/* --- pipelines -------------------------------------------------------------------------------- */

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

struct pipe *wire_open(struct world *w, int worker, int shard) {
    for (int i = 0; i < w->n_pipes; i++)
        if (w->pipe[i]->live && w->pipe[i]->worker == worker && w->pipe[i]->shard == shard)
            return w->pipe[i];
    return NULL;
}

/* Breaks the connection of a pipeline. Commands that have not been executed yet may still be
 * executed later, or never. */
static void sever(struct world *w, struct pipe *p) {
    p->live = false;
    /* While `busy` is true, step_deliver() is delivering one of the pipeline's answers. Afterwards
     * step_deliver() removes the pipeline. */
    if (p->busy) return;
    if (p->done == p->n || rnd_unit(w) < 0.5) pipe_remove(w, p);
}

const char *wire_mutated(struct world *w, const char *text) {
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

void wire_send(void *ctx, int shard, const struct lw_commands *c) {
    struct sim_worker *me = ctx;
    struct world *w = me->world;
    if (w->n_pipes == PIPES) world_bad(w, "too many pipelines");
    if (wire_open(w, me->index, shard)) world_bad(w, "two pipelines at once on shard %d", shard);
    struct pipe *p = lw_alloc(sizeof *p);
    *p = (struct pipe){.srv = me->srv[shard],
                       .worker = me->index,
                       .shard = shard,
                       .conn = me->conn[shard],
                       .live = true,
                       .n = c->n};
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
            if (k == 2 && !strcmp(to->argv[0], "SCRIPT")) n = strlen(text = wire_mutated(w, text));
            to->argv[k] = lw_memdup(text, n);
            to->len[k] = n;
        }
    }
    w->pipe[w->n_pipes++] = p;
}

void wire_connect(void *ctx, int shard) {
    struct sim_worker *me = ctx;
    struct pipe *p = wire_open(me->world, me->index, shard);
    if (p) sever(me->world, p);
    me->conn[shard] = 0;
    me->connecting[shard] = true;
}

void wire_cut(struct world *w, struct sim_worker *me, int shard) {
    struct pipe *p = wire_open(w, me->index, shard);
    w->cuts++;
    trace(w, "worker %d shard %d: connection cut", me->index, shard);
    me->conn[shard] = 0;
    if (p) {
        /* Some replies had arrived before the connection broke. The others are lost. */
        int got = p->delivered + rnd_below(w, p->done - p->delivered + 1);
        /* The connection is already broken, so the worker cannot send on it while it handles these
         * replies. */
        p->live = false;
        while (p->delivered < got && !me->connecting[shard]) {
            redisReply *r = p->reply[p->delivered++];
            lw_worker_reply(me->lw, shard, r);
        }
        sever(w, p);
    }
    if (!me->connecting[shard]) lw_worker_disconnected(me->lw, shard, "cut");
}

void wire_drop(struct world *w, struct sim_worker *me) {
    for (int i = w->n_pipes - 1; i >= 0; i--)
        if (w->pipe[i]->live && w->pipe[i]->worker == me->index) sever(w, w->pipe[i]);
}

void wire_refuse(struct world *w, const struct server *srv) {
    for (int i = w->n_pipes - 1; i >= 0; i--)
        if (!w->pipe[i]->live && !w->pipe[i]->busy && w->pipe[i]->srv == srv)
            pipe_remove(w, w->pipe[i]);
}

void wire_close(struct world *w) {
    while (w->n_pipes) pipe_remove(w, w->pipe[0]);
}

void wire_hints(void *ctx, int shard, const char *ready, const char *claimed, bool want) {
    struct sim_worker *me = ctx;
    me->want[shard] = want;
    snprintf(me->ready[shard], sizeof me->ready[shard], "%s", ready);
    snprintf(me->claimed[shard], sizeof me->claimed[shard], "%s", claimed);
}

/* --- steps ------------------------------------------------------------------------------------ */

void step_connect(struct world *w, struct sim_worker *me) {
    for (int s = 0; s < SHARDS; s++) {
        if (!me->connecting[s] || rnd_unit(w) < 0.3) continue;
        me->connecting[s] = false;
        me->conn[s] = ++w->conns;
        me->srv[s] = cluster_find(w, s);
        lw_worker_connected(me->lw, s);
    }
}

void step_deliver(struct world *w, struct sim_worker *me) {
    for (int s = 0; s < SHARDS; s++) {
        struct pipe *p = wire_open(w, me->index, s);
        if (!p) continue;
        int conn = me->conn[s];
        while (p->delivered < p->done && me->conn[s] == conn) {
            bool last = p->delivered + 1 == p->n;
            redisReply *r = p->reply[p->delivered++];
            /* The pipeline ends before its last answer is delivered, because the answer may make
             * the worker send its next pipeline. */
            if (last) p->live = false;
            p->busy = true;
            lw_worker_reply(me->lw, s, r);
            p->busy = false;
            if (last) break;
        }
        if (p->delivered == p->n || !p->live)
            p->delivered == p->n ? pipe_remove(w, p) : sever(w, p);
    }
}

void step_renew(struct world *w, struct sim_worker *me) {
    static struct lw_due due[LW_RENEW_BATCH];
    for (int s = 0; s < SHARDS; s++) {
        char epoch[64];
        if (!me->conn[s] || !serves(w, me->srv[s]) ||
            !lw_worker_epoch(me->lw, s, epoch, sizeof epoch))
            continue;
        size_t n = lw_leases_due(lw_worker_leases(me->lw), s, w->now_ms, due, LW_RENEW_BATCH);
        if (!n) continue;
        const char *argv[3 * LW_RENEW_BATCH + 8];
        char count[20], keys[LW_RENEW_BATCH][700], tokens[LW_RENEW_BATCH][100], ttl[20],
            epoch_key[100];
        size_t len[3 * LW_RENEW_BATCH + 8];
        int k = 0;
        snprintf(count, sizeof count, "%zu", n + 1);
        snprintf(ttl, sizeof ttl, "%" PRId64, world_config(w, me)->lock.ttl_ms);
        snprintf(epoch_key, sizeof epoch_key, "%sepoch", lw_worker_prefix(me->lw, s));
        argv[k++] = "EVAL", argv[k++] = lw_script_renew.text, argv[k++] = count,
        argv[k++] = epoch_key;
        for (size_t i = 0; i < n; i++) {
            snprintf(keys[i], sizeof keys[i], "%slock:%.*s", lw_worker_prefix(me->lw, s),
                     (int)due[i].n_lane, due[i].lane);
            argv[k++] = keys[i];
        }
        argv[k++] = epoch, argv[k++] = ttl;
        for (size_t i = 0; i < n; i++) {
            snprintf(tokens[i], sizeof tokens[i], "%s.%" PRIu64, me->id, due[i].token);
            argv[k++] = tokens[i];
            argv[k++] = due[i].run;
        }
        for (int i = 0; i < k; i++) len[i] = strlen(argv[i]);
        redisReply *r = errors_refuse(w, me->srv[s], argv[0]);
        if (!r) r = server_call(w, me->srv[s], k, argv, len);
        if (r->type == REDIS_REPLY_STATUS && r->len == n)
            lw_leases_renewed(lw_worker_leases(me->lw), due, n, r->str, w->now_ms);
        freeReplyObject(r);
    }
    lw_leases_fence(lw_worker_leases(me->lw), w->now_ms);
    oracle_fenced(w, me);
}

void step_hints(struct world *w, struct sim_worker *me) {
    for (int s = 0; s < SHARDS; s++) {
        if (!me->want[s] || !me->conn[s] || !serves(w, me->srv[s])) continue;
        const char *argv[] = {"RPOPLPUSH", me->ready[s], me->claimed[s]};
        redisReply *r = errors_refuse(w, me->srv[s], argv[0]);
        if (!r) r = server_call(w, me->srv[s], 3, argv, NULL);
        if (r->type == REDIS_REPLY_STRING) lw_worker_hint(me->lw, s, lw_bytes(r->str, r->len));
        freeReplyObject(r);
    }
}

bool step_wire(struct world *w) {
    if (!w->n_pipes || rnd_unit(w) >= 0.5) return false;
    struct pipe *p = w->pipe[rnd_below(w, w->n_pipes)];
    if (p->done == p->n) return false;
    if (!p->live && rnd_unit(w) < 0.8) return true;
    if (!serves(w, p->srv)) {
        if (!p->live) pipe_remove(w, p);
        return true;
    }
    bool load;
    /* Load all scripts in one step, because a step per script would change nothing for other
     * workers. */
    do {
        load = !strcmp(p->cmd[p->done].argv[0], "SCRIPT");
        p->reply[p->done] = run_command(w, p->srv, &p->cmd[p->done]);
        p->done++;
    } while (load && p->done < p->n);
    if (!p->live && p->done == p->n) pipe_remove(w, p);
    return true;
}
