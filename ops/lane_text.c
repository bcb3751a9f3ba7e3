/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a lane as text for people and as JSON for programs. */
#include "base/clock.h"
#include "ops/ops.h"

int64_t ops_lane_age(const struct ops_lane *l) {
    return l->has_head ? lw_wall_ms() - l->first_ms : -1;
}

json_t *ops_run_json(const struct ops_run *run) {
    if (!run) return json_null();
    return json_pack("{s:s,s:i,s:I}", "identity", run->identity, "attempt", run->attempt,
                     "since_ms", (json_int_t)run->since_ms);
}

void ops_run_text(const struct ops_run *run, int64_t now_ms, struct lw_buf *out) {
    char age[16];
    if (!run) {
        lw_buf_addf(out, "not known; a message is named when it has run for a third of "
                         "lock.ttl_ms");
        return;
    }
    int64_t ms = now_ms - run->since_ms;
    lw_buf_addf(out, "%s, attempt %d, for %s", run->identity, run->attempt,
                ops_age(ms > 0 ? ms : 0, age));
}

json_t *ops_lane_json(const struct ops_lane *l) {
    json_t *j = json_object();
    struct lw_bytes worker;
    uint64_t fence;
    bool held = ops_lane_held(l, &worker, &fence);
    ops_set_bytes(j, "key", l->name);
    json_object_set_new(j, "shard", json_integer(l->shard));
    json_object_set_new(j, "waiting", json_integer(l->n));
    json_object_set_new(j, "age_ms", json_integer(ops_lane_age(l)));
    json_object_set_new(j, "oldest", l->has_head ? json_string(l->head) : json_null());
    json_object_set_new(j, "attempts", json_integer(l->attempts));
    json_object_set_new(j, "paused", json_boolean(l->paused));
    json_object_set_new(j, "backoff", json_boolean(l->lock.n > 0 && !held));
    if (held)
        ops_set_bytes(j, "holder", worker);
    else
        json_object_set_new(j, "holder", json_null());
    if (held) json_object_set_new(j, "fence", json_integer((json_int_t)fence));
    if (held) json_object_set_new(j, "since_ms", json_integer((json_int_t)(fence / 1000)));
    json_object_set_new(j, "running", ops_run_json(l->runs ? &l->run : NULL));
    if (l->lock.n)
        json_object_set_new(j, "until_ms",
                            json_integer(l->left_ms < 0 ? -1 : l->now_ms + l->left_ms));
    if (l->due_ms) json_object_set_new(j, "due_ms", json_integer(l->due_ms));
    return j;
}

void ops_holder_text(const struct ops_lane *l, struct lw_buf *out) {
    struct lw_bytes worker;
    uint64_t fence;
    char age[16];
    if (ops_lane_held(l, &worker, &fence))
        ops_text(out, worker, 60);
    else if (l->lock.n)
        lw_buf_addf(out, "backoff, %s more", ops_age(l->left_ms, age));
    else
        lw_buf_addf(out, "%s", l->paused ? "paused" : "-");
    if (l->paused && l->lock.n) lw_buf_addf(out, ", paused");
}
