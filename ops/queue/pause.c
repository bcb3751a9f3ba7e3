/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verbs `latchwork queue pause` and `resume`. */
#include "ops/queue/queue.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <stdio.h>

struct change {
    bool resume, execute;
    /* `lanes` is the number of lanes that passed the filters, and `changed` the number of lanes
     * that were changed. */
    int64_t lanes, changed;
};

static void tell(struct ops *o, struct lw_bytes name, const char *what) {
    struct lw_buf text = {0};
    if (o->args.json && !o->watch) {
        json_t *j = json_object();
        ops_set_bytes(j, "key", name);
        json_object_set_new(j, "result", json_string(what));
        ops_put_json(j);
        return;
    }
    ops_text(&text, name, 200);
    lw_buf_add(&text, "", 1);
    if (!o->watch)
        printf("%s: %s\n", text.p, what);
    else if (o->watch->told)
        o->watch->told(o->watch->ctx, text.p, what, false);
    lw_buf_free(&text);
}

static const char *word(const struct change *ch, bool changed) {
    if (!ch->execute) return ch->resume ? "would be resumed" : "would be paused";
    if (ch->resume) return changed ? "resumed" : "was not paused";
    return changed ? "paused" : "was paused";
}

static void count(struct ops *o, struct change *ch, bool changed) {
    ch->lanes++;
    ch->changed += changed;
    if (!o->watch) return;
    atomic_store(&o->watch->taken, ch->lanes);
    atomic_store(&o->watch->done, ch->execute ? ch->changed : ch->lanes);
}

/* Pauses or resumes one lane. ops_each_lane() calls this function for each lane as soon as it has
 * read the lane's name, because there may be a million names, which is too many to collect first.
 * It reads the names with two cursors: one over the lanes with waiting messages, and one over the
 * paused lanes without waiting messages. Lanes may be changed during the reading, because a change
 * never makes one cursor find a lane that the other cursor has found. */
static int change_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct change *ch = ctx;
    struct ops_shard *sh = &o->shards[l->shard];
    bool changed = false;
    if (!o->args.n_words && !ops_lane_head_matches(o, l)) return 0;
    if (ch->resume && !l->paused) return 0;
    if (ch->execute &&
        (ch->resume ? ops_resume(o, sh, l->name, &changed) : ops_pause(o, sh, l->name, &changed)))
        return -1;
    count(o, ch, changed);
    tell(o, l->name, word(ch, changed));
    return o->args.limit > 0 && ch->lanes >= o->args.limit;
}

static int change_named(struct ops *o, struct change *ch) {
    int stop = 0;
    for (int i = 0; i < o->args.n_words && !stop; i++) {
        char room[LW_LANE_ROOM];
        struct lw_bytes lane = lw_lane_named(lw_bytes_of(o->args.words[i]), room, sizeof room);
        struct ops_lane l = {.name = lane, .shard = ops_shard_of(o, lane)->index, .paused = true};
        stop = change_lane(o, &l, ch);
    }
    return stop;
}

static int change(struct ops *o, bool resume) {
    if (!ops_has_filter(o)) {
        fprintf(stderr,
                "latchwork queue %s: no lanes named; use KEY, --key, --match or another filter\n",
                o->verb);
        return OPS_USAGE;
    }
    /* lanes that are named one by one are changed without --execute */
    struct change ch = {.resume = resume, .execute = o->args.execute || o->args.n_words};
    int bad =
        (o->args.n_words ? change_named(o, &ch) : ops_each_lane(o, change_lane, &ch)) < 0 ? -1 : 0;
    if (!bad && !ch.execute && !o->watch)
        fprintf(stderr, "%" PRId64 " lanes; nothing was changed; use --execute to apply\n",
                ch.lanes);
    struct lw_err first = o->err;
    if (ch.changed && ops_audit(o, o->verb, ch.changed)) bad = -1;
    if (first.text[0]) o->err = first;
    return bad ? OPS_FAILED : 0;
}

int queue_pause(struct ops *o) { return change(o, false); }
int queue_resume(struct ops *o) { return change(o, true); }
