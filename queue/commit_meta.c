/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/commit_meta.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define PREFIX "lw1:"
#define PREFIX2 "lw2:"
enum {
    PREFIX_LEN = 4,
    HEAD_MAX = PREFIX_LEN + LW_META_FLEET + 1,
    TAIL_LEN = 9, /* length of ":" and 8 hex digits */
    VARINT_MAX = 10
};
enum {
    BODY_MAX = LW_META_MAX - PREFIX_LEN - TAIL_LEN,
    PACKED_MAX = BODY_MAX / 4 * 3 + (BODY_MAX % 4 ? BODY_MAX % 4 - 1 : 0)
};

/* Returns the maximum size that the packed ranges may have before they are encoded in base64. The
 * whole metadata may have `max` bytes, of which `head` bytes precede the base64. */
static size_t packed_room(size_t max, size_t head) {
    assert(head >= PREFIX_LEN && head <= HEAD_MAX);
    if (max > LW_META_MAX) max = LW_META_MAX;
    if (max <= head + TAIL_LEN) return 0;
    size_t body = max - head - TAIL_LEN;
    return body / 4 * 3 + (body % 4 ? body % 4 - 1 : 0);
}

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static size_t put_varint(unsigned char *out, uint64_t v) {
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) out[n++] = (unsigned char)(v | 0x80);
    out[n++] = (unsigned char)v;
    assert(n <= VARINT_MAX);
    return n;
}

/* Reads one varint. Returns false if the bytes end too early, or if the number does not fit into 64
 * bits. */
static bool get_varint(const unsigned char *p, size_t n, size_t *at, uint64_t *v) {
    assert(v && *at <= n);
    *v = 0;
    for (int shift = 0; *at < n; shift += 7) {
        unsigned char b = p[(*at)++];
        if (shift == 63 && b > 1) return false;
        *v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}

/* Encodes bytes in base64url without padding: 1, 2 or 3 bytes become 2, 3 or 4 digits. */
static size_t put_base64(char *out, const unsigned char *p, size_t n) {
    assert(n <= PACKED_MAX);
    size_t w = 0;
    for (size_t i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t v = (uint32_t)p[i] << 16 | (have > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (have > 2 ? p[i + 2] : 0);
        for (size_t k = 0; k <= have; k++) out[w++] = digits64[v >> (18 - 6 * k) & 63];
    }
    assert(w <= BODY_MAX);
    return w;
}

static bool get_base64(const char *s, size_t n, unsigned char *out, size_t *n_out) {
    assert(out && n <= LW_META_MAX);
    uint32_t acc = 0;
    int bits = 0;
    *n_out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *d = s[i] ? strchr(digits64, s[i]) : NULL;
        if (!d) return false;
        acc = (acc << 6 | (uint32_t)(d - digits64)) & 0xfff;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        out[(*n_out)++] = (unsigned char)(acc >> bits);
    }
    return n % 4 != 1 && (acc & ((1u << bits) - 1)) == 0;
}

/* Returns the checksum of a text of metadata and of the committed offset, so that the metadata is
 * invalid beside any other offset. */
static uint32_t checksum(int64_t committed, const char *text, size_t len) {
    assert(text && len <= LW_META_MAX);
    unsigned char buf[8 + LW_META_MAX];
    for (int i = 0; i < 8; i++) buf[i] = (unsigned char)((uint64_t)committed >> (8 * i));
    memcpy(buf + 8, text, len);
    return XXH32(buf, 8 + len, 0);
}

static size_t pack(int64_t committed, const struct lw_range *ranges, size_t n, size_t room,
                   unsigned char *packed) {
    assert(room <= PACKED_MAX);
    size_t used = 0;
    int64_t from = committed;
    if (n > LW_META_RANGES) n = LW_META_RANGES;
    for (size_t i = 0; i < n;) {
        struct lw_range r = ranges[i++];
        /* join ranges that touch, so that equal content has only one encoding */
        while (i < n && ranges[i].lo == r.hi) r.hi = ranges[i++].hi;
        assert(r.lo >= from && r.hi > r.lo);
        unsigned char one[2 * VARINT_MAX];
        size_t len = put_varint(one, (uint64_t)(r.lo - from));
        len += put_varint(one + len, (uint64_t)(r.hi - r.lo));
        if (used + len > room) break;
        memcpy(packed + used, one, len);
        used += len;
        from = r.hi;
    }
    assert(used <= room);
    return used;
}

/* Writes the part of the metadata before the base64: "lw1:" or "lw2:FLEET:". */
static size_t put_head(char *out, const char *fleet) {
    assert(!*fleet || strlen(fleet) == LW_META_FLEET);
    return (size_t)(*fleet ? snprintf(out, HEAD_MAX + 1, PREFIX2 "%.*s:", LW_META_FLEET, fleet)
                           : snprintf(out, HEAD_MAX + 1, PREFIX));
}

size_t lw_meta_encode(int64_t committed, const struct lw_range *ranges, size_t n, size_t max,
                      const char *fleet, char *out) {
    unsigned char packed[PACKED_MAX];
    char head[HEAD_MAX + 1];
    size_t len = put_head(head, fleet),
           used = pack(committed, ranges, n, packed_room(max, len), packed);
    out[0] = 0;
    if (max < len + TAIL_LEN || (!used && !*fleet)) return 0;
    memcpy(out, head, len);
    len += put_base64(out + len, packed, used);
    return len +
           (size_t)snprintf(out + len, TAIL_LEN + 1, ":%08" PRIx32, checksum(committed, out, len));
}

static bool checksum_matches(int64_t committed, const char *text, size_t len) {
    assert(len >= TAIL_LEN && len <= LW_META_MAX);
    assert(committed >= 0);
    char want[TAIL_LEN + 1];
    snprintf(want, sizeof want, ":%08" PRIx32, checksum(committed, text, len - TAIL_LEN));
    return memcmp(want, text + len - TAIL_LEN, TAIL_LEN) == 0;
}

/* Reads one range. Returns false if the bytes end too early, or if the range is impossible: it is
 * empty, it touches the range before it, or it extends past the largest offset. */
static bool unpack_one(const unsigned char *packed, size_t n, size_t *at, int64_t from, bool first,
                       struct lw_range *r) {
    assert(from >= 0 && *at < n);
    uint64_t skip, len;
    if (!get_varint(packed, n, at, &skip) || !get_varint(packed, n, at, &len)) return false;
    if (len == 0 || (skip == 0 && !first)) return false;
    uint64_t room = (uint64_t)INT64_MAX - (uint64_t)from;
    if (skip > room || len > room - skip) return false;
    *r = (struct lw_range){from + (int64_t)skip, from + (int64_t)skip + (int64_t)len};
    return true;
}

static int unpack(int64_t committed, const unsigned char *packed, size_t n, struct lw_range *out,
                  size_t max, struct lw_err *err) {
    assert(committed >= 0 && (out || !max));
    size_t at = 0, count = 0;
    int64_t from = committed;
    for (size_t k = 0; at < n; k++) {
        struct lw_range r;
        if (!unpack_one(packed, n, &at, from, k == 0, &r))
            return lw_fail(
                err, "corrupt commit metadata: range %zu after offset %" PRId64 " is impossible", k,
                from);
        assert(r.lo >= from && r.hi > r.lo);
        from = r.hi;
        /* if the caller has no room for all ranges, the highest ranges are omitted */
        if (count < max) out[count++] = r;
    }
    return (int)count;
}

/* Returns the length of the part before the base64 ("lw1:" or "lw2:FLEET:"), or 0 if the text is
 * not Latchwork's commit metadata. */
static size_t head_of(const char *text, size_t len) {
    if (len < PREFIX_LEN) return 0;
    if (!memcmp(text, PREFIX, PREFIX_LEN)) return PREFIX_LEN;
    return memcmp(text, PREFIX2, PREFIX_LEN) ? 0 : HEAD_MAX;
}

int lw_meta_decode(int64_t committed, const char *text, size_t len, struct lw_range *out,
                   size_t max, struct lw_err *err) {
    if (len == 0) return 0;
    size_t head = head_of(text, len);
    if (!head)
        return lw_fail(err,
                       "foreign commit metadata: %zu bytes that do not begin with \"%s\" or \"%s\"",
                       len, PREFIX, PREFIX2);
    if (committed < 0) return lw_fail(err, "commit metadata without a committed offset");
    if (len < head + TAIL_LEN + (head == PREFIX_LEN) || len > LW_META_MAX)
        return lw_fail(err, "corrupt commit metadata: %zu bytes", len);
    if (!checksum_matches(committed, text, len))
        return lw_fail(err, "corrupt commit metadata: the checksum does not match");
    unsigned char packed[LW_META_MAX];
    size_t n;
    if (!get_base64(text + head, len - head - TAIL_LEN, packed, &n))
        return lw_fail(err, "corrupt commit metadata: not base64");
    return unpack(committed, packed, n, out, max, err);
}

bool lw_meta_fleet(int64_t committed, const char *text, size_t len, char *out) {
    if (head_of(text, len) != HEAD_MAX || committed < 0 || len < HEAD_MAX + TAIL_LEN ||
        len > LW_META_MAX)
        return false;
    if (!checksum_matches(committed, text, len)) return false;
    memcpy(out, text + PREFIX_LEN, LW_META_FLEET);
    out[LW_META_FLEET] = 0;
    return true;
}
