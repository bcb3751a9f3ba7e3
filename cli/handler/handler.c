/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the command `latchwork handler`: its verbs and options. */
#include "cli/handler/handler.h"

#include <string.h>

#define AT(field) offsetof(struct handler_args, field)

enum { NEW = 1, TEST = 2 };

static int new (const void *args) { return handler_new(args); }
static int test(const void *args) { return handler_test(args); }

static const struct cli_verb verbs[] = {
    {.name = "new",
     .bit = NEW,
     .words = "NAME",
     .min_words = 1,
     .max_words = 1,
     .run = new,
     .help = "write a handler project into the new folder NAME: handler, test messages, "
             "configuration, README"},
    {.name = "test",
     .bit = TEST,
     .words = "[MESSAGES.jsonl]",
     .max_words = 1,
     .run = test,
     .help = "run the configured handler on messages from a file, without Kafka and Redis, and "
             "show each outcome"},
};

static const struct cli_alias languages[] = {{"cpp", "c++"}, {"javascript", "node"}, {0}};

static const struct cli_option options[] = {
    {.name = "lang",
     .kind = CLI_WORD,
     .need = CLI_REQUIRED,
     .metavar = "c|c++|python|node|go",
     .help = "the handler's language; c and c++ (also cpp) make a plugin, python, node (also "
             "javascript) and go a process",
     .verbs = NEW,
     .aliases = languages,
     .at = AT(lang)},
    CLI_CONFIG_VERBS_OPTION(TEST),
    {.name = "chaos",
     .kind = CLI_FLAG,
     .help = "deliver each message again, cancel it, and deliver it with a stale fence",
     .verbs = TEST,
     .at = AT(chaos)},
    {.name = "watch",
     .kind = CLI_FLAG,
     .help = "run again each time a file changes, until Ctrl-C",
     .verbs = TEST,
     .at = AT(watch)},
    CLI_SET_VERBS_OPTION("handler.timeout_ms=500", TEST),
    CLI_JSON_VERBS_OPTION("print one JSON object per line", TEST),
    {0},
};

static const char *const usage[] = {
    "new\1NAME --lang\1c|c++|python|node|go",
    "test\1[MESSAGES.jsonl] -c\1FILE [--chaos] [--watch] [--set\1PATH=VALUE]... [--json]", NULL};

static const char *const examples[] = {
    "new orders --lang python",
    "test -c orders.json",
    "test -c orders.json messages.jsonl --chaos",
    "test -c orders.json --watch",
    NULL,
};

static const struct cli_status statuses[] = {
    {"0", "the project is written", NEW},
    {"0", "each message had its expected outcome", TEST},
    {"1", "a file cannot be written", NEW},
    {"1", "an outcome differs, or the handler crashed, hung, or could not start", TEST},
    {"2", "usage error; the folder exists and is not empty", NEW},
    {"2", "usage or configuration error, or an error in the messages", TEST},
    {"128 + N", "signal N ended the test", TEST},
    {0},
};

const struct cli_command cli_handler = {
    .name = "handler",
    .summary = "start a handler project; test a handler without Kafka and Redis",
    .about = "new writes a project that builds and passes its test. test starts the handler as a "
             "worker does, gives it the messages of a "
             "file, each under a lease and a fence of its own, and shows what becomes of them.",
    .usage = usage,
    .verbs = verbs,
    .n_verbs = sizeof verbs / sizeof *verbs,
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct handler_args),
    .run = cli_run_verb,
};
