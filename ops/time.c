/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/time.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *unit;
    int64_t ms;
} units[] = {{"ms", 1},       {"s", 1000}, {"m", 60000},  {"h", 3600000},
             {"d", 86400000}, {"", 1000},  {"min", 60000}};
/* UNITS is the number of units that can be parsed. UNITS_SHOWN is the number of units that are used
 * for output, counted from the smallest unit. */
enum { UNITS = sizeof units / sizeof *units, UNITS_SHOWN = 5 };

int64_t ops_duration_ms(const char *text) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0) || v > 1e12) return -1;
    for (size_t i = 0; i < UNITS; i++)
        if (strcmp(end, units[i].unit) == 0 && v * (double)units[i].ms < 9e15)
            return (int64_t)(v * (double)units[i].ms);
    return -1;
}

const char *ops_duration_text(int64_t ms, char out[OPS_DURATION_TEXT]) {
    size_t i = UNITS_SHOWN - 1;
    while (i && (ms < units[i].ms || ms % units[i].ms)) i--;
    snprintf(out, OPS_DURATION_TEXT, "%" PRId64 "%s", ms / units[i].ms, units[i].unit);
    return out;
}

int64_t ops_time_ms(const char *text, int64_t now_ms) {
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S",
                                        "%Y-%m-%d %H:%M", "%Y-%m-%d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        if (!end) continue;
        double part = 0;
        if (*end == '.') {
            char *after;
            part = strtod(end, &after);
            end = after;
        }
        if (*end == 'Z') end++;
        if (!*end) return (int64_t)timegm(&tm) * 1000 + (int64_t)(part * 1000);
    }
    char *end;
    long long ms = strtoll(text, &end, 10);
    /* a number with this many digits is too large to be a duration in seconds, so it is read as ms
     * since 1970 */
    if (end - text >= 12 && !*end) return ms;
    int64_t ago = ops_duration_ms(text);
    return ago < 0 ? -1 : now_ms - ago;
}
