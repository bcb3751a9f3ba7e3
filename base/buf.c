/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static bool reserve(struct lw_buf *b, size_t more) {
    if (b->failed || b->cap - b->n >= more) return !b->failed;
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->n < more && cap <= SIZE_MAX / 2) cap *= 2;
    char *p = cap - b->n < more ? NULL : realloc(b->p, cap);
    b->failed = !p;
    if (!p) return false;
    b->p = p;
    b->cap = cap;
    return true;
}

void lw_buf_try(struct lw_buf *b, const void *p, size_t n) {
    if (!n || !reserve(b, n)) return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void lw_buf_vtryf(struct lw_buf *b, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int need = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    b->failed = b->failed || need < 0;
    if (!reserve(b, (size_t)need + 1)) return;
    vsnprintf(b->p + b->n, (size_t)need + 1, fmt, ap);
    b->n += (size_t)need;
}

void lw_buf_tryf(struct lw_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    lw_buf_vtryf(b, fmt, ap);
    va_end(ap);
}

char *lw_buf_take(struct lw_buf *b) {
    lw_buf_try(b, "", 1);
    char *p = b->failed ? NULL : b->p;
    if (b->failed) free(b->p);
    *b = (struct lw_buf){0};
    return p;
}

void lw_buf_free(struct lw_buf *b) {
    free(b->p);
    *b = (struct lw_buf){0};
}

void lw_buf_clear(struct lw_buf *b) {
    enum { KEPT = 64 << 10 };
    if (b->cap > KEPT)
        lw_buf_free(b);
    else
        b->n = 0;
}

bool lw_text_copy(char **to, const char *from) {
    *to = from ? strdup(from) : NULL;
    return *to || !from;
}
