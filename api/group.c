/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the requests about groups and their limits, as `latchwork group` does. */
#include "api/private.h"
#include "ops/group.h"

#include <string.h>

/* Runs a verb of `latchwork group`, and returns the objects that it prints, or NULL. If the verb
 * refuses the request, the answer is 400 and *bad is 0; if Redis failed, *bad is -1. */
static json_t *run(struct api_call *k, const char *verb, int (*operate)(struct ops *), int *bad) {
    struct ops *o = k->o;
    struct lw_buf lines = {0};
    char by[API_WHO];
    o->noun = "group", o->verb = verb, o->who = api_who(k, by);
    o->args.json = true;
    ops_out_to(&lines);
    int status = operate(o);
    ops_out_to(NULL);
    o->verb = NULL, o->who = NULL;
    *bad = status == OPS_FAILED ? -1 : 0;
    json_t *list = status ? NULL : json_array();
    const char *p = lines.p, *end = p ? p + lines.n : NULL, *stop;
    for (; list && p < end && (stop = memchr(p, '\n', (size_t)(end - p))); p = stop + 1)
        json_array_append_new(list, json_loadb(p, (size_t)(stop - p), 0, NULL));
    lw_buf_free(&lines);
    if (status == OPS_USAGE) {
        lw_http_error(k->a, 400, "%s", o->err.text);
        o->err = (struct lw_err){0};
    }
    return list;
}

int api_groups(struct api_call *k) {
    int bad;
    k->o->args.limit = (int64_t)k->limit;
    json_t *list = run(k, "ls", group_ls, &bad);
    if (list) api_put(k, json_pack("{s:o}", "groups", list));
    return bad;
}

static int change(struct api_call *k, const char *verb) {
    struct ops_args *a = &k->o->args;
    char *name = (char *)(uintptr_t)k->segment[1];
    int bad;
    a->fleet = !strcmp(k->segment[0], "fleet");
    a->words = &name;
    a->n_words = !a->fleet;
    a->running = json_integer_value(json_object_get(k->body, "running"));
    a->per_second = json_integer_value(json_object_get(k->body, "per_second"));
    a->burst = json_integer_value(json_object_get(k->body, "burst"));
    json_t *list = run(k, verb, group_change, &bad);
    a->words = NULL, a->n_words = 0;
    if (!list) return bad;
    json_t *one = json_array_get(list, 0);
    k->execute = json_is_true(json_object_get(one, "changed"));
    api_put(k, json_incref(one));
    json_decref(list);
    return bad;
}

/* Answers 400 and returns false if a member of the body is not a limit. */
static bool limits_ok(struct api_call *k) {
    static const char *const names[] = {"running", "per_second", "burst"};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(k->body, names[i]);
        if (!v) continue;
        n++;
        if (json_integer_value(v) >= 1 && json_integer_value(v) <= LW_LIMIT_COUNT_MAX) continue;
        lw_http_error(k->a, 400, "%s: must be a number from 1 to %d", names[i], LW_LIMIT_COUNT_MAX);
        return false;
    }
    if (!n) lw_http_error(k->a, 400, "expected running, per_second or burst");
    return n > 0;
}

int api_group_set(struct api_call *k) { return limits_ok(k) ? change(k, "set") : 0; }
int api_group_pause(struct api_call *k) { return change(k, "pause"); }
int api_group_resume(struct api_call *k) { return change(k, "resume"); }
