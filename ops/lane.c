/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lanes and their waiting messages while workers continue. Lanes and messages are read in
 * pages: a page is the part of a set or of a waiting list that one command or script returns. */
#include "base/clock.h"
#include "ops/ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* number of lane names that one step of the cursor asks for; Redis may return more or fewer */
enum { CURSOR = 64 };

bool ops_lane_held(const struct ops_lane *l, struct lw_bytes *worker, uint64_t *fence) {
    *worker = (struct lw_bytes){0};
    *fence = 0;
    /* The value of a backoff's lock is "backoff:MS" with the length of the backoff, or only
     * "backoff" if an older version wrote it. */
    bool timed = l->lock.n > 8 && !memcmp(l->lock.p, "backoff:", 8);
    if (!l->lock.n || timed || lw_bytes_eq(l->lock, lw_bytes_of("backoff"))) return false;
    const char *dot = memrchr(l->lock.p, '.', l->lock.n),
               *colon = memrchr(l->lock.p, ':', l->lock.n);
    *worker = dot ? lw_bytes(l->lock.p, (size_t)(dot - l->lock.p)) : l->lock;
    if (colon) *fence = strtoull(colon + 1, NULL, 10);
    return true;
}

/* Parses 'IDENTITY ATTEMPT SINCE_MS'. Returns false if the text has another form. */
static bool read_run(struct lw_bytes text, struct ops_run *out) {
    char copy[sizeof out->identity + 64];
    long long since;
    if (!text.n || text.n >= sizeof copy) return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    if (sscanf(copy, "%319s %d %lld", out->identity, &out->attempt, &since) != 3) return false;
    out->since_ms = since;
    return true;
}

/* --- look ------------------------------------------------------------------------------------- */

static int64_t number(const redisReply *r) {
    return r->type == REDIS_REPLY_STRING ? strtoll(r->str, NULL, 10) : r->integer;
}

/* Parses the first line of an envelope: "1 TOPIC PARTITION OFFSET REPLAY FIRST_MS …". */
static void read_line(struct ops_lane *l, const char *line) {
    long long partition, offset, replay, first;
    if (sscanf(line, "1 %255s %lld %lld %lld %lld", l->topic, &partition, &offset, &replay,
               &first) != 5)
        return;
    l->has_head = true;
    l->partition = partition;
    l->first_ms = first;
    struct lw_envelope e = {.topic = lw_bytes_of(l->topic),
                            .partition = (int32_t)partition,
                            .offset = offset,
                            .replay = replay};
    ops_identity(&e, l->head, sizeof l->head);
}

/* Reads several lanes and calls fn for each lane in the reply, which may have fewer lanes than
 * requested. Returns the number of lanes in the reply. If reading fails, sets *stop to -1 and
 * returns 0. If fn returns a number other than 0, sets *stop to this number and returns 0. */
static size_t look_at_some(struct ops *o, struct ops_shard *sh, const struct lw_bytes *lanes,
                           size_t n, ops_lane_fn *fn, void *ctx, int *stop) {
    if ((*stop = ops_tick(o))) return 0;
    ops_script(o, &lw_op_look, 3);
    ops_keys(o, sh, "epoch", "lanes", "floor");
    for (size_t i = 0; i < n; i++) lw_arg(&o->cmd, lanes[i]);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    size_t told = r ? (r->elements - 1) / 8 : 0;
    if (!r)
        *stop = -1;
    else if (!told || told > n || r->elements % 8 != 1)
        *stop = ops_malformed(o, sh, r, "a time, and 8 values for each of at most %zu lanes", n);
    for (size_t i = 0; !*stop && i < told; i++) {
        redisReply **e = r->element + 1 + 8 * i;
        struct ops_lane l = {.name = lanes[i], .shard = sh->index, .now_ms = number(r->element[0])};
        l.n = number(e[0]);
        read_line(&l, e[1]->str);
        l.lock = lw_bytes(e[2]->str, e[2]->len);
        l.left_ms = number(e[3]);
        l.paused = e[4]->len > 0;
        l.attempts = number(e[5]);
        l.due_ms = number(e[6]);
        l.runs = read_run(lw_bytes(e[7]->str, e[7]->len), &l.run);
        *stop = fn(o, &l, ctx);
    }
    if (r) freeReplyObject(r);
    return *stop ? 0 : told;
}

int ops_look(struct ops *o, struct ops_shard *sh, const struct lw_bytes *lanes, size_t n,
             ops_lane_fn *fn, void *ctx) {
    int stop = 0;
    for (size_t told; n && (told = look_at_some(o, sh, lanes, n, fn, ctx, &stop)) > 0; n -= told)
        lanes += told;
    return stop;
}

/* --- all lanes -------------------------------------------------------------------------------- */

static int take_names(struct ops *o, struct ops_shard *sh, const redisReply *page, size_t step,
                      ops_lane_fn *fn, void *ctx) {
    /* At most OPS_PAGE lanes are read with one call. For that many lanes, look.lua keeps Redis busy
     * for about half a millisecond, because it executes eight commands per lane. */
    struct lw_bytes names[OPS_PAGE];
    size_t n = 0;
    o->names += (int64_t)(page->elements / step);
    for (size_t i = 0; i < page->elements; i += step) {
        struct lw_bytes name = lw_bytes(page->element[i]->str, page->element[i]->len);
        if (ops_lane_matches(o, name)) names[n++] = name;
        if (n < OPS_PAGE && i + step < page->elements) continue;
        int stop = ops_look(o, sh, names, n, fn, ctx);
        if (stop) return stop;
        n = 0;
    }
    return 0;
}

struct idle {
    ops_lane_fn *fn;
    void *ctx;
};
/* Calls the caller's fn for a paused lane only if no message waits in the lane. A paused lane with
 * waiting messages is left out, because the cursor over the set `lanes` finds it. */
static int only_idle(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct idle *i = ctx;
    return l->has_head ? 0 : i->fn(o, l, i->ctx);
}

/* Sends ZSCAN for the set `lanes`, whose reply has names and scores, or SSCAN for the set `paused`,
 * whose reply has names only. */
int ops_lane_page(struct ops *o, struct ops_shard *sh, bool idle, char cursor[OPS_CURSOR],
                  int64_t count, ops_lane_fn *fn, void *ctx) {
    struct idle only = {fn, ctx};
    if (ops_tick(o)) return -1;
    ops_begin(o, idle ? "SSCAN" : "ZSCAN");
    ops_keys(o, sh, idle ? "paused" : "lanes");
    ops_words(o, cursor, "COUNT"), lw_arg_i64(&o->cmd, count);
    sh->in_scan = strcmp(cursor, "0") != 0;
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (!r) return -1;
    int stop = 0;
    bool sound = r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[1]->type == REDIS_REPLY_ARRAY && r->element[0]->len < OPS_CURSOR;
    if (!sound) stop = ops_malformed(o, sh, r, "[cursor, array]");
    if (sound) memcpy(cursor, r->element[0]->str, r->element[0]->len + 1);
    sh->in_scan = strcmp(cursor, "0") != 0;
    if (sound)
        stop = take_names(o, sh, r->element[1], idle ? 1 : 2, idle ? only_idle : fn,
                          idle ? &only : ctx);
    freeReplyObject(r);
    return stop;
}

static int walk(struct ops *o, struct ops_shard *sh, bool idle, ops_lane_fn *fn, void *ctx) {
    char cursor[OPS_CURSOR] = "0";
    int stop;
    do stop = ops_lane_page(o, sh, idle, cursor, CURSOR, fn, ctx);
    while (!stop && strcmp(cursor, "0") != 0);
    return stop;
}

int ops_each_lane(struct ops *o, ops_lane_fn *fn, void *ctx) {
    int stop = 0;
    for (size_t i = 0; !stop && i < o->args.n_keys; i++) {
        char room[LW_LANE_ROOM];
        struct lw_bytes name = lw_lane_named(lw_bytes_of(o->args.keys[i]), room, sizeof room);
        stop = ops_look(o, ops_shard_of(o, name), &name, 1, fn, ctx);
    }
    for (int s = 0; !stop && !o->args.n_keys && s < o->c->redis.shards; s++) {
        stop = walk(o, &o->shards[s], false, fn, ctx);
        if (!stop) stop = walk(o, &o->shards[s], true, fn, ctx);
    }
    return stop;
}

/* --- what waits ------------------------------------------------------------------------------- */

struct pages {
    int64_t at;         /* number of elements before the next page, counted from the oldest */
    int64_t size;       /* number of elements of the next page */
    struct lw_buf last; /* the envelope that was last passed to fn */
    bool any;
};

/* Returns the index, in this page of the waiting list, of the element right after the last message
 * that was passed to fn. Returns 0 if no message was passed yet, or -1 if that message is not in
 * this page. */
static long behind_last(const struct pages *p, const redisReply *r) {
    if (!p->any) return 0;
    for (size_t i = (r->elements - 1) / 4; i-- > 0;) {
        const redisReply *e = r->element[1 + 4 * i + 3];
        if (e->len == p->last.n && memcmp(e->str, p->last.p, e->len) == 0) return (long)i + 1;
    }
    return -1;
}

static int tell(struct ops *o, int shard, struct lw_bytes lane, redisReply **e, ops_message_fn *fn,
                void *ctx) {
    struct ops_message m = {.lane = lane,
                            .shard = shard,
                            .state = e[0]->str[0],
                            .attempts = number(e[1]),
                            .due_ms = number(e[2])};
    ops_message_read(&m, lw_bytes(e[3]->str, e[3]->len));
    int stop = fn(o, &m, ctx);
    ops_message_clear(&m);
    return stop;
}

static redisReply *page(struct ops *o, struct ops_shard *sh, struct lw_bytes lane, int64_t skip,
                        int64_t most) {
    if (ops_tick(o)) return NULL;
    ops_script(o, &lw_op_page, 4);
    ops_keys(o, sh, "epoch", "lanes", "floor"), ops_key(o, sh, "wait:", lane);
    lw_arg_i64(&o->cmd, skip), lw_arg_i64(&o->cmd, most);
    redisReply *r = ops_ask_for(o, sh, REDIS_REPLY_ARRAY);
    if (r && r->elements % 4 == 1 && r->element[0]->type == REDIS_REPLY_INTEGER) return r;
    if (!r) return NULL;
    ops_malformed(o, sh, r, "an integer, and 4 values per message");
    freeReplyObject(r);
    return NULL;
}

static size_t reply_bytes(const redisReply *r) {
    size_t n = 0;
    for (size_t i = 4; i < r->elements; i += 4) n += r->element[i]->len;
    return n;
}

/* Workers remove the oldest messages while the list is read, so all other messages move toward the
 * oldest end. Each call of the script `page` therefore begins at the last message that was passed
 * to fn. If that message is not in the answer, the next calls look for it closer to the oldest end.
 * If the message is not in the list any more, all older messages have been removed, too, and the
 * reading continues at the oldest end. */
int ops_each_waiting(struct ops *o, int shard, struct lw_bytes lane, ops_message_fn *fn,
                     void *ctx) {
    struct pages p = {.size = OPS_PAGE_FIRST};
    int stop = 0;
    for (bool more = true; more && !stop;) {
        int64_t asked = p.size;
        redisReply *r = page(o, &o->shards[shard], lane, p.at, asked);
        if (!r) {
            stop = -1;
            break;
        }
        size_t n = (r->elements - 1) / 4;
        long from = behind_last(&p, r);
        if (from < 0 && p.at > 0) {
            p.at = p.at > asked - 1 ? p.at - (asked - 1) : 0;
            freeReplyObject(r);
            continue;
        }
        for (size_t i = from < 0 ? 0 : (size_t)from; i < n && !stop; i++) {
            redisReply **e = r->element + 1 + 4 * i;
            p.last.n = 0;
            lw_buf_add(&p.last, e[3]->str, e[3]->len);
            p.any = true;
            stop = tell(o, shard, lane, e, fn, ctx);
        }
        more = p.at + (int64_t)n < r->element[0]->integer;
        p.at += (int64_t)n - 1;
        p.size = ops_page_size(asked, reply_bytes(r));
        freeReplyObject(r);
    }
    lw_buf_free(&p.last);
    return stop;
}

/* --- all that waits --------------------------------------------------------------------------- */

struct all {
    ops_message_fn *fn;
    void *ctx;
    struct all_lane {
        struct lw_bytes name;
        int64_t n;
    } * lanes; /* the names are copied, because the connection is needed for other requests */
    size_t n, cap;
};

static int keep_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct all *a = ctx;
    if (l->n <= 0) return 0;
    a->lanes = lw_more(a->lanes, a->n, &a->cap, sizeof *a->lanes);
    a->lanes[a->n++] =
        (struct all_lane){lw_bytes(lw_memdup(l->name.p, l->name.n), l->name.n), l->n};
    o->to_scan += l->n;
    return 0;
}

static int filtered(struct ops *o, struct ops_message *m, void *ctx) {
    struct all *a = ctx;
    o->scanned++;
    return m->state == 'w' && ops_message_matches(o, m) ? a->fn(o, m, a->ctx) : 0;
}

static int by_name(const void *a, const void *b) {
    const struct lw_bytes *x = &((const struct all_lane *)a)->name,
                          *y = &((const struct all_lane *)b)->name;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

int ops_each_message(struct ops *o, ops_message_fn *fn, void *ctx) {
    struct all a = {.fn = fn, .ctx = ctx};
    int stop = ops_each_lane(o, keep_lane, &a);
    if (a.n) qsort(a.lanes, a.n, sizeof *a.lanes, by_name);
    for (size_t i = 0; i < a.n; i++) {
        struct lw_bytes name = a.lanes[i].name;
        /* a name may be in the list twice, because a cursor may return a name more than once */
        bool twice = i && lw_bytes_eq(name, a.lanes[i - 1].name);
        int64_t before = o->scanned;
        if (!stop && !twice)
            stop = ops_each_waiting(o, ops_shard_of(o, name)->index, name, filtered, &a);
        /* The progress is computed with the number of messages that keep_lane() has found in each
         * lane, even if messages were added or removed since then. */
        if (!stop) o->scanned = before + a.lanes[i].n;
    }
    for (size_t i = 0; i < a.n; i++) free((void *)(uintptr_t)a.lanes[i].name.p);
    free(a.lanes);
    return stop;
}
