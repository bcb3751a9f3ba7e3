/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROBLEMS_MAX = 200 };

/* Adds a problem as one line. Control characters in a value are replaced, because a line break
 * would split the line. */
__attribute__((format(printf, 2, 0))) static void add_line(struct lw_buf *b, const char *fmt,
                                                           va_list ap) {
    char text[1400];
    vsnprintf(text, sizeof text, fmt, ap);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            lw_buf_addf(b, "\\x%02x", *p);
        else
            lw_buf_add(b, p, 1);
    }
    lw_buf_add(b, "\n", 1);
}

void lw_problem(struct lw_problems *p, const char *fmt, ...) {
    if (++p->n_errors == PROBLEMS_MAX + 1)
        lw_buf_addf(&p->errors, "more than %d problems; the rest is not shown\n",
                    (int)PROBLEMS_MAX);
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
