/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/handler.h"
#include "handlers/section.h"

#include <string.h>

static const struct lw_handler_type *const types[] = {&lw_handler_exec, &lw_handler_plugin,
                                                      &lw_handler_http, &lw_handler_insert};
static const char *const names[] = {"exec", "plugin", "http", "insert", NULL};

const struct lw_handler_type *lw_handler_find(const char *name, struct lw_err *err) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i]->name, name) == 0) return types[i];
    const char *near = lw_section_nearest(name, names);
    if (near)
        lw_refuse(err,
                  "handler.type: unknown type \"%.64s\"; did you mean %s? There are exec, plugin, "
                  "http, insert",
                  name, near);
    else
        lw_refuse(err, "handler.type: unknown type \"%.64s\"; there are exec, plugin, http, insert",
                  name);
    return NULL;
}
