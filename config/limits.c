/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, checks and shows the sections `group` and `limits` of the configuration: who shares a
 * limit, and the limits of the fleet and of its groups. */
#include "base/bytes.h"
#include "config/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 1000, NAME_MAX_BYTES = 512, COUNT_MAX = 1000000 };

void lw_take_group_from(struct lw_loader *l, const struct lw_option *o, json_t *v) {
    if (!lw_take_rule(l, o->path, v, "message-key", &l->c->group.from)) return;
    free(l->c->group.from_text);
    l->c->group.from_text = lw_strdup(json_string_value(v));
}

json_t *lw_show_group_from(const struct lw_config *c) {
    return c->group.from_text ? json_string(c->group.from_text) : NULL;
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
            lw_take_count(l, at, value, COUNT_MAX, to);
        else
            lw_problem(l->problems,
                       "%s: unknown key; a group's limits are running, per_second and burst", at);
    }
}

static int by_name(const void *a, const void *b) {
    const struct lw_group_limit *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int order = n ? memcmp(x->name.p, y->name.p, n) : 0;
    return order ? order : (x->name.n > y->name.n) - (x->name.n < y->name.n);
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
        size_t n = strlen(name);
        snprintf(path, sizeof path, "%s.%.200s", o->path, name);
        if (n > NAME_MAX_BYTES || *name == 1) {
            lw_problem(l->problems,
                       "%s: a name must have at most %d bytes and not begin with byte 1", path,
                       NAME_MAX_BYTES);
            continue;
        }
        struct lw_group_limit *g = &c->limits.groups[c->limits.n_groups++];
        g->name = lw_bytes(lw_memdup(name, n), n);
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

bool lw_config_limits_running(const struct lw_config *c) {
    bool any = c->limits.fleet.running || (c->group.on && c->limits.group.running);
    for (size_t i = 0; c->group.on && i < c->limits.n_groups; i++)
        any |= c->limits.groups[i].limit.running > 0;
    return any;
}

const struct lw_limit *lw_config_group_limit(const struct lw_config *c, struct lw_bytes name) {
    const struct lw_group_limit key = {.name = name}, *found = NULL;
    if (c->limits.n_groups)
        found = bsearch(&key, c->limits.groups, c->limits.n_groups, sizeof key, by_name);
    return found ? &found->limit : &c->limits.group;
}

/* --- all limits ------------------------------------------------------------------------------- */

static void finish_limit(struct lw_loader *l, const char *path, struct lw_limit *limit) {
    if (limit->burst && !limit->per_second)
        lw_problem(l->problems, "%s.burst: no effect without %s.per_second; set that, too", path,
                   path);
    if (!limit->burst && limit->per_second)
        limit->burst = limit->per_second < 20 ? 1 : limit->per_second / 10;
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
    bool limited = lw_limit_any(&c->limits.group) || c->limits.n_groups;
    if (limited && !c->group.from_text)
        lw_problem(l->problems, "%s: needs group.from, which says where a record names its group",
                   c->limits.n_groups ? "limits.groups" : "limits.group");
    if (!limited && c->group.from_text)
        lw_problem_warn(l->problems, "group.from: no effect without limits.group or limits.groups");
    c->group.on = limited && c->group.from_text;
    c->limits.on = lw_limit_any(&c->limits.fleet) || c->group.on;
}

void lw_limits_free(struct lw_config *c) {
    for (size_t i = 0; i < c->limits.n_groups; i++)
        free((void *)(uintptr_t)c->limits.groups[i].name.p);
    free(c->limits.groups);
    free(c->group.from.arg), free(c->group.from_text);
}
