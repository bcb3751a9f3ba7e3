/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET lanes/count and dead/count: counts the lanes or dead letters that the filters match.
 * Counting stops after COUNT_MS, or earlier if the request's time is used up. */
#include "api/private.h"
#include "ops/dead/dead.h"

#include "base/clock.h"

/* The time limit for counting is short, because other lengthy requests wait for the same thread. */
enum { COUNT_MS = 1000, SPARE_MS = 500 };

struct counting {
    int64_t count;
    struct ops_watch watch;
};

static void begin(struct api_call *k, struct counting *n) {
    n->watch.until_ms = lw_boot_ms() + COUNT_MS;
    if (n->watch.until_ms > k->q->until_ms - SPARE_MS)
        n->watch.until_ms = k->q->until_ms - SPARE_MS;
    k->o->watch = &n->watch;
}

static int end(struct api_call *k, struct counting *n, int64_t scanned, int stop) {
    k->o->watch = NULL;
    if (stop < 0 && !n->watch.ran_out) return -1;
    api_put(k, json_pack("{s:I,s:I,s:b}", "count", (json_int_t)n->count, "scanned",
                         (json_int_t)scanned, "complete", !n->watch.ran_out && !k->o->cut));
    return 0;
}

static int add_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct counting *n = ctx;
    bool shown = l->has_head || l->paused || l->n < 0 || o->args.n_keys;
    n->count += shown && ops_lane_head_matches(o, l);
    return 0;
}

/* Counts all lanes, without a filter. Redis reports the number of lanes with waiting messages in
 * one reply, so only the paused lanes without waiting messages are read one by one. */
static int count_all(struct ops *o, struct counting *n) {
    int stop = 0;
    for (int s = 0; s < o->c->redis.shards && !stop; s++) {
        char at[OPS_CURSOR] = "0";
        long long lanes;
        ops_begin(o, "ZCARD"), ops_keys(o, &o->shards[s], "lanes");
        if (ops_ask_int(o, &o->shards[s], &lanes)) return -1;
        n->count += lanes;
        do stop = ops_lane_page(o, &o->shards[s], true, at, OPS_PAGE, add_lane, n);
        while (!stop && strcmp(at, "0") != 0);
    }
    return stop;
}

int api_lanes_count(struct api_call *k) {
    struct counting n = {0};
    begin(k, &n);
    k->o->names = 0;
    int stop = ops_has_filter(k->o) ? ops_each_lane(k->o, add_lane, &n) : count_all(k->o, &n);
    return end(k, &n, k->o->args.n_keys ? (int64_t)k->o->args.n_keys : k->o->names, stop);
}

static int add_dead(struct ops *o, struct ops_message *m, void *ctx) {
    (void)o, (void)m;
    ((struct counting *)ctx)->count++;
    return 0;
}

static int dead_in_all(struct ops *o, struct counting *n) {
    for (int s = 0; s < o->c->redis.shards; s++) {
        long long some;
        ops_begin(o, "XLEN"), ops_keys(o, &o->shards[s], "dead");
        if (ops_ask_int(o, &o->shards[s], &some)) return -1;
        n->count += some;
    }
    return 0;
}

int api_dead_count(struct api_call *k) {
    struct counting n = {0};
    begin(k, &n);
    bool each = ops_has_filter(k->o) || k->c->dead.topic;
    int stop = each ? dead_each(k->o, add_dead, &n) : dead_in_all(k->o, &n);
    return end(k, &n, k->o->scanned, stop);
}
