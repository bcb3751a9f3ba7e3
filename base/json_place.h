/* SPDX-License-Identifier: Apache-2.0 */
/* The place of an error in JSON text, as people count. */
#ifndef LW_BASE_JSON_PLACE_H
#define LW_BASE_JSON_PLACE_H

#include <jansson.h>

/* Returns the column of an error of jansson, from 1. jansson says 0 if a line ends where something
 * was expected. */
static inline int lw_json_column(const json_error_t *e) { return e->column > 0 ? e->column : 1; }

#endif
