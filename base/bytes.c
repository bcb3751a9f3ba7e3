/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void out_of_memory(void) {
    fputs("latchwork: out of memory\n", stderr);
    abort();
}

void *lw_alloc(size_t n) {
    void *p = calloc(1, n ? n : 1);
    if (!p) out_of_memory();
    return p;
}

void *lw_realloc(void *p, size_t n) {
    p = realloc(p, n ? n : 1);
    if (!p) out_of_memory();
    return p;
}

void *lw_or_abort(void *p) {
    if (!p) out_of_memory();
    return p;
}

char *lw_memdup(const void *p, size_t n) {
    char *q = lw_alloc(n + 1);
    if (n) memcpy(q, p, n);
    return q;
}

char *lw_strdup(const char *s) { return lw_memdup(s, strlen(s)); }

static void reserve(struct lw_buf *b, size_t more) {
    if (b->cap - b->n >= more) return;
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->n < more) cap *= 2;
    b->p = lw_realloc(b->p, cap);
    b->cap = cap;
}

void lw_buf_add(struct lw_buf *b, const void *p, size_t n) {
    if (!n) return;
    reserve(b, n);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void lw_buf_addf(struct lw_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int need = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (need < 0) return;
    reserve(b, (size_t)need + 1);
    va_start(ap, fmt);
    vsnprintf(b->p + b->n, (size_t)need + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)need;
}

void lw_buf_free(struct lw_buf *b) {
    free(b->p);
    *b = (struct lw_buf){0};
}
