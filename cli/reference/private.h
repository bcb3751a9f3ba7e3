/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the pages that are generated from the commands' tables: doc/reference/commands.md,
 * exit-codes.md, the man pages and the completion scripts. */
#ifndef LW_CLI_REFERENCE_PRIVATE_H
#define LW_CLI_REFERENCE_PRIVATE_H

#include "cli/options.h"

/* Holds text that a page has in addition to the table: cli/NAME/page.md, embedded by
 * scripts/embed-pages.sh. */
struct reference_page {
    const char *command; /* name of the command; "cli" stands for the program as a whole */
    /* the text in Markdown: paragraphs, `code`, **bold**, [links](URL), tables of two columns, ```
     * blocks, and headings with ### */
    const char *text;
};
extern const struct reference_page reference_pages[];
extern const size_t reference_n_pages;

/* Returns the added text of the command's page, or "" if the command has no such page. */
const char *reference_text(const char *command);
/* Writes an option's names and its value in Markdown, as in "`-c`, `--config FILE`". */
void reference_option(const struct cli_option *o, struct lw_buf *out);

/* Writes doc/reference/commands.md. The function is defined in commands.c. */
void reference_commands(struct lw_buf *out);
/* Writes doc/reference/exit-codes.md. The function is defined in exit_codes.c. */
void reference_exit_codes(struct lw_buf *out);
/* Writes the man page of a command, or latchwork.1 if c is NULL. The function is defined in
 * man.c. */
void reference_man(const struct cli_command *c, struct lw_buf *out);
/* Converts Markdown to the roff of a man page. The function is defined in markdown.c. */
void reference_markdown_to_man(const char *text, struct lw_buf *out);
void reference_inline_to_man(const char *text, size_t n, struct lw_buf *out);
/* Writes the completion script for bash. The function is defined in completion.c. */
void reference_completion_bash(struct lw_buf *out);
void reference_completion_zsh(struct lw_buf *out);

#endif
