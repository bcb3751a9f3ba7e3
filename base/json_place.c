/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_place.h"

#include "base/bytes.h"

#include <stdlib.h>

/* Returns the member of an object, or the element of an array, that one step of a pointer names. In
 * a step, ~0 stands for ~ and ~1 stands for /. */
static const json_t *child(const json_t *v, const char *step, size_t n) {
    char *name = lw_memdup(step, n), *to = name;
    for (const char *from = name; *from; from++) {
        bool escape = from[0] == '~' && (from[1] == '0' || from[1] == '1');
        *to++ = !escape ? *from : *++from == '1' ? '/' : '~';
    }
    *to = '\0';
    bool index = *name && !name[strspn(name, "0123456789")];
    v = !json_is_array(v) ? json_object_get(v, name)
        : index           ? json_array_get(v, strtoul(name, NULL, 10))
                          : NULL;
    free(name);
    return v;
}

const json_t *lw_json_at(const json_t *v, const char *pointer) {
    while (v && *pointer == '/') {
        size_t n = strcspn(++pointer, "/");
        v = child(v, pointer, n);
        pointer += n;
    }
    return *pointer ? NULL : v;
}
