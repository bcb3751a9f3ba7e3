/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8, ERROR_SHOWN = 100 };

const char *lw_reply_type(int type) {
    switch (type) {
    case REDIS_REPLY_STRING: return "string";
    case REDIS_REPLY_ARRAY: return "array";
    case REDIS_REPLY_INTEGER: return "integer";
    case REDIS_REPLY_NIL: return "nil";
    case REDIS_REPLY_STATUS: return "status";
    case REDIS_REPLY_ERROR: return "error";
    default: return "unknown type";
    }
}

__attribute__((format(printf, 2, 3))) static void add(char *out, const char *format, ...) {
    size_t n = strlen(out);
    va_list ap;
    va_start(ap, format);
    vsnprintf(out + n, LW_REPLY_TEXT - n, format, ap);
    va_end(ap);
}

/* Appends the type of `r`, and its size if it has one. */
static void add_type(char *out, const redisReply *r) {
    add(out, "%s", r ? lw_reply_type(r->type) : "nothing");
    if (!r) return;
    if (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS)
        add(out, " of %zu bytes", r->len);
    if (r->type == REDIS_REPLY_ARRAY) add(out, " of %zu elements", r->elements);
    if (r->type == REDIS_REPLY_ERROR) add(out, " \"%.*s\"", ERROR_SHOWN, r->str);
}

void lw_vmalformed(char out[LW_REPLY_TEXT], const redisReply *r, const char *name,
                   const char *expected, va_list ap) {
    snprintf(out, LW_REPLY_TEXT, "malformed reply from %s: expected ", name);
    size_t n = strlen(out);
    vsnprintf(out + n, LW_REPLY_TEXT - n, expected, ap);
    add(out, ", got ");
    add_type(out, r);
    if (!r || r->type != REDIS_REPLY_ARRAY || !r->elements) return;
    for (size_t i = 0; i < r->elements && i < SHOWN; i++) {
        add(out, i ? ", " : " [");
        add_type(out, r->element[i]);
    }
    add(out, r->elements > SHOWN ? ", ...]" : "]");
}

const char *lw_malformed(char out[LW_REPLY_TEXT], const redisReply *r, const char *name,
                         const char *expected, ...) {
    va_list ap;
    va_start(ap, expected);
    lw_vmalformed(out, r, name, expected, ap);
    va_end(ap);
    return out;
}

const char *lw_reply_wrong(char out[LW_REPLY_TEXT], const redisReply *r, const char *name, int type,
                           const char *down) {
    if (!r) return down;
    if (r->type == REDIS_REPLY_ERROR) return r->str;
    return lw_malformed(out, r, name, "%s", lw_reply_type(type));
}

bool lw_info_field(const char *info, const char *name, char *out, int size) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\n%s:", name);
    const char *p = strstr(info, pattern);
    out[0] = 0;
    if (!p) return false;
    p += strlen(pattern);
    snprintf(out, (size_t)size, "%.*s", (int)strcspn(p, "\r\n"), p);
    return true;
}
