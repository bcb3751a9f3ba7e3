/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/retry.h"

#include <assert.h>

/* Every whole number up to this one is exact as a JSON number, whoever wrote it. A larger one is a
 * mistake, not a long time. */
static const double number_max = 9007199254740992.0;

int64_t lw_retry_wait_ms(int64_t after_ms) {
    assert(after_ms >= 0);
    if (after_ms > LW_RETRY_AFTER_MAX_MS) return LW_RETRY_AFTER_MAX_MS;
    return after_ms > 0 ? after_ms : 1;
}

int lw_retry_read(const json_t *answer, const char *what, struct lw_retry *out,
                  struct lw_err *err) {
    const json_t *after = json_object_get(answer, "after_ms"),
                 *counts = json_object_get(answer, "counts");
    if (after && !json_is_null(after)) {
        double ms = json_is_number(after) ? json_number_value(after) : -1;
        if (!(ms >= 0 && ms <= number_max))
            return lw_fail(err, "%s has an \"after_ms\" that is not a number from 0 to %d", what,
                           LW_RETRY_AFTER_MAX_MS);
        out->wait_ms = lw_retry_wait_ms((int64_t)ms);
    }
    if (counts && !json_is_null(counts)) {
        if (!json_is_boolean(counts))
            return lw_fail(err, "%s has a \"counts\" that is neither true nor false", what);
        out->uncounted = json_is_false(counts);
    }
    return 0;
}
