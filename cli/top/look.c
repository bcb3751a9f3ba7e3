/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from Redis the data that `latchwork top` shows. */
#include "base/clock.h"
#include "ops/dead/dead.h"
#include "cli/top/private.h"

#include <stdlib.h>
#include <string.h>

enum { DEAD_PAGE = 8 };

static const struct lw_bytes none = {"", 0};

/* --- life ------------------------------------------------------------------------------------- */

void top_open(struct top *t, struct ops *o) {
    *t = (struct top){.o = o, .commit_rate = -1};
    t->shard = lw_alloc((size_t)o->c->redis.shards * sizeof *t->shard);
    for (int s = 0; s < o->c->redis.shards; s++) strcpy(t->shard[s].cursor, "0");
}

static void forget(struct top_lane *l) {
    free((void *)(uintptr_t)l->l.name.p);
    free((void *)(uintptr_t)l->l.lock.p);
}

/* Forgets the lanes and dead letters that were read. Call it when the filter or the order has
 * changed. */
static void start_over(struct top *t) {
    while (t->n_lane) forget(&t->lane[--t->n_lane]);
    t->n_died = 0;
    for (int s = 0; s < t->o->c->redis.shards; s++) t->shard[s] = (struct top_shard){.cursor = "0"};
}

void top_close(struct top *t) {
    start_over(t);
    free(t->shard);
    lw_buf_free(&t->filter);
    lw_buf_free(&t->match);
}

void top_set_sort(struct top *t, enum top_sort sort) {
    t->sort = sort;
    start_over(t);
}

void top_set_filter(struct top *t, const char *text) {
    bool glob = strpbrk(text, "*?[") != NULL;
    t->filter.n = t->match.n = 0;
    lw_buf_add(&t->filter, text, strlen(text) + 1);
    if (!glob) lw_buf_add(&t->match, "*", 1);
    for (const char *p = text; *p; p++) {
        if (*p == '\\' && !glob) lw_buf_add(&t->match, "\\", 1);
        lw_buf_add(&t->match, p, 1);
    }
    lw_buf_add(&t->match, "*", glob ? 0 : 1);
    lw_buf_add(&t->match, "", 1);
    t->o->args.match = *text ? t->match.p : NULL;
    start_over(t);
}

/* --- lanes ------------------------------------------------------------------------------------ */

static int64_t weight(const struct top *t, const struct ops_lane *l) {
    switch (t->sort) {
    case TOP_BY_AGE: return l->has_head ? INT64_MAX - l->first_ms : 0;
    case TOP_BY_ATTEMPTS: return l->attempts;
    /* if lanes are sorted by the number of waiting messages, lanes with an unknown number come
     * first */
    default: return l->n < 0 ? INT64_MAX : l->n;
    }
}

static struct top_lane *find(struct top *t, struct lw_bytes name) {
    for (size_t i = 0; i < t->n_lane; i++)
        if (lw_bytes_eq(t->lane[i].l.name, name)) return &t->lane[i];
    return NULL;
}

static struct top_lane *place_for(struct top *t, const struct ops_lane *l) {
    if (t->n_lane < TOP_LANES) return &t->lane[t->n_lane++];
    struct top_lane *least = &t->lane[0];
    for (size_t i = 1; i < t->n_lane; i++)
        if (weight(t, &t->lane[i].l) < weight(t, &least->l)) least = &t->lane[i];
    if (weight(t, l) <= weight(t, &least->l)) return NULL;
    forget(least);
    return least;
}

static void keep(struct top *t, const struct ops_lane *l) {
    struct top_lane *to = find(t, l->name);
    bool over = !l->has_head && l->n >= 0;
    if (over && to) {
        forget(to);
        *to = t->lane[--t->n_lane];
    }
    if (over) return;
    if (to)
        forget(to);
    else if (!(to = place_for(t, l)))
        return;
    *to = (struct top_lane){*l, t->refresh};
    to->l.name = lw_bytes(lw_memdup(l->name.p, l->name.n), l->name.n);
    to->l.lock = lw_bytes(lw_memdup(l->lock.p, l->lock.n), l->lock.n);
    t->now_ms = l->now_ms;
}

struct scan {
    struct top *t;
    int64_t looked;
};

static int seen(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct scan *s = ctx;
    struct top_shard *sh = &s->t->shard[l->shard];
    (void)o;
    s->looked++;
    if (l->has_head) {
        sh->now_waiting += l->n;
        if (!sh->now_oldest || l->first_ms < sh->now_oldest) sh->now_oldest = l->first_ms;
    }
    keep(s->t, l);
    return 0;
}

/* Reads the next lanes of one shard, beginning at the lane at which the last refresh ended. */
static int go_round(struct top *t, int s) {
    struct top_shard *sh = &t->shard[s];
    struct scan scan = {.t = t};
    for (int page = 0; page < TOP_LOOK / OPS_BATCH && scan.looked < TOP_LOOK; page++) {
        if (ops_lane_page(t->o, &t->o->shards[s], false, sh->cursor, OPS_BATCH, seen, &scan))
            return -1;
        if (strcmp(sh->cursor, "0") != 0) continue;
        sh->whole = true;
        sh->waiting = sh->now_waiting;
        sh->oldest_ms = sh->now_oldest;
        sh->now_waiting = sh->now_oldest = 0;
        return 0;
    }
    return 0;
}

static int again(struct ops *o, const struct ops_lane *l, void *ctx) {
    (void)o;
    keep(ctx, l);
    return 0;
}

/* Updates the lanes that top shows: reads each of them that this refresh has not read yet. */
static int look_again(struct top *t, int s) {
    struct lw_bytes names[TOP_LANES];
    size_t n = 0;
    int bad = 0;
    for (size_t i = 0; i < t->n_lane; i++)
        if (t->lane[i].l.shard == s && t->lane[i].seen != t->refresh)
            names[n++] =
                lw_bytes(lw_memdup(t->lane[i].l.name.p, t->lane[i].l.name.n), t->lane[i].l.name.n);
    for (size_t i = 0; i < n && !bad; i += OPS_BATCH)
        bad = ops_look(t->o, &t->o->shards[s], names + i, n - i < OPS_BATCH ? n - i : OPS_BATCH,
                       again, t);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)names[i].p);
    return bad;
}

/* the callback of qsort() gets no context argument, so it finds the sort order in this variable */
static const struct top *sorting;
static int by_weight(const void *a, const void *b) {
    const struct ops_lane *x = &((const struct top_lane *)a)->l,
                          *y = &((const struct top_lane *)b)->l;
    int64_t p = weight(sorting, x), q = weight(sorting, y);
    if (p != q) return p < q ? 1 : -1;
    int c = memcmp(x->name.p, y->name.p, x->name.n < y->name.n ? x->name.n : y->name.n);
    return c ? c : (x->name.n > y->name.n) - (x->name.n < y->name.n);
}

int64_t top_waiting(const struct top *t, bool *about) {
    int64_t n = 0;
    *about = false;
    for (int s = 0; s < t->o->c->redis.shards; s++) {
        n += t->shard[s].whole ? t->shard[s].waiting : t->shard[s].now_waiting;
        *about |= !t->shard[s].whole;
    }
    /* Before the first round over all lanes is complete, n may be too low. The number of waiting
     * messages that the supervisor counted is used instead if it is higher. */
    if (*about && t->fleet.on && !t->o->args.match && t->fleet.waiting > n) n = t->fleet.waiting;
    return n;
}

int64_t top_oldest_ms(const struct top *t) {
    int64_t oldest = 0;
    for (int s = 0; s < t->o->c->redis.shards; s++) {
        const struct top_shard *sh = &t->shard[s];
        int64_t at[2] = {sh->whole ? sh->oldest_ms : 0, sh->now_oldest};
        for (size_t i = 0; i < 2; i++)
            if (at[i] && (!oldest || at[i] < oldest)) oldest = at[i];
    }
    return oldest;
}

/* --- dead letters ----------------------------------------------------------------------------- */

static void text_of(char *out, size_t size, struct lw_bytes b) {
    struct lw_buf text = {0};
    ops_text(&text, b, size - 8);
    snprintf(out, size, "%.*s", (int)text.n, text.p ? text.p : "");
    lw_buf_free(&text);
}

static int add_dead(struct ops *o, struct ops_message *m, void *ctx) {
    struct top *t = ctx;
    size_t at = t->n_died;
    (void)o;
    for (size_t i = 0; i < t->n_died; i++)
        if (!strcmp(t->died[i].id, m->id)) return 0;
    while (at && t->died[at - 1].at_ms < m->last_ms) at--;
    if (at == TOP_DEAD) return 0;
    size_t moved = (t->n_died < TOP_DEAD ? t->n_died : TOP_DEAD - 1) - at;
    memmove(&t->died[at + 1], &t->died[at], moved * sizeof *t->died);
    t->n_died += t->n_died < TOP_DEAD;
    struct top_dead *d = &t->died[at];
    *d = (struct top_dead){.at_ms = m->last_ms, .attempts = m->attempts, .identity = "?"};
    snprintf(d->id, sizeof d->id, "%s", m->id);
    if (!m->bad) ops_identity(&m->e, d->identity, sizeof d->identity);
    text_of(d->key, sizeof d->key, m->e.key.p ? m->e.key : lw_bytes_of("-"));
    text_of(d->reason, sizeof d->reason, m->reason);
    return 0;
}

/* Reads the newest dead letters of one shard, back to the newest one that was read before. */
static int look_at_dead(struct top *t, int s) {
    char at[DEAD_ID] = "", since[DEAD_ID] = "";
    bool more;
    for (size_t i = 0; i < t->n_died && !since[0]; i++)
        if (atoi(t->died[i].id) == s)
            snprintf(since, sizeof since, "%s", strchr(t->died[i].id, ':') + 1);
    return dead_page(t->o, &t->o->shards[s], true, at, since, DEAD_PAGE, &more, add_dead, t) < 0
               ? -1
               : 0;
}

/* --- counts ----------------------------------------------------------------------------------- */

static int add_count(struct top *t, int s, const char *command, const char *name, int64_t *sum) {
    long long n;
    ops_begin(t->o, command), ops_key(t->o, &t->o->shards[s], name, none);
    if (ops_ask_int(t->o, &t->o->shards[s], &n)) return -1;
    *sum += n;
    return 0;
}

/* Reads the commits and the number of workers from the first shard only, because every shard has
 * all commits and workers. */
static int look_at_commits(struct top *t) {
    struct ops *o = t->o;
    long long workers;
    int64_t sum = 0, now = lw_boot_ms();
    ops_begin(o, "HGETALL"), ops_key(o, &o->shards[0], "floor", none);
    redisReply *r = ops_ask_for(o, &o->shards[0], REDIS_REPLY_ARRAY);
    if (!r) return -1;
    for (size_t i = 1; i < r->elements; i += 2) sum += strtoll(r->element[i]->str, NULL, 10);
    freeReplyObject(r);
    if (t->committed_at_ms && now > t->committed_at_ms)
        t->commit_rate = (double)(sum - t->committed) * 1000 / (double)(now - t->committed_at_ms);
    /* a negative rate is shown as 0: the sum of commits may become smaller when partitions are
     * reassigned */
    if (t->commit_rate < 0 && t->committed_at_ms) t->commit_rate = 0;
    t->committed = sum;
    t->committed_at_ms = now;
    ops_begin(o, "ZCOUNT"), ops_key(o, &o->shards[0], "workers", none);
    lw_arg_i64(&o->cmd, lw_wall_ms() - 2 * o->c->lock.ttl_ms), lw_arg_text(&o->cmd, "+inf");
    if (ops_ask_int(o, &o->shards[0], &workers)) return -1;
    t->known_workers = workers;
    return 0;
}

static int ask(struct top *t) {
    int64_t lanes = 0, paused = 0, dead = 0;
    if (!t->o->shards && ops_connect(t->o)) return -1;
    for (int s = 0; s < t->o->c->redis.shards; s++)
        if (add_count(t, s, "ZCARD", "lanes", &lanes) ||
            add_count(t, s, "SCARD", "paused", &paused) || add_count(t, s, "XLEN", "dead", &dead) ||
            go_round(t, s) || look_again(t, s) || look_at_dead(t, s))
            return -1;
    t->n_lanes = lanes, t->paused = paused, t->dead = dead;
    return look_at_commits(t);
}

void top_refresh(struct top *t) {
    t->refresh++;
    t->at_ms = lw_wall_ms();
    t->o->err = (struct lw_err){0};
    t->up = ask(t) == 0;
    snprintf(t->why, sizeof t->why, "%s", t->o->err.text);
    /* after a failure the connections are closed, so that the next refresh connects again */
    if (!t->up) ops_disconnect(t->o);
    sorting = t;
    if (t->n_lane) qsort(t->lane, t->n_lane, sizeof *t->lane, by_weight);
    top_ask_fleet(t);
}
