/* SPDX-License-Identifier: Apache-2.0 */
/* An error is a text for people: what went wrong, where, and what to do.
 *
 * Functions that may fail take `struct lw_err *err` as the last argument. On success they return 0
 * or a pointer; on failure they return -1 or NULL and fill in `err`. The first error wins:
 * lw_fail() keeps the text of an err that has one. `err` may be NULL. */
#ifndef LW_BASE_ERR_H
#define LW_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

struct lw_err {
    char text[1024];
    /* a retry or a restart cannot help: something must be configured or installed */
    bool permanent;
    bool memory; /* an allocation failed */
    bool late;   /* the connection works, but an answer did not come in time */
};

/* Formats the text, cut at the size of the buffer. Returns -1, so that callers can write `return
 * lw_fail(err, …)`. */
int lw_fail(struct lw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets the text "out of memory", and the flag `memory`. */
int lw_fail_memory(struct lw_err *err);
/* Does what lw_fail() does, and marks the error as permanent. */
int lw_refuse(struct lw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
