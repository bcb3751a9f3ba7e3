/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the verbs of `latchwork handler`: `new` writes a project (new.c); `test` runs a handler
 * on messages from a file, without Kafka and Redis.
 *
 *     test.c ── reads the messages (messages.c), makes the plan of deliveries (private.h)
 *       │          fork
 *       ├───────────────> rig.c   opens the handler as a worker does, and runs the deliveries of
 *       │                         the plan
 *       │  shared memory          (in its own process, so that a plugin may crash, and so that a
 *       │                         changed plugin is loaded)
 *       └── report.c prints the results of the plan and counts the wrong ones; watch.c waits for a
 *           changed file */
#ifndef LW_CLI_HANDLER_HANDLER_H
#define LW_CLI_HANDLER_HANDLER_H

#include "cli/options.h"

extern const struct cli_command cli_handler;

struct handler_args {
    struct cli_args cli; /* `cli` must be the first member, as cli/options.h requires */
    const char *lang;    /* value of the option --lang of `new`: the programming language */
    bool chaos, watch;   /* options --chaos and --watch of `test` */
};

int handler_new(const struct handler_args *a);
int handler_test(const struct handler_args *a);

/* A template for a file of a new project, embedded by scripts/embed-templates.sh. @NAME@ in the
 * file's text and in `path` is replaced by the name of the project. */
struct handler_template {
    const char *lang, *path, *text;
};
extern const struct handler_template handler_templates[];
extern const size_t handler_n_templates;

#endif
