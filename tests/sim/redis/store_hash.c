/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the fake Redis for hashes and sets. Both types are stored as dictionaries. */
#include "tests/sim/redis/store_internal.h"

#include <stdio.h>

store_fn store_cmd_hset, store_cmd_hsetnx, store_cmd_hget, store_cmd_hmget, store_cmd_hgetall,
    store_cmd_hkeys, store_cmd_hvals, store_cmd_hdel, store_cmd_hincrby, store_cmd_hexists,
    store_cmd_hlen, store_cmd_sadd, store_cmd_srem, store_cmd_sismember, store_cmd_smismember,
    store_cmd_smembers, store_cmd_scard;

/* Finds the dictionary of a hash or set. Sets *dict to NULL if the key is missing. Returns false if
 * the key has another type. */
static bool find_dict(struct store *s, struct slice key, enum store_type type,
                      struct member **dict) {
    const struct entry *e = entry_find(s, key);
    *dict = e && e->type == type ? e->dict : NULL;
    return !e || e->type == type;
}

/* Returns the dictionary of a hash or set for writing, and creates the key if it is missing.
 * Returns NULL if the key has another type. */
static struct entry *need_dict(struct store *s, struct slice key, enum store_type type) {
    struct entry *e = entry_find(s, key);
    if (!e) return entry_add(s, key, type);
    return e->type == type ? e : NULL;
}

/* Sets a field of a dictionary. Returns true if the field is new. */
static bool put_field(struct entry *e, struct slice field, struct slice value) {
    struct member *m = member_find(e->dict, field);
    bool fresh = !m;
    if (fresh) m = member_add(&e->dict, field);
    struct blob *old = m->value;
    m->value = blob_new(value.p, value.n);
    blob_unref(old);
    return fresh;
}

static redisReply *remove_members(struct store *s, int argc, const struct slice *argv,
                                  enum store_type type) {
    struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != type) return reply_wrong_type();
    long long n = 0;
    for (int i = 2; e && i < argc; i++) {
        struct member *m = member_find(e->dict, argv[i]);
        if (m) member_delete(&e->dict, m), n++;
    }
    if (e) entry_drop_empty(s, e);
    return reply_int(n);
}

static redisReply *has_member(struct store *s, const struct slice *argv, enum store_type type) {
    struct member *dict;
    if (!find_dict(s, argv[1], type, &dict)) return reply_wrong_type();
    return reply_int(member_find(dict, argv[2]) != NULL);
}

static redisReply *count_members(struct store *s, const struct slice *argv, enum store_type type) {
    struct member *dict;
    return find_dict(s, argv[1], type, &dict) ? reply_int(HASH_COUNT(dict)) : reply_wrong_type();
}

static redisReply *all_members(struct store *s, const struct slice *argv, enum store_type type,
                               bool names, bool values) {
    struct member *dict;
    if (!find_dict(s, argv[1], type, &dict)) return reply_wrong_type();
    redisReply *r = reply_array((size_t)HASH_COUNT(dict) * (names && values ? 2 : 1));
    size_t n = 0;
    for (const struct member *m = dict; m; m = m->hh.next) {
        if (names) r->element[n++] = reply_blob(m->name);
        if (values) r->element[n++] = reply_blob(m->value);
    }
    return r;
}

/* --- hashes ----------------------------------------------------------------------------------- */

redisReply *store_cmd_hset(struct store *s, int argc, const struct slice *argv) {
    if (argc % 2 != 0) return reply_arity("hset");
    struct entry *e = need_dict(s, argv[1], STORE_HASH);
    if (!e) return reply_wrong_type();
    long long n = 0;
    for (int i = 2; i < argc; i += 2) n += put_field(e, argv[i], argv[i + 1]);
    return reply_int(n);
}

redisReply *store_cmd_hsetnx(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct entry *e = need_dict(s, argv[1], STORE_HASH);
    if (!e) return reply_wrong_type();
    if (member_find(e->dict, argv[2])) return reply_int(0);
    put_field(e, argv[2], argv[3]);
    return reply_int(1);
}

redisReply *store_cmd_hget(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct member *dict;
    if (!find_dict(s, argv[1], STORE_HASH, &dict)) return reply_wrong_type();
    const struct member *m = member_find(dict, argv[2]);
    return reply_blob(m ? m->value : NULL);
}

redisReply *store_cmd_hmget(struct store *s, int argc, const struct slice *argv) {
    struct member *dict;
    if (!find_dict(s, argv[1], STORE_HASH, &dict)) return reply_wrong_type();
    redisReply *r = reply_array((size_t)argc - 2);
    for (int i = 2; i < argc; i++) {
        const struct member *m = member_find(dict, argv[i]);
        r->element[i - 2] = reply_blob(m ? m->value : NULL);
    }
    return r;
}

redisReply *store_cmd_hincrby(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    long long by, v = 0;
    struct member *dict;
    char text[32];
    if (!parse_int(argv[3], &by)) return reply_not_integer();
    if (!find_dict(s, argv[1], STORE_HASH, &dict)) return reply_wrong_type();
    const struct member *m = member_find(dict, argv[2]);
    if (m && !parse_int(blob_slice(m->value), &v))
        return reply_error("ERR hash value is not an integer");
    if (__builtin_add_overflow(v, by, &v))
        return reply_error("ERR increment or decrement would overflow");
    int n = snprintf(text, sizeof text, "%lld", v);
    put_field(need_dict(s, argv[1], STORE_HASH), argv[2], (struct slice){text, (size_t)n});
    return reply_int(v);
}

redisReply *store_cmd_hgetall(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return all_members(s, argv, STORE_HASH, true, true);
}
redisReply *store_cmd_hkeys(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return all_members(s, argv, STORE_HASH, true, false);
}
redisReply *store_cmd_hvals(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return all_members(s, argv, STORE_HASH, false, true);
}
redisReply *store_cmd_hdel(struct store *s, int argc, const struct slice *argv) {
    return remove_members(s, argc, argv, STORE_HASH);
}
redisReply *store_cmd_hexists(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return has_member(s, argv, STORE_HASH);
}
redisReply *store_cmd_hlen(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return count_members(s, argv, STORE_HASH);
}

/* --- sets ------------------------------------------------------------------------------------- */

redisReply *store_cmd_sadd(struct store *s, int argc, const struct slice *argv) {
    struct entry *e = need_dict(s, argv[1], STORE_SET);
    if (!e) return reply_wrong_type();
    long long n = 0;
    for (int i = 2; i < argc; i++) {
        if (member_find(e->dict, argv[i])) continue;
        member_add(&e->dict, argv[i]);
        n++;
    }
    return reply_int(n);
}

redisReply *store_cmd_smismember(struct store *s, int argc, const struct slice *argv) {
    struct member *dict;
    if (!find_dict(s, argv[1], STORE_SET, &dict)) return reply_wrong_type();
    redisReply *r = reply_array((size_t)argc - 2);
    for (int i = 2; i < argc; i++)
        r->element[i - 2] = reply_int(member_find(dict, argv[i]) != NULL);
    return r;
}

redisReply *store_cmd_srem(struct store *s, int argc, const struct slice *argv) {
    return remove_members(s, argc, argv, STORE_SET);
}
redisReply *store_cmd_sismember(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return has_member(s, argv, STORE_SET);
}
redisReply *store_cmd_smembers(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return all_members(s, argv, STORE_SET, true, false);
}
redisReply *store_cmd_scard(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    return count_members(s, argv, STORE_SET);
}
