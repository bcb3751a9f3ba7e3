/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a command line according to the table of its command. */
#include "cli/options.h"

#include "base/nearest.h"
#include "cli/check/check.h"
#include "ops/time.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LONG_BASE is the lowest value that getopt returns for a long option. It is larger than the code
 * of every letter. */
enum { OPTIONS_MAX = 64, LONG_BASE = 256, HELP = LONG_BASE + OPTIONS_MAX, GO_ON = -1 };

/* Holds the state of one call of cli_parse(). */
struct parse {
    const struct cli_command *c;
    struct cli_args *args;
    bool help;
    /* `seen` has one element per row of the command's table of options. The element is true if the
     * option was given. */
    bool seen[OPTIONS_MAX];
};

/* --- misuse ----------------------------------------------------------------------------------- */

int cli_misuse(const struct cli_args *a, const char *fmt, ...) {
    const char *name = a->command->name, *verb = a->verb ? a->verb->name : "",
               *space = a->verb ? " " : "";
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "latchwork %s%s%s: ", name, space, verb);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "; see: latchwork %s%s%s --help\n", name, space, verb);
    va_end(ap);
    return CLI_USAGE;
}

/* Reports an unknown option. `text` is what the user wrote, with its dashes and without a value. */
static int unknown_option(const struct parse *p, const char *text) {
    const char *names[OPTIONS_MAX + 1] = {"help"};
    size_t n = 1;
    for (const struct cli_option *o = p->c->options; o->name; o++)
        if (cli_has(p->c, o) && cli_takes(p->args->verb, o->verbs)) names[n++] = o->name;
    char word[CLI_NAME_MAX];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    const char *near = lw_nearest(word, names, n);
    if (near) return cli_misuse(p->args, "unknown option %s; did you mean --%s?", text, near);
    return cli_misuse(p->args, "unknown option %s", text);
}

/* Reports what getopt rejected: an unknown option, or an option that takes no value and was given
 * one. */
static int rejected(const struct parse *p, char *const *argv) {
    if (optopt == 0) return unknown_option(p, argv[optind - 1]);
    if (optopt == HELP) return cli_misuse(p->args, "--help takes no value");
    if (optopt >= LONG_BASE)
        return cli_misuse(p->args, "--%s takes no value", p->c->options[optopt - LONG_BASE].name);
    return cli_misuse(p->args, "unknown option -%c", optopt);
}

static int needs_value(const struct parse *p) {
    if (optopt < LONG_BASE) return cli_misuse(p->args, "-%c needs a value", optopt);
    return cli_misuse(p->args, "--%s needs a value", p->c->options[optopt - LONG_BASE].name);
}

/* --- values ----------------------------------------------------------------------------------- */

static int number(const struct parse *p, const struct cli_option *o, const char *text,
                  int64_t *out) {
    char *end;
    const char * or = o->none ? ", or none" : "";
    errno = 0;
    long long v = strtoll(text, &end, 10), most = o->max ? o->max : INT64_MAX;
    if (o->none && !strcmp(text, "none")) return *out = o->none, 0;
    *out = v;
    if (!errno && end != text && !*end && strspn(text, "-0123456789") == strlen(text) &&
        v >= o->min && v <= most)
        return 0;
    if (o->max)
        return cli_misuse(p->args, "--%s %s: expected a number from %lld to %lld%s", o->name, text,
                          (long long)o->min, most, or);
    return cli_misuse(p->args, "--%s %s: expected a number of at least %lld%s", o->name, text,
                      (long long)o->min, or);
}

static int duration(const struct parse *p, const struct cli_option *o, const char *text,
                    int64_t *out) {
    *out = ops_duration_ms(text);
    if (*out >= o->min && (!o->max || *out <= o->max)) return 0;
    if (!o->max)
        return cli_misuse(p->args, "--%s %s: expected a time such as 90s, 15m, 2h or 3d", o->name,
                          text);
    char from[OPS_DURATION_TEXT], to[OPS_DURATION_TEXT];
    return cli_misuse(p->args, "--%s %s: expected a time from %s to %s", o->name, text,
                      ops_duration_text(o->min, from), ops_duration_text(o->max, to));
}

static int rate(const struct parse *p, const struct cli_option *o, const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    if (strcmp(end, "/s") == 0) end += 2;
    if (end != text && !*end && *out > 0 && *out <= 1e9) return 0;
    return cli_misuse(p->args,
                      "--%s %s: expected a number of messages per second, such as 5 or 0.5",
                      o->name, text);
}

/* Reports that the value of an option is none of the words that the option allows. `o->metavar`
 * lists these words. */
static int wrong_word(const struct parse *p, const struct cli_option *o, const char *text) {
    struct lw_buf words = {0};
    for (const char *w = o->metavar; *w; w += strcspn(w, "|"), w += *w == '|') {
        size_t n = strcspn(w, "|");
        lw_buf_addf(&words, "%s%.*s", !words.n ? "" : w[n] ? ", " : " or ", (int)n, w);
    }
    cli_misuse(p->args, "--%s %s: expected %.*s", o->name, text, (int)words.n, words.p);
    lw_buf_free(&words);
    return CLI_USAGE;
}

static int word(const struct parse *p, const struct cli_option *o, const char *text,
                const char **out) {
    *out = text;
    for (const struct cli_alias *a = o->aliases; a && a->word; a++)
        if (strcmp(a->word, text) == 0) *out = text = a->means;
    for (const char *w = o->metavar; *w; w += strcspn(w, "|"), w += *w == '|')
        if (strcspn(w, "|") == strlen(text) && strncmp(w, text, strlen(text)) == 0) return 0;
    return wrong_word(p, o, text);
}

static int add_override(const struct parse *p, const struct cli_option *o, char *text) {
    struct cli_args *a = p->args;
    if (!o->path) {
        const char *wrong = lw_override_add(a->set, &a->n_set, CLI_SET_MAX, text);
        return wrong ? cli_misuse(a, "--set %s: %s", text, wrong) : 0;
    }
    if (a->n_set == CLI_SET_MAX)
        return cli_misuse(a, "--%s: too many overrides; expected at most %d", o->name, CLI_SET_MAX);
    a->set[a->n_set++] = (struct lw_override){o->path, text};
    return 0;
}

static int add(const struct parse *p, const struct cli_option *o, const char *text,
               const char **list, size_t *n) {
    if (*n == (size_t)o->max)
        return cli_misuse(p->args, "--%s is given too often; expected at most %zu times", o->name,
                          (size_t)o->max);
    list[(*n)++] = text;
    return 0;
}

static int take(struct parse *p, const struct cli_option *o) {
    void *to = (char *)p->args + o->at;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)to = true; return 0;
    case CLI_TEXT: *(const char **)to = optarg; return 0;
    case CLI_WORD: return word(p, o, optarg, to);
    case CLI_NUMBER: return number(p, o, optarg, to);
    case CLI_DURATION: return duration(p, o, optarg, to);
    case CLI_RATE: return rate(p, o, optarg, to);
    case CLI_LIST: return add(p, o, optarg, to, (size_t *)(void *)((char *)p->args + o->count));
    case CLI_SET: return add_override(p, o, optarg);
    }
    return 0;
}

/* --- getopt ----------------------------------------------------------------------------------- */

/* Converts the rows of the table for getopt. For a long option, getopt returns LONG_BASE plus the
 * number of the option's row. */
static void for_getopt(const struct cli_command *c, struct option longs[OPTIONS_MAX + 2],
                       char shorts[2 * OPTIONS_MAX + 4]) {
    char *s = shorts;
    size_t n = 0;
    *s++ = ':', *s++ = 'h';
    for (size_t i = 0; c->options[i].name; i++) {
        const struct cli_option *o = &c->options[i];
        bool has_value = o->kind != CLI_FLAG;
        if (!cli_has(c, o)) continue;
        longs[n++] = (struct option){o->name, has_value ? required_argument : no_argument, NULL,
                                     LONG_BASE + (int)i};
        if (o->brief) *s++ = o->brief;
        if (o->brief && has_value) *s++ = ':';
    }
    longs[n++] = (struct option){"help", no_argument, NULL, HELP};
    longs[n] = (struct option){0};
    *s = '\0';
}

static int row_of(const struct cli_command *c, int opt) {
    if (opt >= LONG_BASE) return opt - LONG_BASE;
    int row = 0;
    while (c->options[row].brief != opt || !cli_has(c, &c->options[row])) row++;
    return row;
}

/* Finds the verb before anything else is parsed, so that error texts can name the verb. This first
 * pass works on a copy of the arguments, because getopt moves options to the front. If the original
 * array were changed, the second pass could take another argument as the value of an option whose
 * value is missing. */
static void look_for_verb(struct parse *p, int argc, char **argv, const struct option *longs,
                          const char *shorts) {
    char **copy = lw_alloc(((size_t)argc + 1) * sizeof *argv);
    memcpy(copy, argv, (size_t)argc * sizeof *argv);
    optind = 0;
    while (getopt_long(argc, copy, shorts, longs, NULL) != -1) {}
    for (size_t i = 0; i < p->c->n_verbs && optind < argc; i++)
        if (strcmp(p->c->verbs[i].name, copy[optind]) == 0) p->args->verb = &p->c->verbs[i];
    free(copy);
}

static int parse_options(struct parse *p, int argc, char **argv) {
    struct option longs[OPTIONS_MAX + 2];
    char shorts[2 * OPTIONS_MAX + 4];
    int opt;
    for_getopt(p->c, longs, shorts);
    opterr = 0;
    look_for_verb(p, argc, argv, longs, shorts);
    optind = 0;
    while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (opt == ':') return needs_value(p);
        if (opt == '?') return rejected(p, argv);
        if (opt == 'h' || opt == HELP) {
            p->help = true;
            continue;
        }
        int row = row_of(p->c, opt), wrong = take(p, &p->c->options[row]);
        if (wrong) return wrong;
        p->seen[row] = true;
    }
    return 0;
}

/* --- verb and words --------------------------------------------------------------------------- */

static bool has_verb(const struct cli_command *c, const char *name) {
    for (size_t i = 0; i < c->n_verbs; i++)
        if (strcmp(c->verbs[i].name, name) == 0) return true;
    return false;
}

static int unknown_verb(const struct parse *p, const char *name) {
    if (p->c->sibling && has_verb(p->c->sibling, name))
        return cli_misuse(p->args, "%s is a verb of another command: latchwork %s %s", name,
                          p->c->sibling->name, name);
    if (name[0] == '-')
        return cli_misuse(p->args, "%s after -- is not an option; put options before --", name);
    const char *names[CLI_NAME_MAX];
    for (size_t i = 0; i < p->c->n_verbs; i++) names[i] = p->c->verbs[i].name;
    const char *near = lw_nearest(name, names, p->c->n_verbs);
    struct lw_buf all = {0};
    cli_verb_names(p->c, 0, "and", &all);
    cli_misuse(p->args, "unknown verb %s%s%s%s: the verbs are %.*s", name,
               near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", (int)all.n,
               all.p);
    lw_buf_free(&all);
    return CLI_USAGE;
}

static int no_verb(const struct parse *p) {
    struct lw_buf text = {0}, names = {0};
    cli_verb_names(p->c, 0, "or", &names);
    cli_help(p->c, NULL, &text);
    fprintf(stderr, "latchwork %s: expected a verb: %.*s\n%.*s", p->c->name, (int)names.n, names.p,
            (int)text.n, text.p);
    lw_buf_free(&names);
    lw_buf_free(&text);
    return CLI_USAGE;
}

/* Reports an option that the chosen verb does not take, and names the verbs that take it. */
static int foreign_option(const struct parse *p, const struct cli_option *o) {
    struct lw_buf names = {0};
    cli_verb_names(p->c, o->verbs, "and", &names);
    cli_misuse(p->args, "unknown option --%s: it belongs to %.*s", o->name, (int)names.n, names.p);
    lw_buf_free(&names);
    return CLI_USAGE;
}

static int missing_option(const struct parse *p, const struct cli_option *o) {
    if (o->brief)
        return cli_misuse(p->args, "-%c %s is required: %s", o->brief, o->metavar, o->help);
    return cli_misuse(p->args, "--%s %s is required: %s", o->name, o->metavar, o->help);
}

static int check_options(const struct parse *p) {
    const struct cli_option *options = p->c->options, *missing = NULL;
    for (size_t i = 0; options[i].name; i++) {
        bool takes = cli_takes(p->args->verb, options[i].verbs);
        if (p->seen[i] && !takes) return foreign_option(p, &options[i]);
        if (!p->seen[i] && takes && options[i].need == CLI_REQUIRED && !missing)
            missing = &options[i];
    }
    return missing ? missing_option(p, missing) : 0;
}

/* Reports that an argument after the verb is missing, and shows how the verb is used. */
static int missing_word(const struct parse *p) {
    struct lw_buf usage = {0};
    const char *words = p->args->verb->words;
    cli_usage(p->c, p->args->verb, &usage);
    for (size_t i = 0; i < usage.n; i++)
        if (usage.p[i] == '\1') usage.p[i] = ' ';
    cli_misuse(p->args, "%.*s is missing; usage: %.*s", (int)strcspn(words, " ."), words,
               (int)usage.n, usage.p);
    lw_buf_free(&usage);
    return CLI_USAGE;
}

static int check_words(const struct parse *p) {
    const struct cli_args *a = p->args;
    const struct cli_verb *v = a->verb;
    int min = v ? v->min_words : 0, max = v ? v->max_words : p->c->max_words;
    bool tail = v && v->tail;
    if (v && a->n_words < min) return missing_word(p);
    if (max >= 0 && a->n_words > max)
        return cli_misuse(a, "unexpected argument %s%s", a->words[max],
                          tail ? "; put the command after --" : "");
    if (tail && (!a->tail || !*a->tail))
        return cli_misuse(a, "the command is missing; put it after --, as in: -- make deploy");
    return !tail && a->tail ? cli_misuse(a, "unexpected argument --") : 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void begin(const struct cli_command *c, struct cli_args *args) {
    args->command = c;
    for (const struct cli_option *o = c->options; o->name; o++)
        if (o->kind == CLI_NUMBER || o->kind == CLI_DURATION)
            *(int64_t *)(void *)((char *)args + o->at) = o->initial;
}

/* Removes -- and the arguments after it from the arguments to parse. The arguments after -- are the
 * command that a verb starts. Returns the number of the other arguments. */
static int cut_tail(const struct cli_command *c, int argc, char **argv, struct cli_args *args) {
    bool any = false;
    for (size_t i = 0; i < c->n_verbs; i++) any |= c->verbs[i].tail;
    for (int i = 1; any && i < argc; i++) {
        if (strcmp(argv[i], "--") != 0) continue;
        args->tail = argv + i + 1;
        return i;
    }
    return argc;
}

int cli_parse(const struct cli_command *c, int argc, char **argv, struct cli_args *args) {
    struct parse p = {.c = c, .args = args};
    begin(c, args);
    argc = cut_tail(c, argc, argv, args);
    int wrong = parse_options(&p, argc, argv);
    if (!wrong && c->n_verbs && !args->verb && optind < argc)
        wrong = unknown_verb(&p, argv[optind]);
    if (wrong) return wrong;
    if (p.help) {
        struct lw_buf text = {0};
        cli_help(c, args->verb, &text);
        fwrite(text.p, 1, text.n, stdout);
        lw_buf_free(&text);
        return 0;
    }
    if (c->n_verbs && !args->verb) return no_verb(&p);
    int first = optind + (args->verb != NULL);
    args->words = argv + first;
    args->n_words = argc - first;
    wrong = check_words(&p);
    if (!wrong) wrong = check_options(&p);
    return wrong ? wrong : GO_ON;
}

int cli_run_verb(void *args) { return ((const struct cli_args *)args)->verb->run(args); }

int cli_call(const struct cli_command *c, int argc, char **argv) {
    struct cli_args *args = lw_alloc(c->args_size);
    int status = cli_parse(c, argc, argv, args);
    if (status == GO_ON) status = c->run(args);
    free(args);
    return status;
}

int cli_written(const struct cli_args *a, int status) {
    if (fflush(stdout) == 0 || status) return status;
    fprintf(stderr, "latchwork %s: cannot write to stdout\n", a->command->name);
    return CLI_FAILED;
}

struct lw_config *cli_config(const struct cli_args *a) {
    struct lw_problems problems = {0};
    struct lw_config *c = lw_config_load_checked(a->config, a->set, a->n_set, &problems);
    if (problems.errors.n) fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return c;
}

/* --- the program ------------------------------------------------------------------------------ */

static void overview(FILE *out, const struct cli_command *const *commands, size_t n) {
    fputs("usage: latchwork COMMAND [options]\n\n", out);
    for (size_t i = 0; i < n; i++) {
        const struct cli_command *c = commands[i];
        if (!c->hidden)
            fprintf(out, "  %-9s %s%s\n", c->name, c->summary,
                    c->run ? "" : " (not in this version)");
    }
    fputs("\nlatchwork COMMAND --help explains a command; --version prints the version.\n", out);
}

static int unknown_command(const struct cli_command *const *commands, size_t n, const char *name) {
    const char *names[CLI_NAME_MAX];
    for (size_t i = 0; i < n; i++) names[i] = commands[i]->name;
    const char *near = lw_nearest(name, names, n);
    fprintf(stderr, "latchwork: unknown command \"%s\"", name);
    if (near) fprintf(stderr, "; did you mean \"%s\"?", near);
    fputs("\nlatchwork --help lists the commands\n", stderr);
    return CLI_USAGE;
}

static bool wants(const char *arg, const char *brief, const char *name) {
    return strcmp(arg, brief) == 0 || strcmp(arg, name) == 0;
}

static int not_in_this_version(const struct cli_command *c, int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!wants(argv[i], "-h", "--help")) continue;
        printf("latchwork %s: %s (not in this version)\n", c->name, c->summary);
        return 0;
    }
    fprintf(stderr, "latchwork %s: not in this version (%s)\n", c->name, LW_VERSION);
    return CLI_USAGE;
}

int cli_main(const struct cli_command *const *commands, size_t n, int argc, char **argv) {
    if (argc < 2) {
        overview(stderr, commands, n);
        return CLI_USAGE;
    }
    if (wants(argv[1], "-h", "--help") || strcmp(argv[1], "help") == 0) {
        overview(stdout, commands, n);
        return 0;
    }
    if (wants(argv[1], "-V", "--version")) {
        puts("latchwork " LW_VERSION);
        return 0;
    }
    if (argv[1][0] == '-') {
        fprintf(stderr,
                "latchwork: unknown option %s; put the command first; see: latchwork --help\n",
                argv[1]);
        return CLI_USAGE;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[1], commands[i]->name) != 0) continue;
        return (commands[i]->run ? cli_call : not_in_this_version)(commands[i], argc - 1, argv + 1);
    }
    return unknown_command(commands, n, argv[1]);
}
