/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/run.h"

#include "base/log.h"
#include "cli/api/api.h"
#include "cli/queue/paused_lanes.h"
#include "config/config.h"
#include "consumer/fleet/drain.h"
#include "consumer/fleet/supervisor.h"
#include "consumer/process/member.h"
#include "handlers/handler.h"
#include "kafka/source.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OVERRIDES_MAX = 256 };

struct run_args {
    const char *path;
    bool drain, json, help;
    struct lw_override set[OVERRIDES_MAX];
    size_t n_set;
};

static const char help_text[] = "usage: latchwork run -c FILE [--workers N] [--drain] [--set path=value]... [--json]\n"
                                "\n"
                                "Starts the supervisor and its workers, all in one consumer group.\n"
                                "\n"
                                "  -c, --config FILE   the configuration (JSON)\n"
                                "      --workers N     worker processes (default: `workers` of the configuration)\n"
                                "      --set PATH=VAL  overrides one value of the configuration, e.g. --set lock.ttl_ms=5000\n"
                                "      --drain         takes the topics' end offsets now and ends once all before them is done,\n"
                                "                      dead, dropped or skipped, and committed; prints a summary\n"
                                "      --json          the summary as one JSON object\n"
                                "  -h, --help          this text\n"
                                "\n"
                                "SIGTERM, SIGINT: finish what is in a handler (at most shutdown.grace_ms), settle, commit, end.\n"
                                "                 A second one: at once.\n"
                                "SIGHUP:          reads the configuration again, starts or stops workers if `workers` changed, and\n"
                                "                 replaces the others one at a time.\n"
                                "\n"
                                "Exit status: 0 stopped or drained, 1 a failure while running, 2 usage or configuration error,\n"
                                "78 refused: a restart would fail in the same way; the log says what to change.\n";

static int misuse(const char *fmt, const char *what) {
    fputs("latchwork run: ", stderr);
    fprintf(stderr, fmt, what);
    fputs("; see: latchwork run --help\n", stderr);
    return -1;
}

static int add_override(struct run_args *a, char *text) {
    const char *wrong = lw_override_add(a->set, &a->n_set, OVERRIDES_MAX, text);
    return wrong ? misuse(wrong, text) : 0;
}

static int take_option(struct run_args *a, int opt, char *const *argv) {
    switch (opt) {
    case 'c': a->path = optarg; return 0;
    case 'w':
        if (a->n_set == OVERRIDES_MAX) return misuse("--set: too many overrides%s", "");
        a->set[a->n_set++] = (struct lw_override){.path = "workers", .value = optarg};
        return 0;
    case 's': return add_override(a, optarg);
    case 'd': a->drain = true; return 0;
    case 'j': a->json = true; return 0;
    case 'h': a->help = true; return 0;
    case ':': return misuse("%s needs a value", argv[optind - 1]);
    default: return misuse("unknown option %s", argv[optind - 1]);
    }
}

static int parse(struct run_args *a, int argc, char **argv) {
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"workers", required_argument, NULL, 'w'},
        {"set", required_argument, NULL, 's'},
        {"drain", no_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    optind = 1;
    opterr = 0;
    int opt;
    while ((opt = getopt_long(argc, argv, ":c:h", options, NULL)) != -1)
        if (take_option(a, opt, argv) == -1) return -1;
    if (a->help) return 0;
    if (optind < argc) return misuse("unexpected argument %s", argv[optind]);
    if (!a->path) return misuse("which configuration? -c FILE is wanted%s", "");
    return 0;
}

/* What a run is made of, for its reload. */
struct run {
    struct run_args args;
    struct lw_supervise_options options;
    const struct lw_config *config; /* as at the start: where the lanes are, which no reload moves */
};

static void check_handler(const struct lw_config *c, struct lw_problems *problems) {
    struct lw_err err = {0};
    const struct lw_handler_type *type = lw_handler_find(c->handler.type, &err);
    if (type)
        type->check(c, problems);
    else
        lw_problem(problems, "%s", err.text);
}

static void log_lines(enum lw_log_level level, const struct lw_buf *b) {
    for (size_t at = 0; at < b->n;) {
        const char *line = b->p + at, *end = memchr(line, '\n', b->n - at);
        size_t n = end ? (size_t)(end - line) : b->n - at;
        lw_log(level, "%.*s", (int)n, line);
        at += n + 1;
    }
}

/* NULL where anything is wrong; every problem is told, one a line: in the log of a run that goes on, else plainly on stderr. */
static struct lw_config *load(const struct run_args *a, bool running) {
    struct lw_problems problems = {.check_handler = check_handler};
    struct lw_config *c = lw_config_load(a->path, a->set, a->n_set, &problems);
    if (c && !running) lw_log_setup(c->log.level, c->log.json, "supervisor");
    if (c || running) log_lines(LW_LOG_WARN, &problems.warnings);
    if (running)
        log_lines(LW_LOG_ERROR, &problems.errors);
    else if (problems.errors.n)
        fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return c;
}

static bool blames_worker(const struct lw_config *c) {
    const struct lw_handler_type *type = lw_handler_find(c->handler.type, NULL);
    return type && type->blames_worker;
}

static struct lw_config *load_again(void *ctx) {
    struct run *r = ctx;
    struct lw_config *c = load(&r->args, true);
    if (c) r->options.blames_worker = blames_worker(c);
    return c;
}

static int paused(void *ctx, struct lw_buf *names) {
    struct run *r = ctx;
    struct lw_err err = {0};
    int n = lw_paused_lanes(r->config, names, &err);
    if (n == -1) lw_warn("--drain: nothing moves, and whether only paused lanes are left can't be told: %s", err.text);
    return n > 0 ? n : 0;
}

static int run(struct run *r) {
    struct lw_config *c = load(&r->args, false);
    if (!c) return 2;
    r->config = c;
    r->options = (struct lw_supervise_options){
        .drain = r->args.drain,
        .json = r->args.json,
        .progress = isatty(STDERR_FILENO) && !c->log.json,
        .worker_main = lw_worker_main,
        .reload = load_again,
        .config_free = lw_config_free,
        .ends = lw_source_ends,
        .follow = lw_drain_follow,
        .paused = paused,
        .exporter_main = lw_api_exporter_main,
        .member_claim = lw_member_claim,
        .ctx = r,
        .blames_worker = blames_worker(c),
    };
    int status = lw_supervise(c, &r->options);
    lw_config_free(c);
    return status;
}

int lw_cmd_run(int argc, char **argv) {
    struct run r = {0};
    if (parse(&r.args, argc, argv) == -1) return 2;
    if (!r.args.help) return run(&r);
    fputs(help_text, stdout);
    return 0;
}
