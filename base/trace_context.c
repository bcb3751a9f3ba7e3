/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trace_context.h"

#include "base/bytes.h"

enum { VERSION_AT = 0, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53 };

/* Returns the value of a lower-case hex digit, or -1 for any other character. A traceparent with an
 * upper-case digit is malformed. */
static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* Reads 2n hex digits into n bytes. Returns false if there are other characters among them. */
static bool read_hex(const char *text, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool all_zero(const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i]) return false;
    return true;
}

static bool well_formed(struct lw_bytes text, uint8_t version) {
    const char *p = text.p;
    if (p[TRACE_AT - 1] != '-' || p[SPAN_AT - 1] != '-' || p[FLAGS_AT - 1] != '-' ||
        version == 0xff)
        return false;
    if (text.n == LW_TRACEPARENT) return true;
    return version > 0 && p[LW_TRACEPARENT] == '-';
}

bool lw_traceparent_read(struct lw_bytes text, struct lw_trace_context *out) {
    uint8_t version;
    if (!text.p || text.n < LW_TRACEPARENT) return false;
    if (!read_hex(text.p + VERSION_AT, &version, 1) || !well_formed(text, version)) return false;
    if (!read_hex(text.p + TRACE_AT, out->trace_id, LW_TRACE_ID) ||
        all_zero(out->trace_id, LW_TRACE_ID))
        return false;
    if (!read_hex(text.p + SPAN_AT, out->span_id, LW_SPAN_ID) || all_zero(out->span_id, LW_SPAN_ID))
        return false;
    return read_hex(text.p + FLAGS_AT, &out->flags, 1);
}

void lw_traceparent_write(const struct lw_trace_context *c, char out[LW_TRACEPARENT + 1]) {
    memcpy(out, "00-", TRACE_AT);
    lw_hex(c->trace_id, LW_TRACE_ID, out + TRACE_AT);
    out[SPAN_AT - 1] = '-';
    lw_hex(c->span_id, LW_SPAN_ID, out + SPAN_AT);
    out[FLAGS_AT - 1] = '-';
    lw_hex(&c->flags, 1, out + FLAGS_AT);
}

bool lw_trace_ratio(const uint8_t trace_id[LW_TRACE_ID], double ratio) {
    uint64_t random = 0, all = UINT64_C(1) << 56;
    for (int i = LW_TRACE_ID - 7; i < LW_TRACE_ID; i++) random = random << 8 | trace_id[i];
    return random >= all - (uint64_t)(ratio * (double)all);
}
