/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs of `latchwork group`: shows what groups run and wait for, and changes the
 * limits in force. */
#include "ops/group.h"

#include "base/redis/reply.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    LS_LIMIT = 100,
    BATCH = 64,        /* number of groups that a call of the script groups reads */
    NAMES_MAX = 10000, /* number of groups that are read of each shard, and of those that run */
    FIELDS_MAX = 4000, /* number of fields of `limits` */
    VALUES = 4,        /* number of values of each group in an answer of the script groups */
};

/* --- reading ---------------------------------------------------------------------------------- */

int ops_limits(struct ops *o, struct lw_limits *limits) {
    struct ops_shard *home = &o->shards[0];
    ops_begin(o, "HGETALL"), ops_keys(o, home, "limits");
    redisReply *r = ops_ask_for(o, home, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    int bad = lw_limits_read(limits, r) ? 0 : ops_malformed(o, home, r, "the limits in force");
    freeReplyObject(r);
    return bad;
}

/* Adds what one shard says of the fleet, which is out[0], and of the n groups after it. */
static int look(struct ops *o, struct ops_shard *sh, struct ops_group *fleet,
                struct ops_group *groups, size_t n) {
    ops_script(o, &lw_op_groups, 3);
    ops_keys(o, sh, "epoch", "limit", "limits");
    for (size_t i = 0; i < n; i++) lw_arg(&o->cmd, groups[i].name);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    bool ok = r->elements == 1 + VALUES * (n + 1);
    for (size_t i = 0; ok && i < r->elements; i++) ok = r->element[i]->type == REDIS_REPLY_STRING;
    for (size_t i = 0; ok && i < n + 1; i++) {
        struct ops_group *g = i ? &groups[i - 1] : fleet;
        int64_t v[VALUES];
        for (int k = 0; k < VALUES; k++)
            v[k] = strtoll(r->element[1 + VALUES * i + (size_t)k]->str, NULL, 10);
        if (!sh->index) g->running = v[0], g->limited_ms = v[1], g->paused_ms = v[2];
        g->waiting += v[3];
        g->now_ms = strtoll(r->element[0]->str, NULL, 10);
    }
    int bad = ok ? 0 : ops_malformed(o, sh, r, "[time, then %d texts for each group]", VALUES);
    freeReplyObject(r);
    return bad;
}

int ops_groups_look(struct ops *o, const struct lw_limits *limits, struct ops_group *out,
                    size_t n) {
    out[0] = (struct ops_group){.limit = limits->fleet};
    for (size_t i = 1; i <= n; i++) {
        const struct lw_limit *limit = lw_limits_group(limits, out[i].name);
        out[i].limit = *limit;
        out[i].own = limit != &limits->group;
    }
    for (int s = o->c->redis.shards - 1; s >= 0; s--)
        for (size_t at = 0; o->shards[s].redis && at <= n; at += BATCH)
            if (look(o, &o->shards[s], &out[0], out + 1 + at, lw_smaller(n - at, BATCH))) return -1;
    return 0;
}

/* --- all groups ------------------------------------------------------------------------------- */

struct names {
    struct ops_group *at; /* the fleet, then the groups */
    size_t n, cap;
};

static void add_name(struct names *all, struct lw_bytes name) {
    all->at = lw_more(all->at, all->n, &all->cap, sizeof all->at[0]);
    all->at[all->n++] = (struct ops_group){.name = lw_bytes(lw_memdup(name.p, name.n), name.n)};
}

static int by_name(const void *a, const void *b) {
    const struct ops_group *x = a, *y = b;
    return lw_bytes_order(x->name, y->name);
}

/* Those with most waiting lanes come first. */
static int by_waiting(const void *a, const void *b) {
    const struct ops_group *x = a, *y = b;
    if (x->waiting != y->waiting) return x->waiting < y->waiting ? 1 : -1;
    if (x->running != y->running) return x->running < y->running ? 1 : -1;
    return by_name(a, b);
}

static int add_names(struct ops *o, struct ops_shard *sh, const char *key, struct names *all) {
    ops_begin(o, "ZRANGE"), ops_keys(o, sh, key);
    ops_words(o, "0"), lw_arg_i64(&o->cmd, NAMES_MAX - 1);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    for (size_t i = 0; i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_STRING)
            add_name(all, lw_bytes(r->element[i]->str, r->element[i]->len));
    freeReplyObject(r);
    return 0;
}

/* Collects the groups that have limits of their own, are paused, run, or wait. */
static int collect(struct ops *o, const struct lw_limits *limits, struct names *all) {
    int bad = 0;
    add_name(all, lw_bytes("", 0)); /* room for the fleet */
    for (size_t i = 0; i < limits->n_groups; i++) add_name(all, limits->groups[i].name);
    bad = add_names(o, &o->shards[0], "limited", all);
    for (int s = 0; !bad && s < o->c->redis.shards; s++)
        bad = add_names(o, &o->shards[s], "groups", all);
    if (bad) return -1;
    size_t n = 1;
    qsort(all->at + 1, all->n - 1, sizeof all->at[0], by_name);
    for (size_t i = 1; i < all->n; i++) {
        if (n > 1 && !by_name(&all->at[n - 1], &all->at[i]))
            free((void *)(uintptr_t)all->at[i].name.p);
        else
            all->at[n++] = all->at[i];
    }
    all->n = n;
    free((void *)(uintptr_t)all->at[0].name.p);
    return ops_groups_look(o, limits, all->at, n - 1);
}

/* --- showing ---------------------------------------------------------------------------------- */

static json_t *number_or_null(int64_t n) { return n ? json_integer((json_int_t)n) : json_null(); }

static json_t *group_json(const struct ops_group *g) {
    json_t *j = json_object();
    ops_set_bytes(j, "group", g->name);
    json_object_set_new(j, "fleet", json_boolean(!g->name.p));
    json_object_set_new(j, "running", json_integer((json_int_t)g->running));
    json_object_set_new(j, "waiting", json_integer((json_int_t)g->waiting));
    json_object_set_new(j, "limits",
                        json_pack("{s:o,s:o,s:o}", "running", number_or_null(g->limit.running),
                                  "per_second", number_or_null(g->limit.per_second), "burst",
                                  number_or_null(g->limit.per_second ? g->limit.burst : 0)));
    json_object_set_new(j, "own_limits", json_boolean(g->own || !g->name.p));
    json_object_set_new(j, "paused_ms", number_or_null(g->paused_ms));
    json_object_set_new(j, "limited_ms", number_or_null(g->limited_ms));
    return j;
}

static void limit_text(int n, char out[16]) {
    if (n)
        snprintf(out, 16, "%d", n);
    else
        snprintf(out, 16, "-");
}

static const char *state(const struct ops_group *g, char out[48]) {
    char age[16];
    if (g->paused_ms)
        snprintf(out, 48, "paused for %s", ops_age(g->now_ms - g->paused_ms, age));
    else if (g->limited_ms)
        snprintf(out, 48, "limited for %s", ops_age(g->now_ms - g->limited_ms, age));
    else
        snprintf(out, 48, "-");
    return out;
}

static void add_row(struct ops_table *t, const struct ops_group *g) {
    char running[16], rate[16], burst[16], text[48];
    limit_text(g->limit.running, running);
    limit_text(g->limit.per_second, rate);
    limit_text(g->limit.per_second ? g->limit.burst : 0, burst);
    if (g->name.p)
        ops_cell_bytes(t, g->name.n ? g->name : lw_bytes_of("\"\""), 40);
    else
        ops_cell(t, "(fleet)");
    ops_cell(t, "%" PRId64, g->running);
    ops_cell(t, "%s", running);
    ops_cell(t, "%s", rate);
    ops_cell(t, "%s", burst);
    if (g->name.p)
        ops_cell(t, "%" PRId64, g->waiting);
    else
        ops_cell(t, "-");
    ops_cell(t, "%s", state(g, text));
}

static void put(struct ops *o, const struct ops_group *g, size_t n) {
    static const struct ops_column columns[] = {
        {"GROUP", false}, {"RUNS", true},  {"RUNNING", true}, {"PER_SECOND", true},
        {"BURST", true},  {"WAITS", true}, {"STATE", false}};
    struct ops_table t = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};
    for (size_t i = 0; i < n; i++) {
        if (o->args.json)
            ops_put_json(group_json(&g[i]));
        else
            add_row(&t, &g[i]);
    }
    if (!o->args.json) ops_table_print(&t);
}

int group_ls(struct ops *o) {
    struct lw_limits limits;
    struct names all = {0};
    if (ops_limits(o, &limits)) return OPS_FAILED;
    int bad = collect(o, &limits, &all);
    size_t most = o->args.limit < 0 ? LS_LIMIT : o->args.limit ? (size_t)o->args.limit : SIZE_MAX;
    if (!bad) {
        size_t n = all.n - 1, shown = lw_smaller(n, most);
        qsort(all.at + 1, n, sizeof all.at[0], by_waiting);
        put(o, all.at, 1 + shown);
        if (shown < n && !o->quiet)
            fprintf(stderr, "%zu of %zu groups; use --limit 0 to see all\n", shown, n);
    }
    for (size_t i = 1; i < all.n; i++) free((void *)(uintptr_t)all.at[i].name.p);
    free(all.at);
    lw_limits_free(&limits);
    return bad ? OPS_FAILED : 0;
}

/* --- one group -------------------------------------------------------------------------------- */

/* The group that the command line names, or the fleet. */
struct target {
    char room[LW_LANE_ROOM];
    struct ops_group at[2]; /* the fleet, and the group */
    const struct ops_group *it;
};

static int find(struct ops *o, struct target *t) {
    struct lw_limits limits;
    *t = (struct target){.it = &t->at[0]};
    if (!o->args.fleet) {
        t->at[1].name = lw_lane_named(lw_bytes_of(o->args.words[0]), t->room, sizeof t->room);
        t->it = &t->at[1];
    }
    if (ops_limits(o, &limits)) return -1;
    int bad = ops_groups_look(o, &limits, t->at, o->args.fleet ? 0 : 1);
    lw_limits_free(&limits);
    return bad;
}

/* Returns true if Redis knows anything of the group. */
static bool known(const struct ops_group *g) {
    return !g->name.p || g->own || g->running || g->waiting || g->limited_ms || g->paused_ms;
}

static const char *name_of(const struct target *t, struct lw_buf *out) {
    if (!t->it->name.p) return "the fleet";
    lw_buf_addf(out, "group \"");
    ops_text(out, t->it->name, 100);
    lw_buf_addf(out, "\"%c", 0);
    return out->p;
}

int group_show(struct ops *o) {
    struct target t;
    struct lw_buf name = {0};
    if (find(o, &t)) return OPS_FAILED;
    if (known(t.it))
        put(o, t.it, 1);
    else
        lw_fail(&o->err,
                "%s is not known: it has no limits of its own, and none of its messages "
                "runs or waits in Redis; see `latchwork group ls`",
                name_of(&t, &name));
    lw_buf_free(&name);
    return o->err.text[0] ? OPS_FAILED : 0;
}

static void number(struct ops *o, int64_t n) {
    if (n)
        lw_arg_i64(&o->cmd, n);
    else
        lw_arg_text(&o->cmd, "");
}

/* Says what the script has answered. */
static int tell(struct ops *o, const struct target *t, const redisReply *r, bool was_known) {
    const char *word = r->element[0]->str, *verb = o->verb;
    struct lw_buf text = {0};
    const char *name = name_of(t, &text);
    bool done = !strcmp(word, "OK"), same = !strcmp(word, "SAME"), set = !strcmp(verb, "set");
    struct lw_limit l = {0};
    sscanf(r->element[1]->str, "%d %d %d", &l.running, &l.per_second, &l.burst);
    if (!strcmp(word, "NONE"))
        lw_fail(&o->err,
                "no worker of \"%s\" has asked for permits yet, so Redis has no limits in "
                "force; start a worker first",
                o->c->name);
    else if (!strcmp(word, "BURST"))
        lw_fail(&o->err,
                "%s has no limit per second, so --burst has no effect; give --per-second, "
                "too",
                name);
    else if (!strcmp(word, "FULL"))
        lw_fail(&o->err,
                "%d groups have limits of their own or are paused, which is the most; "
                "resume some, or limit all groups by limits.group",
                FIELDS_MAX);
    else if (o->args.json) {
        struct ops_group g = *t->it;
        g.limit = l;
        g.own |= set;
        if (!strcmp(verb, "pause") && done) g.paused_ms = g.now_ms;
        if (!strcmp(verb, "resume")) g.paused_ms = 0;
        json_t *j = group_json(&g);
        json_object_set_new(j, "changed", json_boolean(done));
        ops_put_json(j);
    } else if (set) {
        char running[16], rate[16], burst[16];
        limit_text(l.running, running), limit_text(l.per_second, rate);
        limit_text(l.per_second ? l.burst : 0, burst);
        printf("%s: running %s, per_second %s, burst %s%s\n", name, running, rate, burst,
               same ? ", as before" : "");
    } else {
        bool pause = !strcmp(verb, "pause");
        printf("%s: %s\n", name,
               pause ? (same ? "was paused" : "paused") : (same ? "was not paused" : "resumed"));
    }
    if (done && !was_known && !o->quiet)
        fprintf(
            stderr,
            "latchwork group %s: %s was not known before: none of its messages runs or waits in "
            "Redis\n",
            verb, name);
    lw_buf_free(&text);
    return o->err.text[0] ? -1 : done;
}

int group_change(struct ops *o) {
    struct target t;
    if (!lw_config_limits(o->c)) {
        lw_fail(&o->err,
                "workers of \"%s\" ask for no permits, because its configuration has "
                "neither group.from nor limits.running or limits.per_second; set one of "
                "them, and restart the workers",
                o->c->name);
        return OPS_USAGE;
    }
    if (!o->args.fleet && !o->c->group.on) {
        lw_fail(&o->err,
                "\"%s\" has no groups, because its configuration lacks group.from, which "
                "says where a record names its group; use --fleet, or set it",
                o->c->name);
        return OPS_USAGE;
    }
    struct ops_shard *home = &o->shards[0];
    if (find(o, &t)) return OPS_FAILED;
    bool was_known = known(t.it);
    int64_t burst = o->args.burst;
    if (o->args.per_second && !burst) burst = lw_limit_burst((int)o->args.per_second);
    ops_script(o, &lw_op_limits, 2);
    ops_keys(o, home, "epoch", "limits");
    lw_arg_text(&o->cmd, o->verb);
    lw_arg_join(&o->cmd, lw_bytes_of(t.it->name.p ? ":" : ""), "", t.it->name);
    number(o, o->args.running), number(o, o->args.per_second), number(o, burst);
    lw_arg_i64(&o->cmd, FIELDS_MAX);
    redisReply *r = ops_ask_for(o, home, REDIS_REPLY_ARRAY);
    if (!r) return OPS_FAILED;
    int changed;
    if (r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
        r->element[1]->type == REDIS_REPLY_STRING)
        changed = tell(o, &t, r, was_known);
    else
        changed = ops_malformed(o, home, r, "[word, limit]");
    freeReplyObject(r);
    if (changed == 1) {
        char did[32];
        snprintf(did, sizeof did, "group %s", o->verb);
        changed = ops_audit(o, did, 1) ? -1 : 0;
    }
    return changed < 0 ? OPS_FAILED : 0;
}
