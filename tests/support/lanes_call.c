/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the scripts, as their headers say. */
#include "tests/support/lanes_build.h"

#include "queue/codes.h"
#include "queue/envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 255, PLACES_MAX = 3 * LT_ANSWERS_MAX };

/* --- messages ----------------------------------------------------------------------------------------------------------------- */

void lt_encode(const struct lt_msg *m, struct lw_buf *out) {
    struct lw_envelope e = {.topic = lw_bytes_of(m->topic),
                            .partition = m->partition,
                            .offset = m->offset,
                            .first_ms = 1,
                            .timestamp_ms = -1,
                            .key = m->lane,
                            .dedup = lw_bytes_of(m->dedup),
                            .payload = lw_bytes_of("payload\n1 other 2 3 ")};
    char *large = m->size ? lw_alloc(m->size) : NULL;
    if (large) e.payload = lw_bytes(large, m->size);
    lw_envelope_encode(&e, out);
    free(large);
}

struct lt_msg lt_msg_bytes(int32_t partition, int64_t offset, struct lw_bytes lane, const char *token) {
    return (struct lt_msg){.topic = "orders",
                           .partition = partition,
                           .offset = offset,
                           .lane = lane,
                           .token = token,
                           .dedup = "",
                           .outcome = "done",
                           .mode = "next",
                           .reason = ""};
}
struct lt_msg lt_msg(int32_t partition, int64_t offset, const char *lane, const char *token) {
    return lt_msg_bytes(partition, offset, lw_bytes_of(lane), token);
}
struct lt_msg lt_with(struct lt_msg m, const char *outcome, const char *mode) {
    m.outcome = outcome;
    m.mode = mode;
    return m;
}

/* --- places: see queue/lua/parts/groups.lua ------------------------------------------------------------------------------------------ */

struct group {
    const char *topic;
    int32_t partition;
    int64_t segment;
    int lo, hi;
};
struct places {
    struct group group[GROUPS_MAX];
    int n;
    unsigned char bytes[PLACES_MAX];
    size_t n_bytes;
    int narrow;
};

static void add_place(struct places *p, const struct lt_msg *m) {
    int index = (int)(m->offset % LW_SEGMENT), at = index / 4, g = 0;
    for (; g < p->n; g++)
        if (strcmp(p->group[g].topic, m->topic) == 0 && p->group[g].partition == m->partition &&
            p->group[g].segment == m->offset / LW_SEGMENT)
            break;
    if (g == p->n) {
        assert_true(p->n < GROUPS_MAX);
        p->group[p->n++] = (struct group){m->topic, m->partition, m->offset / LW_SEGMENT, at, at};
    }
    if (!p->narrow && at < p->group[g].lo) p->group[g].lo = at;
    if (!p->narrow && at > p->group[g].hi) p->group[g].hi = at;
    assert_true(p->n_bytes + 3 <= sizeof p->bytes);
    p->bytes[p->n_bytes++] = (unsigned char)(g + 1);
    p->bytes[p->n_bytes++] = (unsigned char)(index >> 8);
    p->bytes[p->n_bytes++] = (unsigned char)(index & 255);
}

static void add_groups(struct lt *l, const struct places *p) {
    lt_addf(&l->args, "%d", p->n);
    for (int i = 0; i < p->n; i++) {
        const struct group *g = &p->group[i];
        lt_addf(&l->keys, LT_TAG "state:%s:%d:%" PRId64, g->topic, g->partition, g->segment);
        lt_addf(&l->keys, LT_TAG "tries:%s:%d:%" PRId64, g->topic, g->partition, g->segment);
        lt_addf(&l->args, "%s:%d", g->topic, g->partition);
        lt_addf(&l->args, "%" PRId64, g->segment);
        lt_addf(&l->args, "%d", p->narrow == 2 ? 1 : g->lo);
        lt_addf(&l->args, "%d", p->narrow == 2 ? 0 : g->hi);
    }
}

static void add_on_busy(struct lt *l, const struct places *p) {
    char text[GROUPS_MAX * 24] = "park";
    size_t n = 4;
    if (l->drop) memcpy(text, "drop", 4);
    for (int g = 0; l->drop && g < p->n; g++) {
        if (l->new_from < 0)
            n += (size_t)snprintf(text + n, sizeof text - n, " -");
        else
            n += (size_t)snprintf(text + n, sizeof text - n, " %" PRId64, l->new_from);
    }
    lt_add_text(&l->args, text);
}

static void add_envelope(struct lt *l, const struct lt_msg *m) {
    struct lw_buf b = {0};
    lt_encode(m, &b);
    lt_add(&l->args, b.p, b.n);
    lw_buf_free(&b);
}

/* --- the scripts -------------------------------------------------------------------------------------------------------------- */

static void add_names(struct lt *l, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) lt_addf(&l->keys, LT_TAG "%s", names[i]);
}
static void add_clock(struct lt *l) {
    lt_addf(&l->args, "%" PRId64, lt_now_ms(l) + l->off_ms);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms / 4);
}
static void add_token(struct lt *l, const char *token) {
    snprintf(l->token, sizeof l->token, "%s", token);
    lt_add_text(&l->args, token);
}

static void begin_item(struct lt *l, int n_messages, int n_named) {
    assert_true(l->n_items < LT_BATCH_MAX);
    l->item[l->n_items].n_messages = n_messages;
    l->item[l->n_items++].n_named = n_named;
}

/* Messages of a lane that stand side by side are one item of gate. Returns whether any envelope is given. */
static bool gate_items(struct lt *l, const struct lt_msg *m, size_t n, unsigned char *counts) {
    bool any = false;
    size_t k;
    for (size_t i = 0; i < n; i += k) {
        for (k = 1; i + k < n && lw_bytes_eq(m[i].lane, m[i + k].lane); k++) assert_true(k < 127);
        counts[l->n_items] = (unsigned char)(k | (m[i].bare ? 0 : 128) | (m[i].behind ? 64 : 0));
        any |= counts[l->n_items] != 1;
        begin_item(l, (int)k, 0);
    }
    return any;
}

const char *lt_gate(struct lt *l, const struct lt_msg *m, size_t n) {
    static struct places places;
    static const char *const names[] = {"epoch", "lanes", "floor", "fence"};
    unsigned char counts[LT_BATCH_MAX];
    bool dedup = false;
    lt_begin(l, &lw_script_gate);
    places.n = 0, places.n_bytes = 0, places.narrow = l->narrow;
    for (size_t i = 0; i < n; i++) {
        add_place(&places, &m[i]);
        dedup |= m[i].dedup[0] != 0;
        assert_string_equal(m[i].token, m[0].token);
    }
    bool counted = gate_items(l, m, n, counts);
    l->n_messages = (int)n;
    add_names(l, names, 4);
    lt_add_text(&l->args, l->epoch);
    add_clock(l);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    add_on_busy(l, &places);
    add_token(l, m[0].token);
    lt_add_text(&l->args, dedup ? "1" : "0");
    lt_addf(&l->args, "%d", l->reserve);
    lt_add(&l->args, counts, counted ? (size_t)l->n_items : 0);
    lt_add(&l->args, places.bytes, places.n_bytes);
    add_groups(l, &places);
    size_t at = 0;
    for (int i = 0; i < l->n_items; i++) {
        lt_add_lane(l, "lock:", m[at].lane);
        for (int k = 0; k < l->item[i].n_messages; k++, at++) {
            if (counts[i] >= 128) add_envelope(l, &m[at]);
            if (dedup) lt_add_text(&l->args, m[at].dedup);
        }
    }
    return lt_run(l);
}

struct values {
    char text[255][96];
    int n;
};
static unsigned char value_of(struct values *v, const struct lt *l, const struct lt_item *it, const struct lt_msg *first) {
    char text[96];
    if (it->value)
        snprintf(text, sizeof text, "%s", it->value);
    else
        lt_value(l, first->token, text, sizeof text);
    int i = 0;
    while (i < v->n && strcmp(v->text[i], text) != 0) i++;
    assert_true(i < 255);
    if (i == v->n) memcpy(v->text[v->n++], text, sizeof text);
    return (unsigned char)i;
}

static char outcome_of(const struct lt_item *it) {
    const struct lt_msg *last = it->n_done ? &it->done[it->n_done - 1] : NULL;
    if (!last) return 'd';
    return strcmp(last->outcome, "dead") == 0 ? 'x' : last->outcome[0];
}

static void settle_needs(struct lt *l, const struct lt_item *it) {
    char outcome = outcome_of(it);
    const struct lt_msg *last = it->n_done ? &it->done[it->n_done - 1] : NULL;
    if (outcome == 'r' || outcome == 'b') lt_addf(&l->args, "%" PRId64, last->backoff_ms);
    if (outcome == 'x') lt_add_text(&l->args, last->reason);
    if (strchr("rbx", outcome)) add_envelope(l, last);
    if (!l->window_s) return;
    for (size_t k = 0; k < it->n_done; k++) lt_add_text(&l->args, it->done[k].dedup);
    for (size_t k = 0; k < it->n_named; k++) lt_add_text(&l->args, it->named[k].dedup);
}

static void settle_places(struct lt *l, struct places *places, const struct lt_item *items, size_t n) {
    places->n = 0, places->n_bytes = 0, places->narrow = l->narrow;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < items[i].n_done; k++) add_place(places, &items[i].done[k]);
        for (size_t k = 0; k < items[i].n_named; k++) add_place(places, &items[i].named[k]);
        begin_item(l, (int)items[i].n_done, (int)items[i].n_named);
    }
}

const char *lt_settle_items(struct lt *l, const struct lt_item *items, size_t n) {
    static struct places places;
    static struct values values;
    static const char *const names[] = {"epoch", "lanes", "floor", "fence", "ready", "dead"};
    unsigned char bytes[7 * LT_BATCH_MAX], *b = bytes;
    lt_begin(l, &lw_script_settle);
    values.n = 0;
    settle_places(l, &places, items, n);
    for (size_t i = 0; i < n; i++) {
        const struct lt_item *it = &items[i];
        *b++ = value_of(&values, l, it, it->n_done ? it->done : it->named);
        *b++ = (unsigned char)it->n_done, *b++ = (unsigned char)outcome_of(it), *b++ = (unsigned char)it->mode;
        *b++ = (unsigned char)it->n_named, *b++ = (unsigned char)it->want, *b++ = (unsigned char)it->before;
    }
    add_names(l, names, 6);
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_addf(&l->args, "%d", LT_HANDOFF_MS);
    lt_add_text(&l->args, l->skip ? "skip" : "block");
    if (l->window_s)
        lt_addf(&l->args, "%" PRId64, l->window_s);
    else
        lt_add_text(&l->args, "");
    lt_addf(&l->args, "%d", l->reserve);
    lt_add_text(&l->args, l->bounds);
    lt_add(&l->args, bytes, 7 * n);
    lt_add(&l->args, places.bytes, places.n_bytes);
    add_groups(l, &places);
    lt_addf(&l->args, "%d", values.n);
    for (int i = 0; i < values.n; i++) lt_add_text(&l->args, values.text[i]);
    for (size_t i = 0; i < n; i++) {
        lt_add_lane(l, "lock:", (items[i].n_done ? items[i].done : items[i].named)->lane);
        settle_needs(l, &items[i]);
    }
    return lt_run(l);
}

const char *lt_settle(struct lt *l, const struct lt_msg *m, size_t n) {
    struct lt_item items[LT_BATCH_MAX];
    assert_true(n <= LT_BATCH_MAX);
    for (size_t i = 0; i < n; i++) {
        items[i] = (struct lt_item){.done = &m[i], .n_done = 1, .mode = m[i].mode[0] == 'd' ? '-' : m[i].mode[0], .want = 1};
        if (!strchr("kKmh", items[i].mode)) continue;
        items[i].named = m[i].next;
        items[i].n_named = m[i].next != NULL;
    }
    return lt_settle_items(l, items, n);
}

const char *lt_claim(struct lt *l, const struct lt_msg *m, size_t n) {
    static const char *const names[] = {"epoch", "lanes", "floor", "fence", "ready", "claimed:w"};
    lt_begin(l, &lw_script_claim);
    add_names(l, names, 6);
    lt_add_text(&l->args, l->epoch);
    add_clock(l);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_addf(&l->args, "%d", LT_HANDOFF_MS);
    lt_add_text(&l->args, l->skip ? "skip" : "block");
    lt_addf(&l->args, "%d", l->taken);
    add_token(l, n ? m[0].token : "t");
    lt_addf(&l->args, "%d", l->reserve);
    lt_addf(&l->args, "%d", l->want);
    lt_add_text(&l->args, l->bounds);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(m[i].token, m[0].token);
        begin_item(l, 0, 0);
        lt_add_lane(l, "lock:", m[i].lane);
    }
    return lt_run(l);
}

const char *lt_renew(struct lt *l, const struct lt_msg *m, size_t n) {
    lt_begin(l, &lw_script_renew);
    lt_add_text(&l->keys, LT_TAG "epoch");
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    for (size_t i = 0; i < n; i++) {
        lt_add_lane(l, "lock:", m[i].lane);
        lt_add_text(&l->args, m[i].token);
    }
    return lt_run(l);
}

const char *lt_tend(struct lt *l) {
    lt_begin(l, &lw_script_tend);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "lanes"), lt_add_text(&l->keys, LT_TAG "ready");
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%d", l->most);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_addf(&l->args, "%d", LT_HANDOFF_MS);
    return lt_run(l);
}

const char *lt_hints(struct lt *l) {
    lt_begin(l, &lw_script_hints);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "ready"), lt_add_text(&l->keys, LT_TAG "claimed:w");
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%d", l->most);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    size_t n = 0;
    l->text[0] = '\0';
    for (size_t i = 0; i < l->reply->elements; i++)
        n += (size_t)snprintf(l->text + n, sizeof l->text - n, "%s%s", i ? " " : "", l->reply->element[i]->str);
    return l->text;
}

const char *lt_watch(struct lt *l, const struct lt_look *looks, size_t n) {
    lt_begin(l, &lw_script_watch);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "floor");
    lt_add_text(&l->args, l->epoch);
    for (size_t i = 0; i < n; i++) {
        lt_addf(&l->keys, LT_TAG "state:%s:%" PRId64, looks[i].tp, looks[i].segment);
        lt_add_text(&l->args, looks[i].tp);
        lt_addf(&l->args, "%d", looks[i].first);
        lt_addf(&l->args, "%d", looks[i].last);
    }
    lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    size_t at = 0;
    l->text[0] = '\0';
    for (size_t i = 0; i < l->reply->elements; i += 2) {
        const redisReply *f = l->reply->element[i];
        at += (size_t)snprintf(l->text + at, sizeof l->text - at, "%s%s", i ? " " : "", f->len ? f->str : "-");
    }
    return l->text;
}

const char *lt_floor(struct lt *l, const char *tp, int64_t committed, int64_t from) {
    lt_begin(l, &lw_script_floor);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "floor");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, tp);
    lt_addf(&l->args, "%" PRId64, committed);
    lt_addf(&l->args, "%" PRId64, from);
    return lt_run(l);
}

const char *lt_repair(struct lt *l, const char *tp, int64_t committed, int64_t from, const struct lt_range *ranges, size_t n) {
    lt_begin(l, &lw_script_repair);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "floor");
    lt_add_text(&l->args, l->epoch), lt_add_text(&l->args, "1"), lt_add_text(&l->args, tp);
    lt_addf(&l->args, "%" PRId64, committed);
    lt_addf(&l->args, "%" PRId64, from);
    for (size_t i = 0; i < n; i++) {
        lt_add_text(&l->args, ranges[i].tp);
        lt_addf(&l->args, "%" PRId64, ranges[i].lo);
        lt_addf(&l->args, "%" PRId64, ranges[i].hi);
    }
    return lt_run(l);
}

static void entered_of(const redisReply *r, struct lt_entered *out) {
    *out = (struct lt_entered){0};
    if (strcmp(r->element[0]->str, "REFUSED") == 0) {
        assert_int_equal(r->elements, 3);
        snprintf(out->field, sizeof out->field, "%s", r->element[1]->str);
        snprintf(out->theirs, sizeof out->theirs, "%s", r->element[2]->str);
        return;
    }
    assert_int_equal(r->elements, 6);
    snprintf(out->id, sizeof out->id, "%s", r->element[1]->str);
    out->now_ms = atoll(r->element[2]->str);
    out->not_before_ms = atoll(r->element[3]->str);
    out->ttl_ms = atoll(r->element[4]->str);
    out->first = strcmp(r->element[5]->str, "1") == 0;
}

const char *lt_enter(struct lt *l, const struct lt_enter *e, struct lt_entered *out) {
    lt_begin(l, &lw_script_enter);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "fence"), lt_add_text(&l->keys, LT_TAG "lanes");
    lt_add_text(&l->args, e->candidate), lt_add_text(&l->args, e->life);
    lt_addf(&l->args, "%" PRId64, e->ttl_ms);
    lt_addf(&l->args, "%" PRId64, e->grace_ms);
    lt_add_text(&l->args, e->jumped ? e->jumped : ""), lt_add_text(&l->args, e->host);
    lt_addf(&l->args, "%" PRId64, e->offset_ms);
    lt_addf(&l->args, "%" PRIu64, e->fence);
    lt_add_text(&l->args, e->history ? e->history : "");
    lt_addf(&l->args, "%" PRId64, e->old_ms);
    if (e->field) lt_add_text(&l->args, e->field), lt_add_text(&l->args, e->value);
    lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    entered_of(l->reply, out);
    snprintf(l->answers, sizeof l->answers, "%s", l->reply->element[0]->str);
    return l->answers;
}
