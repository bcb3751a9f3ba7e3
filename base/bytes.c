/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

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

void *lw_more(void *p, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return p;
    *cap = *cap ? 2 * *cap : 16;
    return lw_realloc(p, *cap * size);
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

void lw_buf_add(struct lw_buf *b, const void *p, size_t n) {
    lw_buf_try(b, p, n);
    if (b->failed) out_of_memory();
}

void lw_buf_addf(struct lw_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    lw_buf_vtryf(b, fmt, ap);
    va_end(ap);
    if (b->failed) out_of_memory();
}
