/* SPDX-License-Identifier: Apache-2.0 */
/* `latchwork handler`: `new` writes a project (new.c); `test` runs a handler on messages from a
 * file, without Kafka and Redis.
 *
 *     test.c ── reads the messages (messages.c), makes the plan of deliveries (plan.h)
 *       │          fork
 *       ├───────────────> rig.c   opens the handler as a worker does, and runs the deliveries of
 *                                 the plan
 *       │  shared memory           (a process of its own, so that a plugin may crash and a changed
 *                                  plugin is loaded)
 *       └── report.c prints the plan's results and counts the wrong ones; watch.c waits for a
 *           changed file */
#ifndef LW_CLI_HANDLER_HANDLER_H
#define LW_CLI_HANDLER_HANDLER_H

#include "cli/options.h"

extern const struct cli_command cli_handler;

struct handler_args {
    struct cli_args cli; /* must be the first member, as cli/options.h says */
    const char *lang;    /* option of `new`: the language */
    bool chaos, watch;   /* options of `test` */
};

int handler_new(const struct handler_args *a);
int handler_test(const struct handler_args *a);

/* A file of a new project, embedded by scripts/embed-templates.sh. @NAME@ stands for the project's
 * name in the file's text and in `path`. */
struct handler_template {
    const char *lang, *path, *text;
};
extern const struct handler_template handler_templates[];
extern const size_t handler_n_templates;

#endif
