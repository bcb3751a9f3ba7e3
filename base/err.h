/* SPDX-License-Identifier: Apache-2.0 */
/* An error is a text for people: what went wrong, where, and what to do.
 *
 * Functions that can fail take `struct lw_err *err` as their last argument. On success they return
 * a number of at least 0, or a pointer. On failure they return -1 or NULL and fill in `err`. The
 * first error wins: lw_fail() does not replace a text that `err` already has. `err` may be NULL. */
#ifndef LW_BASE_ERR_H
#define LW_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

struct lw_err {
    char text[1024];
    /* true if a retry or a restart cannot help, because something must be configured or
     * installed */
    bool permanent;
    bool memory; /* true if an allocation failed */
    bool late;   /* true if the connection works, but an answer did not come in time */
    /* true if somebody else was faster: a job is under way, or something was changed meanwhile */
    bool conflict;
};

/* Sets the text of `err`, cut at the size of its buffer. Always returns -1, so that callers can
 * write `return lw_fail(err, …)`. */
int lw_fail(struct lw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets the text "out of memory" and the flag `memory`. Always returns -1. */
int lw_fail_memory(struct lw_err *err);
/* Works like lw_fail(), and also marks the error as permanent. */
int lw_refuse(struct lw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Works like lw_fail(), and also marks the error as a conflict. */
int lw_fail_conflict(struct lw_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
