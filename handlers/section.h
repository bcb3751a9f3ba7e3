/* SPDX-License-Identifier: Apache-2.0 */
/* The handler section of the configuration, as each handler type checks its own part of it. */
#ifndef LW_HANDLERS_SECTION_H
#define LW_HANDLERS_SECTION_H

#include "config/config.h"

/* The nearest of `known` (ended by NULL) to a mistyped word, or NULL where none is near. */
const char *lw_section_nearest(const char *word, const char *const *known);
/* A problem for each key that is not in `known` (ended by NULL). */
void lw_section_known(json_t *section, const char *const *known, struct lw_problems *problems);
/* A non-empty string; a problem and NULL where it is something else or (required) missing. */
const char *lw_section_string(const json_t *section, const char *key, bool required, struct lw_problems *problems);

#endif
