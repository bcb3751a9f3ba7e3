/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line. The options, verbs and help texts of a command are in a table. Parsing,
 * --help, errors about wrong usage, completion, the man pages and doc/reference/commands.md all use
 * that table, so a new option needs only one row.
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

/* exit statuses for a command that failed, and for wrong usage */
enum { CLI_FAILED = 1, CLI_USAGE = 2 };
enum { CLI_SET_MAX = 256, CLI_WIDTH = 80, CLI_NAME_MAX = 32 };

/* Lists the kinds of values that an option may have, and how each kind is stored. */
enum cli_kind {
    CLI_FLAG, /* the option has no value; stored as bool */
    CLI_TEXT, /* the value is any text; stored as const char * */
    /* the value is one of the words of `metavar`, as in "age|size"; stored as const char * */
    CLI_WORD,
    CLI_NUMBER, /* the value is a number from min to max; stored as int64_t */
    /* the value is a duration from min to max, such as "90s" or "15m"; stored as int64_t, in ms */
    CLI_DURATION,
    /* the value is a rate above 0, such as "5" or "5/s"; stored as double, per second */
    CLI_RATE,
    /* the option may be given `max` times; stored as const char *[max], with the number of values
     * at `count` */
    CLI_LIST,
    /* the value is PATH=VALUE, or VALUE alone if `path` is set; the option may be given CLI_SET_MAX
     * times; stored as struct lw_override[], with the number of values at `count` */
    CLI_SET
};

enum cli_need {
    CLI_OPTIONAL,
    CLI_REQUIRED, /* parsing fails if the option is not given */
    /* the usage line leaves out the option, because `words` of the command or verb already contains
     * it */
    CLI_SPOKEN
};

/* Describes an additional word that stands for one of the values of an option of kind CLI_WORD. */
struct cli_alias {
    const char *word, *means;
};

struct cli_option {
    const char *name; /* name without the leading -- */
    char brief;       /* letter of the short form, such as 'c' for -c; 0: there is no short form */
    enum cli_kind kind;
    enum cli_need need;
    const char *metavar; /* name of the value in help texts, such as "FILE" */
    /* help text: a noun phrase or an imperative, without a full stop */
    const char *help;
    /* the default value as the help shows it; NULL: the help shows no default */
    const char *dflt;
    unsigned verbs; /* bits of the verbs that take the option; 0: all verbs */
    /* offsets at which the value and the number of values are stored in the command's arguments */
    size_t at, count;
    /* value that a number or duration has if the option is not given */
    int64_t initial;
    int64_t min, max; /* limits of the value; if max is 0, there is no upper limit */
    /* for CLI_WORD: other words for the option's values, ended by a row without a word; NULL:
     * none */
    const struct cli_alias *aliases;
    const char *path; /* for CLI_SET: the configuration key that VALUE sets */
};

struct ops;
struct cli_args;

struct cli_verb {
    const char *name;
    unsigned bit; /* the verb's bit in cli_option.verbs */
    /* arguments behind the verb, as the usage line shows them, such as "KEY..." */
    const char *words;
    /* limits of the number of arguments; if max_words is -1, any number is allowed */
    int min_words, max_words;
    bool tail; /* the verb takes a command line behind -- */
    /* for verbs of queue and dead: the arguments are IDs of messages */
    bool ids;
    const char *help; /* help text: an imperative, without a full stop */
    /* function of a verb of queue or dead; returns the exit status */
    int (*operate)(struct ops *o);
    /* function of a verb of any other command; returns the exit status */
    int (*run)(const void *args);
};

struct cli_status {
    const char *code; /* "0", "126, 127" */
    const char *means;
    unsigned verbs; /* bits of the verbs that may end with this status; 0: all verbs */
};

struct cli_command {
    const char *name;
    const char *summary; /* the command's line in `latchwork --help` */
    /* text of the help: paragraphs with a blank line between them; a line that begins with four
     * spaces is not wrapped, and is printed with an indentation of two spaces */
    const char *about;
    /* the usage lines without the command's name, ended by NULL; if `usage` is NULL, the lines are
     * made from the options */
    const char *const *usage;
    const char *words; /* arguments of a command without verbs, as the usage line shows them */
    int max_words;
    const struct cli_verb *verbs;
    size_t n_verbs;
    /* a command with verbs that people look for here, and these verbs, ended by NULL; NULL: none */
    const char *sibling;
    const char *const *sibling_verbs;
    /* the options, ended by a row without a name; every command also has --help */
    const struct cli_option *options;
    /* example command lines without "latchwork NAME", ended by NULL */
    const char *const *examples;
    const struct cli_status *statuses; /* the exit statuses, ended by a row without a code */
    size_t args_size;
    /* runs the command and returns the exit status; NULL: this version lacks the command */
    int (*run)(void *args);
    /* the command is only for people who build the program, and `latchwork --help` does not list
     * it */
    bool hidden;
};

/* Holds the arguments that every command may have. The strings belong to argv. */
struct cli_args {
    const struct cli_command *command;
    const struct cli_verb *verb; /* the chosen verb; NULL: the command has no verbs */
    const char *config;
    struct lw_override set[CLI_SET_MAX];
    size_t n_set;
    bool json;
    char **words; /* the arguments of the command line behind the verb */
    int n_words;
    char **tail; /* the command behind --, ended by NULL; set only if the verb takes a command */
};

/* Defines rows for options that most commands have. */
#define CLI_CONFIG_OPTION CLI_CONFIG_VERBS_OPTION(0)
#define CLI_CONFIG_VERBS_OPTION(mask)                                                              \
    {                                                                                              \
        .name = "config", .brief = 'c', .kind = CLI_TEXT, .need = CLI_REQUIRED, .metavar = "FILE", \
        .help = "the configuration (JSON)", .verbs = mask, .at = offsetof(struct cli_args, config) \
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
/* Runs the verb of a command whose verbs have a `run`. Returns the exit status. */
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

/* returns true if the verb is among `verbs`, or if v is NULL */
bool cli_takes(const struct cli_verb *v, unsigned verbs);
/* Returns true if the option belongs to the command. Two commands may share a table, in which some
 * rows are only for verbs of the other command. */
bool cli_has(const struct cli_command *c, const struct cli_option *o);
/* Adds the usage line without a line break, such as "latchwork lock show KEY [--set-ttl MS]". '\1'
 * stands for each space at which no line may be broken. */
void cli_usage(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);
/* Adds the names of these verbs, as in "a, b or c", with the conjunction before the last name. */
void cli_verb_names(const struct cli_command *c, unsigned verbs, const char *conjunction,
                    struct lw_buf *out);
/* Adds the words of `text` in lines of at most CLI_WIDTH columns. The first line begins at
 * `column`, all other lines at `indent`. */
void cli_wrap(struct lw_buf *out, const char *text, size_t column, size_t indent);
/* Adds the whole help of a command, or of one of its verbs. */
void cli_help(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);

#endif
