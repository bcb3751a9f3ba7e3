/* SPDX-License-Identifier: Apache-2.0 */
/* Helps each handler type to check its part of the configuration's handler section. */
#ifndef LW_HANDLERS_SECTION_H
#define LW_HANDLERS_SECTION_H

#include "config/config.h"

/* Returns the word of `known` (ended by NULL) nearest to a mistyped one, or NULL if none is
 * near. */
const char *lw_section_nearest(const char *word, const char *const *known);
/* Reports a problem for each key that is not in `known`, which ends with NULL. */
void lw_section_known(json_t *section, const char *const *known, struct lw_problems *problems);
/* Returns the non-empty string of a key. If the value is something else, or missing though
 * `required`, reports a problem and returns NULL. */
const char *lw_section_string(const json_t *section, const char *key, bool required,
                              struct lw_problems *problems);

#endif
