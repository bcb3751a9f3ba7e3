/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the options of `latchwork queue` and `latchwork dead`. */
#include "cli/operators.h"

#include "base/clock.h"
#include "ops/job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(struct operator_args, ops.field)

enum { OVER_MIN_MS = 100, OVER_MAX_MS = 3600000, WATCH_MAX_S = 3600, NOT_GIVEN = -1 };

/* These constants are groups of verbs that take the same options. */
enum {
    DEAD_FILTERED = DEAD_LS | DEAD_EXPORT | DEAD_REPLAY | DEAD_DROP,
    QUEUE_FILTERED = QUEUE_LS | QUEUE_PAUSE | QUEUE_RESUME | QUEUE_EXPORT | QUEUE_DROP,
    FILTERED = QUEUE_FILTERED | DEAD_FILTERED,
    JOBS = QUEUE_REPLAY | QUEUE_DROP | QUEUE_IMPORT | DEAD_REPLAY | DEAD_DROP,
    PAUSING = QUEUE_PAUSE | QUEUE_RESUME,
    COUNTED =
        DEAD_FILTERED | JOBS | QUEUE_LS | QUEUE_SHOW | QUEUE_EXPORT | QUEUE_STATS | QUEUE_AUDIT
};

const struct cli_option operator_options[] = {
    CLI_CONFIG_OPTION,
    CLI_SET_OPTION,
    CLI_JSON_OPTION("print one JSON object per line"),
    {.name = "key",
     .brief = 'k',
     .kind = CLI_LIST,
     .metavar = "KEY",
     .help = "only this primary key; may be given several times",
     .verbs = FILTERED | QUEUE_REPLAY,
     .at = AT(keys),
     .count = AT(n_keys),
     .max = OPS_LIST_MAX},
    {.name = "match",
     .kind = CLI_TEXT,
     .metavar = "GLOB",
     .help = "only keys that match GLOB: * ? [a-z]",
     .verbs = FILTERED | QUEUE_REPLAY,
     .at = AT(match)},
    {.name = "topic",
     .kind = CLI_TEXT,
     .metavar = "NAME",
     .help = "only messages of this topic; for lanes, that of the oldest message",
     .verbs = FILTERED | QUEUE_REPLAY,
     .at = AT(topic)},
    {.name = "partition",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "only messages of this partition; for lanes, that of the oldest message",
     .verbs = FILTERED | QUEUE_REPLAY,
     .at = AT(partition),
     .initial = NOT_GIVEN},
    {.name = "older-than",
     .kind = CLI_DURATION,
     .metavar = "TIME",
     .help = "only messages older than TIME: 90s, 15m, 2h, 3d",
     .verbs = FILTERED,
     .at = AT(older_ms),
     .initial = NOT_GIVEN},
    {.name = "attempts",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "only messages with at least N attempts",
     .verbs = FILTERED,
     .at = AT(attempts),
     .initial = NOT_GIVEN},
    {.name = "reason",
     .kind = CLI_TEXT,
     .metavar = "GLOB",
     .help = "only dead letters whose whole reason matches GLOB",
     .verbs = DEAD_FILTERED,
     .at = AT(reason)},
    {.name = "error",
     .kind = CLI_TEXT,
     .metavar = "TEXT",
     .help = "only dead letters whose reason contains TEXT",
     .verbs = DEAD_FILTERED,
     .at = AT(error)},
    {.name = "where",
     .kind = CLI_LIST,
     .metavar = "TEST",
     .help = "only messages whose JSON payload passes TEST: a pointer, an operator (= != < <= "
             "> >= ~) and a value, such as '/total>100', '/city=Ulm' or '/note~late' (contains), "
             "or only a pointer, such as '/total' (exists); may be given several times",
     .verbs = DEAD_FILTERED | QUEUE_EXPORT | QUEUE_REPLAY | QUEUE_DROP,
     .at = AT(where),
     .count = AT(n_where),
     .max = OPS_LIST_MAX},
    {.name = "from",
     .kind = CLI_TEXT,
     .metavar = "WHEN",
     .help = "only dead letters that died, or records produced, from WHEN on: "
             "2026-11-21T12:00:00Z, or 1h (ago); with `queue replay` also @OFFSET",
     .verbs = DEAD_FILTERED | QUEUE_REPLAY,
     .at = AT(from)},
    {.name = "to",
     .kind = CLI_TEXT,
     .metavar = "WHEN",
     .help = "only those before WHEN, in the same forms",
     .verbs = DEAD_FILTERED | QUEUE_REPLAY,
     .at = AT(to)},
    {.name = "sort",
     .kind = CLI_WORD,
     .metavar = "age|size",
     .help = "order of lanes: longest waiting first, or most waiting messages first",
     .dflt = "age",
     .verbs = QUEUE_LS,
     .at = AT(sort)},
    {.name = "reverse",
     .kind = CLI_FLAG,
     .help = "reverse the order",
     .verbs = QUEUE_LS,
     .at = AT(reverse)},
    {.name = "limit",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "maximum number of results (0: unlimited)",
     .verbs = COUNTED,
     .at = AT(limit),
     .initial = NOT_GIVEN},
    {.name = "over",
     .kind = CLI_DURATION,
     .metavar = "TIME",
     .help = "time over which rates are measured, 100ms to 1h",
     .dflt = "1s",
     .verbs = QUEUE_STATS,
     .at = AT(over_ms),
     .min = OVER_MIN_MS,
     .max = OVER_MAX_MS},
    {.name = "watch",
     .kind = CLI_NUMBER,
     .metavar = "SECONDS",
     .help = "print a line every SECONDS until Ctrl-C, its rates measured over this time",
     .verbs = QUEUE_STATS,
     .at = AT(watch_s),
     .min = 1,
     .max = WATCH_MAX_S},
    {.name = "raw",
     .kind = CLI_FLAG,
     .help = "print payloads unchanged and in full",
     .verbs = QUEUE_SHOW | DEAD_SHOW,
     .at = AT(raw)},
    {.name = "again",
     .kind = CLI_FLAG,
     .help = "include messages that are already done, and dead letters of a topic that were "
             "already replayed or edited",
     .verbs = QUEUE_REPLAY | QUEUE_IMPORT | DEAD_REPLAY | DEAD_EDIT,
     .at = AT(again)},
    {.name = "execute",
     .brief = 'x',
     .kind = CLI_FLAG,
     .help = "apply the changes",
     .dflt = "dry run",
     .verbs = JOBS | PAUSING,
     .at = AT(execute)},
    {.name = "to-topic",
     .kind = CLI_TEXT,
     .metavar = "NAME",
     .help = "produce to this topic instead of the lane (import: instead of the configured topic)",
     .verbs = QUEUE_REPLAY | QUEUE_IMPORT | DEAD_REPLAY,
     .at = AT(to_topic)},
    {.name = "from-list",
     .kind = CLI_TEXT,
     .metavar = "NAME",
     .help = "move the messages of this plain Redis list to the topic, oldest (rightmost) first",
     .verbs = QUEUE_IMPORT,
     .at = AT(from_list)},
    {.name = "list-redis",
     .kind = CLI_TEXT,
     .metavar = "URL",
     .help = "Redis server of the list, with --from-list",
     .dflt = "redis.url",
     .verbs = QUEUE_IMPORT,
     .at = AT(list_redis)},
    {.name = "list-key",
     .kind = CLI_TEXT,
     .metavar = "json:/POINTER",
     .help = "JSON pointer to the key, with --from-list",
     .dflt = "key.from",
     .verbs = QUEUE_IMPORT,
     .at = AT(list_key)},
    {.name = "try",
     .kind = CLI_FLAG,
     .help = "run the handler once on each message in this process, and record nothing",
     .verbs = QUEUE_REPLAY | DEAD_REPLAY,
     .at = AT(try_handler)},
    {.name = "rate",
     .kind = CLI_RATE,
     .metavar = "N",
     .help = "maximum number of messages per second",
     .verbs = JOBS,
     .at = AT(rate)},
    {.name = "stop-on-error",
     .kind = CLI_FLAG,
     .help = "stop at the first message that fails",
     .verbs = JOBS,
     .at = AT(stop_on_error)},
    {.name = "backup",
     .kind = CLI_TEXT,
     .metavar = "FILE",
     .help = "new file for a backup of the messages before they are dropped",
     .dflt = "latchwork-COMMAND-drop-JOB.jsonl in the current folder",
     .verbs = QUEUE_DROP | DEAD_DROP,
     .at = AT(backup)},
    {.name = "resume",
     .kind = CLI_NUMBER,
     .metavar = "JOB",
     .help = "continue an interrupted job by its number, with its original options",
     .verbs = JOBS,
     .at = AT(resume),
     .min = 1},
    {0},
};

const struct cli_status operator_statuses[] = {
    {"0", "success, or a dry run", 0},
    {"1",
     "Redis or Kafka did not answer, an ID was not found, or a job was interrupted or could not "
     "process a message",
     0},
    {"2", "usage or configuration error", 0},
    {0},
};

static struct ops *ops_of(const struct operator_args *a) {
    struct ops *o = lw_alloc(sizeof *o);
    o->noun = a->cli.command->name;
    o->verb = a->cli.verb->name;
    o->asked_ms = lw_wall_ms();
    o->args = a->ops;
    o->args.words = a->cli.words;
    o->args.n_words = a->cli.n_words;
    o->args.json = a->cli.json;
    return o;
}

static int load(struct ops *o, const struct operator_args *a) {
    struct lw_err err = {0};
    o->c = cli_config(&a->cli);
    if (!o->c) return CLI_USAGE;
    /* a trial's handler may write lines to stderr, which are logged with level info, so this level
     * is enabled for a trial */
    lw_log_setup(o->args.try_handler ? LW_LOG_INFO : LW_LOG_ERROR, false, o->noun);
    return ops_filter_check(o, &err) ? cli_misuse(&a->cli, "%s", err.text) : 0;
}

static int run(struct ops *o, const struct cli_verb *v) {
    o->terminal = isatty(STDOUT_FILENO);
    int status = ops_connect(o) == 0 && (!o->args.resume || ops_job_adopt(o) == 0) ? 0 : OPS_FAILED;
    if (v->ids) o->met = lw_alloc((size_t)o->args.n_words + 1);
    if (!status) status = v->operate(o);
    if (o->err.text[0]) {
        fprintf(stderr, "latchwork %s %s: %s\n", o->noun, o->verb, o->err.text);
        if (!status) status = OPS_FAILED;
    }
    ops_disconnect(o);
    return status;
}

int operators_run(void *args) {
    const struct operator_args *a = args;
    if (a->ops.match && a->ops.n_keys) return cli_misuse(&a->cli, "use either --key or --match");
    if (a->ops.over_ms && a->ops.watch_s)
        return cli_misuse(&a->cli, "use either --over or --watch");
    struct ops *o = ops_of(a);
    int status = load(o, a);
    if (!status) status = run(o, a->cli.verb);
    lw_config_free(o->c);
    json_decref(o->resumed);
    free(o->met);
    free(o);
    return cli_written(&a->cli, status);
}
