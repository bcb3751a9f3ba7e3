/* SPDX-License-Identifier: Apache-2.0 */
/* Generates the help of a command or of a verb from the command's table, in lines of at most
 * CLI_WIDTH columns. */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

enum {
    VERB_COLUMN = 10,
    OPTION_COLUMN_MIN = 22,
    OPTION_COLUMN_MAX = 26,
    STATUS_COLUMN = 12,
    GLUE = '\1'
};

bool cli_takes(const struct cli_verb *v, unsigned verbs) {
    return !v || !verbs || (v->bit & verbs);
}

bool cli_has(const struct cli_command *c, const struct cli_option *o) {
    bool any = !c->n_verbs;
    for (size_t i = 0; i < c->n_verbs; i++) any |= cli_takes(&c->verbs[i], o->verbs);
    return any;
}

static void pad(struct lw_buf *out, size_t *column, size_t to) {
    for (; *column < to; ++*column) lw_buf_add(out, " ", 1);
}

/* Appends the words of `text` to `out` in lines of at most CLI_WIDTH columns. The first line begins
 * at `column`, all other lines at `indent`. */
static void wrap(struct lw_buf *out, const char *text, size_t column, size_t indent) {
    bool first = true;
    for (const char *w = text + strspn(text, " "); *w; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        if (!first && column + 1 + n > CLI_WIDTH) {
            lw_buf_add(out, "\n", 1);
            column = 0;
            pad(out, &column, indent);
            first = true;
        }
        if (!first) lw_buf_add(out, " ", 1), column++;
        for (size_t i = 0; i < n; i++) lw_buf_add(out, w[i] == GLUE ? " " : w + i, 1);
        column += n;
        first = false;
        w += n;
    }
    lw_buf_add(out, "\n", 1);
}

void cli_verb_names(const struct cli_command *c, unsigned verbs, const char *conjunction,
                    struct lw_buf *out) {
    size_t left = 0;
    for (size_t i = 0; i < c->n_verbs; i++) left += cli_takes(&c->verbs[i], verbs);
    for (size_t i = 0, n = 0; i < c->n_verbs; i++) {
        if (!cli_takes(&c->verbs[i], verbs)) continue;
        if (n++) left == 1 ? lw_buf_addf(out, " %s ", conjunction) : lw_buf_addf(out, ", ");
        lw_buf_addf(out, "%s", c->verbs[i].name);
        left--;
    }
}

/* --- usage ------------------------------------------------------------------------------------ */

static bool is_many(const struct cli_option *o) {
    return o->kind == CLI_LIST || (o->kind == CLI_SET && !o->path);
}

static void usage_option(struct lw_buf *out, const struct cli_option *o) {
    bool bare = o->need == CLI_REQUIRED;
    lw_buf_addf(out, " %s", bare ? "" : "[");
    if (bare && o->brief)
        lw_buf_addf(out, "-%c", o->brief);
    else
        lw_buf_addf(out, "--%s", o->name);
    if (o->metavar) lw_buf_addf(out, "%c%s", GLUE, o->metavar);
    lw_buf_addf(out, "%s%s", bare ? "" : "]", is_many(o) ? "..." : "");
}

static bool in_usage(const struct cli_command *c, const struct cli_option *o,
                     const struct cli_verb *v) {
    return cli_has(c, o) && cli_takes(v, o->verbs) && o->need != CLI_SPOKEN;
}

void cli_usage(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out) {
    const char *words = v ? v->words : c->n_verbs ? "VERB" : c->words;
    size_t n = 0;
    lw_buf_addf(out, "latchwork %s%s%s", c->name, v ? " " : "", v ? v->name : "");
    if (words) lw_buf_addf(out, " %s", words);
    for (const struct cli_option *o = c->options; o->name; o++) n += in_usage(c, o, v);
    bool all = n <= 8 && (v || !c->n_verbs);
    for (const struct cli_option *o = c->options; o->name; o++)
        if (in_usage(c, o, v) && (all || o->need == CLI_REQUIRED)) usage_option(out, o);
    if (!all) lw_buf_addf(out, " [options]");
    if (v && v->tail) lw_buf_addf(out, " --%cCMD...", GLUE);
}

static void usage_line(struct lw_buf *out, const char *before, const char *text) {
    const char *behind = strchr(text, ' ');
    lw_buf_addf(out, "%s", before);
    size_t indent = strlen(before) + (behind ? (size_t)(behind - text) : 0) + 1;
    wrap(out, text, strlen(before), indent);
}

static void usage(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out) {
    struct lw_buf line = {0};
    if (!v && c->usage) {
        for (size_t i = 0; c->usage[i]; i++) {
            line.n = 0;
            lw_buf_addf(&line, "latchwork %s %s", c->name, c->usage[i]);
            lw_buf_add(&line, "", 1);
            usage_line(out, i ? "       " : "usage: ", line.p);
        }
        lw_buf_free(&line);
        return;
    }
    cli_usage(c, v, &line);
    lw_buf_add(&line, "", 1);
    usage_line(out, "usage: ", line.p);
    lw_buf_free(&line);
}

/* --- the parts -------------------------------------------------------------------------------- */

/* Adds a text to the help. Paragraphs are wrapped into lines of at most CLI_WIDTH columns. A line
 * that begins with four spaces is not wrapped. It is copied without its first two spaces. */
static void about(struct lw_buf *out, const char *text) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        if (strncmp(p, "    ", 4) == 0) {
            lw_buf_addf(out, "%.*s\n", (int)n - 2, p + 2);
        } else {
            struct lw_buf line = {0};
            lw_buf_addf(&line, "%.*s", (int)n, p);
            lw_buf_add(&line, "", 1);
            wrap(out, line.p, 0, 0);
            lw_buf_free(&line);
        }
        p += n + (p[n] == '\n');
    }
}

static void verbs(struct lw_buf *out, const struct cli_command *c) {
    lw_buf_addf(out, "\n");
    for (size_t i = 0; i < c->n_verbs; i++) {
        size_t before = out->n;
        lw_buf_addf(out, "  %-*s ", VERB_COLUMN - 3, c->verbs[i].name);
        wrap(out, c->verbs[i].help, out->n - before, VERB_COLUMN);
    }
    lw_buf_addf(out, "\nlatchwork %s VERB --help lists the options of a verb.\n", c->name);
}

static void option_names(struct lw_buf *out, const struct cli_option *o) {
    if (o->brief)
        lw_buf_addf(out, "  -%c, --%s", o->brief, o->name);
    else
        lw_buf_addf(out, "      --%s", o->name);
    if (o->metavar) lw_buf_addf(out, " %s", o->metavar);
}

static void option(struct lw_buf *out, const struct cli_option *o, size_t column) {
    struct lw_buf text = {0};
    size_t before = out->n;
    option_names(out, o);
    size_t at = out->n - before;
    if (at + 2 > column) {
        lw_buf_add(out, "\n", 1);
        at = 0;
    }
    pad(out, &at, column);
    lw_buf_addf(&text, "%s", o->help);
    if (o->dflt) lw_buf_addf(&text, " (default: %s)", o->dflt);
    lw_buf_add(&text, "", 1);
    wrap(out, text.p, column, column);
    lw_buf_free(&text);
}

/* Returns true if the help lists the option. The help of a verb lists the options that the verb
 * takes; the help of a command with verbs lists only the options that every verb takes. */
static bool shown(const struct cli_command *c, const struct cli_verb *v,
                  const struct cli_option *o) {
    return v || !c->n_verbs ? cli_takes(v, o->verbs) : !o->verbs;
}

static size_t options_column(const struct cli_command *c, const struct cli_verb *v) {
    struct lw_buf name = {0};
    size_t column = OPTION_COLUMN_MIN;
    for (const struct cli_option *o = c->options; o->name; o++) {
        if (!shown(c, v, o)) continue;
        name.n = 0;
        option_names(&name, o);
        if (name.n + 2 > column && name.n + 2 <= OPTION_COLUMN_MAX) column = name.n + 2;
    }
    lw_buf_free(&name);
    return column;
}

static void options(struct lw_buf *out, const struct cli_command *c, const struct cli_verb *v) {
    static const struct cli_option help = {.name = "help", .brief = 'h', .help = "print this text"};
    size_t column = options_column(c, v);
    lw_buf_addf(out, "\n");
    for (const struct cli_option *o = c->options; o->name; o++)
        if (shown(c, v, o)) option(out, o, column);
    option(out, &help, column);
}

static void examples(struct lw_buf *out, const struct cli_command *c, const struct cli_verb *v) {
    bool any = false;
    for (const char *const *e = c->examples; e && *e; e++) {
        size_t n = v ? strlen(v->name) : 0;
        if (v && (strncmp(*e, v->name, n) != 0 || (*e)[n] != ' ')) continue;
        lw_buf_addf(out, "%s  latchwork %s %s\n", any ? "" : "\nExamples:\n", c->name, *e);
        any = true;
    }
}

static void statuses(struct lw_buf *out, const struct cli_command *c, const struct cli_verb *v) {
    lw_buf_addf(out, "\nExit status:\n");
    for (const struct cli_status *s = c->statuses; s && s->code; s++) {
        if (!cli_takes(v, s->verbs)) continue;
        struct lw_buf text = {0};
        if (!v && s->verbs) cli_verb_names(c, s->verbs, "and", &text);
        lw_buf_addf(&text, "%s%s", text.n ? ": " : "", s->means);
        lw_buf_add(&text, "", 1);
        lw_buf_addf(out, "  %-*s", STATUS_COLUMN - 2, s->code);
        wrap(out, text.p, STATUS_COLUMN, STATUS_COLUMN);
        lw_buf_free(&text);
    }
}

void cli_help(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out) {
    usage(c, v, out);
    lw_buf_addf(out, "\n");
    if (v) {
        size_t at = out->n;
        wrap(out, v->help, 0, 0);
        if (out->p[at] >= 'a' && out->p[at] <= 'z') out->p[at] = (char)(out->p[at] - 'a' + 'A');
        out->p[out->n - 1] = '.';
        lw_buf_addf(out, "\n");
    }
    if (c->about && !v) about(out, c->about);
    if (c->n_verbs && !v) verbs(out, c);
    options(out, c, v);
    examples(out, c, v);
    statuses(out, c, v);
}
