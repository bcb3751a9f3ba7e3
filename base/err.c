/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

/* Sets the text of an error. Returns false, and changes nothing, if the error already has a
 * text. */
__attribute__((format(printf, 2, 0))) static bool fill(struct lw_err *err, const char *fmt,
                                                       va_list ap) {
    if (!err || err->text[0]) return false;
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    return true;
}

int lw_fail(struct lw_err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fill(err, fmt, ap);
    va_end(ap);
    return -1;
}

int lw_fail_memory(struct lw_err *err) {
    if (err && !err->text[0]) err->memory = true;
    return lw_fail(err, "out of memory");
}

int lw_fail_conflict(struct lw_err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (fill(err, fmt, ap)) err->conflict = true;
    va_end(ap);
    return -1;
}

int lw_refuse(struct lw_err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (fill(err, fmt, ap)) err->permanent = true;
    va_end(ap);
    return -1;
}
