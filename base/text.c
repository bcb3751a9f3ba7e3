/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct lw_text *t, size_t more) {
    if (t->failed || t->cap - t->n >= more) return !t->failed;
    size_t cap = t->cap ? t->cap : 256;
    while (cap - t->n < more && cap <= SIZE_MAX / 2) cap *= 2;
    char *p = cap - t->n < more ? NULL : realloc(t->p, cap);
    t->failed = !p;
    if (!p) return false;
    t->p = p;
    t->cap = cap;
    return true;
}

void lw_text_add(struct lw_text *t, const void *p, size_t n) {
    if (!n || !reserve(t, n)) return;
    memcpy(t->p + t->n, p, n);
    t->n += n;
}

void lw_text_addf(struct lw_text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int need = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    t->failed = t->failed || need < 0;
    if (!reserve(t, (size_t)need + 1)) return;
    va_start(ap, fmt);
    vsnprintf(t->p + t->n, (size_t)need + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)need;
}

char *lw_text_take(struct lw_text *t) {
    lw_text_add(t, "", 1);
    char *p = t->failed ? NULL : t->p;
    if (t->failed) free(t->p);
    *t = (struct lw_text){0};
    return p;
}

void lw_text_free(struct lw_text *t) {
    free(t->p);
    *t = (struct lw_text){0};
}

bool lw_text_copy(char **to, const char *from) {
    *to = from ? strdup(from) : NULL;
    return *to || !from;
}
