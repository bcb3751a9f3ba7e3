/* SPDX-License-Identifier: Apache-2.0 */
/* XADD, XDEL, XLEN and XRANGE of the fake Redis. A stream still exists after its last entry is
 * deleted. */
#include "tests/sim/redis/store_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

store_fn store_cmd_xadd, store_cmd_xdel, store_cmd_xlen, store_cmd_xrange;

static redisReply *bad_id(void) {
    return reply_error("ERR Invalid stream ID specified as stream command argument");
}

static int id_order(struct stream_id a, struct stream_id b) {
    if (a.ms != b.ms) return a.ms < b.ms ? -1 : 1;
    return (a.seq > b.seq) - (a.seq < b.seq);
}

/* Parses a number with strtoull, as Redis does, so leading spaces, a sign and leading zeros are
 * accepted. */
static bool parse_u64(const char *p, size_t n, uint64_t *v) {
    char text[64], *end;
    if (n == 0 || n >= sizeof text) return false;
    memcpy(text, p, n);
    text[n] = '\0';
    errno = 0;
    *v = strtoull(text, &end, 10);
    return errno == 0 && end == text + n;
}

/* Parses the id of a stream entry, "ms" or "ms-seq". If the id is only "ms", its sequence number is
 * missing_seq. Unless auto_seq is NULL, "ms-*" is also accepted and sets *auto_seq to true. */
static bool parse_id(struct slice a, uint64_t missing_seq, struct stream_id *id, bool *auto_seq) {
    const char *dash = memchr(a.p, '-', a.n);
    size_t ms_len = dash ? (size_t)(dash - a.p) : a.n;
    id->seq = missing_seq;
    if (!parse_u64(a.p, ms_len, &id->ms)) return false;
    if (!dash) return true;
    size_t seq_len = a.n - ms_len - 1;
    if (auto_seq && seq_len == 1 && dash[1] == '*') return *auto_seq = true;
    return parse_u64(dash + 1, seq_len, &id->seq);
}

/* --- XADD ------------------------------------------------------------------------------------- */

struct xadd {
    bool no_make, trim, auto_id, auto_seq;
    long long max;
    struct stream_id id;
    int first; /* index in argv of the first field */
};

static redisReply *parse_max(struct xadd *o, int argc, const struct slice *argv, int *i) {
    bool sign = *i + 1 < argc && argv[*i + 1].n == 1 &&
                (argv[*i + 1].p[0] == '=' || argv[*i + 1].p[0] == '~');
    *i += sign ? 2 : 1;
    if (*i >= argc) return reply_syntax();
    if (!parse_int(argv[*i], &o->max)) return reply_not_integer();
    if (o->max < 0) return reply_error("ERR The MAXLEN argument must be >= 0.");
    o->trim = true;
    return NULL;
}

static redisReply *parse_xadd(struct xadd *o, int argc, const struct slice *argv) {
    int i = 2;
    for (; i < argc; i++) {
        if (slice_is(argv[i], "nomkstream"))
            o->no_make = true;
        else if (slice_is(argv[i], "maxlen") && i + 1 < argc) {
            redisReply *bad = parse_max(o, argc, argv, &i);
            if (bad) return bad;
        } else
            break;
    }
    if (i == argc) return reply_arity("xadd");
    o->auto_id = argv[i].n == 1 && argv[i].p[0] == '*';
    if (!o->auto_id && !parse_id(argv[i], 0, &o->id, &o->auto_seq)) return bad_id();
    o->first = i + 1;
    if (argc - o->first < 2 || (argc - o->first) % 2 != 0) return reply_arity("xadd");
    if (!o->auto_id && !o->auto_seq && o->id.ms == 0 && o->id.seq == 0)
        return reply_error("ERR The ID specified in XADD must be greater than 0-0");
    return NULL;
}

/* Sets *id to the id of the new entry. Returns false if this id is not above the last id of the
 * stream. */
static bool next_id(const struct store *s, const struct stream *st, const struct xadd *o,
                    struct stream_id *id) {
    *id = o->id;
    if (o->auto_id) {
        id->ms = (uint64_t)store_now_ms(s);
        id->seq = 0;
        if (id->ms <= st->last.ms) *id = (struct stream_id){st->last.ms, st->last.seq + 1};
    } else if (o->auto_seq) {
        id->seq = id->ms == st->last.ms ? st->last.seq + 1 : 0;
    }
    return id_order(*id, st->last) > 0;
}

static void drop_entries(struct stream *st, size_t at, size_t n) {
    for (size_t i = at; i < at + n; i++) {
        for (size_t j = 0; j < st->at[i].count; j++) blob_unref(st->at[i].fields[j]);
        free(st->at[i].fields);
    }
    st->count -= n;
    memmove(&st->at[at], &st->at[at + n], (st->count - at) * sizeof *st->at);
}

static void append(struct stream *st, struct stream_id id, int argc, const struct slice *argv) {
    if (st->count == st->cap) {
        st->cap = st->cap ? st->cap * 2 : 8;
        st->at = store_realloc(st->at, st->cap * sizeof *st->at);
    }
    struct stream_entry *e = &st->at[st->count++];
    e->id = id;
    e->count = (size_t)argc;
    e->fields = store_alloc(e->count * sizeof *e->fields);
    for (int i = 0; i < argc; i++) e->fields[i] = blob_new(argv[i].p, argv[i].n);
    st->last = id;
}

static redisReply *reply_id(struct stream_id id) {
    char text[48];
    int n = snprintf(text, sizeof text, "%" PRIu64 "-%" PRIu64, id.ms, id.seq);
    return reply_bytes(text, (size_t)n);
}

redisReply *store_cmd_xadd(struct store *s, int argc, const struct slice *argv) {
    struct xadd o = {0};
    struct stream_id id;
    redisReply *bad = parse_xadd(&o, argc, argv);
    if (bad) return bad;
    struct entry *e = entry_find(s, argv[1]);
    if (e && e->type != STORE_STREAM) return reply_wrong_type();
    if (!e && o.no_make) return reply_nil();
    if (!e) e = entry_add(s, argv[1], STORE_STREAM);
    if (!next_id(s, &e->stream, &o, &id))
        return reply_error(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item");
    append(&e->stream, id, argc - o.first, argv + o.first);
    if (o.trim && (long long)e->stream.count > o.max)
        drop_entries(&e->stream, 0, e->stream.count - (size_t)o.max);
    return reply_id(id);
}

/* --- the other commands ----------------------------------------------------------------------- */

redisReply *store_cmd_xlen(struct store *s, int argc, const struct slice *argv) {
    (void)argc;
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(0);
    return e->type == STORE_STREAM ? reply_int((long long)e->stream.count) : reply_wrong_type();
}

redisReply *store_cmd_xdel(struct store *s, int argc, const struct slice *argv) {
    struct stream_id id;
    struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_int(0);
    if (e->type != STORE_STREAM) return reply_wrong_type();
    for (int i = 2; i < argc; i++) {
        if (!parse_id(argv[i], 0, &id, NULL)) return bad_id();
    }
    long long n = 0;
    for (int i = 2; i < argc; i++) {
        parse_id(argv[i], 0, &id, NULL);
        for (size_t at = 0; at < e->stream.count; at++) {
            if (id_order(e->stream.at[at].id, id) != 0) continue;
            drop_entries(&e->stream, at, 1);
            n++;
            break;
        }
    }
    return reply_int(n);
}

static bool parse_end(struct slice a, bool start, struct stream_id *id) {
    if (a.n == 1 && a.p[0] == '-') return *id = (struct stream_id){0, 0}, true;
    if (a.n == 1 && a.p[0] == '+') return *id = (struct stream_id){UINT64_MAX, UINT64_MAX}, true;
    bool exclusive = a.n > 1 && a.p[0] == '(';
    if (exclusive) a.p++, a.n--;
    if (!parse_id(a, start ? 0 : UINT64_MAX, id, NULL)) return false;
    if (!exclusive) return true;
    if (start) return id->seq++ == UINT64_MAX ? id->ms++ != UINT64_MAX : true;
    return id->seq-- == 0 ? id->ms-- != 0 : true;
}

static redisReply *reply_entry(const struct stream_entry *e) {
    redisReply *r = reply_array(2);
    r->element[0] = reply_id(e->id);
    r->element[1] = reply_array(e->count);
    for (size_t i = 0; i < e->count; i++) r->element[1]->element[i] = reply_blob(e->fields[i]);
    return r;
}

redisReply *store_cmd_xrange(struct store *s, int argc, const struct slice *argv) {
    struct stream_id from, to;
    long long max = -1;
    if (!parse_end(argv[2], true, &from) || !parse_end(argv[3], false, &to)) return bad_id();
    for (int i = 4; i < argc; i += 2) {
        if (i + 1 == argc || !slice_is(argv[i], "count")) return reply_syntax();
        if (!parse_int(argv[i + 1], &max)) return reply_not_integer();
        if (max < 0) max = 0;
    }
    const struct entry *e = entry_find(s, argv[1]);
    if (!e) return reply_array(0);
    if (e->type != STORE_STREAM) return reply_wrong_type();
    if (max == 0) return reply_nil();
    redisReply *r = reply_array(e->stream.count);
    size_t n = 0;
    for (size_t i = 0; i < e->stream.count && (max < 0 || n < (size_t)max); i++) {
        const struct stream_entry *x = &e->stream.at[i];
        if (id_order(x->id, from) >= 0 && id_order(x->id, to) <= 0)
            r->element[n++] = reply_entry(x);
    }
    r->elements = n;
    return r;
}
