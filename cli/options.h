/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. A command is a table of verbs, options and texts. Parsing, --help, messages about misuse, completion, the man pages and
 * doc/reference/commands.md all read that table, so that an option is one row and nothing else.
 *
 *     main --> cli_main --> cli_parse --> the command's run() --> the verb's function
 *
 * The arguments of a command are a struct of its own whose first member is a struct cli_args; a row says at which offset its value goes. */
#ifndef LW_CLI_OPTIONS_H
#define LW_CLI_OPTIONS_H

#include "base/bytes.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit statuses */
enum { CLI_SET_MAX = 256, CLI_WIDTH = 80, CLI_NAME_MAX = 32 };

/* What a value may be, and what it is stored as. */
enum cli_kind {
    CLI_FLAG,     /* no value; bool */
    CLI_TEXT,     /* const char * */
    CLI_WORD,     /* one of the words of `metavar`, as in "age|size"; const char * */
    CLI_NUMBER,   /* int64_t from min to max */
    CLI_DURATION, /* "90s", "15m": int64_t in ms, from min to max */
    CLI_RATE,     /* "5" or "5/s": double, per second, above 0 */
    CLI_LIST,     /* may be given `max` times: const char *[max], the number of them at `count` */
    CLI_SET       /* PATH=VALUE, may be given CLI_SET_MAX times: struct lw_override[], as CLI_LIST; if `path` is set, VALUE alone */
};

enum cli_need {
    CLI_OPTIONAL,
    CLI_REQUIRED, /* parsing fails without it */
    CLI_SPOKEN    /* the words of the command or verb name it: the usage line does not add it */
};

struct cli_option {
    const char *name; /* without the -- */
    char brief;       /* 'c' for -c; 0: none */
    enum cli_kind kind;
    enum cli_need need;
    const char *metavar; /* of the value: "FILE" */
    const char *help;    /* a noun phrase or an imperative, without a full stop */
    const char *dflt;    /* how the default is shown; NULL: not at all */
    unsigned verbs;      /* bits of the verbs that take it; 0: all */
    size_t at, count;    /* offsets in the command's arguments */
    int64_t initial;     /* what a number or duration is if it is not given */
    int64_t min, max;    /* max 0: no limit */
    const char *path;    /* CLI_SET: the key of the configuration that VALUE is for */
};

struct ops;
struct cli_args;

struct cli_verb {
    const char *name;
    unsigned bit;                  /* as cli_option.verbs names it */
    const char *words;             /* what stands behind it, as the usage line shows it: "KEY..." */
    int min_words, max_words;      /* max -1: any number */
    bool tail;                     /* a command line stands behind -- */
    bool ids;                      /* queue, dead: the words are IDs of messages */
    const char *help;              /* an imperative, without a full stop */
    int (*operate)(struct ops *o); /* queue, dead; returns the exit status */
    int (*run)(const void *args);  /* others */
};

struct cli_status {
    const char *code; /* "0", "126, 127" */
    const char *means;
    unsigned verbs; /* 0: all */
};

struct cli_command {
    const char *name;
    const char *summary;      /* its line in `latchwork --help` */
    const char *about;        /* paragraphs, with a blank line between them; lines that begin with four spaces stay as they are */
    const char *const *usage; /* what the usage lines say behind the name, ended by NULL; NULL: derived from the options */
    const char *words;        /* of a command without verbs, as in struct cli_verb */
    int max_words;
    const struct cli_verb *verbs;
    size_t n_verbs;
    const struct cli_option *options;  /* ended by a row without a name; every command has --help besides */
    const char *const *examples;       /* without "latchwork NAME"; ended by NULL */
    const struct cli_status *statuses; /* ended by a row without a code */
    size_t args_size;
    int (*run)(void *args); /* returns the exit status; NULL: not in this version */
    bool hidden;            /* for those who build the program: not in `latchwork --help` */
};

/* What every command may have. Strings are argv's. */
struct cli_args {
    const struct cli_command *command;
    const struct cli_verb *verb; /* NULL: the command has none */
    const char *config;
    struct lw_override set[CLI_SET_MAX];
    size_t n_set;
    bool json;
    char **words; /* behind the verb */
    int n_words;
    char **tail; /* behind --, ended by NULL; only if the verb takes it */
};

/* Rows that most commands have. */
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

/* Finds the command in argv[1], parses the rest, runs it. Returns the exit status of the program. */
int cli_main(const struct cli_command *const *commands, size_t n, int argc, char **argv);
/* Parses, prints the help if that is wanted, or runs; argv[0] is the command's name. Returns the exit status. */
int cli_call(const struct cli_command *c, int argc, char **argv);
/* Fills args, which is args_size bytes of zeros. -1: go on; else the exit status, with everything said: help was printed, or misuse. */
int cli_parse(const struct cli_command *c, int argc, char **argv, struct cli_args *args);
/* Says on stderr what is wrong with the command line and how to get help. Returns CLI_USAGE. */
int cli_misuse(const struct cli_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The status, or CLI_FAILED (with a message) if stdout could not be written. */
int cli_written(const struct cli_args *a, int status);
/* The configuration of -c and --set, with its handler section checked. NULL: every problem is on stderr; end with CLI_USAGE. */
struct lw_config *cli_config(const struct cli_args *a);

/* --- what the help and the pages show (help.c) -------------------------------------------------------------------------------------- */

bool cli_takes(const struct cli_verb *v, unsigned verbs); /* v NULL: anything */
/* Whether it is an option of the command: two commands may share a table, and then some rows are of the other one's verbs. */
bool cli_has(const struct cli_command *c, const struct cli_option *o);
/* "latchwork lock show KEY [--set-ttl MS]", without a line break: '\1' stands for each space at which no line may be broken. */
void cli_usage(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);
/* "a, b or c" of those verbs */
void cli_verb_names(const struct cli_command *c, unsigned verbs, const char *conjunction, struct lw_buf *out);
/* The words of `text`, in lines of at most CLI_WIDTH columns. `column` is where the first begins, `indent` where the others do. */
void cli_wrap(struct lw_buf *out, const char *text, size_t column, size_t indent);
/* The whole help of a command, or of a verb of it. */
void cli_help(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out);

#endif
