/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork reference`, which lists the generated files, or prints one of
 * them. */
#include "cli/reference/reference.h"

#include "cli/commands.h"
#include "cli/reference/private.h"
#include "monitor/metrics.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *file;
    void (*make)(struct lw_buf *out);
} files[] = {
    {"doc/reference/configuration.md", lw_config_reference},
    {"doc/reference/metrics.md", lw_metrics_reference},
    {"doc/reference/commands.md", reference_commands},
    {"doc/reference/exit-codes.md", reference_exit_codes},
    {"completion.bash", reference_completion_bash},
    {"completion.zsh", reference_completion_zsh},
};
enum { FILES = sizeof files / sizeof *files };

const char *reference_text(const char *command) {
    for (size_t i = 0; i < reference_n_pages; i++)
        if (strcmp(reference_pages[i].command, command) == 0) return reference_pages[i].text;
    return "";
}

void reference_option(const struct cli_option *o, struct lw_buf *out) {
    if (o->brief) lw_buf_addf(out, "`-%c`, ", o->brief);
    lw_buf_addf(out, "`--%s%s", o->name, o->metavar ? " " : "");
    for (const char *p = o->metavar; p && *p; p++)
        lw_buf_addf(out, "%s%c", *p == '|' ? "\\" : "", *p);
    lw_buf_addf(out, "`");
}

/* Appends to `out` the generated file with this name. Returns false if there is no such file. */
static bool make(const char *file, struct lw_buf *out) {
    for (size_t i = 0; i < FILES; i++)
        if (strcmp(file, files[i].file) == 0) return files[i].make(out), true;
    return false;
}

static int run(void *args) {
    const struct cli_args *a = args;
    struct lw_buf page = {0};
    if (!a->n_words) {
        for (size_t i = 0; i < FILES; i++) puts(files[i].file);
    } else if (make(a->words[0], &page)) {
        fwrite(page.p, 1, page.n, stdout);
        lw_buf_free(&page);
    } else {
        return cli_misuse(a, "%s is not generated; without FILE it lists what is", a->words[0]);
    }
    return cli_written(a, 0);
}

static const struct cli_option options[] = {{0}};
static const struct cli_status statuses[] = {{"0", "printed", 0}, {"2", "usage error", 0}, {0}};

const struct cli_command cli_reference = {
    .name = "reference",
    .summary = "print a generated page of the documentation, or a completion script",
    .about = "Lists the files that are made of the program's tables, or prints one of them: pages "
             "of the documentation, and the completion scripts of shells.",
    .words = "[FILE]",
    .max_words = 1,
    .options = options,
    .statuses = statuses,
    .args_size = sizeof(struct cli_args),
    .run = run,
    .hidden = true,
};
