/* SPDX-License-Identifier: Apache-2.0 */
/* Writes doc/reference/commands.md. */
#include "cli/commands.h"
#include "cli/reference/private.h"

#include <string.h>

/* Writes the usage line as plain text. The character \1, which keeps words on one line, becomes a
 * space. */
static void usage_line(const struct cli_command *c, const struct cli_verb *v, const char *given,
                       struct lw_buf *out) {
    size_t at = out->n;
    if (given)
        lw_buf_addf(out, "latchwork %s %s", c->name, given);
    else
        cli_usage(c, v, out);
    for (; at < out->n; at++)
        if (out->p[at] == '\1') out->p[at] = ' ';
    lw_buf_addf(out, "\n");
}

static void usage(const struct cli_command *c, struct lw_buf *out) {
    lw_buf_addf(out, "```\n");
    for (size_t i = 0; i < c->n_verbs && !c->usage; i++) usage_line(c, &c->verbs[i], NULL, out);
    for (size_t i = 0; c->usage && c->usage[i]; i++) usage_line(c, NULL, c->usage[i], out);
    if (!c->n_verbs && !c->usage) usage_line(c, NULL, NULL, out);
    lw_buf_addf(out, "```\n\n");
}

static void verbs(const struct cli_command *c, struct lw_buf *out) {
    if (!c->n_verbs) return;
    lw_buf_addf(out, "| verb | |\n|---|---|\n");
    for (size_t i = 0; i < c->n_verbs; i++)
        lw_buf_addf(out, "| %s | %s |\n", c->verbs[i].name, c->verbs[i].help);
    lw_buf_addf(out, "\n");
}

static void option(const struct cli_command *c, const struct cli_option *o, struct lw_buf *out) {
    lw_buf_addf(out, "| ");
    reference_option(o, out);
    if (c->n_verbs) lw_buf_addf(out, " | ");
    if (c->n_verbs && !o->verbs) lw_buf_addf(out, "all");
    if (c->n_verbs && o->verbs) cli_verb_names(c, o->verbs, "and", out);
    lw_buf_addf(out, " | %s", o->help);
    if (o->dflt) lw_buf_addf(out, " (default: %s)", o->dflt);
    lw_buf_addf(out, " |\n");
}

static void options(const struct cli_command *c, struct lw_buf *out) {
    lw_buf_addf(out,
                c->n_verbs ? "| option | of | |\n|---|---|---|\n" : "| option | |\n|---|---|\n");
    for (const struct cli_option *o = c->options; o->name; o++)
        if (cli_has(c, o)) option(c, o, out);
}

static void statuses(const struct cli_command *c, struct lw_buf *out) {
    lw_buf_addf(out, c->n_verbs ? "\n| exit status | of | |\n|---|---|---|\n"
                                : "\n| exit status | |\n|---|---|\n");
    for (const struct cli_status *s = c->statuses; s->code; s++) {
        lw_buf_addf(out, "| %s | ", s->code);
        if (c->n_verbs && !s->verbs) lw_buf_addf(out, "all");
        if (c->n_verbs && s->verbs) cli_verb_names(c, s->verbs, "and", out);
        lw_buf_addf(out, "%s%s |\n", c->n_verbs ? " | " : "", s->means);
    }
}

static void examples(const struct cli_command *c, struct lw_buf *out) {
    lw_buf_addf(out, "\n```sh\n");
    for (const char *const *e = c->examples; *e; e++)
        lw_buf_addf(out, "latchwork %s%s%s\n", c->name, **e ? " " : "", *e);
    lw_buf_addf(out, "```\n");
}

static void command(const struct cli_command *c, struct lw_buf *out) {
    const char *text = reference_text(c->name);
    lw_buf_addf(out, "\n## %s\n\n", c->name);
    if (!c->run) {
        lw_buf_addf(out, "Not in this version: it says so, and ends with 2.\n");
        return;
    }
    usage(c, out);
    lw_buf_addf(out, "%s\n\n", c->about);
    verbs(c, out);
    options(c, out);
    if (*text) lw_buf_addf(out, "\n%s", text);
    statuses(c, out);
    examples(c, out);
}

void reference_commands(struct lw_buf *out) {
    lw_buf_addf(out, "# Commands\n\n"
                     "<!-- Made by `make reference` of the tables in cli/ and of cli/*/page.md. Do "
                     "not edit this file. -->\n\n"
                     "`latchwork COMMAND [options]`. `-h`, `--help` describes a command or a verb; "
                     "`latchwork --version` prints the "
                     "version. Options may stand\nanywhere before `--`. Exit statuses in one "
                     "table: [exit codes](exit-codes.md).\n");
    for (size_t i = 0; i < cli_n_commands; i++)
        if (!cli_commands[i]->hidden) command(cli_commands[i], out);
}
