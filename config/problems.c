#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROBLEMS_MAX = 200 };

/* One problem is one line: what a value brings along must not break it. */
static void add_line(struct lw_buf *b, const char *fmt, va_list ap) {
    char text[1400];
    vsnprintf(text, sizeof text, fmt, ap);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f) lw_buf_addf(b, "\\x%02x", *p);
        else lw_buf_add(b, p, 1);
    }
    lw_buf_add(b, "\n", 1);
}

void lw_problem(struct lw_problems *p, const char *fmt, ...) {
    if (++p->n_errors == PROBLEMS_MAX + 1) lw_buf_addf(&p->errors, "more than %d problems; the rest is not shown\n", (int)PROBLEMS_MAX);
    if (p->n_errors > PROBLEMS_MAX) return;
    va_list ap;
    va_start(ap, fmt);
    add_line(&p->errors, fmt, ap);
    va_end(ap);
}

void lw_problem_warn(struct lw_problems *p, const char *fmt, ...) {
    if (++p->n_warnings > PROBLEMS_MAX) return;
    va_list ap;
    va_start(ap, fmt);
    add_line(&p->warnings, fmt, ap);
    va_end(ap);
}

void lw_problems_free(struct lw_problems *p) {
    lw_buf_free(&p->errors);
    lw_buf_free(&p->warnings);
    *p = (struct lw_problems){0};
}

static size_t min3(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Levenshtein; a beginning ("ttl" of "ttl_ms") counts as one step. */
static size_t distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b), row[65];
    if (na > 64 || nb > 64) return 64;
    if (na >= 3 && nb >= 3 && strncmp(a, b, na < nb ? na : nb) == 0) return na == nb ? 0 : 1;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

const char *lw_config_nearest(const char *word, const char *const *words, size_t n) {
    const char *best = NULL;
    size_t best_distance = 64;
    for (size_t i = 0; i < n; i++) {
        size_t longer = strlen(word) > strlen(words[i]) ? strlen(word) : strlen(words[i]);
        size_t near_enough = longer < 4 ? 1 : longer / 3 + (longer > 5), d = distance(word, words[i]);
        if (d <= near_enough && d < best_distance) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}
