/* SPDX-License-Identifier: Apache-2.0 */
/* Places in JSON: the value to which a pointer points, and the column of an error. */
#ifndef LW_BASE_JSON_PLACE_H
#define LW_BASE_JSON_PLACE_H

#include <jansson.h>

/* Returns the value to which a JSON pointer (RFC 6901) points, or NULL if there is no such value,
 * or if the pointer is malformed. The value belongs to `v`. */
const json_t *lw_json_at(const json_t *v, const char *pointer);

/* Returns the column of an error that jansson reported, counted from 1 as in editors. If jansson
 * has read no character of the line, its own column is 0, and this function returns 1. */
static inline int lw_json_column(const json_error_t *e) { return e->column > 0 ? e->column : 1; }

#endif
