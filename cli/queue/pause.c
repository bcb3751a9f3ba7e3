/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork queue pause` and `resume`. */
#include "cli/queue/queue.h"
#include "ops/ops.h"

#include <stdlib.h>

/* Holds the names of the lanes to change. All names are collected before the first lane is changed. */
struct names {
    struct {
        struct lw_bytes name; /* name of a lane, an owned copy */
        int shard;
    } * at;
    size_t n, cap;
    bool resume;
    int64_t changed;
};

static int add(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct names *ns = ctx;
    if (!o->args.n_words && !ops_lane_head_matches(o, l)) return 0;
    if (ns->resume && !l->paused) return 0;
    if (ns->n == ns->cap) {
        ns->cap = ns->cap ? 2 * ns->cap : 64;
        ns->at = lw_realloc(ns->at, ns->cap * sizeof *ns->at);
    }
    ns->at[ns->n].name = lw_bytes(lw_memdup(l->name.p, l->name.n), l->name.n);
    ns->at[ns->n++].shard = l->shard;
    return 0;
}

static int collect(struct ops *o, struct names *ns) {
    if (!o->args.n_words) return ops_each_lane(o, add, ns);
    for (int i = 0; i < o->args.n_words; i++) {
        char room[LW_LANE_ROOM];
        struct lw_bytes lane = lw_lane_id(lw_bytes_of(o->args.words[i]), room, sizeof room);
        struct ops_lane l = {.name = lane, .shard = ops_shard_of(o, lane)->index, .paused = true};
        add(o, &l, ns);
    }
    return 0;
}

static void tell(struct ops *o, struct lw_bytes name, const char *what) {
    if (o->args.json) {
        json_t *j = json_object();
        ops_set_bytes(j, "key", name);
        json_object_set_new(j, "result", json_string(what));
        ops_put_json(j);
        return;
    }
    struct lw_buf text = {0};
    ops_text(&text, name, 200);
    printf("%.*s: %s\n", (int)text.n, text.p ? text.p : "", what);
    lw_buf_free(&text);
}

static int change(struct ops *o, bool resume) {
    struct names ns = {.resume = resume};
    const char *did = resume ? "resumed" : "paused", *not = resume ? "was not paused" : "was paused";
    if (!ops_has_filter(o)) {
        fprintf(stderr, "latchwork queue %s: which? KEY, --key, --match or another filter is wanted\n", o->verb);
        return OPS_USAGE;
    }
    bool execute = o->args.execute || o->args.n_words; /* if lanes are named one by one, --execute is not needed */
    int bad = collect(o, &ns) < 0 ? -1 : 0;
    for (size_t i = 0; i < ns.n; i++) {
        struct ops_shard *sh = &o->shards[ns.at[i].shard];
        bool changed = false;
        if (!bad && !execute) tell(o, ns.at[i].name, resume ? "would be resumed" : "would be paused");
        if (!bad && execute) {
            bad = resume ? ops_resume(o, sh, ns.at[i].name, &changed) : ops_pause(o, sh, ns.at[i].name, &changed);
            if (!bad) tell(o, ns.at[i].name, changed ? did : not );
            ns.changed += changed;
        }
        free((void *)(uintptr_t)ns.at[i].name.p);
    }
    if (!bad && !execute) fprintf(stderr, "%zu lanes; nothing was changed: --execute does it\n", ns.n);
    if (execute && ns.changed && ops_audit(o, o->verb, ns.changed)) bad = -1;
    free(ns.at);
    return bad ? OPS_FAILED : 0;
}

int queue_pause(struct ops *o) { return change(o, false); }
int queue_resume(struct ops *o) { return change(o, true); }
