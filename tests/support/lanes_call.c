/* SPDX-License-Identifier: Apache-2.0 */
/* Makes messages for tests, and builds calls of the lane scripts. The comment at the top of each
 * script describes its arguments. */
#include "tests/support/lanes_build.h"

#include "queue/calls.h"
#include "queue/envelope.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- messages --------------------------------------------------------------------------------- */

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

struct lt_msg lt_msg_bytes(int32_t partition, int64_t offset, struct lw_bytes lane,
                           const char *token) {
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

void lt_full_batch(struct lt_msg *m, int each) {
    static char lanes[LT_BATCH_MAX][24];
    for (int i = 0; i < LT_BATCH_MAX; i++) {
        snprintf(lanes[i], sizeof lanes[i], "lane %d", i);
        for (int k = 0; k < each; k++)
            *m++ = lt_msg(i / 32, LW_SEGMENT + (i % 32 - 16) * each + k, lanes[i], "t1");
    }
}

/* --- gate, settle, claim: queue/calls.h makes their arguments --------------------------------- */

static struct lw_commands commands;
static struct lw_places places;
static char names[LW_SEGMENTS_MAX][64]; /* names of the partitions of the current call */
static int n_names;

static struct lw_lane_call call_of(struct lt *l, const struct lw_script *script) {
    lt_begin(l, script);
    lw_commands_reset(&commands);
    lw_places_clear(&places);
    n_names = 0;
    return (struct lw_lane_call){.commands = &commands,
                                 .sha = "",
                                 .prefix = lw_bytes_of(LT_TAG),
                                 .epoch = LT_TAG "epoch",
                                 .lanes = LT_TAG "lanes",
                                 .floor = LT_TAG "floor",
                                 .fence = LT_TAG "fence",
                                 .ready = LT_TAG "ready",
                                 .dead = LT_TAG "dead",
                                 .claimed = LT_TAG "claimed:w",
                                 .epoch_id = l->epoch,
                                 .redis_ms =
                                     script == &lw_script_settle ? 0 : lt_now_ms(l) + l->off_ms,
                                 .ttl_ms = l->ttl_ms,
                                 .handoff_ms = LT_HANDOFF_MS,
                                 .fences = l->reserve,
                                 .skip = l->skip};
}

/* Keeps a copy of the call's arguments, so that a test can repeat the call, and runs it with
 * lt_run(). */
static const char *run_call(struct lt *l) {
    char count[16];
    snprintf(count, sizeof count, "%.*s", (int)commands.len[2], commands.argv[2]);
    int first_arg = 3 + atoi(count);
    for (int i = 3; i < commands.cmd[0].argc; i++)
        lt_add(i < first_arg ? &l->keys : &l->args, commands.argv[i], commands.len[i]);
    return lt_run(l);
}

/* Returns "topic:partition". Within a call, the same partition always gets the same pointer. */
static const char *partition_of(const struct lt_msg *m) {
    char name[64];
    snprintf(name, sizeof name, "%s:%d", m->topic, m->partition);
    for (int i = 0; i < n_names; i++)
        if (strcmp(names[i], name) == 0) return names[i];
    assert_true(n_names < LW_SEGMENTS_MAX);
    return memcpy(names[n_names++], name, sizeof name);
}

static void add_place(const struct lt_msg *m) {
    lw_places_add(&places, partition_of(m), m->offset);
}

/* Sets which bytes of a segment the script reads at once, as the test chose in l->narrow. */
static void choose_bytes(const struct lt *l) {
    for (int g = 0; g < places.n; g++) {
        const unsigned char *first = places.bytes;
        while (*first != g + 1) first += 3;
        if (l->narrow)
            places.segment[g].lo = places.segment[g].hi = (first[1] * 256 + first[2]) / 4;
        /* If n is LW_SEGMENT, the call names the range from lo to hi. If n is 0, the call names no
         * range. */
        places.segment[g].n = l->narrow == 2 ? 0 : LW_SEGMENT;
    }
}

static struct lw_call_bounds bounds_of(const struct lt *l) {
    struct lw_call_bounds b = {0};
    assert_int_equal(sscanf(l->bounds, "%zu %zu %zu", &b.lane, &b.call, &b.met), 3);
    return b;
}

static struct lw_bytes token_of(struct lt *l, const char *token) {
    snprintf(l->token, sizeof l->token, "%s", token);
    return lw_bytes_of(l->token);
}

static void add_envelope(const struct lw_lane_call *c, const struct lt_msg *m) {
    struct lw_buf b = {0};
    lt_encode(m, &b);
    lw_call_envelope(c, lw_bytes(b.p, b.n));
    lw_buf_free(&b);
}

static void add_group(const struct lw_lane_call *c, const struct lt_msg *m) {
    struct lw_bytes name = lw_bytes_of(m->group ? m->group : "");
    lw_call_group(c, m->group ? &name : NULL, m->parks);
}

static void begin_item(struct lt *l, int n_messages, int n_named) {
    assert_true(l->n_items < LT_BATCH_MAX);
    l->item[l->n_items].n_messages = n_messages;
    l->item[l->n_items++].n_named = n_named;
}

/* Makes the items of a call of gate. Adjacent messages of the same lane become one item. Fills
 * `counts` with one byte per item, which gate reads as the item's number of messages and flags.
 * Returns false if the call may leave out these bytes, because every item has one message and no
 * flag. */
static bool gate_items(struct lt *l, const struct lt_msg *m, size_t n, unsigned char *counts) {
    bool any = false;
    size_t k;
    for (size_t i = 0; i < n; i += k) {
        for (k = 1; i + k < n && lw_bytes_eq(m[i].lane, m[i + k].lane); k++) assert_true(k < 127);
        counts[l->n_items] = (unsigned char)(k | (m[i].bare ? 0 : LW_GATE_ENVELOPES));
        any |= counts[l->n_items] != 1;
        begin_item(l, (int)k, 0);
    }
    return any;
}

const char *lt_gate(struct lt *l, const struct lt_msg *m, size_t n) {
    struct lw_lane_call c = call_of(l, &lw_script_gate);
    unsigned char counts[LT_BATCH_MAX];
    bool dedup = false;
    for (size_t i = 0; i < n; i++) {
        add_place(&m[i]);
        dedup |= m[i].dedup[0] != 0;
        assert_string_equal(m[i].token, m[0].token);
    }
    choose_bytes(l);
    bool counted = gate_items(l, m, n, counts);
    l->n_messages = (int)n;
    lw_gate_begin(&c, &places, l->n_items);
    size_t at = 0;
    for (int i = 0; i < l->n_items; at += (size_t)l->item[i++].n_messages)
        lw_call_lane(&c, m[at].lane);
    struct lw_bytes token = token_of(l, m[0].token);
    lw_gate_args(&c, &places,
                 &(struct lw_gate_call){
                     dedup, token, lw_bytes((char *)counts, counted ? (size_t)l->n_items : 0)});
    at = 0;
    for (int i = 0; i < l->n_items; i++) {
        if (counts[i] >= LW_GATE_ENVELOPES) add_group(&c, &m[at]);
        for (int k = 0; k < l->item[i].n_messages; k++, at++) {
            if (counts[i] >= LW_GATE_ENVELOPES) add_envelope(&c, &m[at]);
            if (dedup) lw_call_dedup(&c, lw_bytes_of(m[at].dedup));
        }
    }
    return run_call(l);
}

struct values {
    char text[255][96];
    int n;
};
static unsigned char value_of(struct values *v, const struct lt *l, const struct lt_item *it,
                              const struct lt_msg *first) {
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

static enum lw_outcome outcome_of(const struct lt_item *it) {
    enum lw_outcome outcome = LW_DONE;
    if (it->n_done) assert_true(lw_outcome_of(it->done[it->n_done - 1].outcome, &outcome));
    return outcome;
}

static void settle_needs(const struct lt *l, const struct lw_lane_call *c,
                         const struct lt_item *it) {
    const struct lt_msg *last = it->n_done ? &it->done[it->n_done - 1] : NULL;
    if (lw_settle_carries(outcome_of(it))) {
        struct lw_buf b = {0};
        struct lw_bytes group = lw_bytes_of(last->group ? last->group : "");
        lt_encode(last, &b);
        lw_settle_last(c, outcome_of(it), last->backoff_ms, last->reason, lw_bytes(b.p, b.n),
                       last->group ? &group : NULL);
        lw_buf_free(&b);
    }
    if (!l->window_s) return;
    for (size_t k = 0; k < it->n_done; k++) lw_call_dedup(c, lw_bytes_of(it->done[k].dedup));
    for (size_t k = 0; k < it->n_named; k++) lw_call_dedup(c, lw_bytes_of(it->named[k].dedup));
}

static void settle_places(struct lt *l, const struct lt_item *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < items[i].n_done; k++) add_place(&items[i].done[k]);
        for (size_t k = 0; k < items[i].n_named; k++) add_place(&items[i].named[k]);
        begin_item(l, (int)items[i].n_done, (int)items[i].n_named);
    }
    choose_bytes(l);
}

static const struct lt_msg *first_of(const struct lt_item *it) {
    return it->n_done ? it->done : it->named;
}

const char *lt_settle_items(struct lt *l, const struct lt_item *items, size_t n) {
    static struct values values;
    struct lw_lane_call c = call_of(l, &lw_script_settle);
    unsigned char bytes[LW_ITEM_BYTES * LT_BATCH_MAX];
    values.n = 0;
    settle_places(l, items, n);
    for (size_t i = 0; i < n; i++) {
        const struct lt_item *it = &items[i];
        lw_settle_item(&(struct lw_settle_item){value_of(&values, l, it, first_of(it)),
                                                (int)it->n_done, outcome_of(it),
                                                (enum lw_go)it->mode, (int)it->n_named, it->want,
                                                it->before},
                       bytes + LW_ITEM_BYTES * i);
    }
    lw_settle_begin(&c, &places, (int)n);
    for (size_t i = 0; i < n; i++) lw_call_lane(&c, first_of(&items[i])->lane);
    lw_settle_args(&c, &places,
                   &(struct lw_settle_call){l->window_s != 0, l->window_s, bounds_of(l),
                                            lw_bytes((char *)bytes, LW_ITEM_BYTES * n), values.n});
    for (int i = 0; i < values.n; i++) lw_call_value(&c, lw_bytes_of(values.text[i]));
    for (size_t i = 0; i < n; i++) settle_needs(l, &c, &items[i]);
    return run_call(l);
}

const char *lt_settle(struct lt *l, const struct lt_msg *m, size_t n) {
    struct lt_item items[LT_BATCH_MAX];
    assert_true(n <= LT_BATCH_MAX);
    for (size_t i = 0; i < n; i++) {
        items[i] = (struct lt_item){.done = &m[i],
                                    .n_done = 1,
                                    .mode = m[i].mode[0] == 'd' ? '-' : m[i].mode[0],
                                    .want = 1};
        if (!strchr("kKmh", items[i].mode)) continue;
        items[i].named = m[i].next;
        items[i].n_named = m[i].next != NULL;
    }
    return lt_settle_items(l, items, n);
}

const char *lt_claim(struct lt *l, const struct lt_msg *m, size_t n) {
    struct lw_lane_call c = call_of(l, &lw_script_claim);
    lw_claim_begin(&c, (int)n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(m[i].token, m[0].token);
        begin_item(l, 0, 0);
        lw_call_lane(&c, m[i].lane);
    }
    lw_claim_args(&c, &(struct lw_claim_call){l->taken, token_of(l, n ? m[0].token : "t"), l->want,
                                              bounds_of(l)});
    return run_call(l);
}

/* --- the other scripts ------------------------------------------------------------------------ */

const char *lt_renew(struct lt *l, const struct lt_msg *m, size_t n) {
    lt_begin(l, &lw_script_renew);
    lt_add_text(&l->keys, LT_TAG "epoch");
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    for (size_t i = 0; i < n; i++) {
        lt_add_lane(l, "lock:", m[i].lane);
        lt_add_text(&l->args, m[i].token);
        lt_add_text(&l->args, m[i].run ? m[i].run : "");
    }
    return lt_run(l);
}

const char *lt_tend(struct lt *l) {
    lt_begin(l, &lw_script_tend);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "lanes"),
        lt_add_text(&l->keys, LT_TAG "ready"), lt_add_text(&l->keys, LT_TAG "workers");
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%d", l->most);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_addf(&l->args, "%d", LT_HANDOFF_MS);
    return lt_run(l);
}

const char *lt_hints(struct lt *l) {
    lt_begin(l, &lw_script_hints);
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "ready"),
        lt_add_text(&l->keys, LT_TAG "claimed:w");
    lt_add_text(&l->args, l->epoch);
    lt_addf(&l->args, "%d", l->most);
    lt_addf(&l->args, "%" PRId64, l->ttl_ms);
    lt_run(l);
    if (l->reply->type != REDIS_REPLY_ARRAY) return l->answers;
    size_t n = 0;
    l->text[0] = '\0';
    for (size_t i = 0; i < l->reply->elements; i++)
        n += (size_t)snprintf(l->text + n, sizeof l->text - n, "%s%s", i ? " " : "",
                              l->reply->element[i]->str);
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
        at += (size_t)snprintf(l->text + at, sizeof l->text - at, "%s%s", i ? " " : "",
                               f->len ? f->str : "-");
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

const char *lt_repair(struct lt *l, const char *tp, int64_t committed, int64_t from,
                      const struct lt_range *ranges, size_t n) {
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
    lt_add_text(&l->keys, LT_TAG "epoch"), lt_add_text(&l->keys, LT_TAG "fence"),
        lt_add_text(&l->keys, LT_TAG "lanes");
    lt_add_text(&l->args, e->candidate), lt_add_text(&l->args, e->life);
    lt_addf(&l->args, "%" PRId64, e->ttl_ms);
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
