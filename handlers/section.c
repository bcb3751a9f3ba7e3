/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/section.h"

#include <string.h>

enum { WORD_MAX = 64 };

static int least(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Levenshtein's distance; words beyond WORD_MAX are far from everything. */
static int distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    if (na > WORD_MAX || nb > WORD_MAX) return WORD_MAX;
    int row[WORD_MAX + 1];
    for (size_t j = 0; j <= nb; j++) row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[nb];
}

const char *lw_section_nearest(const char *word, const char *const *known) {
    const char *best = NULL;
    int best_distance = (int)strlen(word) / 2 + 1;
    for (; *known; known++) {
        int d = distance(word, *known);
        if (d < best_distance) {
            best = *known;
            best_distance = d;
        }
    }
    return best;
}

void lw_section_known(const json_t *section, const char *const *known, struct lw_problems *problems) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)section, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) k++;
        if (*k) continue;
        const char *near = lw_section_nearest(key, known);
        if (near)
            lw_problem(problems, "handler.%s: unknown key; did you mean %s?", key, near);
        else
            lw_problem(problems, "handler.%s: unknown key", key);
    }
}

const char *lw_section_string(const json_t *section, const char *key, bool required, struct lw_problems *problems) {
    const json_t *v = json_object_get(section, key);
    if (!v) {
        if (required) lw_problem(problems, "handler.%s: required", key);
        return NULL;
    }
    if (!json_is_string(v) || !json_string_length(v)) {
        lw_problem(problems, "handler.%s: must be a non-empty string", key);
        return NULL;
    }
    return json_string_value(v);
}
