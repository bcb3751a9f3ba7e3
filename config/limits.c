/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, checks and shows the sections `group` and `limits` of the configuration: who shares a
 * limit, and the limits of the fleet and of its groups. */
#include "base/bytes.h"
#include "config/option.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 1000, NAME_MAX_BYTES = 512 };

void lw_take_group_from(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    if (!lw_take_rule(l, o->path, v, "message-key", &l->c->group.from)) return;
    free(l->c->group.from_text);
    l->c->group.from_text = lw_strdup(json_string_value(v));
}

json_t *lw_show_group_from(const struct lw_config *c) {
    return c->group.from_text ? json_string(c->group.from_text) : NULL;
}

/* Returns true if a group can have this name, which the configuration gives at `path`. */
static bool take_name(struct lw_loader *l, const char *path, const char *name) {
    if (strlen(name) <= NAME_MAX_BYTES && *name != 1) return true;
    lw_problem(l->problems, "%s: a name must have at most %d bytes and not begin with byte 1", path,
               NAME_MAX_BYTES);
    return false;
}

/* Compares two groups, with limits or with weights: the name is the first member of both. */
static int by_name(const void *a, const void *b) {
    const struct lw_bytes *x = a, *y = b;
    return lw_bytes_order(*x, *y);
}

/* --- group.weights ---------------------------------------------------------------------------- */

void lw_take_weights(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    struct lw_config *c = l->c;
    const char *name;
    json_t *value;
    if (!json_is_object(v) || json_object_size(v) > GROUPS_MAX) {
        lw_problem(l->problems, "%s: must be an object NAME → weight, of at most %d groups, is %s",
                   o->path, GROUPS_MAX, lw_shown(l, v, buf));
        return;
    }
    c->group.weights = lw_alloc((json_object_size(v) + 1) * sizeof c->group.weights[0]);
    json_object_foreach(v, name, value) {
        char path[256];
        snprintf(path, sizeof path, "%s.%.200s", o->path, name);
        if (!take_name(l, path, name)) continue;
        struct lw_group_weight *g = &c->group.weights[c->group.n_weights++];
        g->name = lw_bytes(lw_strdup(name), strlen(name));
        lw_take_count(l, path, value, LW_WEIGHT_MAX, &g->weight);
    }
    qsort(c->group.weights, c->group.n_weights, sizeof c->group.weights[0], by_name);
}

json_t *lw_show_weights(const struct lw_config *c) {
    if (!c->group.n_weights) return NULL;
    json_t *all = json_object();
    for (size_t i = 0; i < c->group.n_weights; i++)
        json_object_set_new(all, c->group.weights[i].name.p,
                            json_integer(c->group.weights[i].weight));
    return all;
}

int lw_group_weight(const struct lw_config *c, struct lw_bytes name) {
    const struct lw_group_weight key = {.name = name}, *found = NULL;
    if (c->group.n_weights)
        found = bsearch(&key, c->group.weights, c->group.n_weights, sizeof key, by_name);
    return found ? found->weight : 1;
}

/* --- limits.groups ---------------------------------------------------------------------------- */

static void take_group(struct lw_loader *l, const char *path, json_t *v, struct lw_limit *limit) {
    char buf[LW_SHOWN_MAX];
    const char *name;
    json_t *value;
    if (!json_is_object(v)) {
        lw_problem(l->problems, "%s: must be an object, is %s", path, lw_shown(l, v, buf));
        return;
    }
    if (!json_object_size(v))
        lw_problem(l->problems, "%s: limits nothing; set running or per_second", path);
    json_object_foreach(v, name, value) {
        int *to = !strcmp(name, "running")      ? &limit->running
                  : !strcmp(name, "per_second") ? &limit->per_second
                  : !strcmp(name, "burst")      ? &limit->burst
                                                : NULL;
        char at[400];
        snprintf(at, sizeof at, "%s.%.100s", path, name);
        if (to)
            lw_take_count(l, at, value, LW_LIMIT_COUNT_MAX, to);
        else
            lw_problem(l->problems,
                       "%s: unknown key; a group's limits are running, per_second and burst", at);
    }
}

void lw_take_groups(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    char buf[LW_SHOWN_MAX];
    struct lw_config *c = l->c;
    const char *name;
    json_t *value;
    if (!json_is_object(v)) {
        lw_problem(l->problems, "%s: must be an object NAME → limits, is %s", o->path,
                   lw_shown(l, v, buf));
        return;
    }
    if (json_object_size(v) > GROUPS_MAX) {
        lw_problem(l->problems,
                   "%s: names %zu groups; at most %d can have limits of their own, and "
                   "limits.group is for all others",
                   o->path, json_object_size(v), GROUPS_MAX);
        return;
    }
    c->limits.groups = lw_alloc((json_object_size(v) + 1) * sizeof c->limits.groups[0]);
    json_object_foreach(v, name, value) {
        char path[256];
        snprintf(path, sizeof path, "%s.%.200s", o->path, name);
        if (!take_name(l, path, name)) continue;
        struct lw_group_limit *g = &c->limits.groups[c->limits.n_groups++];
        g->name = lw_bytes(lw_strdup(name), strlen(name));
        take_group(l, path, value, &g->limit);
    }
    qsort(c->limits.groups, c->limits.n_groups, sizeof c->limits.groups[0], by_name);
}

json_t *lw_show_groups(const struct lw_config *c) {
    if (!c->limits.n_groups) return NULL;
    json_t *all = json_object();
    for (size_t i = 0; i < c->limits.n_groups; i++) {
        const struct lw_group_limit *g = &c->limits.groups[i];
        json_t *one = json_object();
        if (g->limit.running) json_object_set_new(one, "running", json_integer(g->limit.running));
        if (g->limit.per_second) {
            json_object_set_new(one, "per_second", json_integer(g->limit.per_second));
            json_object_set_new(one, "burst", json_integer(g->limit.burst));
        }
        json_object_set_new(all, g->name.p, one);
    }
    return all;
}

/* --- the limits in force ---------------------------------------------------------------------- */

const char *lw_limit_text(const struct lw_limit *limit, char out[LW_LIMIT_TEXT]) {
    snprintf(out, LW_LIMIT_TEXT, "%d %d %d", limit->running, limit->per_second, limit->burst);
    return out;
}

int lw_limit_burst(int per_second) { return per_second < 20 ? 1 : per_second / 10; }

bool lw_limits_running(const struct lw_limits *l) {
    bool any = l->fleet.running || l->group.running;
    for (size_t i = 0; i < l->n_groups; i++) any |= l->groups[i].limit.running > 0;
    return any;
}

bool lw_limits_any(const struct lw_limits *l) {
    bool any = lw_limit_any(&l->fleet) || lw_limit_any(&l->group) || l->fleet.paused;
    for (size_t i = 0; i < l->n_groups; i++)
        any |= lw_limit_any(&l->groups[i].limit) || l->groups[i].limit.paused;
    return any;
}

static struct lw_group_limit *find(const struct lw_limits *l, struct lw_bytes name) {
    const struct lw_group_limit key = {.name = name};
    return l->n_groups ? bsearch(&key, l->groups, l->n_groups, sizeof key, by_name) : NULL;
}

const struct lw_limit *lw_limits_group(const struct lw_limits *l, struct lw_bytes name) {
    const struct lw_group_limit *found = find(l, name);
    return found ? &found->limit : &l->group;
}

/* Parses "RUNNING PER_SECOND BURST FILE". */
static bool read_limit(const redisReply *r, struct lw_limit *out) {
    int end = 0;
    *out = (struct lw_limit){0};
    if (sscanf(r->str, "%7d %7d %7d %n", &out->running, &out->per_second, &out->burst, &end) != 3)
        return false;
    const char *file = r->str + end;
    out->set = end && (strlen(file) + 1 != (size_t)end || memcmp(r->str, file, strlen(file)) != 0);
    return end && out->running >= 0 && out->per_second >= 0 && out->burst >= !!out->per_second;
}

/* Returns true if the text begins with `kind`, with the rest in *name. */
static bool is(const redisReply *r, const char *kind, struct lw_bytes *name) {
    size_t n = strlen(kind);
    if (r->len < n || memcmp(r->str, kind, n) != 0) return false;
    *name = lw_bytes(r->str + n, r->len - n);
    return true;
}

static void add(struct lw_limits *l, struct lw_bytes name, const struct lw_limit *limit) {
    l->groups[l->n_groups++] =
        (struct lw_group_limit){lw_bytes(lw_memdup(name.p, name.n), name.n), *limit};
}

bool lw_limits_read(struct lw_limits *out, const redisReply *r) {
    struct lw_bytes name;
    struct lw_limit limit;
    bool ok = r->type == REDIS_REPLY_ARRAY && r->elements % 2 == 0, paused = false;
    *out = (struct lw_limits){0};
    for (size_t i = 0; ok && i < r->elements; i++) ok = r->element[i]->type == REDIS_REPLY_STRING;
    if (!ok) return false;
    out->groups = lw_alloc((r->elements / 2 + 1) * sizeof out->groups[0]);
    for (size_t i = 0; ok && i < r->elements; i += 2) {
        const redisReply *field = r->element[i], *value = r->element[i + 1];
        if (!strcmp(field->str, "fleet")) {
            ok = read_limit(value, &out->fleet);
        } else if (!strcmp(field->str, "each")) {
            ok = read_limit(value, &out->group);
        } else if (!strcmp(field->str, "paused")) {
            paused = true;
        } else if (is(field, "group:", &name) && (ok = read_limit(value, &limit))) {
            limit.own = true;
            add(out, name, &limit);
        }
    }
    out->fleet.paused = paused;
    qsort(out->groups, out->n_groups, sizeof out->groups[0], by_name);
    const struct lw_limits own = *out; /* a paused group may have no limits of its own */
    for (size_t i = 0; ok && i < r->elements; i += 2) {
        if (!is(r->element[i], "paused:", &name)) continue;
        struct lw_group_limit *g = find(&own, name);
        limit = out->group;
        limit.paused = true;
        if (g)
            g->limit.paused = true;
        else
            add(out, name, &limit);
    }
    qsort(out->groups, out->n_groups, sizeof out->groups[0], by_name);
    if (ok) return true;
    lw_limits_free(out);
    *out = (struct lw_limits){0};
    return false;
}

void lw_limits_free(struct lw_limits *l) {
    for (size_t i = 0; i < l->n_groups; i++) free((void *)(uintptr_t)l->groups[i].name.p);
    free(l->groups);
}

/* --- all limits ------------------------------------------------------------------------------- */

static void finish_limit(struct lw_loader *l, const char *path, struct lw_limit *limit) {
    if (limit->burst && !limit->per_second)
        lw_problem(l->problems, "%s.burst: no effect without %s.per_second; set that, too", path,
                   path);
    if (!limit->burst && limit->per_second) limit->burst = lw_limit_burst(limit->per_second);
}

void lw_finish_limits(struct lw_loader *l) {
    struct lw_config *c = l->c;
    finish_limit(l, "limits", &c->limits.fleet);
    finish_limit(l, "limits.group", &c->limits.group);
    for (size_t i = 0; i < c->limits.n_groups; i++) {
        char path[256];
        snprintf(path, sizeof path, "limits.groups.%.200s", c->limits.groups[i].name.p);
        finish_limit(l, path, &c->limits.groups[i].limit);
    }
    const char *needs = c->limits.n_groups               ? "limits.groups"
                        : lw_limit_any(&c->limits.group) ? "limits.group"
                        : c->group.n_weights             ? "group.weights"
                                                         : NULL;
    if (needs && !c->group.from_text)
        lw_problem(l->problems, "%s: needs group.from, which says where a record names its group",
                   needs);
    c->group.on = c->group.from_text != NULL;
}

void lw_group_free(struct lw_config *c) {
    lw_limits_free(&c->limits);
    for (size_t i = 0; i < c->group.n_weights; i++)
        free((void *)(uintptr_t)c->group.weights[i].name.p);
    free(c->group.weights);
    free(c->group.from.arg), free(c->group.from_text);
}
