/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/run.h"

#include "base/log.h"
#include "api/api.h"
#include "cli/check/check.h"
#include "ops/queue/paused_lanes.h"
#include "config/config.h"
#include "consumer/fleet/drain.h"
#include "consumer/fleet/supervisor.h"
#include "consumer/process/member.h"
#include "handlers/handler.h"
#include "kafka/source.h"
#include "monitor/tracing/tracing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_args {
    struct cli_args cli;
    bool drain;
};

static const struct cli_option options[] = {
    CLI_CONFIG_OPTION,
    {.name = "workers",
     .kind = CLI_SET,
     .metavar = "N",
     .help = "number of worker processes",
     .dflt = "`workers` of the configuration",
     .at = offsetof(struct run_args, cli.set),
     .count = offsetof(struct run_args, cli.n_set),
     .path = "workers"},
    {.name = "drain",
     .kind = CLI_FLAG,
     .help = "take the topics' end offsets at the start and exit once all records before them are "
             "done, dead, dropped or skipped, and "
             "committed, by this run or by other members of the group; print a summary",
     .at = offsetof(struct run_args, drain)},
    CLI_SET_OPTION,
    CLI_JSON_OPTION("print the summary as one JSON object"),
    {0},
};

static const char *const examples[] = {"-c orders.json --workers 4",
                                       "-c orders.json --drain --json", NULL};

static const struct cli_status statuses[] = {
    {"0", "stopped by a signal, or drained", 0},
    {"1",
     "a failure while running: a worker was killed at the end of its grace time or crashed while "
     "stopping, or a drain did not complete",
     0},
    {"2", "usage or configuration error", 0},
    {"78",
     "a worker was refused, or cannot run with its configuration: a restart would fail in the same "
     "way; the log says what to change",
     0},
    {0},
};

/* Holds the data of `latchwork run` that a reload of the configuration needs. */
struct run {
    struct run_args args;
    struct lw_supervise_options options;
    /* `config` is the configuration at the start, which determines the shards and servers of the
     * lanes. A reload cannot change them. */
    const struct lw_config *config;
};

static void log_lines(enum lw_log_level level, const struct lw_buf *b) {
    for (size_t at = 0; at < b->n;) {
        const char *line = b->p + at, *end = memchr(line, '\n', b->n - at);
        size_t n = end ? (size_t)(end - line) : b->n - at;
        lw_log(level, "%.*s", (int)n, line);
        at += n + 1;
    }
}

/* Loads the configuration. Returns NULL if it has any problem. Reports each problem in a line of
 * its own. If `running` is true, the program reloads the configuration, and errors go to the log.
 * Otherwise errors go to stderr. */
static struct lw_config *load(const struct run_args *a, bool running) {
    struct lw_problems problems = {0};
    struct lw_config *c =
        lw_config_load_checked(a->cli.config, a->cli.set, a->cli.n_set, &problems);
    if (c && !running) lw_log_setup(c->log.level, c->log.json, "supervisor");
    if (c || running) log_lines(LW_LOG_WARN, &problems.warnings);
    if (running)
        log_lines(LW_LOG_ERROR, &problems.errors);
    else if (problems.errors.n)
        fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return c;
}

static bool runs_in_worker(const struct lw_config *c) {
    const struct lw_handler_type *type = lw_handler_find(c->handler.type, NULL);
    return type && type->runs_in_worker;
}

static struct lw_config *load_again(void *ctx) {
    struct run *r = ctx;
    struct lw_config *c = load(&r->args, true);
    if (c) r->options.runs_in_worker = runs_in_worker(c);
    return c;
}

static int paused(void *ctx, struct lw_buf *names) {
    struct run *r = ctx;
    struct lw_err err = {0};
    int n = lw_paused_lanes(r->config, names, &err);
    if (n == -1)
        lw_warn("--drain: no progress, and cannot check whether only paused lanes are left: %s",
                err.text);
    return n > 0 ? n : 0;
}

static int run(struct run *r) {
    struct lw_config *c = load(&r->args, false);
    if (!c) return 2;
    r->config = c;
    r->options = (struct lw_supervise_options){
        .drain = r->args.drain,
        .json = r->args.cli.json,
        .progress = isatty(STDERR_FILENO) && !c->log.json,
        .worker_main = lw_worker_main,
        .reload = load_again,
        .config_free = lw_config_free,
        .ends = lw_source_ends,
        .follow = lw_drain_follow,
        .paused = paused,
        .exporter_main = lw_api_exporter_main,
        .tracer_main = lw_tracing_main,
        .member_claim = lw_member_claim,
        .ctx = r,
        .runs_in_worker = runs_in_worker(c),
    };
    int status = lw_supervise(c, &r->options);
    lw_config_free(c);
    return status;
}

static int run_args(void *args) {
    struct run r = {.args = *(const struct run_args *)args};
    return run(&r);
}

const struct cli_command cli_run = {
    .name = "run",
    .summary = "start the supervisor and its workers",
    .about = "Starts the supervisor and its workers, all in one consumer group.\n"
             "\n"
             "    SIGTERM, SIGINT   finish what is in a handler (at most shutdown.grace_ms),\n"
             "                      settle, commit and exit; a second one: exit at once,\n"
             "                      and what was interrupted runs again later\n"
             "    SIGHUP            read the configuration again; if it has errors, log them\n"
             "                      and go on with the old one; else start or stop workers\n"
             "                      if `workers` changed, and replace the others one at a\n"
             "                      time, each when the one before it is ready\n"
             "    SIGUSR1           log what every worker remembers: partitions and their\n"
             "                      watermarks, shards, holds; sent to a worker's process:\n"
             "                      only what that one remembers",
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct run_args),
    .run = run_args,
};
