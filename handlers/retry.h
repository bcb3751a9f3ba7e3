/* SPDX-License-Identifier: Apache-2.0 */
/* retry: when a message comes back, if its handler says so together with the outcome retry. */
#ifndef LW_HANDLERS_RETRY_H
#define LW_HANDLERS_RETRY_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Longest wait that a handler may ask for. Longer ones are shortened to it. */
enum { LW_RETRY_AFTER_MAX_MS = 3600000 };

/* As in struct lw_job. {0} means the usual backoff, and an attempt. */
struct lw_retry {
    int64_t wait_ms;
    bool uncounted;
};

/* Returns the wait for a time that a handler asked for, which is not negative: at least 1, because
 * 0 would mean the usual backoff, and at most LW_RETRY_AFTER_MAX_MS. */
int64_t lw_retry_wait_ms(int64_t after_ms);
/* Reads the members `after_ms` and `counts` of an answer. A member that is absent or null leaves
 * its part of *out unchanged. Returns -1 with *err if one has another value; the text begins with
 * `what`, as "handler's answer". */
int lw_retry_read(const json_t *answer, const char *what, struct lw_retry *out, struct lw_err *err);

#endif
