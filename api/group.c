/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the requests about groups and their limits, as `latchwork group` does. */
#include "api/private.h"
#include "ops/group.h"

#include <string.h>

int api_groups(struct api_call *k) {
    struct ops_groups all;
    int bad = ops_groups(k->o, k->limit, &all);
    if (!bad) {
        json_t *list = json_array();
        for (size_t i = 0; i < all.shown; i++)
            json_array_append_new(list, ops_group_json(all.at, &all.at[i]));
        api_put(k,
                json_pack("{s:o,s:o,s:I,s:b}", "groups", list, "each", ops_each_json(&all.each),
                          "more", (json_int_t)(all.n - all.shown), "complete", (int)all.complete));
    }
    ops_groups_free(&all);
    return bad;
}

/* Returns a limit of the body: 0 if it is not given, OPS_NO_LIMIT if it is null. */
static int64_t limit_of(const struct api_call *k, const char *name) {
    const json_t *v = json_object_get(k->body, name);
    return json_is_null(v) ? OPS_NO_LIMIT : json_integer_value(v);
}

/* Runs a verb of `latchwork group`, and answers with the object that it prints. */
static int change(struct api_call *k, const char *verb) {
    struct ops *o = k->o;
    struct ops_args *a = &o->args;
    struct lw_buf line = {0};
    char *name = (char *)(uintptr_t)k->segment[1], by[API_WHO];
    a->fleet = !strcmp(k->segment[0], "fleet");
    a->each = !strcmp(k->segment[0], "each-group");
    a->words = &name;
    a->n_words = !a->fleet && !a->each;
    a->running = limit_of(k, "running");
    a->per_second = limit_of(k, "per_second");
    a->burst = limit_of(k, "burst");
    o->noun = "group", o->verb = verb, o->who = api_who(k, by);
    ops_out_to(&line);
    int status = group_change(o);
    ops_out_to(NULL);
    o->verb = NULL, o->who = NULL;
    a->words = NULL, a->n_words = 0;
    json_t *one = line.n ? json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL) : NULL;
    lw_buf_free(&line);
    if (status == OPS_USAGE) lw_http_error(k->a, 400, "%s", o->err.text);
    if (!status) {
        k->execute = json_is_true(json_object_get(one, "changed"));
        api_put(k, json_incref(one));
    }
    json_decref(one);
    return status == OPS_FAILED ? -1 : 0;
}

/* Answers 400 and returns false if a member of the body is not a limit. */
static bool limits_ok(struct api_call *k) {
    static const char *const names[] = {"running", "per_second", "burst"};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(k->body, names[i]);
        if (!v) continue;
        n++;
        if (json_is_null(v) && strcmp(names[i], "burst") != 0) continue;
        if (json_integer_value(v) >= 1 && json_integer_value(v) <= LW_LIMIT_COUNT_MAX) continue;
        lw_http_error(k->a, 400, "%s: must be a number from 1 to %d%s", names[i],
                      LW_LIMIT_COUNT_MAX, i < 2 ? ", or null for no limit" : "");
        return false;
    }
    if (!n) lw_http_error(k->a, 400, "expected running, per_second or burst");
    return n > 0;
}

int api_group_set(struct api_call *k) { return limits_ok(k) ? change(k, "set") : 0; }
int api_group_reset(struct api_call *k) { return change(k, "reset"); }
int api_group_pause(struct api_call *k) { return change(k, "pause"); }
int api_group_resume(struct api_call *k) { return change(k, "resume"); }
