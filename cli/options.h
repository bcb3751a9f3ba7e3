/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line. The options, verbs and help texts of a command are in a table. Parsing,
 * --help, errors about wrong usage, completion, the man pages and doc/reference/commands.md all use
 * that table, so a new option needs only one row and a member for its value.
 *
 *     main --> cli_main --> cli_parse --> the command's run() --> the verb's function
 *
 * Each command has its own struct of arguments, whose first member is a struct cli_args. The row of
 * an option has the offset at which the option's value is stored in that struct. */
#ifndef LW_CLI_OPTIONS_H
#define LW_CLI_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* exit statuses of a command: CLI_FAILED if the command failed, and CLI_USAGE for wrong usage */
enum { CLI_FAILED = 1, CLI_USAGE = 2 };
enum { CLI_SET_MAX = 256, CLI_WIDTH = 80, CLI_NAME_MAX = 32 };

/* Lists the kinds of values that an option may have, and how each kind is stored. */
enum cli_kind {
    CLI_FLAG, /* the option has no value; stored as bool */
    CLI_TEXT, /* the value is any text; stored as const char * */
    /* CLI_WORD: the value is one of the words of `metavar`, as in "age|size"; stored as a const
     * char pointer */
    CLI_WORD,
    CLI_NUMBER, /* the value is a number from min to max; stored as int64_t */
    /* CLI_DURATION: the value is a duration from min to max, such as "90s" or "15m"; stored as
     * int64_t, in ms */
    CLI_DURATION,
    /* CLI_RATE: the value is a rate above 0, such as "5" or "5/s"; stored as double, per second */
    CLI_RATE,
    /* CLI_LIST: the option may be given `max` times; the values are stored as const char *[max],
     * and their number at `count` */
    CLI_LIST,
    /* CLI_SET: the value is PATH=VALUE, or VALUE alone if `path` is set. The option may be given
     * CLI_SET_MAX times. The values are stored as struct lw_override[], and their number at
     * `count`. */
    CLI_SET
};

enum cli_need {
    CLI_OPTIONAL,
    CLI_REQUIRED, /* parsing fails if the option is not given */
    /* CLI_SPOKEN: the generated usage line leaves out the option, because the usage text in `words`
     * already contains it */
    CLI_SPOKEN
};

/* Describes an additional word that users may write for one of the values of an option of kind
 * CLI_WORD. */
struct cli_alias {
    const char *word, *means;
};

struct cli_option {
    const char *name; /* name of the long form without the leading -- */
    char brief;       /* letter of the short form, such as 'c' for -c; 0: there is no short form */
    enum cli_kind kind;
    enum cli_need need;
    const char *metavar; /* name of the value in help texts, such as "FILE" */
    /* `help` is the option's help text: a noun phrase or an imperative, without a full stop */
    const char *help;
    /* `dflt` is the default value as the help shows it; NULL: the help shows no default */
    const char *dflt;
    unsigned verbs; /* bits of the verbs that take the option; 0: all verbs */
    /* `at` and `count` are the offsets in the command's struct of arguments at which the value and
     * the number of values are stored. */
    size_t at, count;
    /* `initial` is the value of a number or a duration if the option is not given */
    int64_t initial;
    /* `min` and `max` are the smallest and the largest allowed number or duration; if max is 0,
     * there is no upper limit. For CLI_LIST, `max` is the maximum number of values. */
    int64_t min, max;
    /* `none`, for CLI_NUMBER, allows the word "none", too, which is stored as this value; 0: it
     * does not */
    int64_t none;
    /* `aliases`, for CLI_WORD, has additional words for the option's values, ended by a row without
     * a word; NULL: there are none */
    const struct cli_alias *aliases;
    const char *path; /* for CLI_SET: the configuration key that VALUE sets */
};

struct ops;
struct cli_args;

struct cli_verb {
    const char *name;
    unsigned bit; /* the verb's bit in cli_option.verbs */
    /* `words` shows the arguments after the verb in the usage line, such as "KEY..." */
    const char *words;
    /* smallest and largest allowed number of arguments after the verb; if max_words is -1, there is
     * no upper limit */
    int min_words, max_words;
    bool tail; /* true: the verb takes a command line after -- */
    /* `ids`, for verbs of queue and dead, is true if the arguments are IDs of messages */
    bool ids;
    const char *help; /* the verb's help text: an imperative, without a full stop */
    /* `operate` runs a verb of queue or dead, and returns the exit status */
    int (*operate)(struct ops *o);
    /* `run` runs a verb of a command other than queue and dead, and returns the exit status */
    int (*run)(const void *args);
};

struct cli_status {
    const char *code; /* the status as text, such as "0" or "126, 127" */
    const char *means;
    unsigned verbs; /* bits of the verbs that may end with this status; 0: all verbs */
};

struct cli_command {
    const char *name;
    const char *summary; /* the command's line in `latchwork --help` */
    /* `about` is the text of the help: paragraphs with a blank line between them. A line that
     * begins with four spaces is not wrapped, and is printed with an indentation of two spaces. */
    const char *about;
    /* `usage` has the usage lines without the command's name, ended by NULL. If `usage` is NULL,
     * the lines are made from the options. */
    const char *const *usage;
    const char *words; /* arguments of a command without verbs, as the usage line shows them */
    int max_words;
    const struct cli_verb *verbs;
    size_t n_verbs;
    /* If the user gives this command a verb that only `sibling` has, the error says so. NULL: no
     * other command has verbs that users confuse with those of this command. */
    const struct cli_command *sibling;
    /* `options` are the command's options, ended by a row without a name. Every command also has
     * --help, which is not in the table. */
    const struct cli_option *options;
    /* `examples` are command lines without "latchwork NAME", ended by NULL */
    const char *const *examples;
    const struct cli_status *statuses; /* the exit statuses, ended by a row without a code */
    size_t args_size;
    /* `run` runs the command and returns the exit status. It is NULL if this version of the program
     * lacks the command. */
    int (*run)(void *args);
    /* true if the command is only for people who build the program; `latchwork --help` does not
     * list it */
    bool hidden;
};

/* Holds the arguments that every command may have. The strings belong to argv. */
struct cli_args {
    const struct cli_command *command;
    const struct cli_verb *verb; /* the verb that the user chose; NULL: the command has no verbs */
    const char *config;
    struct lw_override set[CLI_SET_MAX + 2]; /* with room for two that a command adds */
    size_t n_set;
    bool json;
    /* the arguments after the verb; if the command has no verbs, all arguments that are not
     * options */
    char **words;
    int n_words;
    char **tail; /* the command after --, ended by NULL; set only if the verb takes a command */
};

/* Macros for the rows of options that most commands have. */
#define CLI_CONFIG_OPTION CLI_CONFIG_VERBS_OPTION(0)
#define CLI_CONFIG_VERBS_OPTION(mask)                                                              \
    {                                                                                              \
        .name = "config", .brief = 'c', .kind = CLI_TEXT, .need = CLI_REQUIRED, .metavar = "FILE", \
        .help = "configuration file (JSON)", .verbs = mask,                                        \
        .at = offsetof(struct cli_args, config)                                                    \
    }
#define CLI_SET_OPTION CLI_SET_VERBS_OPTION("lock.ttl_ms=5000", 0)
#define CLI_SET_VERBS_OPTION(example, mask)                               \
    {                                                                     \
        .name = "set", .kind = CLI_SET, .metavar = "PATH=VALUE",          \
        .help = "override one value of the configuration, as in " example \
                ": JSON if it parses as JSON, else a string",             \
        .verbs = mask, .at = offsetof(struct cli_args, set),              \
        .count = offsetof(struct cli_args, n_set)                         \
    }
#define CLI_JSON_VERBS_OPTION(text, mask)                              \
    {                                                                  \
        .name = "json", .kind = CLI_FLAG, .help = text, .verbs = mask, \
        .at = offsetof(struct cli_args, json)                          \
    }
#define CLI_JSON_OPTION(text) CLI_JSON_VERBS_OPTION(text, 0)

/* Runs the program: finds the command in argv[1], parses the other arguments, and runs the command.
 * Returns the exit status. */
int cli_main(const struct cli_command *const *commands, size_t n, int argc, char **argv);
/* Runs one command: parses its arguments, and then prints its help or runs it. argv[0] is the
 * command's name. Returns the exit status. */
int cli_call(const struct cli_command *c, int argc, char **argv);
/* Runs the chosen verb. Call this function for a command whose verbs have the member `run`. Returns
 * the exit status. */
int cli_run_verb(void *args);
/* Parses the arguments into `args`, which must be args_size bytes of zeros. Returns -1 if the
 * command may run. Otherwise the function has printed help or an error, and returns the exit
 * status. */
int cli_parse(const struct cli_command *c, int argc, char **argv, struct cli_args *args);
/* Prints on stderr what is wrong with the command line and how to get help. Returns CLI_USAGE. */
int cli_misuse(const struct cli_args *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Returns `status` if all output to stdout was written. Otherwise reports the failure and returns
 * CLI_FAILED. */
int cli_written(const struct cli_args *a, int status);
/* Loads the configuration of -c and --set and checks its handler section. If a problem is found,
 * writes every problem to stderr and returns NULL; the caller must then end with CLI_USAGE. */
struct lw_config *cli_config(const struct cli_args *a);

/* --- what the help and the pages show (help.c) ------------------------------------------------ */

/* Returns true if the verb `v` is among `verbs` (0: all verbs), or if `v` is NULL. */
bool cli_takes(const struct cli_verb *v, unsigned verbs);
/* Returns true if the option belongs to the command. Two commands may share a table, in which some
 * rows are only for verbs of the other command. */
bool cli_has(const struct cli_command *c, const struct cli_option *o);
/* Appends the usage line to `out`, without a line break, such as "latchwork lock show KEY
 * [--set-ttl MS]". Spaces at which the line must not be broken are written as '\1'. */
void cli_usage(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);
/* Appends the names of the verbs to `out`, as in "a, b or c"; the conjunction stands before the
 * last name. */
void cli_verb_names(const struct cli_command *c, unsigned verbs, const char *conjunction,
                    struct lw_buf *out);
/* Appends to `out` the whole help of a command, or of one of its verbs. */
void cli_help(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);

#endif
