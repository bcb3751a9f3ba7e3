/* SPDX-License-Identifier: Apache-2.0 */
/* The handler section of the configuration, as each handler type checks its own part of it. */
#ifndef LW_HANDLERS_SECTION_H
#define LW_HANDLERS_SECTION_H

#include "config/config.h"

/* The word of `known` (ended by NULL) nearest to a mistyped one, or NULL if none is near. */
const char *lw_section_nearest(const char *word, const char *const *known);
/* Reports a problem for each key that is not in `known` (ended by NULL). */
void lw_section_known(json_t *section, const char *const *known, struct lw_problems *problems);
/* Returns a non-empty string. Reports a problem and returns NULL if the value is something else, or
 * (required) missing. */
const char *lw_section_string(const json_t *section, const char *key, bool required, struct lw_problems *problems);

#endif
