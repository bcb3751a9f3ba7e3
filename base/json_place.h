/* SPDX-License-Identifier: Apache-2.0 */
/* The column of an error in JSON text, counted from 1 as in editors. */
#ifndef LW_BASE_JSON_PLACE_H
#define LW_BASE_JSON_PLACE_H

#include <jansson.h>

/* Returns the column of an error that jansson reported, counted from 1. If jansson has read no
 * character of the line, its own column is 0, and this function returns 1. */
static inline int lw_json_column(const json_error_t *e) { return e->column > 0 ? e->column : 1; }

#endif
