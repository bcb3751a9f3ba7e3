/* SPDX-License-Identifier: Apache-2.0 */
/* The string commands of the fake Redis, except those for bits, which are in store_bits.c. */
#include "tests/sim/redis/store_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

store_fn store_cmd_get, store_cmd_set, store_cmd_setnx, store_cmd_setex, store_cmd_psetex,
    store_cmd_mget, store_cmd_getrange, store_cmd_setrange, store_cmd_append, store_cmd_strlen,
    store_cmd_incr, store_cmd_decr, store_cmd_incrby;

enum { STRING_MAX = 512 * 1024 * 1024 };

static void put(struct store *s, struct slice key, struct slice value, bool keep_ttl) {
    struct blob *b = blob_new(value.p, value.n);
    struct entry *e = entry_find(s, key);
    if (!e)
        e = entry_add(s, key, STORE_STRING);
    else
        entry_clear(e);
    e->type = STORE_STRING;
    e->str = b;
    if (!keep_ttl) e->expire_ms = -1;
}

redisReply *store_cmd_get(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_nil();
    return e->type == STORE_STRING ? reply_blob(e->str) : reply_wrong_type();
}

/* --- SET -------------------------------------------------------------------------------------- */

struct set_options {
    bool nx, xx, get, keep_ttl, seconds, absolute;
    const struct slice *expire;
};

static bool take_expire(struct set_options *o, int argc, const struct slice *argv, int *i,
                        bool seconds, bool absolute) {
    if (o->keep_ttl || o->expire || *i + 1 == argc) return false;
    o->seconds = seconds;
    o->absolute = absolute;
    o->expire = &argv[++*i];
    return true;
}

static bool take_option(struct set_options *o, int argc, const struct slice *argv, int *i) {
    struct slice a = argv[*i];
    if (slice_is(a, "nx")) return o->nx = true, !o->xx;
    if (slice_is(a, "xx")) return o->xx = true, !o->nx;
    if (slice_is(a, "get")) return o->get = true;
    if (slice_is(a, "keepttl")) return o->keep_ttl = true, !o->expire;
    if (slice_is(a, "ex")) return take_expire(o, argc, argv, i, true, false);
    if (slice_is(a, "px")) return take_expire(o, argc, argv, i, false, false);
    if (slice_is(a, "exat")) return take_expire(o, argc, argv, i, true, true);
    if (slice_is(a, "pxat")) return take_expire(o, argc, argv, i, false, true);
    return false;
}

static redisReply *expiry(const struct store *s, struct slice text, bool seconds, bool absolute,
                          const char *name, long long *when) {
    long long base = absolute ? 0 : store_now_ms(s);
    if (!parse_int(text, when)) return reply_not_integer();
    if (*when <= 0 || (seconds && *when > LLONG_MAX / 1000))
        return reply_error("ERR invalid expire time in '%s' command", name);
    if (seconds) *when *= 1000;
    if (*when > LLONG_MAX - base)
        return reply_error("ERR invalid expire time in '%s' command", name);
    *when += base;
    return NULL;
}

redisReply *store_cmd_set(struct store *s, int argc, const struct slice *argv) {
    struct set_options o = {0};
    long long when = -1;
    for (int i = 3; i < argc; i++) {
        if (!take_option(&o, argc, argv, &i)) return reply_syntax();
    }
    redisReply *old = o.expire ? expiry(s, *o.expire, o.seconds, o.absolute, "set", &when) : NULL;
    if (old) return old;
    if (o.get) {
        old = store_cmd_get(s, 2, argv);
        if (old->type == REDIS_REPLY_ERROR) return old;
    }
    bool there = entry_find(s, argv[1]) != NULL;
    if ((o.nx && there) || (o.xx && !there)) return old ? old : reply_nil();
    put(s, argv[1], argv[2], o.keep_ttl);
    if (o.expire) entry_find(s, argv[1])->expire_ms = when;
    return old ? old : reply_status("OK");
}

redisReply *store_cmd_setnx(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    if (entry_find(s, argv[1])) return reply_int(0);
    put(s, argv[1], argv[2], false);
    return reply_int(1);
}

static redisReply *set_expiring(struct store *s, const struct slice *argv, bool seconds,
                                const char *name) {
    long long when;
    redisReply *bad = expiry(s, argv[2], seconds, false, name, &when);
    if (bad) return bad;
    put(s, argv[1], argv[3], false);
    entry_find(s, argv[1])->expire_ms = when;
    return reply_status("OK");
}

redisReply *store_cmd_setex(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return set_expiring(s, argv, true, "setex");
}

redisReply *store_cmd_psetex(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return set_expiring(s, argv, false, "psetex");
}

/* --- several keys, and parts of strings ------------------------------------------------------- */

redisReply *store_cmd_mget(struct store *s, int argc, const struct slice *argv) {
    redisReply *r = reply_array((size_t)argc - 1);
    for (int i = 1; i < argc; i++) {
        const struct entry *e = entry_find(s, argv[i]);
        r->element[i - 1] = reply_blob(e && e->type == STORE_STRING ? e->str : NULL);
    }
    return r;
}

redisReply *store_cmd_getrange(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long start, end;
    if (!parse_int(argv[2], &start) || !parse_int(argv[3], &end)) return reply_not_integer();
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_bytes("", 0);
    if (e->type != STORE_STRING) return reply_wrong_type();
    long long len = e->str->len;
    if (start < 0 && end < 0 && start > end) return reply_bytes("", 0);
    if (start < 0) start = start + len < 0 ? 0 : start + len;
    if (end < 0) end = end + len < 0 ? 0 : end + len;
    if (end >= len) end = len - 1;
    if (start > end || len == 0) return reply_bytes("", 0);
    return reply_bytes(e->str->data + start, (size_t)(end - start + 1));
}

redisReply *store_cmd_setrange(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long offset;
    if (!parse_int(argv[2], &offset)) return reply_not_integer();
    if (offset < 0) return reply_error("ERR offset is out of range");
    struct slice value = argv[3];
    struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != STORE_STRING) return reply_wrong_type();
    if (value.n == 0) return reply_int(e ? e->str->len : 0);
    if (offset > STRING_MAX || value.n > (size_t)(STRING_MAX - offset))
        return reply_error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    if (!e) {
        e = entry_add(s, argv[1], STORE_STRING);
        e->str = blob_new("", 0);
    }
    e->str = blob_writable(e->str, (size_t)offset + value.n);
    memcpy(e->str->data + offset, value.p, value.n);
    return reply_int(e->str->len);
}

redisReply *store_cmd_append(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != STORE_STRING) return reply_wrong_type();
    if (!e) {
        put(s, argv[1], argv[2], false);
        return reply_int((long long)argv[2].n);
    }
    size_t old = e->str->len;
    e->str = blob_writable(e->str, old + argv[2].n);
    if (argv[2].n > 0) memcpy(e->str->data + old, argv[2].p, argv[2].n);
    return reply_int(e->str->len);
}

redisReply *store_cmd_strlen(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(0);
    return e->type == STORE_STRING ? reply_int(e->str->len) : reply_wrong_type();
}

/* --- counters --------------------------------------------------------------------------------- */

static redisReply *add(struct store *s, struct slice key, long long by) {
    long long v = 0;
    char text[32];
    const struct entry *e = entry_find(s, key);
    if (e && e->type != STORE_STRING) return reply_wrong_type();
    if (e && !parse_int(blob_slice(e->str), &v)) return reply_not_integer();
    if (__builtin_add_overflow(v, by, &v))
        return reply_error("ERR increment or decrement would overflow");
    int n = snprintf(text, sizeof text, "%lld", v);
    put(s, key, (struct slice){text, (size_t)n}, true);
    return reply_int(v);
}

redisReply *store_cmd_incr(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return add(s, argv[1], 1);
}

redisReply *store_cmd_decr(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return add(s, argv[1], -1);
}

redisReply *store_cmd_incrby(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long by;
    return parse_int(argv[2], &by) ? add(s, argv[1], by) : reply_not_integer();
}
