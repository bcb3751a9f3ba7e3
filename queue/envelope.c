/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/envelope.h"

#include <assert.h>
#include <stdlib.h>

/* HEADER_FIXED is the size in bytes of the two length fields of a header */
enum { TOPIC_MAX = 249, HEADER_FIXED = 8 };

/* --- encoding --------------------------------------------------------------------------------- */

/* Appends `b`, or nothing if `b` is absent. */
static void put(struct lw_buf *out, struct lw_bytes b) {
    if (b.p) lw_buf_add(out, b.p, b.n);
}

static void put_u32(struct lw_buf *out, uint32_t v) {
    char b[4] = {(char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
    put(out, lw_bytes(b, sizeof b));
}

static long long length_of(struct lw_bytes b) { return b.p ? (long long)b.n : -1; }

static void put_header(struct lw_buf *out, const struct lw_header *h) {
    assert(h->name.n < UINT32_MAX && h->value.n < UINT32_MAX);
    put_u32(out, (uint32_t)h->name.n);
    put(out, h->name);
    put_u32(out, h->value.p ? (uint32_t)h->value.n : UINT32_MAX);
    put(out, h->value);
}

void lw_envelope_encode(const struct lw_envelope *e, struct lw_buf *out) {
    assert(e->topic.p && e->topic.n);
    assert(e->partition >= 0 && e->offset >= 0 && e->replay >= 0);
    lw_buf_addf(out, "1 %.*s %d %lld %lld %lld %lld %lld %zu %zu %lld\n", (int)e->topic.n,
                e->topic.p, (int)e->partition, (long long)e->offset, (long long)e->replay,
                (long long)e->first_ms, (long long)e->timestamp_ms, length_of(e->key), e->dedup.n,
                e->n_headers, length_of(e->payload));
    put(out, e->dedup), put(out, e->key);
    for (size_t i = 0; i < e->n_headers; i++) put_header(out, &e->headers[i]);
    put(out, e->payload);
}

/* --- decoding --------------------------------------------------------------------------------- */

struct reader {
    const char *begin, *p, *end;
    struct lw_err *err;
};

/* Asserts that the reader's position is within the envelope or at its end. */
static inline void check_reader(const struct reader *r) {
    assert(r->begin && r->begin <= r->p);
    assert(r->p <= r->end);
}

static size_t left(const struct reader *r) {
    check_reader(r);
    return (size_t)(r->end - r->p);
}

static int bad(const struct reader *r, const char *what) {
    check_reader(r);
    return lw_fail(r->err, "broken envelope at byte %zu: %s", (size_t)(r->p - r->begin), what);
}

/* Reads a decimal number in canonical form, from min to max, and the byte `behind`, which must
 * follow the number. */
static int take_number(struct reader *r, const char *what, char behind, int64_t min, int64_t max,
                       int64_t *out) {
    check_reader(r);
    assert(min <= max);
    const char *p = r->p;
    bool negative = p < r->end && *p == '-';
    if (negative) p++;
    const char *digits = p;
    uint64_t v = 0;
    for (; p < r->end && *p >= '0' && *p <= '9' && p - digits < 19; p++)
        v = v * 10 + (uint64_t)(*p - '0');
    if (p == digits || p == r->end || *p != behind ||
        (*digits == '0' && (p - digits > 1 || negative)))
        return bad(r, what);
    if (v > INT64_MAX) return bad(r, what);
    int64_t n = negative ? -(int64_t)v : (int64_t)v;
    if (n < min || n > max) return bad(r, what);
    r->p = p + 1;
    *out = n;
    return 0;
}

static bool topic_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static int take_topic(struct reader *r, struct lw_bytes *out) {
    check_reader(r);
    size_t n = 0;
    while (n < left(r) && n <= TOPIC_MAX && topic_char(r->p[n])) n++;
    if (n == 0 || n > TOPIC_MAX || n == left(r) || r->p[n] != ' ') return bad(r, "no topic name");
    *out = lw_bytes(r->p, n);
    r->p += n + 1;
    return 0;
}

struct lengths {
    int64_t key, dedup, headers, payload;
};

static int take_line(struct reader *r, struct lw_envelope *e, struct lengths *n) {
    check_reader(r);
    if (left(r) < 2 || memcmp(r->p, "1 ", 2)) return bad(r, "not version 1");
    r->p += 2;
    int64_t partition = 0, room = (int64_t)left(r);
    if (take_topic(r, &e->topic)) return -1;
    if (take_number(r, "no partition", ' ', 0, INT32_MAX, &partition)) return -1;
    if (take_number(r, "no offset", ' ', 0, INT64_MAX, &e->offset)) return -1;
    if (take_number(r, "no replay number", ' ', 0, INT64_MAX, &e->replay)) return -1;
    if (take_number(r, "no time of arrival", ' ', INT64_MIN, INT64_MAX, &e->first_ms)) return -1;
    if (take_number(r, "no timestamp", ' ', INT64_MIN, INT64_MAX, &e->timestamp_ms)) return -1;
    if (take_number(r, "no length of the key, or one past the end", ' ', -1, room, &n->key))
        return -1;
    if (take_number(r, "no length of the dedup id, or one past the end", ' ', 0, room, &n->dedup))
        return -1;
    if (take_number(r, "no number of headers, or too many", ' ', 0, LW_ENVELOPE_HEADERS_MAX,
                    &n->headers))
        return -1;
    if (take_number(r, "no length of the payload, or one past the end", '\n', -1, room,
                    &n->payload))
        return -1;
    e->partition = (int32_t)partition;
    return 0;
}

/* Takes the next n bytes of the envelope as a value. An n of -1 stands for a null value. Returns 0,
 * or -1 with the error `what` if fewer than n bytes are left. */
static int take_bytes(struct reader *r, const char *what, int64_t n, struct lw_bytes *out) {
    check_reader(r);
    assert(n >= -1);
    *out = (struct lw_bytes){0};
    if (n < 0) return 0;
    if ((uint64_t)n > left(r)) return bad(r, what);
    *out = lw_bytes(r->p, (size_t)n);
    r->p += n;
    return 0;
}

static int take_u32(struct reader *r, uint32_t *out) {
    check_reader(r);
    if (left(r) < 4) return bad(r, "it ends inside a header");
    const unsigned char *b = (const unsigned char *)r->p;
    *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    r->p += 4;
    return 0;
}

static int take_header(struct reader *r, struct lw_header *h) {
    check_reader(r);
    uint32_t n = 0;
    if (take_u32(r, &n) || take_bytes(r, "a header's name goes past the end", n, &h->name))
        return -1;
    if (take_u32(r, &n)) return -1;
    return take_bytes(r, "a header's value goes past the end", n == UINT32_MAX ? -1 : (int64_t)n,
                      &h->value);
}

static int take_headers(struct reader *r, size_t n, struct lw_envelope *e) {
    check_reader(r);
    assert(!e->headers && !e->n_headers);
    if (n > left(r) / HEADER_FIXED) return bad(r, "more headers than bytes");
    if (!n) return 0;
    e->headers = lw_alloc(n * sizeof *e->headers);
    e->n_headers = n;
    for (size_t i = 0; i < n; i++)
        if (take_header(r, &e->headers[i])) return -1;
    return 0;
}

static int decode(struct reader *r, struct lw_envelope *e) {
    check_reader(r);
    assert(r->p == r->begin);
    struct lengths n = {0};
    if (take_line(r, e, &n)) return -1;
    if (take_bytes(r, "the dedup id goes past the end", n.dedup, &e->dedup)) return -1;
    if (take_bytes(r, "the key goes past the end", n.key, &e->key)) return -1;
    if (take_headers(r, (size_t)n.headers, e)) return -1;
    if (take_bytes(r, "the payload goes past the end", n.payload, &e->payload)) return -1;
    return r->p == r->end ? 0 : bad(r, "something follows the payload");
}

int lw_envelope_decode(struct lw_bytes in, struct lw_envelope *e, struct lw_err *err) {
    *e = (struct lw_envelope){0};
    if (!in.p) return lw_fail(err, "broken envelope at byte 0: null");
    struct reader r = {in.p, in.p, in.p + in.n, err};
    if (decode(&r, e) == 0) return 0;
    lw_envelope_clear(e);
    return -1;
}

void lw_envelope_clear(struct lw_envelope *e) {
    free(e->headers);
    *e = (struct lw_envelope){0};
}
