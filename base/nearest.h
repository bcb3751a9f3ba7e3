/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the word that a mistyped word most likely stands for ("did you mean …?"). */
#ifndef LW_BASE_NEAREST_H
#define LW_BASE_NEAREST_H

#include <stddef.h>

/* Returns the one of the n `words` that is nearest to `word`. Returns NULL if all of them differ
 * too much from `word` to be suggested instead of it. */
const char *lw_nearest(const char *word, const char *const *words, size_t n);

#endif
