#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

int lw_fail(struct lw_err *err, const char *fmt, ...) {
    if (err && !err->text[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return -1;
}
