/* SPDX-License-Identifier: Apache-2.0 */
/* How a call of a script is built and sent, shared by the parts of lanes.h's support. */
#ifndef LW_TEST_LANES_BUILD_H
#define LW_TEST_LANES_BUILD_H

#include "tests/support/lanes.h"

/* The call begins: no keys, no arguments. */
void lt_begin(struct lt *l, const struct lw_script *script);
void lt_add(struct lt_args *a, const void *p, size_t n);
void lt_add_text(struct lt_args *a, const char *s);
void lt_addf(struct lt_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* kind: "lock:" or "wait:"; the lane's bytes follow as they are. */
void lt_add_lane(struct lt *l, const char *kind, struct lw_bytes lane);
/* Sends it as the variant says; l->answers, l->reply and the rest are those of the answer. */
const char *lt_run(struct lt *l);
/* What the lock is while `token` holds it: TOKEN:FENCE of its last grant. */
void lt_value(const struct lt *l, const char *token, char *out, size_t size);
void lt_clear(struct lt_args *a);

#endif
