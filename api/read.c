/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the GET requests about lanes and dead letters. Lists are split into pages. The member
 * "next" of a response is the cursor of the next page, or null on the last page. */
#include "api/private.h"
#include "ops/dead/dead.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool api_full(const struct api_rows *rs) {
    return json_array_size(rs->list) >= rs->limit || rs->bytes >= API_BYTES_MAX ||
           rs->looked >= API_LOOK_MAX;
}

void api_append(struct api_rows *rs, json_t *v, size_t about) {
    json_array_append_new(rs->list, v);
    rs->bytes += about + 300;
}

static void put_list(struct api_rows *rs, const char *name, const char *next) {
    api_put(rs->k,
            json_pack("{s:o,s:o}", name, rs->list, "next", next ? json_string(next) : json_null()));
}

bool api_scan_cursor(const char *digits) {
    errno = 0;
    strtoull(digits, NULL, 10);
    return !errno;
}

int api_misplaced(struct api_call *k) {
    lw_http_error(k->a, 400, "malformed cursor; expected the \"next\" of an answer of this path");
    return 0;
}

/* --- lanes ------------------------------------------------------------------------------------ */

static int add_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct api_rows *rs = ctx;
    rs->looked++;
    if (!l->has_head && !l->paused && l->n >= 0 && !o->args.n_keys) return 0;
    if (ops_lane_head_matches(o, l)) api_append(rs, ops_lane_json(l), l->name.n + l->lock.n);
    return 0;
}

/* Answers GET lanes. A cursor is "SHARD.p.CURSOR" while the paused lanes without waiting messages
 * are listed, and "SHARD.l.CURSOR" while the lanes with waiting messages are listed. */
int api_lanes(struct api_call *k) {
    struct ops *o = k->o;
    struct api_rows rs = {.k = k, .limit = k->limit, .list = json_array()};
    char at[OPS_CURSOR] = "0", next[64], kind = 'l';
    int shard = 0, end = 0, bad = 0;
    size_t before;
    if (k->cursor && (sscanf(k->cursor, "%3d.%c.%20[0-9]%n", &shard, &kind, at, &end) != 3 ||
                      k->cursor[end] || !strchr("lp", kind) || !api_scan_cursor(at) || shard < 0 ||
                      shard >= o->c->redis.shards || o->args.n_keys)) {
        json_decref(rs.list);
        return api_misplaced(k);
    }
    if (o->args.n_keys) {
        bad = ops_each_lane(o, add_lane, &rs);
        shard = o->c->redis.shards;
    }
    int64_t page = k->limit < OPS_BATCH ? (int64_t)k->limit : OPS_BATCH;
    for (; !bad && shard < o->c->redis.shards && !api_full(&rs);) {
        before = rs.looked;
        bad = ops_lane_page(o, &o->shards[shard], kind == 'p', at, page, add_lane, &rs);
        /* If no lane of the page matches the filters, add_lane() has counted nothing. Such a page
         * counts toward API_LOOK_MAX, too. */
        if (rs.looked == before) rs.looked += (size_t)page;
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

static int take_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    (void)o;
    *(json_t **)ctx = ops_lane_json(l);
    return 0;
}

struct waiting {
    struct api_rows rs;
    bool more;
};

static int add_message(struct ops *o, struct ops_message *m, void *ctx) {
    struct waiting *w = ctx;
    (void)o;
    if (m->state == 'f') return ++w->rs.looked > API_LOOK_MAX;
    if ((w->more = api_full(&w->rs))) return 1;
    json_t *v = api_message_json(w->rs.k, m, API_HEAD_BYTES);
    if (!m->bad) json_object_set_new(v, "age_ms", json_integer(lw_wall_ms() - m->e.first_ms));
    api_append(&w->rs, v, m->e.key.n + API_HEAD_BYTES);
    return 0;
}

int api_waiting(struct api_call *k, int shard, struct lw_bytes lane, json_t **list, bool *more) {
    struct waiting w = {.rs = {.k = k, .limit = k->limit, .list = *list = json_array()}};
    int stop = ops_each_waiting(k->o, shard, lane, add_message, &w);
    *more = w.more;
    return stop < 0 ? -1 : 0;
}

int api_lane(struct api_call *k) {
    json_t *v = NULL, *messages = NULL;
    bool more = false;
    char room[LW_LANE_ROOM];
    struct lw_bytes lane = lw_lane_named(lw_bytes_of(k->segment[1]), room, sizeof room);
    struct ops_shard *sh = ops_shard_of(k->o, lane);
    int bad = ops_look(k->o, sh, &lane, 1, take_lane, &v);
    if (!bad) bad = api_waiting(k, sh->index, lane, &messages, &more);
    if (bad < 0 || !v) {
        json_decref(v);
        json_decref(messages);
        return -1;
    }
    json_object_set_new(v, "messages", messages);
    json_object_set_new(v, "more", json_boolean(more));
    api_put(k, v);
    return 0;
}

/* --- dead letters ----------------------------------------------------------------------------- */

int api_add_dead(struct ops *o, struct ops_message *m, void *ctx) {
    struct api_rows *rs = ctx;
    if (dead_look_taken(o, m)) return -1;
    api_append(rs, api_message_json(rs->k, m, API_HEAD_BYTES),
               m->e.key.n + m->reason.n + API_HEAD_BYTES);
    return api_full(rs);
}

bool api_dead_place(const struct api_call *k, int *shard, char *at, size_t size) {
    int end = 0;
    *shard = 0;
    at[0] = '\0';
    if (!k->cursor) return true;
    int n = sscanf(k->cursor, "%3d:%n", shard, &end);
    const char *id = k->cursor + end;
    if (n != 1 || !end || *shard < 0 || *shard >= dead_places(k->o) || strlen(id) >= size ||
        id[strspn(id, "0123456789-")])
        return false;
    snprintf(at, size, "%s", id);
    return true;
}

static int by_death(const void *a, const void *b) {
    json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "died_ms"));
    json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "died_ms"));
    return (x > y) - (x < y);
}

/* Sorts the rows from `first` on. A page of the topic has the partitions one after the other. */
static void sort_by_death(json_t *list, size_t first, bool newest) {
    size_t n = json_array_size(list) - first;
    json_t **rows = lw_alloc((n + 1) * sizeof(json_t *));
    for (size_t i = 0; i < n; i++) rows[i] = json_incref(json_array_get(list, first + i));
    qsort(rows, n, sizeof(json_t *), by_death);
    for (size_t i = 0; i < n; i++)
        json_array_set_new(list, first + i, rows[newest ? n - 1 - i : i]);
    free(rows);
}

/* Answers GET dead. */
int api_dead(struct api_call *k) {
    struct ops *o = k->o;
    struct api_rows rs = {.k = k, .limit = k->limit, .list = json_array()};
    char at[DEAD_PLACE], next[DEAD_PLACE + 16];
    int shard, bad = 0;
    bool more = true;
    if (!api_dead_place(k, &shard, at, sizeof at)) {
        json_decref(rs.list);
        return api_misplaced(k);
    }
    while (!bad && shard < dead_places(o) && !api_full(&rs)) {
        size_t first = json_array_size(rs.list);
        /* replayed letters stay in a topic, so its oldest letters are of little interest */
        bool topic = dead_place_is_topic(o, shard), newest = topic ? !k->oldest : k->newest;
        bad = dead_page(o, shard, newest, at, OPS_PAGE, &more, api_add_dead, &rs);
        if (topic) sort_by_death(rs.list, first, newest);
        rs.looked += OPS_PAGE;
        if (more) continue;
        shard++;
        at[0] = '\0';
    }
    if (bad < 0 || bad == DEAD_MISPLACED) {
        json_decref(rs.list);
        return bad < 0 ? -1 : api_misplaced(k);
    }
    snprintf(next, sizeof next, "%d:%s", shard, at);
    put_list(&rs, "dead", shard < dead_places(o) ? next : NULL);
    return 0;
}

struct one_dead {
    struct api_call *k;
    json_t *v;
};

static int take_dead(struct ops *o, struct ops_message *m, void *ctx) {
    struct one_dead *one = ctx;
    struct ops_message was = {0};
    if (dead_look_taken(o, m)) return -1;
    one->v = api_message_json(one->k, m, API_PAYLOAD_MAX);
    if (m->original.p && ops_message_read(&was, m->original))
        api_set_payload(one->k, one->v, "original_payload", was.e.payload);
    ops_message_clear(&was);
    return 1;
}

int api_dead_one(struct api_call *k) {
    char *id = (char *)(uintptr_t)k->segment[1];
    struct one_dead one = {k, NULL};
    k->o->args.words = &id;
    k->o->args.n_words = 1;
    if (dead_each(k->o, take_dead, &one) < 0) return -1;
    if (one.v)
        api_put(k, one.v);
    else
        lw_http_error(k->a, 404, "no dead letter has this id or identity");
    return 0;
}
