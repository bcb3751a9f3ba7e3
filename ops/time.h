/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and formats durations and points in time in the form in which users type them. */
#ifndef LW_OPS_TIME_H
#define LW_OPS_TIME_H

#include <stdint.h>

/* Parses a duration such as "90s", "15m", "15min", "2h", "3d" or "250ms", or a number of seconds.
 * Returns ms, or -1 if the text is no duration. */
int64_t ops_duration_ms(const char *text);
enum { OPS_DURATION_TEXT = 32 };
/* Formats ms in the largest unit that gives a whole number, such as "100ms" or "1h". Returns
 * out. */
const char *ops_duration_text(int64_t ms, char out[OPS_DURATION_TEXT]);
/* Parses a point in time: a date ("2026-11-21") with or without a time of day
 * ("2026-11-21T12:00:00Z"; UTC even without the Z), a number of at least 12 digits (ms since 1970),
 * or a duration before now_ms ("1h"). Returns ms since 1970, or -1 for any other text. */
int64_t ops_time_ms(const char *text, int64_t now_ms);

#endif
