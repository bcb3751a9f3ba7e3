/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the word that a mistyped one most likely stands for ("did you mean …?"). */
#ifndef LW_BASE_NEAREST_H
#define LW_BASE_NEAREST_H

#include <stddef.h>

/* Returns the word nearest to `word` among the n `words`, or NULL if none is near. */
const char *lw_nearest(const char *word, const char *const *words, size_t n);

#endif
