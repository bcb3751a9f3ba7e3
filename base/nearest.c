/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include "base/bytes.h"

#include <string.h>

enum { WORD_MAX = 64 };

/* Returns the edit distance of two words, which counts insertions, deletions, replacements, and
 * swaps of neighbouring characters. If both have at least three characters and one is the beginning
 * of the other ("ttl" and "ttl_ms"), the distance is one. */
static size_t distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    unsigned char d[WORD_MAX + 1][WORD_MAX + 1];
    if (na > WORD_MAX || nb > WORD_MAX) return WORD_MAX;
    if (na >= 3 && nb >= 3 && strncmp(a, b, lw_smaller(na, nb)) == 0) return na == nb ? 0 : 1;
    for (size_t i = 0; i <= na; i++) d[i][0] = (unsigned char)i;
    for (size_t j = 0; j <= nb; j++) d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= na; i++) {
        for (size_t j = 1; j <= nb; j++) {
            size_t best = lw_smaller(d[i - 1][j], d[i][j - 1]) + 1u;
            best = lw_smaller(best, d[i - 1][j - 1] + (size_t)(a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = lw_smaller(best, d[i - 2][j - 2] + 1u);
            d[i][j] = (unsigned char)best;
        }
    }
    return d[na][nb];
}

const char *lw_nearest(const char *word, const char *const *words, size_t n) {
    const char *best = NULL;
    size_t best_distance = WORD_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t longer = strlen(word) > strlen(words[i]) ? strlen(word) : strlen(words[i]);
        size_t near_enough = longer < 4 ? 1 : longer / 3 + (longer > 5),
               d = distance(word, words[i]);
        if (d <= near_enough && d < best_distance) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}
