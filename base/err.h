/* SPDX-License-Identifier: Apache-2.0 */
/* Errors are texts for people: what went wrong, where, and what to do.
 *
 * Functions that may fail take `struct lw_err *err` last, return 0 or a pointer on success and -1 or NULL on failure, and fill
 * `err` only on failure. The first error wins: lw_fail() on an err that already holds a text keeps the text. `err` may be NULL. */
#ifndef LW_BASE_ERR_H
#define LW_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

struct lw_err {
    char text[1024];
    bool permanent; /* a retry or a restart cannot fix it: something has to be configured or installed */
    bool memory;    /* an allocation failed */
    bool late;      /* connected, but an answer did not come in time */
};

/* Formats the text (cut at the size of the buffer) and returns -1, so that `return lw_fail(err, …)` reads well. */
int lw_fail(struct lw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Says "out of memory", and marks the error as that. */
int lw_fail_memory(struct lw_err *err);
/* Like lw_fail(), and marks the error as permanent. */
int lw_refuse(struct lw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
