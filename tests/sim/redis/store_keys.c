/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the fake Redis for keys of any type, and for the server itself. */
#include "tests/sim/redis/store_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

store_fn store_cmd_ping, store_cmd_time, store_cmd_info, store_cmd_dbsize, store_cmd_flushall,
    store_cmd_scan, store_cmd_del, store_cmd_unlink, store_cmd_exists, store_cmd_expire,
    store_cmd_pexpire, store_cmd_expireat, store_cmd_pexpireat, store_cmd_ttl, store_cmd_pttl,
    store_cmd_pexpiretime, store_cmd_persist, store_cmd_type;

static const char *const type_names[] = {"none", "string", "list", "hash", "set", "zset", "stream"};

/* --- the server ------------------------------------------------------------------------------- */

redisReply *store_cmd_ping(struct store *s, int argc, const struct slice *argv) {
    (void)s;
    if (argc > 2) return reply_arity("ping");
    return argc == 2 ? reply_bytes(argv[1].p, argv[1].n) : reply_status("PONG");
}

redisReply *store_cmd_time(struct store *s, int argc, const struct slice *argv) {
    (void)argc, (void)argv;
    redisReply *r = reply_array(2);
    for (int i = 0; i < 2; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%lld",
                         (long long)(i == 0 ? s->now_us / 1000000 : s->now_us % 1000000));
        r->element[i] = reply_bytes(text, (size_t)n);
    }
    return r;
}

static bool wants(int argc, const struct slice *argv, const char *section) {
    for (int i = 1; i < argc; i++) {
        if (slice_is(argv[i], section) || slice_is(argv[i], "all") ||
            slice_is(argv[i], "everything") || slice_is(argv[i], "default"))
            return true;
    }
    return argc == 1;
}

static void info_add(char *text, size_t size, const char *section, const char *body) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s# %s\r\n%s", n > 0 ? "\r\n" : "", section, body);
}

redisReply *store_cmd_info(struct store *s, int argc, const struct slice *argv) {
    char text[1024] = "", body[512];
    if (wants(argc, argv, "server")) {
        snprintf(body, sizeof body,
                 "redis_version:7.0.15\r\nredis_mode:%s\r\nprocess_id:1\r\nrun_id:%s\r\ntcp_port:"
                 "0\r\nuptime_in_seconds:%lld\r\n",
                 s->cluster ? "cluster" : "standalone", s->run_id,
                 (long long)(s->now_us - s->began_us) / 1000000);
        info_add(text, sizeof text, "Server", body);
    }
    if (wants(argc, argv, "memory")) {
        snprintf(body, sizeof body,
                 "used_memory:1000000\r\nmaxmemory:%s\r\nmaxmemory_policy:%s\r\n",
                 s->oom ? "1000000" : "0", s->policy);
        info_add(text, sizeof text, "Memory", body);
    }
    if (wants(argc, argv, "persistence"))
        info_add(text, sizeof text, "Persistence", "loading:0\r\naof_enabled:0\r\n");
    if (wants(argc, argv, "replication")) {
        snprintf(body, sizeof body,
                 "role:%s\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n",
                 s->role, s->replid, s->replid2);
        info_add(text, sizeof text, "Replication", body);
    }
    if (wants(argc, argv, "stats")) {
        snprintf(body, sizeof body, "total_net_repl_input_bytes:%lld\r\n", s->repl_input);
        info_add(text, sizeof text, "Stats", body);
    }
    if (wants(argc, argv, "cluster"))
        info_add(text, sizeof text, "Cluster", "cluster_enabled:0\r\n");
    return reply_bytes(text, strlen(text));
}

redisReply *store_cmd_dbsize(struct store *s, int argc, const struct slice *argv) {
    (void)argc, (void)argv;
    return reply_int((long long)store_dbsize(s));
}

redisReply *store_cmd_flushall(struct store *s, int argc, const struct slice *argv) {
    if (argc > 2 || (argc == 2 && !slice_is(argv[1], "sync") && !slice_is(argv[1], "async")))
        return reply_syntax();
    store_flushall(s);
    return reply_status("OK");
}

/* --- SCAN: gives all keys in one reply -------------------------------------------------------- */

static bool class_has(const char **p, const char *end, char c) {
    const char *q = *p + 1;
    bool negate = q < end && *q == '^', found = false;
    if (negate) q++;
    for (; q < end && *q != ']'; q++) {
        if (*q == '\\' && q + 1 < end) q++;
        if (q + 2 < end && q[1] == '-' && q[2] != ']') {
            char low = q[0] < q[2] ? q[0] : q[2], high = q[0] < q[2] ? q[2] : q[0];
            found = found || (c >= low && c <= high);
            q += 2;
        } else
            found = found || *q == c;
    }
    *p = q < end ? q + 1 : q;
    return found != negate;
}

static bool glob(const char *p, const char *end, const char *t, const char *t_end) {
    while (p < end) {
        if (*p == '*') {
            while (p < end && *p == '*') p++;
            if (p == end) return true;
            for (; t <= t_end; t++) {
                if (glob(p, end, t, t_end)) return true;
            }
            return false;
        }
        if (t == t_end) return false;
        if (*p == '[') {
            if (!class_has(&p, end, *t)) return false;
        } else {
            if (*p == '\\' && p + 1 < end)
                p++;
            else if (*p == '?') {
                p++, t++;
                continue;
            }
            if (*p++ != *t) return false;
        }
        t++;
    }
    return t == t_end;
}

struct scan {
    const struct slice *match, *type;
};

static redisReply *scan_options(struct scan *want, int argc, const struct slice *argv) {
    for (int i = 2; i < argc; i += 2) {
        long long count;
        if (i + 1 == argc) return reply_syntax();
        if (slice_is(argv[i], "match"))
            want->match = &argv[i + 1];
        else if (slice_is(argv[i], "type"))
            want->type = &argv[i + 1];
        else if (slice_is(argv[i], "count") && !parse_int(argv[i + 1], &count))
            return reply_not_integer();
        else if (!slice_is(argv[i], "count") || count < 1)
            return reply_syntax();
    }
    return NULL;
}

redisReply *store_cmd_scan(struct store *s, int argc, const struct slice *argv) {
    struct scan want = {0};
    long long cursor;
    if (!parse_int(argv[1], &cursor)) return reply_error("ERR invalid cursor");
    redisReply *bad = scan_options(&want, argc, argv);
    if (bad) return bad;
    redisReply *r = reply_array(2), *names = reply_array(store_dbsize(s));
    r->element[0] = reply_bytes("0", 1);
    r->element[1] = names;
    size_t n = 0;
    for (const struct entry *e = s->keys; e; e = e->hh.next) {
        if (entry_expired(s, e)) continue;
        const struct slice *m = want.match;
        if (m && !glob(m->p, m->p + m->n, e->key->data, e->key->data + e->key->len)) continue;
        if (want.type && !slice_is(*want.type, type_names[e->type])) continue;
        names->element[n++] = reply_blob(e->key);
    }
    names->elements = n;
    return r;
}

/* --- keys ------------------------------------------------------------------------------------- */

redisReply *store_cmd_del(struct store *s, int argc, const struct slice *argv) {
    long long n = 0;
    for (int i = 1; i < argc; i++) {
        struct entry *e = entry_find(s, argv[i]);
        if (e) entry_delete(s, e), n++;
    }
    return reply_int(n);
}

redisReply *store_cmd_unlink(struct store *s, int argc, const struct slice *argv) {
    return store_cmd_del(s, argc, argv);
}

redisReply *store_cmd_exists(struct store *s, int argc, const struct slice *argv) {
    long long n = 0;
    for (int i = 1; i < argc; i++) n += entry_find(s, argv[i]) != NULL;
    return reply_int(n);
}

redisReply *store_cmd_type(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    return reply_status(type_names[e ? e->type : STORE_NONE]);
}

redisReply *store_cmd_persist(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    struct entry *e = entry_find(s, argv[1]);
    if (!e || e->expire_ms < 0) return reply_int(0);
    e->expire_ms = -1;
    return reply_int(1);
}

/* --- expiry ----------------------------------------------------------------------------------- */

enum { NX = 1, XX = 2, GT = 4, LT = 8 };

static redisReply *expire_options(unsigned *options, int argc, const struct slice *argv) {
    for (int i = 3; i < argc; i++) {
        if (slice_is(argv[i], "nx"))
            *options |= NX;
        else if (slice_is(argv[i], "xx"))
            *options |= XX;
        else if (slice_is(argv[i], "gt"))
            *options |= GT;
        else if (slice_is(argv[i], "lt"))
            *options |= LT;
        else
            return reply_error("ERR Unsupported option %.*s", (int)argv[i].n, argv[i].p);
    }
    if (*options & NX && *options & (XX | GT | LT))
        return reply_error("ERR NX and XX, GT or LT options at the same time are not compatible");
    if (*options & GT && *options & LT)
        return reply_error("ERR GT and LT options at the same time are not compatible");
    return NULL;
}

static bool may_expire(const struct entry *e, unsigned options, long long when) {
    bool never = e->expire_ms < 0;
    if (options & NX && !never) return false;
    if (options & XX && never) return false;
    if (options & GT && (never || when <= e->expire_ms)) return false;
    return !(options & LT && !never && when >= e->expire_ms);
}

static redisReply *expire(struct store *s, int argc, const struct slice *argv, const char *name,
                          bool seconds, bool relative) {
    unsigned options = 0;
    long long when, base = relative ? store_now_ms(s) : 0;
    redisReply *bad = expire_options(&options, argc, argv);
    if (bad) return bad;
    if (!parse_int(argv[2], &when)) return reply_not_integer();
    if (seconds && (when > LLONG_MAX / 1000 || when < LLONG_MIN / 1000))
        return reply_error("ERR invalid expire time in '%s' command", name);
    if (seconds) when *= 1000;
    if (when > LLONG_MAX - base)
        return reply_error("ERR invalid expire time in '%s' command", name);
    when += base;
    struct entry *e = entry_find(s, argv[1]);
    if (!e || !may_expire(e, options, when)) return reply_int(0);
    if (when <= store_now_ms(s))
        entry_delete(s, e);
    else
        e->expire_ms = when;
    return reply_int(1);
}

redisReply *store_cmd_expire(struct store *s, int argc, const struct slice *argv) {
    return expire(s, argc, argv, "expire", true, true);
}
redisReply *store_cmd_pexpire(struct store *s, int argc, const struct slice *argv) {
    return expire(s, argc, argv, "pexpire", false, true);
}
redisReply *store_cmd_expireat(struct store *s, int argc, const struct slice *argv) {
    return expire(s, argc, argv, "expireat", true, false);
}
redisReply *store_cmd_pexpireat(struct store *s, int argc, const struct slice *argv) {
    return expire(s, argc, argv, "pexpireat", false, false);
}

redisReply *store_cmd_pttl(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(-2);
    return reply_int(e->expire_ms < 0 ? -1 : e->expire_ms - store_now_ms(s));
}

redisReply *store_cmd_ttl(struct store *s, int argc, const struct slice *argv) {
    redisReply *r = store_cmd_pttl(s, argc, argv);
    if (r->integer >= 0) r->integer = (r->integer + 500) / 1000;
    return r;
}

redisReply *store_cmd_pexpiretime(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    return reply_int(e ? e->expire_ms : -2);
}
