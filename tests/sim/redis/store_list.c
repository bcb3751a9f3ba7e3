/* SPDX-License-Identifier: Apache-2.0 */
/* The list commands of the fake Redis. */
#include "tests/sim/redis/store_internal.h"

#include <limits.h>
#include <string.h>

store_fn store_cmd_lpush, store_cmd_rpush, store_cmd_lpushx, store_cmd_rpushx, store_cmd_lpop,
    store_cmd_rpop, store_cmd_llen, store_cmd_lindex, store_cmd_lrange, store_cmd_lrem,
    store_cmd_lset, store_cmd_ltrim, store_cmd_rpoplpush, store_cmd_lmove, store_cmd_brpoplpush;

static redisReply *push(struct store *s, int argc, const struct slice *argv, bool left,
                        bool must_exist) {
    struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != STORE_LIST) return reply_wrong_type();
    if (!e && must_exist) return reply_int(0);
    if (!e) e = entry_add(s, argv[1], STORE_LIST);
    for (int i = 2; i < argc; i++) list_push(&e->list, left, blob_new(argv[i].p, argv[i].n));
    return reply_int((long long)e->list.count);
}

redisReply *store_cmd_lpush(struct store *s, int argc, const struct slice *argv) {
    return push(s, argc, argv, true, false);
}
redisReply *store_cmd_rpush(struct store *s, int argc, const struct slice *argv) {
    return push(s, argc, argv, false, false);
}
redisReply *store_cmd_lpushx(struct store *s, int argc, const struct slice *argv) {
    return push(s, argc, argv, true, true);
}
redisReply *store_cmd_rpushx(struct store *s, int argc, const struct slice *argv) {
    return push(s, argc, argv, false, true);
}

static redisReply *pop_reply(struct list *l, bool left) {
    struct blob *b = list_pop(l, left);
    redisReply *r = reply_blob(b);
    blob_unref(b);
    return r;
}

static redisReply *pop(struct store *s, int argc, const struct slice *argv, bool left,
                       const char *name) {
    long long count = 1;
    if (argc > 3) return reply_arity(name);
    if (argc == 3 && (!parse_int(argv[2], &count) || count < 0))
        return reply_error("ERR value is out of range, must be positive");
    struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_nil();
    if (e->type != STORE_LIST) return reply_wrong_type();
    redisReply *r;
    if (argc == 2) {
        r = pop_reply(&e->list, left);
    } else {
        r = reply_array((size_t)count < e->list.count ? (size_t)count : e->list.count);
        for (size_t i = 0; i < r->elements; i++) r->element[i] = pop_reply(&e->list, left);
    }
    entry_drop_empty(s, e);
    return r;
}

redisReply *store_cmd_lpop(struct store *s, int argc, const struct slice *argv) {
    return pop(s, argc, argv, true, "lpop");
}
redisReply *store_cmd_rpop(struct store *s, int argc, const struct slice *argv) {
    return pop(s, argc, argv, false, "rpop");
}

redisReply *store_cmd_llen(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(0);
    return e->type == STORE_LIST ? reply_int((long long)e->list.count) : reply_wrong_type();
}

/* Converts an index of a Redis command into a position in the list. A negative index counts from
 * the right end. Returns false if the position is outside the list. */
static bool place(const struct list *l, long long index, size_t *at) {
    if (index < 0) index += (long long)l->count;
    *at = (size_t)index;
    return index >= 0 && *at < l->count;
}

redisReply *store_cmd_lindex(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long index;
    size_t at;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_nil();
    if (e->type != STORE_LIST) return reply_wrong_type();
    if (!parse_int(argv[2], &index)) return reply_not_integer();
    return place(&e->list, index, &at) ? reply_blob(*list_at(&e->list, at)) : reply_nil();
}

redisReply *store_cmd_lset(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long index;
    size_t at;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_error("ERR no such key");
    if (e->type != STORE_LIST) return reply_wrong_type();
    if (!parse_int(argv[2], &index)) return reply_not_integer();
    if (!place(&e->list, index, &at)) return reply_error("ERR index out of range");
    blob_unref(*list_at(&e->list, at));
    *list_at(&e->list, at) = blob_new(argv[3].p, argv[3].n);
    return reply_status("OK");
}

/* Converts the bounds of a Redis command, which are inclusive and may be negative, into the
 * half-open range [*start, *end). */
static void bounds(const struct list *l, long long from, long long to, size_t *start, size_t *end) {
    long long count = (long long)l->count;
    if (from < 0) from = from + count < 0 ? 0 : from + count;
    if (to < 0) to += count;
    if (to >= count) to = count - 1;
    if (from > to) from = 0, to = -1;
    *start = (size_t)from;
    *end = (size_t)(to + 1);
}

redisReply *store_cmd_lrange(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long from, to;
    size_t start, end;
    if (!parse_int(argv[2], &from) || !parse_int(argv[3], &to)) return reply_not_integer();
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_array(0);
    if (e->type != STORE_LIST) return reply_wrong_type();
    bounds(&e->list, from, to, &start, &end);
    redisReply *r = reply_array(end - start);
    for (size_t i = start; i < end; i++) r->element[i - start] = reply_blob(*list_at(&e->list, i));
    return r;
}

redisReply *store_cmd_ltrim(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long from, to;
    size_t start, end;
    if (!parse_int(argv[2], &from) || !parse_int(argv[3], &to)) return reply_not_integer();
    struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_status("OK");
    if (e->type != STORE_LIST) return reply_wrong_type();
    bounds(&e->list, from, to, &start, &end);
    for (size_t n = e->list.count; n > end; n--) blob_unref(list_pop(&e->list, false));
    for (size_t n = 0; n < start && e->list.count > 0; n++) blob_unref(list_pop(&e->list, true));
    entry_drop_empty(s, e);
    return reply_status("OK");
}

static bool holds(const struct list *l, size_t at, struct slice value) {
    const struct blob *b = *list_at(l, at);
    return b->len == value.n && memcmp(b->data, value.p, value.n) == 0;
}

redisReply *store_cmd_lrem(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long want, n = 0;
    if (!parse_int(argv[2], &want)) return reply_not_integer();
    struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(0);
    if (e->type != STORE_LIST) return reply_wrong_type();
    if (want >= 0) {
        for (size_t at = 0; at < e->list.count && (want == 0 || n < want);) {
            if (holds(&e->list, at, argv[3]))
                list_remove(&e->list, at), n++;
            else
                at++;
        }
    } else {
        for (size_t at = e->list.count; at > 0 && n > want; at--) {
            if (holds(&e->list, at - 1, argv[3])) list_remove(&e->list, at - 1), n--;
        }
        n = -n;
    }
    entry_drop_empty(s, e);
    return reply_int(n);
}

static redisReply *move(struct store *s, struct slice from, struct slice to, bool from_left,
                        bool to_left) {
    struct entry *src = entry_find(s, from);
    if (!src) return reply_nil();
    if (src->type != STORE_LIST) return reply_wrong_type();
    struct entry *dst = entry_find(s, to);
    if (dst && dst->type != STORE_LIST) return reply_wrong_type();
    if (!dst) dst = entry_add(s, to, STORE_LIST);
    struct blob *b = list_pop(&src->list, from_left);
    redisReply *r = reply_blob(b);
    list_push(&dst->list, to_left, b);
    entry_drop_empty(s, src);
    return r;
}

redisReply *store_cmd_rpoplpush(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return move(s, argv[1], argv[2], false, true);
}

static bool parse_side(struct slice a, bool *left) {
    *left = slice_is(a, "left");
    return *left || slice_is(a, "right");
}

redisReply *store_cmd_lmove(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    bool from_left, to_left;
    if (!parse_side(argv[3], &from_left) || !parse_side(argv[4], &to_left)) return reply_syntax();
    return move(s, argv[1], argv[2], from_left, to_left);
}

redisReply *store_cmd_brpoplpush(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    double wait_s;
    if (!parse_double(argv[3], &wait_s))
        return reply_error("ERR timeout is not a float or out of range");
    if (wait_s < 0) return reply_error("ERR timeout is negative");
    return move(s, argv[1], argv[2], false, true);
}
