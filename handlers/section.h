/* SPDX-License-Identifier: Apache-2.0 */
/* Functions with which each handler type checks the handler section of the configuration. */
#ifndef LW_HANDLERS_SECTION_H
#define LW_HANDLERS_SECTION_H

#include "config/config.h"

/* Returns the word of `known` (with NULL after the last word) that is most similar to a mistyped
 * word, or NULL if none is similar. */
const char *lw_section_nearest(const char *word, const char *const *known);
/* Reports a problem for each key that is not in `known` (with NULL after the last key). */
void lw_section_known(json_t *section, const char *const *known, struct lw_problems *problems);
/* Returns the non-empty string of a key. Otherwise returns NULL, and reports a problem if the value
 * is something else or if a `required` key is missing. */
const char *lw_section_string(const json_t *section, const char *key, bool required,
                              struct lw_problems *problems);

#endif
