/* SPDX-License-Identifier: Apache-2.0 */
/* Implements what `latchwork ledger` and the API do: reports what became of every record, and
 * whether states and waiting lists agree. ops/ledger/private.h explains the method. */
#include "ops/ledger/ledger.h"

#include "base/clock.h"
#include "ops/ledger/private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHOWN_MAX = 100 };

static const char *const kind_text[] = {
    [LEDGER_MISSING] = "is marked as waiting, but is in no waiting list",
    [LEDGER_UNMARKED] = "is in a waiting list, but is not marked as waiting",
    [LEDGER_TWICE] = "is in two waiting lists",
    [LEDGER_COMMITTED] = "waits below the commit of the group",
    [LEDGER_FLOOR] = "the floor is above the commit of the group",
    [LEDGER_BEYOND] = "a state is recorded beyond the end of the log",
    [LEDGER_UNSEEN] = "a waiting list that `lanes` does not name, so no worker tends it",
    [LEDGER_TORN] = "a waiting list holds an element that is not a message",
};
static const char *const kind_word[] = {"missing", "unmarked", "twice",  "committed",
                                        "floor",   "beyond",   "unseen", "torn"};

/* --- what is known ---------------------------------------------------------------------------- */

struct ledger_part *ledger_part(struct ledger *l, const char *topic, size_t n, int32_t partition) {
    for (size_t i = 0; i < l->n_parts; i++)
        if (l->parts[i].partition == partition && strlen(l->parts[i].topic) == n &&
            !memcmp(l->parts[i].topic, topic, n))
            return &l->parts[i];
    l->parts = lw_more(l->parts, l->n_parts, &l->cap_parts, sizeof *l->parts);
    l->parts[l->n_parts] = (struct ledger_part){.topic = lw_memdup(topic, n),
                                                .partition = partition,
                                                .committed = -1,
                                                .committed_after = -1};
    return &l->parts[l->n_parts++];
}

/* Returns the lane's key as text. Keys may hold any bytes, so bytes that are not printable become
 * '?'. */
static char *safe(struct lw_bytes lane) {
    if (!lane.p) return NULL;
    char *s = lw_memdup(lane.p, lane.n);
    for (size_t i = 0; i < lane.n; i++)
        if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] >= 0x7f) s[i] = '?';
    return s;
}

void ledger_wrong(struct ledger *l, enum ledger_kind kind, int shard, const struct ledger_part *p,
                  int64_t offset, struct lw_bytes lane) {
    l->wrong = lw_more(l->wrong, l->n_wrong, &l->cap_wrong, sizeof *l->wrong);
    l->wrong[l->n_wrong++] =
        (struct ledger_wrong){kind, shard, p ? (int)(p - l->parts) : -1, offset, 0, safe(lane)};
}

static void free_wrong(struct ledger_wrong *w, size_t n) {
    for (size_t i = 0; i < n; i++) free(w[i].lane);
    free(w);
}

/* --- a pass ----------------------------------------------------------------------------------- */

static void forget_counts(struct ledger *l) {
    for (size_t i = 0; i < l->n_parts; i++) {
        struct ledger_part *p = &l->parts[i];
        p->done = p->dead = p->waiting = p->listed = p->replays = p->top = p->floor = 0;
    }
    l->lanes = l->locks = l->dead_letters = 0;
}

static void judge_parts(struct ledger *l) {
    for (size_t i = 0; i < l->n_parts; i++) {
        const struct ledger_part *p = &l->parts[i];
        if (!p->in_kafka) continue;
        if (p->floor > p->committed_after && p->floor > 0)
            ledger_wrong(l, LEDGER_FLOOR, p->floor_shard, p, 0, lw_bytes(NULL, 0));
        if (p->top > p->end) ledger_wrong(l, LEDGER_BEYOND, -1, p, p->top - 1, lw_bytes(NULL, 0));
    }
}

static int pass(struct ledger *l, struct ledger_kafka *k, struct lw_err *err) {
    forget_counts(l);
    if (ledger_step(l, 0, err)) return -1;
    if (ledger_kafka_ask(k, l, true, err)) return -1;
    for (int s = 0; s < l->c->redis.shards; s++)
        if (ledger_redis_read(l, s, err)) return -1;
    if (ledger_kafka_ask(k, l, false, err)) return -1;
    judge_parts(l);
    return 0;
}

static bool same_wrong(const struct ledger_wrong *a, const struct ledger_wrong *b) {
    bool lanes = a->lane && b->lane ? !strcmp(a->lane, b->lane) : a->lane == b->lane;
    return a->kind == b->kind && a->shard == b->shard && a->part == b->part &&
           a->offset == b->offset && a->replay == b->replay && lanes;
}

static int compare_wrong(const void *x, const void *y) {
    const struct ledger_wrong *a = x, *b = y;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->shard != b->shard) return a->shard < b->shard ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->replay != b->replay) return a->replay < b->replay ? -1 : 1;
    return strcmp(a->lane ? a->lane : "", b->lane ? b->lane : "");
}

/* Removes from l->wrong each difference that is not in `before`, which lists the differences that
 * all earlier passes found. Both lists are sorted. */
static void keep_same(struct ledger *l, const struct ledger_wrong *before, size_t n_before) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < l->n_wrong; i++) {
        while (k < n_before && compare_wrong(&before[k], &l->wrong[i]) < 0) k++;
        if (k < n_before && same_wrong(&before[k], &l->wrong[i]))
            l->wrong[n++] = l->wrong[i];
        else
            free(l->wrong[i].lane);
    }
    l->n_wrong = n;
}

static int audit(struct ledger *l, struct ledger_kafka *k, struct lw_err *err) {
    struct ledger_wrong *before = NULL;
    size_t n_before = 0;
    int bad = 0;
    for (int i = 0; i < LW_LEDGER_PASSES && !bad && (i == 0 || n_before); i++) {
        if (i) lw_sleep_ms(LW_LEDGER_PAUSE_MS);
        l->wrong = NULL;
        l->n_wrong = l->cap_wrong = 0;
        bad = pass(l, k, err);
        if (l->n_wrong) qsort(l->wrong, l->n_wrong, sizeof *l->wrong, compare_wrong);
        if (i) keep_same(l, before, n_before);
        free_wrong(before, n_before);
        before = l->wrong;
        n_before = l->n_wrong;
    }
    l->wrong = before;
    l->n_wrong = n_before;
    return bad;
}

/* --- telling ---------------------------------------------------------------------------------- */

struct sums {
    int64_t committed, consumed, in_hand, rest;
};

static struct sums sums_of(const struct ledger_part *p) {
    int64_t base = p->committed > p->begin ? p->committed : p->begin,
            top = p->top > base ? p->top : base;
    return (struct sums){.committed = base - p->begin,
                         .consumed = top - p->begin,
                         .in_hand = top - base - p->done - p->dead - p->waiting,
                         .rest = p->end > top ? p->end - top : 0};
}

static json_t *part_json(const struct ledger_part *p) {
    struct sums s = sums_of(p);
    return json_pack(
        "{s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "topic", p->topic, "partition",
        (int)p->partition, "begin", (json_int_t)p->begin, "end", (json_int_t)p->end, "group_offset",
        (json_int_t)p->committed, "consumed", (json_int_t)s.consumed, "committed",
        (json_int_t)s.committed, "done", (json_int_t)p->done, "dead", (json_int_t)p->dead,
        "waiting", (json_int_t)p->waiting, "in_hand", (json_int_t)s.in_hand, "not_gated",
        (json_int_t)s.rest, "listed", (json_int_t)p->listed, "replays", (json_int_t)p->replays);
}

static void print_json(json_t *v) {
    json_dumpf(v, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(v);
}

static void print_part(const struct ledger_part *p, bool json) {
    struct sums s = sums_of(p);
    if (json)
        print_json(part_json(p));
    else
        printf("%s/%" PRId32 "  consumed %" PRId64 " = committed %" PRId64 " + done %" PRId64
               " + dead %" PRId64 " + waiting %" PRId64 " + in hand %" PRId64 "; not gated %" PRId64
               "\n",
               p->topic, p->partition, s.consumed, s.committed, p->done, p->dead, p->waiting,
               s.in_hand, s.rest);
}

static json_t *wrong_json(const struct ledger *l, const struct ledger_wrong *w) {
    json_t *v =
        json_pack("{s:s,s:s}", "difference", kind_word[w->kind], "text", kind_text[w->kind]);
    if (w->shard >= 0) json_object_set_new(v, "shard", json_integer(w->shard));
    if (w->part >= 0) json_object_set_new(v, "topic", json_string(l->parts[w->part].topic));
    if (w->part >= 0)
        json_object_set_new(v, "partition", json_integer(l->parts[w->part].partition));
    if (w->part >= 0 && w->kind != LEDGER_FLOOR)
        json_object_set_new(v, "offset", json_integer(w->offset));
    if (w->replay) json_object_set_new(v, "replay", json_integer(w->replay));
    if (w->lane) json_object_set_new(v, "lane", json_string(w->lane));
    return v;
}

static void print_wrong(const struct ledger *l, const struct ledger_wrong *w) {
    if (w->part >= 0 && w->kind == LEDGER_FLOOR)
        printf("difference: %s/%" PRId32, l->parts[w->part].topic, l->parts[w->part].partition);
    else if (w->part >= 0)
        printf("difference: %s/%" PRId32 "/%" PRId64, l->parts[w->part].topic,
               l->parts[w->part].partition, w->offset);
    else
        printf("difference");
    if (w->replay) printf("#%" PRId64, w->replay);
    printf(": %s", kind_text[w->kind]);
    if (w->shard >= 0)
        printf(" (shard %d%s%s)", w->shard, w->lane ? ", key " : "", w->lane ? w->lane : "");
    putchar('\n');
}

static int64_t waiting_in(const struct ledger *l) {
    int64_t waiting = 0;
    for (size_t i = 0; i < l->n_parts; i++) waiting += l->parts[i].waiting;
    return waiting;
}

static int64_t replays_in(const struct ledger *l) {
    int64_t replays = 0;
    for (size_t i = 0; i < l->n_parts; i++) replays += l->parts[i].replays;
    return replays;
}

static json_t *summary_json(const struct ledger *l) {
    return json_pack("{s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "ok", !l->n_wrong, "differences",
                     (json_int_t)l->n_wrong, "waiting", (json_int_t)waiting_in(l), "replays",
                     (json_int_t)replays_in(l), "lanes", (json_int_t)l->lanes, "locks",
                     (json_int_t)l->locks, "dead_letters", (json_int_t)l->dead_letters);
}

static void print_summary(const struct ledger *l, bool json) {
    if (json)
        print_json(summary_json(l));
    else
        printf("%s: %" PRId64 " messages and %" PRId64 " replays waiting in %" PRId64
               " lanes, %" PRId64 " lanes locked, %" PRId64 " dead letters in Redis\n",
               l->n_wrong ? "it does not agree" : "it agrees", waiting_in(l), replays_in(l),
               l->lanes, l->locks, l->dead_letters);
}

static int compare_parts(const void *x, const void *y) {
    const struct ledger_part *a = *(const struct ledger_part *const *)x,
                             *b = *(const struct ledger_part *const *)y;
    int c = strcmp(a->topic, b->topic);
    return c ? c : a->partition < b->partition ? -1 : a->partition > b->partition;
}

/* Returns the partitions in the order in which the result lists them. The caller frees the list. */
static const struct ledger_part **ordered(const struct ledger *l) {
    const struct ledger_part **order = lw_alloc((l->n_parts + 1) * sizeof *order);
    for (size_t i = 0; i < l->n_parts; i++) order[i] = &l->parts[i];
    qsort(order, l->n_parts, sizeof *order, compare_parts);
    return order;
}

static bool is_told(const struct ledger_part *p) { return p->in_kafka || p->top || p->listed; }

static void tell(const struct ledger *l, bool json) {
    const struct ledger_part **order = ordered(l);
    for (size_t i = 0; i < l->n_parts; i++)
        if (is_told(order[i])) print_part(order[i], json);
    for (size_t i = 0; i < l->n_wrong && i < SHOWN_MAX; i++)
        json ? print_json(wrong_json(l, &l->wrong[i])) : print_wrong(l, &l->wrong[i]);
    if (l->n_wrong > SHOWN_MAX && !json)
        printf("difference: and %zu more\n", l->n_wrong - SHOWN_MAX);
    print_summary(l, json);
    free(order);
}

static json_t *result_json(const struct ledger *l) {
    json_t *v = summary_json(l), *parts = json_array(), *wrong = json_array();
    const struct ledger_part **order = ordered(l);
    for (size_t i = 0; i < l->n_parts; i++)
        if (is_told(order[i])) json_array_append_new(parts, part_json(order[i]));
    for (size_t i = 0; i < l->n_wrong && i < SHOWN_MAX; i++)
        json_array_append_new(wrong, wrong_json(l, &l->wrong[i]));
    json_object_set_new(v, "partitions", parts);
    json_object_set_new(v, "wrong", wrong);
    free(order);
    return v;
}

/* --- for the command, and for the API's job --------------------------------------------------- */

int ledger_step(struct ledger *l, int64_t n, struct lw_err *err) {
    if (!l->watch) return 0;
    atomic_fetch_add(l->watch->scanned, n);
    return atomic_load(l->watch->cancel) ? lw_fail(err, "cancelled") : 0;
}

static void free_ledger(struct ledger *l) {
    free_wrong(l->wrong, l->n_wrong);
    for (size_t i = 0; i < l->n_parts; i++) free(l->parts[i].topic);
    free(l->parts);
}

json_t *ledger_result(const struct lw_config *c, struct ledger_watch *watch, struct lw_err *err) {
    struct ledger l = {.c = c, .watch = watch};
    struct ledger_kafka *k = ledger_kafka_open(c, err);
    json_t *v = k && !audit(&l, k, err) ? result_json(&l) : NULL;
    ledger_kafka_close(k);
    free_ledger(&l);
    return v;
}

int ledger_print(const struct lw_config *c, bool json, struct lw_err *err) {
    struct ledger l = {.c = c};
    struct ledger_kafka *k = ledger_kafka_open(c, err);
    int bad = !k || audit(&l, k, err) ? -1 : l.n_wrong > 0;
    if (bad >= 0) tell(&l, json);
    ledger_kafka_close(k);
    free_ledger(&l);
    return bad;
}
