/* SPDX-License-Identifier: Apache-2.0 */
/* The pages made of the commands' tables: doc/reference/commands.md, exit-codes.md, the man pages,
 * completion. */
#ifndef LW_CLI_REFERENCE_PRIVATE_H
#define LW_CLI_REFERENCE_PRIVATE_H

#include "cli/options.h"

/* What a page says beyond the table: cli/NAME/page.md, embedded by scripts/embed-pages.sh. */
struct reference_page {
    const char *command; /* "cli": of the program as a whole */
    const char *text;    /* Markdown: paragraphs, `code`, **bold**, [links](URL), tables of two columns, ```, and headings with ### */
};
extern const struct reference_page reference_pages[];
extern const size_t reference_n_pages;

const char *reference_text(const char *command); /* "" if it has none */
/* Writes an option's names and its value with Markdown around them: "`-c`, `--config FILE`". */
void reference_option(const struct cli_option *o, struct lw_buf *out);

void reference_commands(struct lw_buf *out);                          /* commands.c: doc/reference/commands.md */
void reference_exit_codes(struct lw_buf *out);                        /* exit_codes.c: doc/reference/exit-codes.md */
void reference_man(const struct cli_command *c, struct lw_buf *out);  /* man.c; c NULL: latchwork.1 */
void reference_markdown_to_man(const char *text, struct lw_buf *out); /* markdown.c */
void reference_inline_to_man(const char *text, size_t n, struct lw_buf *out);
void reference_completion_bash(struct lw_buf *out); /* completion.c */
void reference_completion_zsh(struct lw_buf *out);

#endif
