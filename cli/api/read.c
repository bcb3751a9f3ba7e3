/* SPDX-License-Identifier: Apache-2.0 */
/* The GET requests: lanes and dead letters. Lists come in pages; `next` is the cursor of the
 * next page, or null at the end. */
#include "cli/api/private.h"
#include "cli/dead/dead.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct rows {
    struct api_call *k;
    json_t *list;
    size_t bytes, looked;
};

static bool full(const struct rows *rs) {
    return json_array_size(rs->list) >= rs->k->limit || rs->bytes >= API_BYTES_MAX || rs->looked >= API_LOOK_MAX;
}

static void append(struct rows *rs, json_t *v, size_t about) {
    json_array_append_new(rs->list, v);
    rs->bytes += about + 300;
}

static void put_list(struct rows *rs, const char *name, const char *next) {
    api_put(rs->k, json_pack("{s:o,s:o}", name, rs->list, "next", next ? json_string(next) : json_null()));
}

static int misplaced(struct api_call *k) {
    lw_http_error(k->a, 400, "the cursor is not one of this list");
    return 0;
}

/* ---- lanes ---- */

static int add_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct rows *rs = ctx;
    rs->looked++;
    if (!l->has_head && !l->paused && l->n >= 0 && !o->args.n_keys) return 0;
    if (ops_lane_head_matches(o, l)) append(rs, ops_lane_json(l), l->name.n + l->lock.n);
    return 0;
}

/* A cursor is "SHARD.l.CURSOR" among the lanes with waiters, and "SHARD.p.CURSOR" among the
 * paused lanes without waiters. */
int api_lanes(struct api_call *k) {
    struct ops *o = k->o;
    struct rows rs = {.k = k, .list = json_array()};
    char at[OPS_CURSOR] = "0", next[64], kind = 'l';
    int shard = 0, end = 0, bad = 0;
    size_t before;
    if (k->cursor && (sscanf(k->cursor, "%3d.%c.%20[0-9]%n", &shard, &kind, at, &end) != 3 || k->cursor[end] || !strchr("lp", kind) ||
                      shard < 0 || shard >= o->c->redis.shards || o->args.n_keys)) {
        json_decref(rs.list);
        return misplaced(k);
    }
    if (o->args.n_keys) {
        bad = ops_each_lane(o, add_lane, &rs);
        shard = o->c->redis.shards;
    }
    int64_t page = k->limit < OPS_BATCH ? (int64_t)k->limit : OPS_BATCH;
    for (; !bad && shard < o->c->redis.shards && !full(&rs);) {
        before = rs.looked;
        bad = ops_lane_page(o, &o->shards[shard], kind == 'p', at, page, add_lane, &rs);
        if (rs.looked == before) rs.looked += (size_t)page; /* a page without matching names still counts toward the limit */
        if (strcmp(at, "0") != 0) continue;
        shard += kind == 'p';
        kind = kind == 'p' ? 'l' : 'p';
    }
    if (bad) {
        json_decref(rs.list);
        return -1;
    }
    snprintf(next, sizeof next, "%d.%c.%s", shard, kind, at);
    put_list(&rs, "lanes", shard < o->c->redis.shards ? next : NULL);
    return 0;
}

struct one_lane {
    struct rows rs;
    json_t *lane;
    bool more;
};

static int take_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    (void)o;
    ((struct one_lane *)ctx)->lane = ops_lane_json(l);
    return 0;
}

static int add_message(struct ops *o, struct ops_message *m, void *ctx) {
    struct one_lane *one = ctx;
    (void)o;
    if (m->state == 'f') return ++one->rs.looked > API_LOOK_MAX;
    if ((one->more = full(&one->rs))) return 1;
    append(&one->rs, ops_message_json(m, API_HEAD_BYTES), m->e.key.n + API_HEAD_BYTES);
    return 0;
}

int api_lane(struct api_call *k) {
    struct one_lane one = {.rs = {.k = k, .list = json_array()}};
    char room[LW_LANE_ROOM];
    struct lw_bytes lane = lw_lane_id(lw_bytes_of(k->segment[1]), room, sizeof room);
    struct ops_shard *sh = ops_shard_of(k->o, lane);
    int bad = ops_look(k->o, sh, &lane, 1, take_lane, &one);
    if (!bad) bad = ops_each_waiting(k->o, sh->index, lane, add_message, &one);
    if (bad < 0 || !one.lane) {
        json_decref(one.lane);
        json_decref(one.rs.list);
        return -1;
    }
    json_object_set_new(one.lane, "messages", one.rs.list);
    json_object_set_new(one.lane, "more", json_boolean(one.more));
    api_put(k, one.lane);
    return 0;
}

/* ---- dead letters ---- */

static int add_dead(struct ops *o, struct ops_message *m, void *ctx) {
    struct rows *rs = ctx;
    (void)o;
    append(rs, ops_message_json(m, API_HEAD_BYTES), m->e.key.n + m->reason.n + API_HEAD_BYTES);
    return full(rs);
}

/* The cursor is "SHARD:ID" of the last dead letter looked at, or "SHARD:" before the first. */
int api_dead(struct api_call *k) {
    struct ops *o = k->o;
    struct rows rs = {.k = k, .list = json_array()};
    char at[DEAD_ID] = "", next[64];
    int shard = 0, end = 0, bad = 0;
    bool more = true;
    if (k->cursor) {
        int n = sscanf(k->cursor, "%3d:%n", &shard, &end);
        const char *id = k->cursor + end;
        if (n != 1 || !end || shard < 0 || shard >= o->c->redis.shards || strlen(id) >= sizeof at || id[strspn(id, "0123456789-")]) {
            json_decref(rs.list);
            return misplaced(k);
        }
        snprintf(at, sizeof at, "%s", id);
    }
    while (bad >= 0 && shard < o->c->redis.shards && !full(&rs)) {
        bad = dead_page(o, &o->shards[shard], k->newest, at, "", OPS_PAGE, &more, add_dead, &rs);
        rs.looked += OPS_PAGE;
        if (more) continue;
        shard++;
        at[0] = '\0';
    }
    if (bad < 0) {
        json_decref(rs.list);
        return -1;
    }
    snprintf(next, sizeof next, "%d:%s", shard, at);
    put_list(&rs, "dead", shard < o->c->redis.shards ? next : NULL);
    return 0;
}

static int take_dead(struct ops *o, struct ops_message *m, void *ctx) {
    json_t **v = ctx;
    struct ops_message was = {0};
    (void)o;
    *v = ops_message_json(m, API_PAYLOAD_MAX);
    if (m->original.p && ops_message_read(&was, m->original))
        ops_set_bytes(*v, "original_payload",
                      was.e.payload.n > API_PAYLOAD_MAX ? lw_bytes(was.e.payload.p, API_PAYLOAD_MAX) : was.e.payload);
    ops_message_clear(&was);
    return 1;
}

int api_dead_one(struct api_call *k) {
    char *id = (char *)(uintptr_t)k->segment[1];
    json_t *v = NULL;
    k->o->args.words = &id;
    k->o->args.n_words = 1;
    if (dead_each(k->o, take_dead, &v) < 0) return -1;
    if (v)
        api_put(k, v);
    else
        lw_http_error(k->a, 404, "no dead letter has this id or identity");
    return 0;
}
