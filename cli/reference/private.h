/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the pages that are generated from the commands' tables: doc/reference/commands.md,
 * exit-codes.md and the completion scripts. scripts/man-pages.py makes the man pages of
 * commands.md. */
#ifndef LW_CLI_REFERENCE_PRIVATE_H
#define LW_CLI_REFERENCE_PRIVATE_H

#include "cli/options.h"

/* Holds Markdown that a command's page has in addition to the generated text.
 * scripts/embed-pages.sh embeds it from cli/NAME/page.md. */
struct reference_page {
    const char *command; /* name of the command */
    /* `text` is the Markdown. It may have paragraphs, `code`, **bold**, [links](URL), tables of two
     * columns, ``` blocks, and headings with ###. */
    const char *text;
};
extern const struct reference_page reference_pages[];
extern const size_t reference_n_pages;

/* Returns the additional Markdown of the command's page, or "" if there is none. */
const char *reference_text(const char *command);
/* Writes an option's names and its value in Markdown, as in "`-c`, `--config FILE`". */
void reference_option(const struct cli_option *o, struct lw_buf *out);

/* Writes doc/reference/commands.md. commands.c defines this function. */
void reference_commands(struct lw_buf *out);
/* Writes doc/reference/exit-codes.md. exit_codes.c defines this function. */
void reference_exit_codes(struct lw_buf *out);
/* Writes the completion script for bash. completion.c defines this function. */
void reference_completion_bash(struct lw_buf *out);
/* Writes the one for zsh. */
void reference_completion_zsh(struct lw_buf *out);

#endif
