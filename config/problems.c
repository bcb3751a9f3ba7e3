/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROBLEMS_MAX = 200 };

/* Adds a problem as one line. Control characters in a value are replaced, because a line break
 * would split the line, and hidden ones would make the value look like another one. */
__attribute__((format(printf, 2, 0))) static void add_line(struct lw_buf *b, const char *fmt,
                                                           va_list ap) {
    char text[1400], plain[6 * sizeof text];
    vsnprintf(text, sizeof text, fmt, ap);
    lw_log_plain(plain, sizeof plain, text);
    lw_buf_addf(b, "%s\n", plain);
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
