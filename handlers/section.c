/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/section.h"

#include "base/nearest.h"

#include <string.h>

const char *lw_section_nearest(const char *word, const char *const *known) {
    size_t n = 0;
    while (known[n]) n++;
    return lw_nearest(word, known, n);
}

void lw_section_known(json_t *section, const char *const *known, struct lw_problems *problems) {
    const char *key;
    json_t *value;
    json_object_foreach(section, key, value) {
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

const char *lw_section_string(const json_t *section, const char *key, bool required,
                              struct lw_problems *problems) {
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
