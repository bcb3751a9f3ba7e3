/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs of `latchwork group`: shows what groups run and wait for, and changes the
 * limits in force. */
#include "ops/group.h"

#include "base/redis/reply.h"

#include <inttypes.h>
#include <math.h>
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
        out[i].limit = *lw_limits_group(limits, out[i].name);
    }
    for (int s = o->c->redis.shards - 1; s >= 0; s--)
        for (size_t at = 0; o->shards[s].redis && at <= n; at += BATCH)
            if (look(o, &o->shards[s], &out[0], out + 1 + at, lw_smaller(n - at, BATCH))) return -1;
    return 0;
}

/* Adds what a share of the handlers says. NULL: the group has none. */
static void take_share(struct ops_group *g, const struct ops_shares *all,
                       const struct ops_share *share) {
    bool known = share || all->complete;
    g->per_second = share ? share->per_second : known ? 0 : -1;
    g->share = known ? 0 : -1;
    if (share && all->all.busy_ms > 0) g->share = (double)share->busy_ms / (double)all->all.busy_ms;
    /* workers state nothing of a group without limits */
    if (share && g->name.p && !lw_limit_any(&g->limit)) g->running = share->running;
}

/* Adds what the fleet, which is out[0], and the n groups after it take of the handlers. */
static void take_shares(struct ops_group *out, size_t n, const struct ops_shares *shares) {
    bool told = shares->complete || shares->all.busy_ms > 0;
    take_share(&out[0], shares, told ? &shares->all : NULL);
    for (size_t i = 1; i <= n; i++)
        take_share(&out[i], shares, ops_shares_find(shares, out[i].name));
}

/* Reads the shares. They are unknown if that fails: all else can be shown nevertheless. */
static struct ops_shares read_shares(struct ops *o) {
    struct ops_shares shares;
    if (ops_shares_read(o, &shares)) {
        ops_shares_free(&shares);
        o->err = (struct lw_err){0};
    }
    return shares;
}

/* --- all groups ------------------------------------------------------------------------------- */

static void add_name(struct ops_groups *all, struct lw_bytes name) {
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

static int add_names(struct ops *o, struct ops_shard *sh, const char *key, struct ops_groups *all) {
    ops_begin(o, "ZRANGE"), ops_keys(o, sh, key);
    ops_words(o, "0"), lw_arg_i64(&o->cmd, NAMES_MAX - 1);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    for (size_t i = 0; i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_STRING)
            add_name(all, lw_bytes(r->element[i]->str, r->element[i]->len));
    all->complete &= r->elements < NAMES_MAX;
    freeReplyObject(r);
    return 0;
}

/* Leaves out a name that came several times. */
static void drop_twins(struct ops_groups *all) {
    size_t n = 1;
    qsort(all->at + 1, all->n - 1, sizeof all->at[0], by_name);
    for (size_t i = 1; i < all->n; i++) {
        if (n > 1 && !by_name(&all->at[n - 1], &all->at[i]))
            free((void *)(uintptr_t)all->at[i].name.p);
        else
            all->at[n++] = all->at[i];
    }
    all->n = n;
}

/* Collects the groups that have limits of their own, are paused, run, or wait. */
static int collect(struct ops *o, const struct lw_limits *limits, const struct ops_shares *shares,
                   struct ops_groups *all) {
    int bad = 0;
    for (size_t i = 0; i < limits->n_groups; i++) add_name(all, limits->groups[i].name);
    for (size_t i = 0; i < shares->n; i++) add_name(all, shares->row[i].name);
    bad = add_names(o, &o->shards[0], "limited", all);
    for (int s = 0; !bad && s < o->c->redis.shards; s++)
        bad = add_names(o, &o->shards[s], "groups", all);
    if (bad) return -1;
    drop_twins(all);
    return ops_groups_look(o, limits, all->at, all->n - 1);
}

int ops_groups(struct ops *o, size_t most, struct ops_groups *out) {
    struct lw_limits limits;
    *out = (struct ops_groups){.complete = true};
    out->at = lw_more(NULL, 0, &out->cap, sizeof out->at[0]);
    out->at[out->n++] = (struct ops_group){0}; /* the fleet */
    if (ops_limits(o, &limits)) return -1;
    struct ops_shares shares = read_shares(o);
    int bad = collect(o, &limits, &shares, out);
    if (!bad) {
        out->each = limits.group;
        take_shares(out->at, out->n - 1, &shares);
        qsort(out->at + 1, out->n - 1, sizeof out->at[0], by_waiting);
        out->shown = 1 + lw_smaller(out->n - 1, most);
    }
    ops_shares_free(&shares);
    lw_limits_free(&limits);
    return bad;
}

void ops_groups_free(struct ops_groups *all) {
    for (size_t i = 1; i < all->n; i++) free((void *)(uintptr_t)all->at[i].name.p);
    free(all->at);
}

/* --- showing ---------------------------------------------------------------------------------- */

static json_t *number_or_null(int64_t n) { return n ? json_integer((json_int_t)n) : json_null(); }

/* Rounds to hundredths, or to ten thousandths if `fine`. */
static json_t *figure(double v, bool fine) {
    double by = fine ? 10000 : 100;
    return v < 0 ? json_null() : json_real(floor(v * by + 0.5) / by);
}

json_t *ops_limit_json(const struct lw_limit *l) {
    return json_pack("{s:o,s:o,s:o}", "running", number_or_null(l->running), "per_second",
                     number_or_null(l->per_second), "burst",
                     number_or_null(l->per_second ? l->burst : 0));
}

const char *ops_limit_from(const struct lw_limit *l) {
    return l->set ? "set" : lw_limit_any(l) ? "file" : NULL;
}

/* Says why messages of the group, or of the fleet, are held up now. */
static bool why(const struct ops_group *fleet, const struct ops_group *g, struct ops_why *out) {
    bool waits = g->limited_ms || g->paused_ms || g->waiting;
    *out = (struct ops_why){0};
    return waits && ops_group_why(fleet, g->name.p ? g : NULL, out);
}

json_t *ops_group_json(const struct ops_group *fleet, const struct ops_group *g) {
    struct ops_why held;
    const char *from = ops_limit_from(&g->limit);
    json_t *j = json_object();
    ops_set_bytes(j, "group", g->name);
    json_object_set_new(j, "fleet", json_boolean(!g->name.p));
    json_object_set_new(j, "running", json_integer((json_int_t)g->running));
    json_object_set_new(j, "waiting", json_integer((json_int_t)g->waiting));
    json_object_set_new(j, "starts_per_second", figure(g->per_second, false));
    json_object_set_new(j, "share", figure(g->share, true));
    json_object_set_new(j, "limits", ops_limit_json(&g->limit));
    json_object_set_new(j, "from", from ? json_string(from) : json_null());
    json_object_set_new(j, "own_limits", json_boolean(g->limit.own || !g->name.p));
    json_object_set_new(j, "paused_ms", number_or_null(g->paused_ms));
    json_object_set_new(j, "limited_ms", number_or_null(g->limited_ms));
    why(fleet, g, &held);
    json_object_set_new(j, "why", ops_why_json(&held));
    return j;
}

static void limit_text(int n, char out[16]) {
    if (n)
        snprintf(out, 16, "%d", n);
    else
        snprintf(out, 16, "-");
}

static const char *state(const struct ops_group *fleet, const struct ops_group *g, char out[64]) {
    struct ops_why held;
    char age[16];
    bool is = why(fleet, g, &held);
    if (g->paused_ms)
        snprintf(out, 64, "paused for %s", ops_age(g->now_ms - g->paused_ms, age));
    else if (is && g->limited_ms)
        snprintf(out, 64, "limited for %s: %s", ops_age(g->now_ms - g->limited_ms, age),
                 held.reason);
    else
        snprintf(out, 64, "%s", is ? held.reason : "-");
    return out;
}

static const char *from_text(const struct ops_group *g) {
    const char *from = ops_limit_from(&g->limit);
    if (!from || !g->name.p || g->limit.own) return from ? from : "-";
    return g->limit.set ? "limits.group, set" : "limits.group";
}

static void add_row(struct ops_table *t, const struct ops_group *fleet, const struct ops_group *g) {
    char running[16], rate[16], burst[16], text[64];
    limit_text(g->limit.running, running);
    limit_text(g->limit.per_second, rate);
    limit_text(g->limit.per_second ? g->limit.burst : 0, burst);
    if (g->name.p)
        ops_cell_bytes(t, g->name.n ? g->name : lw_bytes_of("\"\""), 40);
    else
        ops_cell(t, "(fleet)");
    ops_cell(t, "%" PRId64, g->running);
    if (g->name.p)
        ops_cell(t, "%" PRId64, g->waiting);
    else
        ops_cell(t, "-");
    ops_cell(t, g->per_second < 0 ? "?" : "%.1f", g->per_second);
    ops_cell(t, g->share < 0 ? "?" : "%.1f %%", 100 * g->share);
    ops_cell(t, "%s", running);
    ops_cell(t, "%s", rate);
    ops_cell(t, "%s", burst);
    ops_cell(t, "%s", from_text(g));
    ops_cell(t, "%s", state(fleet, g, text));
}

static void put(struct ops *o, const struct ops_group *fleet, const struct ops_group *g, size_t n) {
    static const struct ops_column columns[] = {
        {"GROUP", false}, {"RUNS", true},    {"WAITS", true},      {"STARTS/S", true},
        {"SHARE", true},  {"RUNNING", true}, {"PER_SECOND", true}, {"BURST", true},
        {"FROM", false},  {"STATE", false}};
    struct ops_table t = {.columns = columns, .n_columns = sizeof columns / sizeof *columns};
    for (size_t i = 0; i < n; i++) {
        if (o->args.json)
            ops_put_json(ops_group_json(fleet, &g[i]));
        else
            add_row(&t, fleet, &g[i]);
    }
    if (!o->args.json) ops_table_print(&t);
}

int group_ls(struct ops *o) {
    struct ops_groups all;
    size_t most = o->args.limit < 0 ? LS_LIMIT : o->args.limit ? (size_t)o->args.limit : SIZE_MAX;
    int bad = ops_groups(o, most, &all);
    if (!bad) put(o, all.at, all.at, all.shown);
    if (!bad && all.shown < all.n)
        fprintf(stderr, "%zu of %s%zu groups; use --limit 0 to see all\n", all.shown - 1,
                all.complete ? "" : "at least ", all.n - 1);
    ops_groups_free(&all);
    return bad ? OPS_FAILED : 0;
}

/* --- one group -------------------------------------------------------------------------------- */

/* What the command line names: a group, the fleet, or the limits of each group. */
struct target {
    char room[LW_LANE_ROOM];
    struct ops_group at[2]; /* the fleet, and the group */
    struct ops_group *it;   /* NULL: the limits of each group */
    struct lw_limit each;
};

static int find(struct ops *o, struct target *t) {
    struct lw_limits limits;
    *t = (struct target){.it = o->args.fleet ? &t->at[0] : o->args.each ? NULL : &t->at[1]};
    bool named = t->it == &t->at[1];
    if (named) t->it->name = lw_lane_named(lw_bytes_of(o->args.words[0]), t->room, sizeof t->room);
    if (ops_limits(o, &limits)) return -1;
    struct ops_shares shares = read_shares(o);
    int bad = ops_groups_look(o, &limits, t->at, named);
    take_shares(t->at, named, &shares);
    t->each = limits.group;
    ops_shares_free(&shares);
    lw_limits_free(&limits);
    return bad;
}

/* Returns true if Redis knows anything of the group. */
static bool known(const struct ops_group *g) {
    return !g || !g->name.p || g->limit.own || g->running || g->waiting || g->limited_ms ||
           g->paused_ms || g->per_second > 0 || g->share > 0;
}

static const char *name_of(const struct target *t, struct lw_buf *out) {
    if (!t->it) return "each group without limits of its own";
    if (!t->it->name.p) return "the fleet";
    lw_buf_addf(out, "group \"");
    ops_text(out, t->it->name, 100);
    lw_buf_addf(out, "\"%c", 0);
    return out->p;
}

json_t *ops_each_json(const struct lw_limit *each) {
    const char *from = ops_limit_from(each);
    return json_pack("{s:o,s:s?}", "limits", ops_limit_json(each), "from", from);
}

static void print_limit(const char *name, const struct lw_limit *l, const char *more) {
    char running[16], rate[16], burst[16];
    limit_text(l->running, running), limit_text(l->per_second, rate);
    limit_text(l->per_second ? l->burst : 0, burst);
    printf("%s: running %s, per_second %s, burst %s%s\n", name, running, rate, burst, more);
}

int group_show(struct ops *o) {
    struct target t;
    struct lw_buf name = {0};
    if (find(o, &t)) return OPS_FAILED;
    if (!t.it && o->args.json)
        ops_put_json(ops_each_json(&t.each));
    else if (!t.it)
        print_limit(name_of(&t, &name), &t.each, t.each.set ? " (set)" : "");
    else if (known(t.it))
        put(o, &t.at[0], t.it, 1);
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
        lw_arg_i64(&o->cmd, n == OPS_NO_LIMIT ? 0 : n);
    else
        lw_arg_text(&o->cmd, "");
}

/* Fails if the script has refused the change, which is a conflict with what is in force. */
static bool refused(struct ops *o, const char *word, const char *name) {
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
    o->err.conflict = o->err.text[0] != 0;
    return o->err.conflict;
}

/* Takes over what is in force after the verb. `limit` and `file` are those of the script. */
static void take_change(const struct ops *o, struct target *t, bool done, const char *limit,
                        const char *file) {
    struct lw_limit *l = t->it ? &t->it->limit : &t->each;
    bool set = !strcmp(o->verb, "set");
    if (set || !strcmp(o->verb, "reset")) {
        sscanf(limit, "%d %d %d", &l->running, &l->per_second, &l->burst);
        l->own = t->it && t->it->name.p && (set || strcmp(file, "-") != 0);
        l->set = set && strcmp(limit, file) != 0;
    } else if (!strcmp(o->verb, "resume")) {
        t->it->paused_ms = 0;
    } else if (done) {
        t->it->paused_ms = t->it->now_ms;
    }
}

/* Says what is in force now. */
static void tell(const struct ops *o, const struct target *t, bool done, const char *name) {
    if (o->args.json) {
        json_t *j = t->it ? ops_group_json(&t->at[0], t->it) : ops_each_json(&t->each);
        json_object_set_new(j, "changed", json_boolean(done));
        ops_put_json(j);
    } else if (!strcmp(o->verb, "set") || !strcmp(o->verb, "reset")) {
        print_limit(name, t->it ? &t->it->limit : &t->each, done ? "" : ", as before");
    } else {
        bool pause = !strcmp(o->verb, "pause");
        printf("%s: %s\n", name,
               pause ? (done ? "paused" : "was paused") : (done ? "resumed" : "was not paused"));
    }
}

/* Returns 1 if the verb has changed something, 0 if not, or -1 with o->err. */
static int take_answer(struct ops *o, struct target *t, const redisReply *r) {
    struct lw_buf text = {0};
    bool sound = r->elements == 3, was_known = known(t->it);
    for (size_t i = 0; sound && i < 3; i++) sound = r->element[i]->type == REDIS_REPLY_STRING;
    if (!sound) return ops_malformed(o, &o->shards[0], r, "[word, limit, file]");
    const char *name = name_of(t, &text), *word = r->element[0]->str;
    bool done = !strcmp(word, "OK"), bad = refused(o, word, name);
    if (!bad) {
        take_change(o, t, done, r->element[1]->str, r->element[2]->str);
        tell(o, t, done, name);
    }
    if (done && !was_known && !o->quiet)
        fprintf(
            stderr,
            "latchwork group %s: %s was not known before: none of its messages runs or waits in "
            "Redis\n",
            o->verb, name);
    lw_buf_free(&text);
    return bad ? -1 : done;
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
    int64_t burst = o->args.burst;
    if (o->args.per_second > 0 && !burst) burst = lw_limit_burst((int)o->args.per_second);
    ops_script(o, &lw_op_limits, 2);
    ops_keys(o, home, "epoch", "limits");
    lw_arg_text(&o->cmd, o->verb);
    if (t.it)
        lw_arg_join(&o->cmd, lw_bytes_of(t.it->name.p ? ":" : ""), "", t.it->name);
    else
        lw_arg_text(&o->cmd, "each");
    number(o, o->args.running), number(o, o->args.per_second), number(o, burst);
    lw_arg_i64(&o->cmd, FIELDS_MAX);
    redisReply *r = ops_ask_for(o, home, REDIS_REPLY_ARRAY);
    if (!r) return OPS_FAILED;
    int changed = take_answer(o, &t, r);
    freeReplyObject(r);
    if (changed == 1) {
        char did[32];
        snprintf(did, sizeof did, "group %s", o->verb);
        changed = ops_audit(o, did, 1) ? -1 : 0;
    }
    return changed < 0 ? OPS_FAILED : 0;
}
