/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and sends calls of the lane scripts, for the files that implement lanes.h. */
#ifndef LW_TEST_LANES_BUILD_H
#define LW_TEST_LANES_BUILD_H

#include "tests/support/lanes.h"

/* Begins a call of the script. The call has no keys and no arguments yet. */
void lt_begin(struct lt *l, const struct lw_script *script);
void lt_add(struct lt_args *a, const void *p, size_t n);
void lt_add_text(struct lt_args *a, const char *s);
void lt_addf(struct lt_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a Redis key of a lane to the call: the prefix `kind`, which is "lock:" or "wait:", and then
 * the bytes of the lane unchanged. */
void lt_add_lane(struct lt *l, const char *kind, struct lw_bytes lane);
/* Sends the call according to the test's variant. Stores the answer in l->reply and its letters in
 * l->answers, and returns l->answers. */
const char *lt_run(struct lt *l);
/* Writes the value of a lock that `token` holds: TOKEN:FENCE, with the fence of the last grant. */
void lt_value(const struct lt *l, const char *token, char *out, size_t size);
void lt_clear(struct lt_args *a);

#endif
