/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the word that a mistyped word most likely stands for ("did you mean …?"). */
#ifndef LW_BASE_NEAREST_H
#define LW_BASE_NEAREST_H

#include <stddef.h>

/* Returns the one of the n `words` that is nearest to `word`, or NULL if none is near enough. */
const char *lw_nearest(const char *word, const char *const *words, size_t n);

#endif
