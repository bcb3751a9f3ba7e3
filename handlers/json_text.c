/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/json_text.h"

#include <stdint.h>

/* Returns the number of bytes that follow a lead byte of UTF-8, and the valid range of the first of
 * these bytes, which excludes overlong forms and surrogates. */
static int utf8_lead(unsigned char c, unsigned char *lo, unsigned char *hi) {
    *lo = 0x80;
    *hi = 0xbf;
    if (c >= 0xc2 && c <= 0xdf) return 1;
    if (c >= 0xe0 && c <= 0xef) {
        if (c == 0xe0) *lo = 0xa0;
        if (c == 0xed) *hi = 0x9f;
        return 2;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        if (c == 0xf0) *lo = 0x90;
        if (c == 0xf4) *hi = 0x8f;
        return 3;
    }
    return -1;
}

bool lw_utf8_ok(struct lw_bytes s) {
    const unsigned char *p = (const unsigned char *)s.p, *end = p + s.n;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        unsigned char lo, hi;
        int more = utf8_lead(*p++, &lo, &hi);
        if (more < 0 || end - p < more || *p < lo || *p > hi) return false;
        p++;
        while (--more > 0)
            if ((*p++ & 0xc0) != 0x80) return false;
    }
    return true;
}

static void add_escaped(struct lw_buf *out, unsigned char c) {
    switch (c) {
    case '"': lw_buf_add(out, "\\\"", 2); break;
    case '\\': lw_buf_add(out, "\\\\", 2); break;
    case '\n': lw_buf_add(out, "\\n", 2); break;
    case '\r': lw_buf_add(out, "\\r", 2); break;
    case '\t': lw_buf_add(out, "\\t", 2); break;
    default: lw_buf_addf(out, "\\u%04x", c);
    }
}

void lw_json_string(struct lw_buf *out, struct lw_bytes s) {
    lw_buf_add(out, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        lw_buf_add(out, s.p + from, i - from);
        add_escaped(out, c);
        from = i + 1;
    }
    if (s.n) lw_buf_add(out, s.p + from, s.n - from);
    lw_buf_add(out, "\"", 1);
}

void lw_json_base64(struct lw_buf *out, struct lw_bytes s) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)s.p;
    lw_buf_add(out, "\"", 1);
    for (size_t i = 0; i < s.n; i += 3) {
        size_t left = s.n - i;
        uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (left > 2 ? p[i + 2] : 0);
        char quad[4] = {digit[v >> 18], digit[v >> 12 & 63], left > 1 ? digit[v >> 6 & 63] : '=',
                        left > 2 ? digit[v & 63] : '='};
        lw_buf_add(out, quad, 4);
    }
    lw_buf_add(out, "\"", 1);
}
