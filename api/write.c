/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the POST requests about one lane or one dead letter: pause, resume, break, replay,
 * drop. */
#include "api/private.h"
#include "ops/dead/dead.h"

#include <stdlib.h>
#include <string.h>

static void put_result(struct api_call *k, struct lw_bytes lane, const char *result) {
    json_t *j = json_object();
    ops_set_bytes(j, "key", lane);
    json_object_set_new(j, "result", json_string(result));
    api_put(k, j);
}

/* --- lanes ------------------------------------------------------------------------------------ */

/* Pauses or resumes a lane. These requests have no dry run, because each concerns one named lane
 * and is easy to undo. */
static int change(struct api_call *k, bool resume) {
    const char *verb = resume ? "resume" : "pause";
    struct ops *o = k->o;
    char room[LW_LANE_ROOM], by[API_WHO], *key = (char *)(uintptr_t)k->segment[1];
    struct lw_bytes lane = lw_lane_named(lw_bytes_of(key), room, sizeof room);
    struct ops_shard *sh = ops_shard_of(o, lane);
    bool changed = false;
    o->args.words = &key, o->args.n_words = 1;
    o->noun = "queue", o->verb = verb, o->who = api_who(k, by);
    int bad = resume ? ops_resume(o, sh, lane, &changed) : ops_pause(o, sh, lane, &changed);
    if (!bad && changed) bad = ops_audit(o, verb, 1);
    o->verb = NULL, o->who = NULL;
    if (bad) return -1;
    k->execute = changed;
    put_result(k, lane,
               resume    ? changed ? "resumed" : "was not paused"
               : changed ? "paused"
                         : "was paused");
    return 0;
}

int api_pause(struct api_call *k) { return change(k, false); }
int api_resume(struct api_call *k) { return change(k, true); }

static int tell_holder(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct api_call *k = ctx;
    (void)o;
    json_t *j = ops_lane_json(l);
    json_object_set_new(j, "result",
                        json_string(l->lock.n ? "would be broken" : "nobody holds it"));
    api_put(k, j);
    return 0;
}

int api_break(struct api_call *k) {
    char room[LW_LANE_ROOM], by[API_WHO];
    struct lw_bytes lane = lw_lane_named(lw_bytes_of(k->segment[1]), room, sizeof room);
    struct ops *o = k->o;
    struct ops_shard *sh = ops_shard_of(o, lane);
    if (!k->execute) return ops_look(o, sh, &lane, 1, tell_holder, k);
    struct lw_buf was = {0};
    uint64_t fence, old;
    o->who = api_who(k, by);
    int bad = ops_break(o, sh, lane, &fence, &was);
    o->who = NULL;
    if (!bad && fence) {
        struct ops_lane held = {.lock = lw_bytes(was.p, was.n)};
        struct lw_bytes worker;
        ops_lane_held(&held, &worker, &old);
        json_t *j = json_object();
        ops_set_bytes(j, "key", lane);
        ops_set_bytes(j, "holder", worker);
        json_object_set_new(j, "fence", json_integer((json_int_t)fence));
        json_object_set_new(j, "result", json_string("broken"));
        api_put(k, j);
    } else if (!bad) {
        put_result(k, lane, "nobody holds it");
    }
    lw_buf_free(&was);
    return bad;
}

/* --- dead letters ----------------------------------------------------------------------------- */

/* Converts the output of `dead replay` or `dead drop` to one object. The output is one JSON object
 * per message, followed by a summary. Sets *any to true if the output is about at least one
 * message. */
static json_t *results(const struct lw_buf *lines, bool *any) {
    json_t *all = json_object(), *each = json_array();
    const char *p = lines->p, *end = p ? p + lines->n : NULL;
    *any = false;
    for (const char *stop; p < end && (stop = memchr(p, '\n', (size_t)(end - p))); p = stop + 1) {
        json_t *line = json_loadb(p, (size_t)(stop - p), 0, NULL);
        if (json_object_get(line, "type"))
            json_object_set(all, "summary", line);
        else if (line)
            json_array_append(each, line);
        json_decref(line);
    }
    *any = json_array_size(each) > 0;
    json_object_set_new(all, "results", each);
    return all;
}

static int take_id(struct ops *o, struct ops_message *m, void *ctx) {
    (void)o;
    memcpy(ctx, m->id, sizeof m->id);
    return 1;
}

/* Runs `dead replay` or `dead drop` for one dead letter. The letter is looked up before the
 * command begins its job (ops/job.h), so that this does not make the job longer. Sets *all to the
 * result as one JSON object, or to NULL if there is no such dead letter. Returns -1 with o->err on
 * failure. */
static int act_on_one(struct api_call *k, const char *word, const char *verb,
                      int (*operate)(struct ops *), json_t **all) {
    struct ops *o = k->o;
    struct ops_message m = {0};
    char *id = (char *)(uintptr_t)word, by[API_WHO];
    struct lw_buf lines = {0};
    bool any;
    o->noun = "dead", o->verb = verb;
    o->args.words = &id;
    o->args.n_words = 1;
    if (dead_each(o, take_id, m.id) < 0) return -1;
    if (m.id[0]) id = m.id;
    o->who = api_who(k, by);
    o->args.execute = k->execute;
    o->args.again = json_is_true(json_object_get(k->body, "again"));
    o->args.no_backup = json_is_false(json_object_get(k->body, "backup"));
    ops_out_to(&lines);
    operate(o);
    ops_out_to(NULL);
    o->verb = NULL, o->who = NULL;
    int bad = o->err.text[0] ? -1 : 0;
    *all = results(&lines, &any);
    if (bad || !any) {
        json_decref(*all);
        *all = NULL;
    }
    lw_buf_free(&lines);
    return bad;
}

int api_replay_one(struct api_call *k, const char *id, json_t **result) {
    return act_on_one(k, id, "replay", dead_replay, result);
}

static int put_result_of(struct api_call *k, const char *verb, int (*operate)(struct ops *)) {
    json_t *all = NULL;
    if (act_on_one(k, k->segment[1], verb, operate, &all)) return -1;
    if (all)
        api_put(k, all);
    else
        lw_http_error(k->a, 404, OPS_NO_LETTER);
    return 0;
}

int api_replay(struct api_call *k) { return put_result_of(k, "replay", dead_replay); }
int api_dead_drop(struct api_call *k) { return put_result_of(k, "drop", dead_drop); }
