/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET keys/KEY: reports everything about one key in one response, for the question "where
 * is my message?". */
#include "api/private.h"
#include "ops/dead/dead.h"

#include <stdlib.h>
#include <string.h>

enum { DEAD_MAX = 20, AUDIT_LOOK = 500 };

struct one_key {
    struct api_call *k;
    struct lw_bytes lane;
    json_t *lane_json, *holder, *why;
    bool paused;
    int64_t waiting;
};

/* --- who holds it ----------------------------------------------------------------------------- */

/* Sets the members "host" and "pid" of `v` from a worker's id, which is HOST-PID-RANDOM. Both
 * members become null if `worker` has another form, because a command of an operator holds the
 * lock. */
static void set_host(json_t *v, struct lw_bytes worker) {
    char id[256];
    json_object_set_new(v, "host", json_null());
    json_object_set_new(v, "pid", json_null());
    if (worker.n >= sizeof id) return;
    memcpy(id, worker.p, worker.n);
    id[worker.n] = 0;
    char *end = strrchr(id, '-');
    if (!end || strlen(end + 1) != 8) return;
    *end = 0;
    char *dash = strrchr(id, '-');
    long pid = dash ? strtol(dash + 1, &end, 10) : 0;
    if (!dash || dash == id || pid <= 0 || *end) return;
    json_object_set_new(v, "host", json_stringn(id, (size_t)(dash - id)));
    json_object_set_new(v, "pid", json_integer(pid));
}

json_t *api_holder_json(const struct ops_lane *l) {
    struct lw_bytes worker;
    uint64_t fence;
    if (!ops_lane_held(l, &worker, &fence)) return json_null();
    json_t *v = json_object();
    ops_set_bytes(v, "worker", worker);
    set_host(v, worker);
    json_object_set_new(v, "since_ms", json_integer((json_int_t)(fence / 1000)));
    json_object_set_new(v, "lease_left_ms", json_integer(l->left_ms));
    json_object_set_new(v, "fence", json_integer((json_int_t)fence));
    json_object_set_new(v, "running", ops_run_json(l->runs ? &l->run : NULL));
    return v;
}

static int take_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct one_key *one = ctx;
    struct ops_why why;
    if (ops_why(o, l, &why)) return -1;
    one->why = ops_why_json(&why);
    bool known = l->n != 0 || l->paused || l->lock.n;
    one->paused = l->paused;
    one->waiting = l->n;
    one->lane_json = known ? ops_lane_json(l) : json_null();
    one->holder = api_holder_json(l);
    return 0;
}

/* --- who paused it ---------------------------------------------------------------------------- */

static const char *field(const redisReply *fields, const char *name) {
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (!strcmp(fields->element[i]->str, name)) return fields->element[i + 1]->str;
    return "";
}

static bool names_key(const char *words, const char *key) {
    json_t *v = json_loads(words, 0, NULL), *one;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(v, "words"), i, one)
        found = found || !strcmp(json_string_value(one) ? json_string_value(one) : "", key);
    json_array_foreach(json_object_get(v, "keys"), i, one)
        found = found || !strcmp(json_string_value(one) ? json_string_value(one) : "", key);
    json_decref(v);
    return found;
}

/* Searches the newest entries of the audit for a pause that names this key, to report who paused
 * it. The lane's own data in Redis only says that the lane is paused. */
static int find_pause(struct api_call *k, json_t *out) {
    struct ops *o = k->o;
    ops_begin(o, "XREVRANGE"), ops_keys(o, &o->shards[0], "audit");
    ops_words(o, "+", "-", "COUNT"), lw_arg_i64(&o->cmd, AUDIT_LOOK);
    redisReply *r = ops_ask_entries(o, &o->shards[0]);
    if (!r) return -1;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *fields = r->element[i]->element[1];
        if (strcmp(field(fields, "event"), "pause") != 0 ||
            !names_key(field(fields, "words"), k->segment[1]))
            continue;
        ops_set_bytes(out, "by", lw_bytes_of(field(fields, "who")));
        json_object_set_new(out, "at_ms",
                            json_integer(strtoll(r->element[i]->element[0]->str, NULL, 10)));
        break;
    }
    freeReplyObject(r);
    return 0;
}

/* --- its dead letters ------------------------------------------------------------------------- */

/* Lists the newest dead letters of this key from the key's shard. Each letter read is compared with
 * the key, because the shard has the letters of many keys. An edit can give a letter another key,
 * but the letter stays in its old shard. So the list lacks a letter that got this key by an edit in
 * another shard. */
static int find_dead(struct one_key *one, json_t **list, bool *complete) {
    struct ops *o = one->k->o;
    struct api_rows rs = {.k = one->k, .limit = DEAD_MAX, .list = *list = json_array()};
    char at[DEAD_PLACE] = "";
    bool more = true;
    int bad = 0;
    o->args.keys[0] = one->k->segment[1];
    o->args.n_keys = 1;
    for (; more && bad >= 0 && !api_full(&rs); rs.looked += OPS_PAGE)
        bad = dead_page(o, ops_shard_of(o, one->lane)->index, true, at, OPS_PAGE, &more,
                        api_add_dead, &rs);
    *complete = !more;
    return bad < 0 ? -1 : 0;
}

/* --- the answer ------------------------------------------------------------------------------- */

static int collect(struct one_key *one, json_t *out) {
    struct ops_shard *sh = ops_shard_of(one->k->o, one->lane);
    json_t *messages = NULL, *dead = NULL, *paused = json_null();
    bool more = false, complete = false;
    int bad = ops_look(one->k->o, sh, &one->lane, 1, take_lane, one);
    if (!bad) bad = api_waiting(one->k, sh->index, one->lane, &messages, &more);
    if (!bad && one->paused) bad = find_pause(one->k, paused = json_object());
    if (!bad) bad = find_dead(one, &dead, &complete);
    ops_set_bytes(out, "key", lw_bytes_of(one->k->segment[1]));
    json_object_set_new(out, "shard", json_integer(sh->index));
    json_object_set_new(out, "lane", one->lane_json);
    json_object_set_new(out, "holder", one->holder);
    json_object_set_new(out, "why", one->why);
    json_object_set_new(out, "paused", paused);
    json_object_set_new(out, "waiting", json_integer(one->waiting));
    json_object_set_new(out, "messages", messages);
    json_object_set_new(out, "more", json_boolean(more));
    json_object_set_new(out, "dead", dead);
    json_object_set_new(out, "dead_complete", json_boolean(complete));
    return bad;
}

int api_key(struct api_call *k) {
    char room[LW_LANE_ROOM];
    struct one_key one = {.k = k,
                          .lane = lw_lane_named(lw_bytes_of(k->segment[1]), room, sizeof room)};
    json_t *out = json_object();
    if (collect(&one, out)) {
        json_decref(out);
        return -1;
    }
    api_put(k, out);
    return 0;
}
