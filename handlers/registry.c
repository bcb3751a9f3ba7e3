/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/handler.h"
#include "handlers/section.h"

#include <string.h>

static const struct lw_handler_type *const types[] = {&lw_handler_exec, &lw_handler_plugin,
                                                      &lw_handler_http, &lw_handler_insert};
enum { TYPES = sizeof types / sizeof *types };

const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err) {
    const char *names[TYPES + 1] = {0};
    struct lw_buf all = {0};
    for (size_t i = 0; i < TYPES; i++) {
        if (strcmp(types[i]->name, name) == 0) return lw_buf_free(&all), types[i];
        names[i] = types[i]->name;
        lw_buf_addf(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = lw_section_nearest(name, names);
    if (near)
        lw_refuse(err, "handler.type: unknown type \"%.64s\"; did you mean %s? There are %s", name,
                  near, all.p);
    else
        lw_refuse(err, "handler.type: unknown type \"%.64s\"; there are %s", name, all.p);
    lw_buf_free(&all);
    return NULL;
}
