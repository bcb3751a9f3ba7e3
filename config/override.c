/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the options --set path=value to a configuration. */
#include "config/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lw_override_add(struct lw_override *set, size_t *n, size_t max, char *text) {
    char *equals = strchr(text, '=');
    if (!equals || equals == text) return "expected PATH=VALUE, as in lock.ttl_ms=5000";
    if (*n == max) return "too many overrides";
    *equals = '\0';
    set[(*n)++] = (struct lw_override){text, equals + 1};
    return NULL;
}

/* In a path, everything after this prefix is one name, because the names of Kafka properties
 * contain dots. */
static const char properties[] = "kafka.properties.";

static json_t *value_of(const char *text) {
    json_t *v = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    return v ? v : json_string(text);
}

/* Returns the length of the next step of a path. */
static size_t step_length(const char *whole, const char *at) {
    if (at - whole == sizeof properties - 1 && !strncmp(whole, properties, sizeof properties - 1))
        return strlen(at);
    return strcspn(at, ".");
}

void lw_override(struct lw_loader *l, json_t *root, const struct lw_override *set) {
    json_t *at = root;
    char step[256];
    for (const char *p = set->path;; p += strlen(step) + 1) {
        size_t n = step_length(set->path, p);
        if (n == 0 || n >= sizeof step || !json_is_object(at)) {
            lw_problem(l->problems, "--set %.200s: %s", set->path,
                       json_is_object(at) ? "no path of a key, as lock.ttl_ms"
                                          : "goes below a value that is no object");
            return;
        }
        snprintf(step, sizeof step, "%.*s", (int)n, p);
        if (!p[n]) break;
        json_t *next = json_object_get(at, step);
        if (!next && json_object_set_new(at, step, next = json_object())) {
            lw_problem(l->problems, "--set %.200s: not UTF-8", set->path);
            return;
        }
        at = next;
    }
    if (json_object_set_new(at, step, value_of(set->value)))
        lw_problem(l->problems, "--set %.200s: not UTF-8", set->path);
}
