/* SPDX-License-Identifier: Apache-2.0 */
/* Builds hiredis replies for the fake Redis, and parses numbers as Redis does. */
#include "tests/sim/redis/store_internal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static redisReply *reply_text(int type, const char *p, size_t n) {
    redisReply *r = store_alloc(sizeof *r);
    r->type = type;
    r->len = n;
    r->str = store_realloc(NULL, n + 1);
    if (n > 0) memcpy(r->str, p, n);
    r->str[n] = '\0';
    return r;
}

redisReply *reply_int(long long v) {
    redisReply *r = store_alloc(sizeof *r);
    r->type = REDIS_REPLY_INTEGER;
    r->integer = v;
    return r;
}

redisReply *reply_nil(void) {
    redisReply *r = store_alloc(sizeof *r);
    r->type = REDIS_REPLY_NIL;
    return r;
}

redisReply *reply_bytes(const char *p, size_t n) { return reply_text(REDIS_REPLY_STRING, p, n); }
redisReply *reply_blob(const struct blob *b) {
    return b ? reply_bytes(b->data, b->len) : reply_nil();
}
redisReply *reply_status(const char *text) {
    return reply_text(REDIS_REPLY_STATUS, text, strlen(text));
}
redisReply *reply_status_n(const char *p, size_t n) { return reply_text(REDIS_REPLY_STATUS, p, n); }
redisReply *reply_error_n(const char *p, size_t n) { return reply_text(REDIS_REPLY_ERROR, p, n); }

redisReply *reply_error(const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return reply_text(REDIS_REPLY_ERROR, text, strlen(text));
}

redisReply *reply_double(double d) {
    char text[64];
    int n = isinf(d) ? snprintf(text, sizeof text, d > 0 ? "inf" : "-inf")
                     : snprintf(text, sizeof text, "%.17g", d);
    return reply_bytes(text, (size_t)n);
}

redisReply *reply_array(size_t n) {
    redisReply *r = store_alloc(sizeof *r);
    r->type = REDIS_REPLY_ARRAY;
    r->elements = n;
    if (n > 0) r->element = store_alloc(n * sizeof *r->element);
    return r;
}

redisReply *reply_wrong_type(void) {
    return reply_error("WRONGTYPE Operation against a key holding the wrong kind of value");
}
redisReply *reply_syntax(void) { return reply_error("ERR syntax error"); }
redisReply *reply_not_integer(void) {
    return reply_error("ERR value is not an integer or out of range");
}
redisReply *reply_arity(const char *command) {
    return reply_error("ERR wrong number of arguments for '%s' command", command);
}

/* Accepts an integer only in the form in which Redis writes integers: without a plus sign, leading
 * zeros or spaces. */
bool parse_int(struct slice a, long long *v) {
    size_t i = 0;
    if (a.n == 0 || a.n > 20) return false;
    if (a.n == 1 && a.p[0] == '0') return *v = 0, true;
    bool negative = a.p[0] == '-';
    if (negative) i++;
    if (i == a.n || a.p[i] < '1' || a.p[i] > '9') return false;
    unsigned long long limit = negative ? (unsigned long long)LLONG_MAX + 1 : LLONG_MAX, u = 0;
    for (; i < a.n; i++) {
        if (a.p[i] < '0' || a.p[i] > '9') return false;
        unsigned digit = (unsigned)(a.p[i] - '0');
        if (u > (limit - digit) / 10) return false;
        u = u * 10 + digit;
    }
    *v = negative ? (long long)(0 - u) : (long long)u;
    return true;
}

bool parse_double(struct slice a, double *v) {
    char text[256], *end;
    if (a.n == 0 || a.n >= sizeof text || a.p[0] == ' ' || (a.p[0] >= '\t' && a.p[0] <= '\r'))
        return false;
    memcpy(text, a.p, a.n);
    text[a.n] = '\0';
    errno = 0;
    *v = strtod(text, &end);
    if ((size_t)(end - text) != a.n || isnan(*v)) return false;
    return !(errno == ERANGE &&
             (*v > HUGE_VAL / 2 || *v < -HUGE_VAL / 2 || fpclassify(*v) == FP_ZERO));
}
