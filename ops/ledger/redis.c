/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one shard of the application from Redis, for the ledger. */
#include "ops/ledger/private.h"

#include "base/redis/connection.h"
#include "base/redis/reply.h"
#include "base/redis/servers.h"
#include "config/shard.h"
#include "ops/script.h"
#include "queue/codes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 256, SCAN_COUNT = 1000, NAMES_MAX = 1 << 26 };

/* A list of names: either "TOPIC:PARTITION:SEGMENT" of each segment, or the lane of each waiting
 * list. */
struct names {
    struct lw_bytes *a; /* the names; this struct owns their bytes */
    size_t n, cap;
};

/* Describes a message in a waiting list, or a message whose state is waiting. */
struct at {
    int part;
    uint32_t list;
    /* `replay` is the number of the replay; 0: the message is the record itself */
    int64_t offset, replay;
};
struct ats {
    struct at *a;
    size_t n, cap;
};

struct floor {
    int part;
    int64_t floor;
};

struct reading {
    struct ledger *l;
    int shard;
    char prefix[LW_SHARD_PREFIX];
    size_t n_prefix;
    struct lw_redis *redis;
    struct lw_err *err;
    struct names states, lists;
    struct floor *floors;
    size_t n_floors;
    struct ats waiting, listed;
};

static void add_name(struct names *x, const char *p, size_t n) {
    x->a = lw_more(x->a, x->n, &x->cap, sizeof *x->a);
    x->a[x->n++] = lw_bytes(lw_memdup(p, n), n);
}

static void drop_name(struct lw_bytes b) { free((void *)(uintptr_t)b.p); }

static void free_names(struct names *x) {
    for (size_t i = 0; i < x->n; i++) drop_name(x->a[i]);
    free(x->a);
}

static void add_at(struct ats *x, struct at a) {
    x->a = lw_more(x->a, x->n, &x->cap, sizeof *x->a);
    x->a[x->n++] = a;
}

static int malformed(struct reading *r, const redisReply *v, const char *command,
                     const char *expected) {
    char why[LW_REPLY_TEXT];
    return lw_fail(r->err, "shard %d: %s", r->shard, lw_malformed(why, v, command, "%s", expected));
}

/* Returns the reply if it has the given type. Otherwise frees the reply and returns NULL with an
 * error text. */
static redisReply *take(struct reading *r, const char *command, void *reply, int type) {
    redisReply *v = reply;
    if (v && v->type == type) return v;
    char why[LW_REPLY_TEXT];
    const char *says = v && v->type == REDIS_REPLY_ERROR ? lw_redis_deposed(v->str) : NULL;
    if (says)
        lw_fail(r->err, "shard %d: %s (%s); try again when that is over", r->shard, says, v->str);
    else
        lw_fail(r->err, "shard %d: %s", r->shard,
                lw_reply_wrong(why, v, command, type, r->redis->why));
    if (v) freeReplyObject(v);
    return NULL;
}

/* --- names ------------------------------------------------------------------------------------ */

static void sort_name(struct reading *r, const char *p, size_t n) {
    const char *rest = p + r->n_prefix;
    size_t left = n - r->n_prefix;
    if (left > 6 && !memcmp(rest, "state:", 6)) add_name(&r->states, rest + 6, left - 6);
    if (left >= 5 && !memcmp(rest, "wait:", 5)) add_name(&r->lists, rest + 5, left - 5);
    if (left >= 5 && !memcmp(rest, "lock:", 5)) r->l->locks++;
}

static int compare_names(const void *a, const void *b) {
    const struct lw_bytes *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* Keeps one copy of each name, because SCAN may return a key more than once. */
static void once(struct names *x) {
    size_t n = 0;
    if (x->n) qsort(x->a, x->n, sizeof *x->a, compare_names);
    for (size_t i = 0; i < x->n; i++) {
        if (n && lw_bytes_eq(x->a[n - 1], x->a[i]))
            drop_name(x->a[i]);
        else
            x->a[n++] = x->a[i];
    }
    x->n = n;
}

static int read_names(struct reading *r) {
    char cursor[32] = "0";
    do {
        redisReply *v = take(r, "SCAN",
                             lw_redis_ask(r->redis, "SCAN %s MATCH %s* COUNT %d", cursor, r->prefix,
                                          (int)SCAN_COUNT),
                             REDIS_REPLY_ARRAY);
        if (!v) return -1;
        bool sound = v->elements == 2 && v->element[0]->type == REDIS_REPLY_STRING &&
                     v->element[0]->len < sizeof cursor && v->element[1]->type == REDIS_REPLY_ARRAY;
        if (sound) memcpy(cursor, v->element[0]->str, v->element[0]->len + 1);
        for (size_t i = 0; sound && i < v->element[1]->elements; i++)
            sort_name(r, v->element[1]->element[i]->str, v->element[1]->element[i]->len);
        int bad = sound ? 0 : malformed(r, v, "SCAN", "[cursor, array]");
        freeReplyObject(v);
        if (bad) return bad;
        if (r->states.n + r->lists.n > NAMES_MAX)
            return lw_fail(r->err, "shard %d: more than %d names", r->shard, (int)NAMES_MAX);
    } while (strcmp(cursor, "0") != 0);
    once(&r->states), once(&r->lists);
    return 0;
}

/* Finds a partition by the name that scripts write: "topic:partition" or
 * "topic:partition#replay". */
static int part_of(struct reading *r, const char *p, size_t n, int64_t *replay) {
    const char *colon = memrchr(p, ':', n);
    if (!colon || colon == p) return -1;
    char digits[40];
    snprintf(digits, sizeof digits, "%.*s", (int)(p + n - colon - 1), colon + 1);
    const char *number = strchr(digits, '#');
    *replay = number ? strtoll(number + 1, NULL, 10) : 0;
    return (int)(ledger_part(r->l, p, (size_t)(colon - p), (int32_t)strtol(digits, NULL, 10)) -
                 r->l->parts);
}

static int read_floors(struct reading *r) {
    redisReply *v =
        take(r, "HGETALL", lw_redis_ask(r->redis, "HGETALL %sfloor", r->prefix), REDIS_REPLY_ARRAY);
    if (!v) return -1;
    r->floors = lw_alloc((v->elements / 2 + 1) * sizeof *r->floors);
    for (size_t i = 0; i + 1 < v->elements; i += 2) {
        int64_t replay;
        int part = part_of(r, v->element[i]->str, v->element[i]->len, &replay);
        if (part >= 0)
            r->floors[r->n_floors++] =
                (struct floor){part, strtoll(v->element[i + 1]->str, NULL, 10)};
    }
    freeReplyObject(v);
    return 0;
}

static int64_t floor_of(const struct reading *r, int part) {
    for (size_t i = 0; i < r->n_floors; i++)
        if (r->floors[i].part == part) return r->floors[i].floor;
    return 0;
}

/* --- states ----------------------------------------------------------------------------------- */

static void take_state(struct reading *r, int part, int64_t replay, int64_t offset, int state) {
    struct ledger_part *p = &r->l->parts[part];
    if (replay) {
        /* No commit covers a replay, so replays are not counted. But a replay whose state is
         * waiting must be in a waiting list. */
        if (state == LW_STATE_WAITING)
            add_at(&r->waiting, (struct at){.part = part, .offset = offset, .replay = replay});
        return;
    }
    bool above = offset >= p->committed;
    if (offset >= p->top) p->top = offset + 1;
    if (state == LW_STATE_WAITING) {
        add_at(&r->waiting, (struct at){.part = part, .offset = offset});
        p->waiting += above;
    }
    p->done += state == LW_STATE_DONE && above;
    p->dead += state == LW_STATE_DEAD && above;
}

static int read_segment(struct reading *r, const char *name, size_t n) {
    const char *colon = memrchr(name, ':', n);
    int64_t replay;
    int part = colon ? part_of(r, name, (size_t)(colon - name), &replay) : -1;
    if (ledger_step(r->l, 1, r->err)) return -1;
    /* the name is malformed: it does not contain a topic, a partition and a segment's number */
    if (part < 0) return 0;
    int64_t base = strtoll(colon + 1, NULL, 10) * LW_SEGMENT,
            floor = replay ? 0 : floor_of(r, part);
    redisReply *v = take(
        r, "GETRANGE",
        lw_redis_ask(r->redis, "GETRANGE %sstate:%b 0 %d", r->prefix, name, n, LW_SEGMENT / 4 - 1),
        REDIS_REPLY_STRING);
    if (!v) return -1;
    for (int64_t i = 0; i < (int64_t)v->len * 4; i++) {
        int state = (int)lw_state_in(v->str[i / 4], i);
        if (state && base + i >= floor) take_state(r, part, replay, base + i, state);
    }
    freeReplyObject(v);
    return 0;
}

/* Reads the state of a message again. Returns the state (enum lw_state), or 4 if the message's
 * offset is now below the floor. Returns -1 with an error text on failure. */
static int state_now(struct reading *r, const struct at *a) {
    const struct ledger_part *p = &r->l->parts[a->part];
    int64_t offset = a->offset;
    char name[320];
    int n = snprintf(name, sizeof name, "%s:%d", p->topic, (int)p->partition);
    if (a->replay) snprintf(name + n, sizeof name - (size_t)n, "#%lld", (long long)a->replay);
    lw_redis_append(r->redis, "GETRANGE %sstate:%s:%lld %d %d", r->prefix, name,
                    (long long)(offset / LW_SEGMENT), (int)(offset % LW_SEGMENT / 4),
                    (int)(offset % LW_SEGMENT / 4));
    lw_redis_append(r->redis, "HGET %sfloor %s", r->prefix, name);
    redisReply *b = lw_redis_reply(r->redis), *f = lw_redis_reply(r->redis);
    int state = -1;
    if (!b || !f)
        lw_fail(r->err, "shard %d: %s", r->shard, r->redis->why);
    else if (b->type != REDIS_REPLY_STRING)
        malformed(r, b, "GETRANGE", "string");
    else if (f->type == REDIS_REPLY_STRING && strtoll(f->str, NULL, 10) > offset)
        state = 4;
    else
        state = b->len ? (int)lw_state_in(b->str[0], offset) : LW_STATE_UNSEEN;
    if (b) freeReplyObject(b);
    if (f) freeReplyObject(f);
    return state;
}

/* --- lists ------------------------------------------------------------------------------------ */

static void take_element(struct reading *r, uint32_t list, const redisReply *line) {
    char topic[256];
    long long partition, offset, replay;
    struct lw_bytes lane = r->lists.a[list];
    if (line->type != REDIS_REPLY_STRING ||
        sscanf(line->str, "1 %255s %lld %lld %lld ", topic, &partition, &offset, &replay) != 4) {
        ledger_wrong(r->l, LEDGER_TORN, r->shard, NULL, 0, lane);
        return;
    }
    struct ledger_part *p = ledger_part(r->l, topic, strlen(topic), (int32_t)partition);
    add_at(&r->listed,
           (struct at){
               .part = (int)(p - r->l->parts), .list = list, .offset = offset, .replay = replay});
}

static redisReply *ask_page(struct reading *r, uint32_t list, size_t from) {
    char key[800], lanes[160], skip[24], many[16];
    struct lw_bytes lane = r->lists.a[list];
    size_t n = lane.n, n_key = (size_t)snprintf(key, sizeof key, "%swait:", r->prefix);
    /* the name always fits into `key`, because a lane's name contains the hash of a long key
     * instead of the key */
    if (n_key + n > sizeof key) n = sizeof key - n_key;
    memcpy(key + n_key, lane.p, n);
    const char *argv[] = {"EVAL", lw_op_lines.text, "2", key, lanes, skip, many, lane.p};
    size_t len[8];
    snprintf(lanes, sizeof lanes, "%slanes", r->prefix);
    snprintf(skip, sizeof skip, "%zu", from);
    snprintf(many, sizeof many, "%d", PAGE);
    for (int i = 0; i < 7; i++) len[i] = strlen(argv[i]);
    len[3] = n_key + n, len[7] = lane.n;
    return take(r, "lines.lua", lw_redis_ask_argv(r->redis, 8, argv, len), REDIS_REPLY_ARRAY);
}

/* Reads a waiting list from its oldest end, with up to PAGE elements per request. Workers remove
 * finished heads from the same end meanwhile. Each request begins in the middle of the elements
 * that the last request returned, so no message is missed if the list shrinks a little. If the list
 * shrinks by more than half of these elements between two requests, the next pass reads the
 * messages that this pass has missed. */
static int read_list(struct reading *r, uint32_t list) {
    size_t from = 0;
    for (int64_t lists = 1;; lists = 0) {
        if (ledger_step(r->l, lists, r->err)) return -1;
        redisReply *v = ask_page(r, list, from);
        if (!v) return -1;
        bool sound = v->elements >= 2 && v->element[0]->type == REDIS_REPLY_INTEGER &&
                     v->element[1]->type == REDIS_REPLY_STRING;
        size_t size = sound ? (size_t)v->element[0]->integer : 0, n = sound ? v->elements - 2 : 0;
        if (from == 0 && size) {
            r->l->lanes++;
            if (!v->element[1]->len)
                ledger_wrong(r->l, LEDGER_UNSEEN, r->shard, NULL, 0, r->lists.a[list]);
        }
        for (size_t i = 0; i < n; i++) take_element(r, list, v->element[2 + i]);
        int bad = sound ? 0 : malformed(r, v, "lines.lua", "[integer, string, ...]");
        freeReplyObject(v);
        if (bad) return bad;
        if (!n || from + n >= size) return 0;
        from += n > 1 ? n / 2 : 1;
    }
}

/* --- what does not fit ------------------------------------------------------------------------ */

static int compare_ats(const void *a, const void *b) {
    const struct at *x = a, *y = b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    if (x->replay != y->replay) return x->replay < y->replay ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->list < y->list ? -1 : x->list > y->list;
}

static void sort_ats(struct ats *x) {
    if (x->n) qsort(x->a, x->n, sizeof *x->a, compare_ats);
}

static bool same(const struct at *x, const struct at *y) {
    return x->part == y->part && x->replay == y->replay && x->offset == y->offset;
}
static bool before(const struct at *x, const struct at *y) {
    if (x->part != y->part) return x->part < y->part;
    return x->replay != y->replay ? x->replay < y->replay : x->offset < y->offset;
}

/* Reads the state of a message once more, because the first reading found that its state and its
 * lists disagree. Reports a difference only if the state is now equal to `is` or `or_is`. Otherwise
 * the message has changed since the first reading. Returns -1 if the state cannot be read,
 * otherwise 0. */
static int suspect(struct reading *r, enum ledger_kind kind, const struct at *a, int is, int or_is,
                   bool has_list) {
    int state = state_now(r, a);
    if (state < 0) return -1;
    if (state != is && state != or_is) return 0;
    ledger_wrong(r->l, kind, r->shard, &r->l->parts[a->part], a->offset,
                 has_list ? r->lists.a[a->list] : lw_bytes(NULL, 0));
    r->l->wrong[r->l->n_wrong - 1].replay = a->replay;
    return 0;
}

/* Compares each message in a waiting list with its state. If a message is twice in the same list,
 * the message is counted once and no difference is reported: one worker may have put the message
 * back into the list while another worker parked it. */
static int judge_listed(struct reading *r) {
    size_t w = 0;
    for (size_t i = 0; i < r->listed.n; i++) {
        const struct at *a = &r->listed.a[i];
        struct ledger_part *p = &r->l->parts[a->part];
        if (i && same(a, a - 1)) {
            if (a->list != (a - 1)->list && suspect(r, LEDGER_TWICE, a, 1, 1, true)) return -1;
            continue;
        }
        p->replays += a->replay > 0;
        while (w < r->waiting.n && before(&r->waiting.a[w], a)) w++;
        bool waits = w < r->waiting.n && same(&r->waiting.a[w], a);
        p->listed += waits && !a->replay && a->offset >= p->committed;
        /* the mark of a replay may expire while the replay still waits */
        bool may_lack_mark = a->replay;
        if (!waits && !may_lack_mark && suspect(r, LEDGER_UNMARKED, a, 0, 0, true)) return -1;
    }
    return 0;
}

static int judge_waiting(struct reading *r) {
    size_t k = 0;
    for (size_t i = 0; i < r->waiting.n; i++) {
        const struct at *a = &r->waiting.a[i];
        while (k < r->listed.n && before(&r->listed.a[k], a)) k++;
        bool in_list = k < r->listed.n && same(&r->listed.a[k], a);
        if (!in_list && suspect(r, LEDGER_MISSING, a, 1, 1, false)) return -1;
        if (!a->replay && a->offset < r->l->parts[a->part].committed &&
            suspect(r, LEDGER_COMMITTED, a, 1, 1, false))
            return -1;
    }
    return 0;
}

static int read_dead(struct reading *r) {
    redisReply *v =
        take(r, "XLEN", lw_redis_ask(r->redis, "XLEN %sdead", r->prefix), REDIS_REPLY_INTEGER);
    if (!v) return -1;
    r->l->dead_letters += v->integer;
    freeReplyObject(v);
    return 0;
}

static int read_all(struct reading *r) {
    if (read_floors(r) || read_names(r) || read_dead(r)) return -1;
    for (size_t i = 0; i < r->states.n; i++)
        if (read_segment(r, r->states.a[i].p, r->states.a[i].n)) return -1;
    for (size_t i = 0; i < r->lists.n; i++)
        if (read_list(r, (uint32_t)i)) return -1;
    sort_ats(&r->waiting), sort_ats(&r->listed);
    return judge_listed(r) || judge_waiting(r) ? -1 : 0;
}

static void keep_floors(const struct reading *r) {
    for (size_t i = 0; i < r->n_floors; i++) {
        struct ledger_part *p = &r->l->parts[r->floors[i].part];
        if (r->floors[i].floor > p->floor) p->floor = r->floors[i].floor, p->floor_shard = r->shard;
    }
}

int ledger_redis_read(struct ledger *l, int shard, struct lw_err *err) {
    struct reading r = {.l = l, .shard = shard, .err = err};
    r.n_prefix = lw_shard_prefix(l->c, shard, r.prefix);
    r.redis = lw_config_connect(l->c, shard, "latchwork:ledger", LW_LEDGER_TIMEOUT_MS,
                                LW_LEDGER_TIMEOUT_MS, err);
    int bad = !r.redis || read_all(&r) ? -1 : 0;
    if (!bad) keep_floors(&r);
    lw_redis_close(r.redis);
    free_names(&r.states), free_names(&r.lists);
    free(r.floors), free(r.waiting.a), free(r.listed.a);
    return bad;
}
