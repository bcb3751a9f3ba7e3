/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the fake Redis for sorted sets. */
#include "tests/sim/redis/store_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

store_fn store_cmd_zadd, store_cmd_zincrby, store_cmd_zrem, store_cmd_zscore, store_cmd_zmscore,
    store_cmd_zcard, store_cmd_zcount, store_cmd_zrank, store_cmd_zrange, store_cmd_zrangebyscore,
    store_cmd_zremrangebyscore;

static redisReply *no_float(void) { return reply_error("ERR value is not a valid float"); }

/* Finds a sorted set. Sets *z to NULL if the key is missing. Returns false if the key has another
 * type. */
static bool find_zset(struct store *s, struct slice key, struct zset **z) {
    struct entry *e = entry_find(s, key);
    *z = e && e->type == STORE_ZSET ? &e->zset : NULL;
    return !e || e->type == STORE_ZSET;
}

/* --- ZADD, ZINCRBY ---------------------------------------------------------------------------- */

struct zadd {
    bool nx, xx, gt, lt, ch, incr;
};

static int zadd_options(struct zadd *o, int argc, const struct slice *argv) {
    int i = 2;
    for (; i < argc; i++) {
        if (slice_is(argv[i], "nx"))
            o->nx = true;
        else if (slice_is(argv[i], "xx"))
            o->xx = true;
        else if (slice_is(argv[i], "gt"))
            o->gt = true;
        else if (slice_is(argv[i], "lt"))
            o->lt = true;
        else if (slice_is(argv[i], "ch"))
            o->ch = true;
        else if (slice_is(argv[i], "incr"))
            o->incr = true;
        else
            break;
    }
    return i;
}

static redisReply *zadd_check(const struct zadd *o, int words) {
    if (words == 0 || words % 2 != 0) return reply_syntax();
    if (o->nx && o->xx)
        return reply_error("ERR XX and NX options at the same time are not compatible");
    if ((o->gt && o->nx) || (o->lt && o->nx) || (o->gt && o->lt))
        return reply_error("ERR GT, LT, and/or NX options at the same time are not compatible");
    if (o->incr && words > 2)
        return reply_error("ERR INCR option supports a single increment-element pair");
    return NULL;
}

enum zadded { Z_NOTHING, Z_ADDED, Z_UPDATED, Z_SAME, Z_NAN };

/* Sets the score of a member for ZADD. On entry, *score is the score to set, or with the option
 * INCR the number to add. On return, *score is the member's new score, unless an option (NX, XX,
 * GT, LT) or an invalid sum prevented the change. */
static enum zadded zadd_one(struct zset *z, const struct zadd *o, struct slice name,
                            double *score) {
    const struct member *m = member_find(z->dict, name);
    if (!m) {
        if (o->xx) return Z_NOTHING;
        zset_set(z, name, *score);
        return Z_ADDED;
    }
    if (o->nx) return Z_NOTHING;
    double want = o->incr ? m->score + *score : *score;
    if (isnan(want)) return Z_NAN;
    if ((o->lt && want >= m->score) || (o->gt && want <= m->score)) return Z_NOTHING;
    *score = want;
    if (want <= m->score && want >= m->score) return Z_SAME;
    zset_set(z, name, want);
    return Z_UPDATED;
}

static redisReply *zadd_run(struct store *s, const struct zadd *o, struct slice key, int pairs,
                            double *scores, const struct slice *argv) {
    struct entry *e = entry_find(s, key);
    if (e && e->type != STORE_ZSET) return reply_wrong_type();
    if (!e && o->xx) return o->incr ? reply_nil() : reply_int(0);
    if (!e) e = entry_add(s, key, STORE_ZSET);
    long long added = 0, updated = 0;
    enum zadded did = Z_NOTHING;
    for (int i = 0; i < pairs; i++) {
        did = zadd_one(&e->zset, o, argv[2 * i + 1], &scores[i]);
        if (did == Z_NAN) return reply_error("ERR resulting score is not a number (NaN)");
        added += did == Z_ADDED;
        updated += did == Z_UPDATED;
    }
    if (o->incr) return did == Z_NOTHING ? reply_nil() : reply_double(scores[0]);
    return reply_int(o->ch ? added + updated : added);
}

static redisReply *zadd(struct store *s, struct zadd *o, struct slice key, int argc,
                        const struct slice *argv) {
    redisReply *r = zadd_check(o, argc);
    if (r) return r;
    int pairs = argc / 2;
    double *scores = store_alloc((size_t)pairs * sizeof *scores);
    for (int i = 0; i < pairs && !r; i++) {
        if (!parse_double(argv[2 * i], &scores[i])) r = no_float();
    }
    if (!r) r = zadd_run(s, o, key, pairs, scores, argv);
    free(scores);
    return r;
}

redisReply *store_cmd_zadd(struct store *s, int argc, const struct slice *argv) {
    struct zadd o = {0};
    int first = zadd_options(&o, argc, argv);
    return zadd(s, &o, argv[1], argc - first, argv + first);
}

redisReply *store_cmd_zincrby(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct zadd o = {.incr = true};
    return zadd(s, &o, argv[1], 2, argv + 2);
}

/* --- members ---------------------------------------------------------------------------------- */

redisReply *store_cmd_zrem(struct store *s, int argc, const struct slice *argv) {
    struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != STORE_ZSET) return reply_wrong_type();
    long long n = 0;
    for (int i = 2; e && i < argc; i++) {
        struct member *m = member_find(e->zset.dict, argv[i]);
        if (m) zset_remove(&e->zset, m), n++;
    }
    if (e) entry_drop_empty(s, e);
    return reply_int(n);
}

static redisReply *score_of(const struct zset *z, struct slice name) {
    const struct member *m = z ? member_find(z->dict, name) : NULL;
    return m ? reply_double(m->score) : reply_nil();
}

redisReply *store_cmd_zscore(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct zset *z;
    return find_zset(s, argv[1], &z) ? score_of(z, argv[2]) : reply_wrong_type();
}

redisReply *store_cmd_zmscore(struct store *s, int argc, const struct slice *argv) {
    struct zset *z;
    if (!find_zset(s, argv[1], &z)) return reply_wrong_type();
    redisReply *r = reply_array((size_t)argc - 2);
    for (int i = 2; i < argc; i++) r->element[i - 2] = score_of(z, argv[i]);
    return r;
}

redisReply *store_cmd_zcard(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct zset *z;
    if (!find_zset(s, argv[1], &z)) return reply_wrong_type();
    return reply_int(z ? (long long)z->count : 0);
}

redisReply *store_cmd_zrank(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct zset *z;
    if (!find_zset(s, argv[1], &z)) return reply_wrong_type();
    const struct member *m = z ? member_find(z->dict, argv[2]) : NULL;
    return m ? reply_int((long long)zset_rank(z, m)) : reply_nil();
}

/* --- ranges: each is [start, end) in z->sorted ------------------------------------------------ */

struct span {
    size_t start, end;
};

struct bound {
    double score;
    bool exclusive;
};

/* Parses one bound of a range of scores. A "(" in front excludes the bound itself. The score is
 * parsed with strtod, as Redis does, so leading spaces are accepted, and an empty text means 0. */
static bool parse_bound(struct slice a, struct bound *b) {
    char text[128], *end;
    b->exclusive = a.n > 0 && a.p[0] == '(';
    if (b->exclusive) a.p++, a.n--;
    if (a.n >= sizeof text) return false;
    memcpy(text, a.p, a.n);
    text[a.n] = '\0';
    b->score = strtod(text, &end);
    return *end == '\0' && !isnan(b->score);
}

static redisReply *parse_bounds(struct slice low_text, struct slice high_text, struct bound *low,
                                struct bound *high) {
    if (parse_bound(low_text, low) && parse_bound(high_text, high)) return NULL;
    return reply_error("ERR min or max is not a float");
}

/* Returns the position of the first member whose score is above `limit`, or, if or_equal is true,
 * at least `limit`. If there is no such member, returns the number of members. */
static size_t first_above(const struct zset *z, double limit, bool or_equal) {
    size_t low = 0, high = z->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        double score = z->sorted[mid]->score;
        if (score > limit || (or_equal && score >= limit))
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static struct span by_score(const struct zset *z, struct bound low, struct bound high) {
    if (!z) return (struct span){0, 0};
    struct span a = {first_above(z, low.score, !low.exclusive),
                     first_above(z, high.score, high.exclusive)};
    if (a.end < a.start) a.end = a.start;
    return a;
}

static struct span by_rank(const struct zset *z, long long from, long long to) {
    long long count = z ? (long long)z->count : 0;
    if (from < 0) from = from + count < 0 ? 0 : from + count;
    if (to < 0) to += count;
    if (to >= count) to = count - 1;
    if (from > to) return (struct span){0, 0};
    return (struct span){(size_t)from, (size_t)to + 1};
}

redisReply *store_cmd_zcount(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct bound low, high;
    struct zset *z;
    redisReply *bad = parse_bounds(argv[2], argv[3], &low, &high);
    if (bad) return bad;
    if (!find_zset(s, argv[1], &z)) return reply_wrong_type();
    struct span a = by_score(z, low, high);
    return reply_int((long long)(a.end - a.start));
}

redisReply *store_cmd_zremrangebyscore(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct bound low, high;
    redisReply *bad = parse_bounds(argv[2], argv[3], &low, &high);
    if (bad) return bad;
    struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(0);
    if (e->type != STORE_ZSET) return reply_wrong_type();
    struct span a = by_score(&e->zset, low, high);
    for (size_t i = a.end; i > a.start; i--) zset_remove(&e->zset, e->zset.sorted[i - 1]);
    entry_drop_empty(s, e);
    return reply_int((long long)(a.end - a.start));
}

struct zrange {
    bool by_score, reverse, with_scores, limited;
    long long offset, limit;
};

static redisReply *zrange_options(struct zrange *o, bool is_zrange, int argc,
                                  const struct slice *argv) {
    for (int i = 4; i < argc; i++) {
        if (slice_is(argv[i], "withscores"))
            o->with_scores = true;
        else if (slice_is(argv[i], "limit") && i + 2 < argc) {
            if (!parse_int(argv[i + 1], &o->offset) || !parse_int(argv[i + 2], &o->limit))
                return reply_not_integer();
            o->limited = true;
            i += 2;
        } else if (is_zrange && slice_is(argv[i], "byscore"))
            o->by_score = true;
        else if (is_zrange && slice_is(argv[i], "rev"))
            o->reverse = true;
        else
            return reply_syntax();
    }
    if (o->limited && o->limit != -1 && !o->by_score)
        return reply_error("ERR syntax error, LIMIT is only supported in combination with either "
                           "BYSCORE or BYLEX");
    return NULL;
}

static redisReply *zrange_reply(const struct zset *z, const struct zrange *o, struct span a) {
    size_t count = a.end - a.start, skip = 0;
    if (o->limited && o->by_score) {
        skip = o->offset < 0 || (unsigned long long)o->offset > count ? count : (size_t)o->offset;
        count -= skip;
        if (o->limit >= 0 && (unsigned long long)o->limit < count) count = (size_t)o->limit;
    }
    redisReply *r = reply_array(count * (o->with_scores ? 2 : 1));
    size_t n = 0;
    for (size_t i = skip; i < skip + count; i++) {
        const struct member *m = z->sorted[o->reverse ? a.end - 1 - i : a.start + i];
        r->element[n++] = reply_blob(m->name);
        if (o->with_scores) r->element[n++] = reply_double(m->score);
    }
    return r;
}

static redisReply *zrange(struct store *s, struct zrange *o, bool is_zrange, int argc,
                          const struct slice *argv) {
    struct bound low, high;
    long long from = 0, to = 0;
    struct zset *z;
    redisReply *bad = zrange_options(o, is_zrange, argc, argv);
    if (bad) return bad;
    if (o->by_score)
        bad = parse_bounds(argv[o->reverse ? 3 : 2], argv[o->reverse ? 2 : 3], &low, &high);
    else if (!parse_int(argv[2], &from) || !parse_int(argv[3], &to))
        bad = reply_not_integer();
    if (bad) return bad;
    if (!find_zset(s, argv[1], &z)) return reply_wrong_type();
    if (o->by_score) return zrange_reply(z, o, by_score(z, low, high));
    struct span a = by_rank(z, from, to);
    if (o->reverse && z && a.end > a.start) a = (struct span){z->count - a.end, z->count - a.start};
    return zrange_reply(z, o, a);
}

redisReply *store_cmd_zrange(struct store *s, int argc, const struct slice *argv) {
    struct zrange o = {.limit = -1};
    return zrange(s, &o, true, argc, argv);
}

redisReply *store_cmd_zrangebyscore(struct store *s, int argc, const struct slice *argv) {
    struct zrange o = {.by_score = true, .limit = -1};
    return zrange(s, &o, false, argc, argv);
}
