/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. A command is a table of verbs, options and texts. Parsing, --help, errors about wrong usage, completion, the man pages
 * and doc/reference/commands.md all read that table, so a new option needs only one row.
 *
 *     main --> cli_main --> cli_parse --> the command's run() --> the verb's function
 *
 * Each command has its own struct of arguments, whose first member is a struct cli_args; a row gives the offset at which its value is
 * stored. */
#ifndef LW_CLI_OPTIONS_H
#define LW_CLI_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit statuses */
enum { CLI_SET_MAX = 256, CLI_WIDTH = 80, CLI_NAME_MAX = 32 };

/* The kinds of values that an option may have, and how each is stored. */
enum cli_kind {
    CLI_FLAG,     /* no value; stored as bool */
    CLI_TEXT,     /* any text; stored as const char * */
    CLI_WORD,     /* one of the words of `metavar`, as in "age|size"; stored as const char * */
    CLI_NUMBER,   /* a number from min to max; stored as int64_t */
    CLI_DURATION, /* "90s", "15m", from min to max; stored as int64_t, in ms */
    CLI_RATE,     /* "5" or "5/s", above 0; stored as double, per second */
    CLI_LIST,     /* may be given `max` times; stored as const char *[max], with their number at `count` */
    CLI_SET       /* PATH=VALUE, or VALUE alone if `path` is set; may be given CLI_SET_MAX times; stored as struct lw_override[], with their
                     number at `count` */
};

enum cli_need {
    CLI_OPTIONAL,
    CLI_REQUIRED, /* parsing fails if the option is missing */
    CLI_SPOKEN    /* `words` of the command or verb already names the option, so it is not added to the usage line */
};

struct cli_option {
    const char *name; /* name without the leading -- */
    char brief;       /* letter of the short form, 'c' for -c; 0: none */
    enum cli_kind kind;
    enum cli_need need;
    const char *metavar; /* name of the value in help texts: "FILE" */
    const char *help;    /* help text: a noun phrase or an imperative, without a full stop */
    const char *dflt;    /* the default as it is shown; NULL: not shown */
    unsigned verbs;      /* bits of the verbs that take the option; 0: all */
    size_t at, count;    /* offsets of the value and of the count in the command's arguments */
    int64_t initial;     /* value of a number or duration that is not given */
    int64_t min, max;    /* limits of the value; max 0: no limit */
    const char *path;    /* for CLI_SET: the configuration key that VALUE sets */
};

struct ops;
struct cli_args;

struct cli_verb {
    const char *name;
    unsigned bit;                  /* the verb's bit in cli_option.verbs */
    const char *words;             /* arguments behind the verb, as the usage line shows them: "KEY..." */
    int min_words, max_words;      /* number of arguments; max -1: any number */
    bool tail;                     /* takes a command line behind -- */
    bool ids;                      /* for queue and dead: the arguments are IDs of messages */
    const char *help;              /* help text: an imperative, without a full stop */
    int (*operate)(struct ops *o); /* for queue and dead; returns the exit status */
    int (*run)(const void *args);  /* for all other commands; returns the exit status */
};

struct cli_status {
    const char *code; /* "0", "126, 127" */
    const char *means;
    unsigned verbs; /* bits of the verbs that may end with this status; 0: all */
};

struct cli_command {
    const char *name;
    const char *summary; /* the command's line in `latchwork --help` */
    const char
        *about; /* text of the help: paragraphs, with a blank line between them; lines that begin with four spaces stay as they are */
    const char *const *usage; /* the usage lines without the name, ended by NULL; NULL: derived from the options */
    const char *words;        /* arguments of a command without verbs, as in struct cli_verb */
    int max_words;
    const struct cli_verb *verbs;
    size_t n_verbs;
    const struct cli_option *options;  /* ended by a row without a name; every command also has --help */
    const char *const *examples;       /* command lines without "latchwork NAME"; ended by NULL */
    const struct cli_status *statuses; /* exit statuses, ended by a row without a code */
    size_t args_size;
    int (*run)(void *args); /* returns the exit status; NULL: this version lacks the command */
    bool hidden;            /* only for those who build the program; not listed in `latchwork --help` */
};

/* Arguments that every command may have. The strings belong to argv. */
struct cli_args {
    const struct cli_command *command;
    const struct cli_verb *verb; /* the chosen verb; NULL: the command has none */
    const char *config;
    struct lw_override set[CLI_SET_MAX];
    size_t n_set;
    bool json;
    char **words; /* arguments behind the verb */
    int n_words;
    char **tail; /* the command behind --, ended by NULL; set only if the verb takes it */
};

/* Rows of options that most commands have. */
#define CLI_CONFIG_OPTION                                                                                                              \
    {                                                                                                                                  \
        .name = "config", .brief = 'c', .kind = CLI_TEXT, .need = CLI_REQUIRED, .metavar = "FILE", .help = "the configuration (JSON)", \
        .at = offsetof(struct cli_args, config)                                                                                        \
    }
#define CLI_SET_OPTION                                                                                                       \
    {                                                                                                                        \
        .name = "set", .kind = CLI_SET, .metavar = "PATH=VALUE",                                                             \
        .help = "override one value of the configuration, as in lock.ttl_ms=5000: JSON if it parses as JSON, else a string", \
        .at = offsetof(struct cli_args, set), .count = offsetof(struct cli_args, n_set)                                      \
    }
#define CLI_JSON_VERBS_OPTION(text, mask) \
    { .name = "json", .kind = CLI_FLAG, .help = text, .verbs = mask, .at = offsetof(struct cli_args, json) }
#define CLI_JSON_OPTION(text) CLI_JSON_VERBS_OPTION(text, 0)

/* Runs the program: finds the command in argv[1], parses the rest, runs it. Returns the exit
 * status. */
int cli_main(const struct cli_command *const *commands, size_t n, int argc, char **argv);
/* Runs one command: parses its arguments, and prints its help or runs it. argv[0] is the command's name.
 * Returns the exit status. */
int cli_call(const struct cli_command *c, int argc, char **argv);
/* Parses the arguments into args, which must be args_size bytes of zeros. Returns -1 if the command may run; otherwise help or an
 * error was printed, and the exit status is returned. */
int cli_parse(const struct cli_command *c, int argc, char **argv, struct cli_args *args);
/* Prints on stderr what is wrong with the command line and how to get help. Returns CLI_USAGE. */
int cli_misuse(const struct cli_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns `status`. If stdout could not be written, reports that and returns CLI_FAILED. */
int cli_written(const struct cli_args *a, int status);
/* Loads the configuration of -c and --set and checks its handler section. If it returns NULL, every problem is on stderr;
 * end with CLI_USAGE. */
struct lw_config *cli_config(const struct cli_args *a);

/* --- what the help and the pages show (help.c) -------------------------------------------------------------------------------------- */

bool cli_takes(const struct cli_verb *v, unsigned verbs); /* returns true if the verb is among `verbs`, or if v is NULL */
/* Returns true if the option belongs to the command. Two commands may share a table, in which some rows are only for verbs of the other
 * one. */
bool cli_has(const struct cli_command *c, const struct cli_option *o);
/* Adds the usage line without a line break: "latchwork lock show KEY [--set-ttl MS]". '\1' stands for each space at which no
 * line may be broken. */
void cli_usage(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);
/* Adds the names of these verbs: "a, b or c", with the conjunction before the last. */
void cli_verb_names(const struct cli_command *c, unsigned verbs, const char *conjunction, struct lw_buf *out);
/* Adds the words of `text` in lines of at most CLI_WIDTH columns. The first line begins at `column`, the others at `indent`. */
void cli_wrap(struct lw_buf *out, const char *text, size_t column, size_t indent);
/* Adds the whole help of a command, or of one of its verbs. */
void cli_help(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);

#endif
