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
    {"scripts/completion.bash", reference_completion_bash},
    {"scripts/completion.zsh", reference_completion_zsh},
};
enum { FILES = sizeof files / sizeof *files, NAME_MAX_BYTES = 100 };

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

static void man_name(const struct cli_command *c, char out[NAME_MAX_BYTES]) {
    snprintf(out, NAME_MAX_BYTES, "doc/man/latchwork%s%s.1", c ? "-" : "", c ? c->name : "");
}

/* Returns true if the command has a man page. NULL stands for the program itself, which has one. A
 * command has one if this version contains the command and `latchwork --help` lists it. */
static bool has_man(const struct cli_command *c) { return !c || (c->run && !c->hidden); }

static void list(void) {
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; i < FILES; i++) puts(files[i].file);
    for (size_t i = 0; i <= cli_n_commands; i++) {
        const struct cli_command *c = i ? cli_commands[i - 1] : NULL;
        man_name(c, name);
        if (has_man(c)) puts(name);
    }
}

/* Appends to `out` the generated file with this name. Returns false if there is no such file. */
static bool make(const char *file, struct lw_buf *out) {
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; i < FILES; i++)
        if (strcmp(file, files[i].file) == 0) return files[i].make(out), true;
    for (size_t i = 0; i <= cli_n_commands; i++) {
        const struct cli_command *c = i ? cli_commands[i - 1] : NULL;
        man_name(c, name);
        if (has_man(c) && strcmp(file, name) == 0) return reference_man(c, out), true;
    }
    return false;
}

static int run(void *args) {
    const struct cli_args *a = args;
    struct lw_buf page = {0};
    if (!a->n_words) {
        list();
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
    .summary = "print a generated page of the documentation",
    .about = "Lists the files of the documentation that are made of the program's tables, or "
             "prints one of them.",
    .words = "[FILE]",
    .max_words = 1,
    .options = options,
    .statuses = statuses,
    .args_size = sizeof(struct cli_args),
    .run = run,
    .hidden = true,
};
