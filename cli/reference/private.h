/* SPDX-License-Identifier: Apache-2.0 */
/* The generated pages, made of the commands' tables: doc/reference/commands.md, exit-codes.md,
 * the man pages and the completion scripts. */
#ifndef LW_CLI_REFERENCE_PRIVATE_H
#define LW_CLI_REFERENCE_PRIVATE_H

#include "cli/options.h"

/* Text that a page adds to the table: cli/NAME/page.md, embedded by scripts/embed-pages.sh. */
struct reference_page {
    const char *command; /* name of the command; "cli": the program as a whole */
    const char
        *text; /* in Markdown with paragraphs, `code`, **bold**, [links](URL), tables of two columns, ``` blocks, and headings with ### */
};
extern const struct reference_page reference_pages[];
extern const size_t reference_n_pages;

const char *reference_text(const char *command); /* the added text of the command's page; "" if there is none */
/* Writes an option's names and its value with Markdown around them: "`-c`, `--config FILE`". */
void reference_option(const struct cli_option *o, struct lw_buf *out);

void reference_commands(struct lw_buf *out);                          /* defined in commands.c; writes doc/reference/commands.md */
void reference_exit_codes(struct lw_buf *out);                        /* defined in exit_codes.c; writes doc/reference/exit-codes.md */
void reference_man(const struct cli_command *c, struct lw_buf *out);  /* defined in man.c; if c is NULL, writes latchwork.1 */
void reference_markdown_to_man(const char *text, struct lw_buf *out); /* defined in markdown.c */
void reference_inline_to_man(const char *text, size_t n, struct lw_buf *out);
void reference_completion_bash(struct lw_buf *out); /* defined in completion.c */
void reference_completion_zsh(struct lw_buf *out);

#endif
