/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the Markdown of the pages to roff with the macros of man(7). */
#include "cli/reference/private.h"

#include <ctype.h>
#include <string.h>

/* --- within a line ---------------------------------------------------------------------------- */

static void character(char c, struct lw_buf *out) {
    if (c == '-')
        lw_buf_addf(out, "\\-");
    else if (c == '\\')
        lw_buf_addf(out, "\\e");
    else if (c == '\1')
        lw_buf_addf(out, "\\ ");
    else if (c == '\'')
        lw_buf_addf(out, "\\(aq");
    else
        lw_buf_add(out, &c, 1);
}

/* Writes plain text. A dot at the beginning of a line is escaped, because roff would take the dot
 * for a request. */
static void plain(const char *text, size_t n, struct lw_buf *out) {
    if (n && *text == '.' && (!out->n || out->p[out->n - 1] == '\n')) lw_buf_addf(out, "\\&");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\' && i + 1 < n && strchr("|*`[", text[i + 1]))
            i++; /* the backslash that Markdown needs before this character is left out */
        character(text[i], out);
    }
}

/* Parses a link "[text](target)" at `p`. Returns its length and sets *text to the length of the
 * text; returns 0 if there is no link. */
static size_t link_length(const char *p, const char *end, size_t *text) {
    const char *close = *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL;
    if (!close || close + 1 >= end || close[1] != '(') return 0;
    const char *last = memchr(close, ')', (size_t)(end - close));
    *text = (size_t)(close - p) - 1;
    return last ? (size_t)(last - p) + 1 : 0;
}

/* Returns the length of the text between two marks of m characters, as in **bold**. Returns 0 if
 * the second mark is not on this line. */
static size_t between(const char *p, const char *end, const char *mark, size_t m) {
    if ((size_t)(end - p) < 2 * m || strncmp(p, mark, m) != 0) return 0;
    for (const char *q = p + m + 1; q + m <= end; q++)
        if (strncmp(q, mark, m) == 0) return (size_t)(q - p) - m;
    return 0;
}

static void marked(const char *font, const char *text, size_t n, struct lw_buf *out) {
    lw_buf_addf(out, "\\f%s", font);
    plain(text, n, out);
    lw_buf_addf(out, "\\fR");
}

void reference_inline_to_man(const char *text, size_t n, struct lw_buf *out) {
    const char *end = text + n, *from = text;
    for (const char *p = text; p < end;) {
        size_t inner = 0, bold = between(p, end, "**", 2), code = between(p, end, "`", 1),
               link = link_length(p, end, &inner);
        size_t italic = !bold && p[0] == '*' && p + 1 < end && isalpha((unsigned char)p[1])
                            ? between(p, end, "*", 1)
                            : 0;
        bool escaped = *p == '\\' && p + 1 < end;
        if (!bold && !code && !link && !italic) {
            p += escaped ? 2 : 1;
            continue;
        }
        plain(from, (size_t)(p - from), out);
        if (link)
            reference_inline_to_man(p + 1, inner, out);
        else if (bold)
            marked("B", p + 2, bold, out);
        else if (italic)
            marked("I", p + 1, italic, out);
        else
            marked("B", p + 1, code, out);
        p += link ? link : bold ? bold + 4 : italic ? italic + 2 : code + 2;
        from = p;
    }
    plain(from, (size_t)(end - from), out);
}

/* --- blocks ----------------------------------------------------------------------------------- */

struct block {
    bool verbatim, fence, paragraph, table;
};

static void end_block(struct block *b, struct lw_buf *out) {
    if (b->verbatim) lw_buf_addf(out, ".EE\n");
    *b = (struct block){0};
}

static void verbatim_line(struct block *b, const char *line, size_t n, struct lw_buf *out) {
    if (!b->verbatim) lw_buf_addf(out, ".PP\n.EX\n");
    b->verbatim = true;
    lw_buf_addf(out, "%s", n && *line == '.' ? "\\&" : "");
    for (size_t i = 0; i < n; i++) character(line[i], out);
    lw_buf_addf(out, "\n");
}

static void heading(const char *line, size_t n, struct lw_buf *out) {
    lw_buf_addf(out, ".SH \"");
    for (size_t i = 0; i < n; i++) lw_buf_addf(out, "%c", toupper((unsigned char)line[i]));
    lw_buf_addf(out, "\"\n");
}

/* Returns the length of a table cell, which ends at the next | that is not escaped. */
static size_t cell_length(const char *p, size_t n) {
    size_t i = 0;
    while (i < n && (p[i] != '|' || (i && p[i - 1] == '\\'))) i++;
    return i;
}

static void cell(const char *p, size_t n, struct lw_buf *out) {
    while (n && *p == ' ') p++, n--;
    while (n && p[n - 1] == ' ') n--;
    reference_inline_to_man(p, n, out);
    lw_buf_addf(out, "\n");
}

/* Writes one row "| term | text |" of a table. */
static void table_row(const char *line, size_t n, struct lw_buf *out) {
    size_t term = cell_length(line + 1, n - 1), at = term + 2;
    lw_buf_addf(out, ".TP\n");
    cell(line + 1, term, out);
    cell(line + at, cell_length(line + at, n - at), out);
}

static void text_line(struct block *b, const char *line, size_t n, struct lw_buf *out) {
    if (strncmp(line, "- ", 2) == 0) {
        lw_buf_addf(out, ".IP \\(bu 2\n");
        line += 2, n -= 2;
    } else if (!b->paragraph) {
        lw_buf_addf(out, ".PP\n");
    }
    b->paragraph = true;
    while (n && *line == ' ') line++, n--;
    reference_inline_to_man(line, n, out);
    lw_buf_addf(out, "\n");
}

/* Skips the first two lines of a table: the header and the line of dashes below it. */
static const char *skip_header(const char *line) {
    for (int i = 0; i < 2; i++) line += strcspn(line, "\n"), line += *line == '\n';
    return line;
}

void reference_markdown_to_man(const char *text, struct lw_buf *out) {
    struct block b = {0};
    for (const char *line = text; *line;) {
        if (*line == '|' && !b.table && !b.verbatim) {
            line = skip_header(line);
            b.table = true;
            continue;
        }
        size_t n = strcspn(line, "\n");
        if (strncmp(line, "```", 3) == 0) {
            bool open = !b.fence;
            end_block(&b, out);
            b.fence = open;
        } else if (b.fence || strncmp(line, "    ", 4) == 0) {
            size_t skip = b.fence ? 0 : 4;
            verbatim_line(&b, line + skip, n - skip, out);
        } else if (!n) {
            end_block(&b, out);
        } else if (strncmp(line, "### ", 4) == 0) {
            heading(line + 4, n - 4, out);
        } else if (*line == '|') {
            table_row(line, n, out);
        } else {
            text_line(&b, line, n, out);
        }
        line += n + (line[n] == '\n');
    }
    end_block(&b, out);
}
