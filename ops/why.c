/* SPDX-License-Identifier: Apache-2.0 */
/* Says why no message of a lane runs, with the same words everywhere: `queue show`, `lock show`,
 * the API and the page. */
#include "base/redis/reply.h"
#include "ops/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

static void set(struct ops_why *out, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void set(struct ops_why *out, const char *reason, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    out->reason = reason;
    vsnprintf(out->text, sizeof out->text, fmt, ap);
    va_end(ap);
}

/* Reads the end of the quarantine, and the group under which the lane waits. */
static int look(struct ops *o, const struct ops_lane *l, int64_t *until_ms, bool *first,
                struct lw_buf *group, bool *grouped) {
    struct ops_shard *sh = &o->shards[l->shard];
    ops_begin(o, "HMGET"), ops_keys(o, sh, "epoch"), ops_words(o, "not_before", "first");
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    int bad = r->elements == 2 ? 0 : ops_malformed(o, sh, r, "[not_before, first]");
    if (!bad) {
        *until_ms = r->element[0]->str ? strtoll(r->element[0]->str, NULL, 10) : 0;
        *first = r->element[1]->str != NULL;
    }
    freeReplyObject(r);
    if (bad || !o->c->group.on) return bad;
    ops_begin(o, "HGET"), ops_keys(o, sh, "group");
    lw_arg(&o->cmd, l->name);
    r = ops_ask(o, sh);
    if (!r) return -1;
    *grouped = r->type == REDIS_REPLY_STRING;
    if (*grouped) lw_buf_add(group, r->str, r->len);
    freeReplyObject(r);
    return 0;
}

/* Says whether the group or the fleet itself holds up messages. Returns false if it does not. */
static bool limited(const struct ops_group *g, const char *name, struct ops_why *out) {
    bool fleet = !g->name.p;
    char age[16];
    bool full = g->limited_ms && g->limit.running && g->running >= g->limit.running,
         slow = g->limited_ms && g->limit.per_second;
    if (g->paused_ms)
        set(out, fleet ? "fleet" : "group", "%s is paused, for %s", name,
            ops_age(g->now_ms - g->paused_ms, age));
    else if (full)
        set(out, fleet ? "fleet" : "place", "%s has no free place: %" PRId64 " of %d are taken",
            name, g->running, g->limit.running);
    else if (slow)
        set(out, fleet ? "fleet" : "token", "%s waits for a token: it starts %d messages a second",
            name, g->limit.per_second);
    return g->paused_ms || full || slow;
}

bool ops_group_why(const struct ops_group *fleet, const struct ops_group *group,
                   struct ops_why *out) {
    struct lw_buf name = {0};
    bool held = limited(fleet, "the fleet", out);
    if (held || !group) return held;
    lw_buf_addf(&name, "group \"");
    ops_text(&name, group->name, 60);
    lw_buf_addf(&name, "\"%c", 0);
    held = limited(group, name.p, out);
    lw_buf_free(&name);
    return held;
}

static int why_limited(struct ops *o, struct lw_bytes group, bool grouped, struct ops_why *out) {
    struct lw_limits limits;
    struct ops_group at[2] = {{.name = {0}}, {.name = lw_bytes(group.n ? group.p : "", group.n)}};
    if (ops_limits(o, &limits)) return -1;
    int bad = ops_groups_look(o, &limits, at, grouped ? 1 : 0);
    lw_limits_free(&limits);
    if (!bad) ops_group_why(&at[0], grouped ? &at[1] : NULL, out);
    return bad;
}

int ops_why(struct ops *o, const struct ops_lane *l, struct ops_why *out) {
    struct lw_bytes worker;
    struct lw_buf group = {0};
    uint64_t fence;
    int64_t until_ms = 0;
    bool first = false, grouped = false;
    char age[16];
    *out = (struct ops_why){0};
    if (l->n <= 0 || ops_lane_held(l, &worker, &fence)) return 0;
    int bad = look(o, l, &until_ms, &first, &group, &grouped);
    if (bad) {
        lw_buf_free(&group);
        return bad;
    }
    int64_t due_ms = l->lock.n ? l->now_ms + l->left_ms : l->due_ms;
    if (l->paused)
        set(out, "paused", "its key is paused; see `latchwork queue resume`");
    else if (until_ms > l->now_ms)
        set(out, "quarantine",
            "shard %d is in quarantine, for %s more: leases from before may live", l->shard,
            ops_age(until_ms - l->now_ms, age));
    else if (first)
        set(out, "quarantine",
            "shard %d is in quarantine until Kafka has a commit of every watermark", l->shard);
    else if (due_ms > l->now_ms)
        set(out, "backoff", "its oldest message failed, and is tried again in %s",
            ops_age(due_ms - l->now_ms, age));
    else if (lw_config_limits(o->c) && why_limited(o, lw_bytes(group.p, group.n), grouped, out)) {
        set(out, "unknown", "unknown: %.200s", o->err.text);
        o->err = (struct lw_err){0};
    }
    if (!out->reason)
        set(out, "handler", "nothing holds it up; it waits for a worker with a free handler%s",
            grouped ? ", and for the turn of its group" : "");
    lw_buf_free(&group);
    return 0;
}

json_t *ops_why_json(const struct ops_why *why) {
    if (!why->reason) return json_null();
    return json_pack("{s:s,s:s}", "reason", why->reason, "text", why->text);
}
