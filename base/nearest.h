/* SPDX-License-Identifier: Apache-2.0 */
/* "did you mean …?": the word that a mistyped one most likely stands for. */
#ifndef LW_BASE_NEAREST_H
#define LW_BASE_NEAREST_H

#include <stddef.h>

/* The word nearest to `word` among the n `words`; NULL if none is near. */
const char *lw_nearest(const char *word, const char *const *words, size_t n);

#endif
