/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork top`: its options, and its output if stdout is not a
 * terminal. */
#include "cli/top/top.h"

#include "base/clock.h"
#include "cli/top/private.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_MS = 2000, INTERVAL_MIN_MS = 100, INTERVAL_MAX_MS = 3600000, ANSWER_MS = 1000 };

struct args {
    struct cli_args cli;
    const char *filter, *sort;
    int64_t interval_ms;
    bool once;
};

/* Older versions used the word "tries" for the order "attempts". */
static const struct cli_alias sort_aliases[] = {{"tries", "attempts"}, {0}};

static const struct cli_option options[] = {
    CLI_CONFIG_OPTION,
    {.name = "interval",
     .kind = CLI_DURATION,
     .metavar = "TIME",
     .help = "time between two refreshes, 100ms to 1h",
     .dflt = "2s",
     .at = offsetof(struct args, interval_ms),
     .initial = INTERVAL_MS,
     .min = INTERVAL_MIN_MS,
     .max = INTERVAL_MAX_MS},
    {.name = "filter",
     .kind = CLI_TEXT,
     .metavar = "TEXT",
     .help = "only lanes and dead letters whose key contains TEXT, or matches it if it has *, ? or "
             "[a-z]",
     .at = offsetof(struct args, filter)},
    {.name = "sort",
     .kind = CLI_WORD,
     .metavar = "waiting|age|attempts",
     .aliases = sort_aliases,
     .help = "order of lanes: most waiting messages, oldest message, or most attempts of the "
             "oldest message first",
     .dflt = "waiting",
     .at = offsetof(struct args, sort)},
    {.name = "once",
     .kind = CLI_FLAG,
     .help = "print one frame as plain text, 80x24 or COLUMNS x LINES; refresh twice, at most 1 s "
             "apart, to measure the rates",
     .at = offsetof(struct args, once)},
    CLI_JSON_OPTION("print one JSON object per refresh"),
    CLI_SET_OPTION,
    {0},
};

static const char *const examples[] = {"-c orders.json --sort age", "-c orders.json --once --json",
                                       NULL};

static const struct cli_status statuses[] = {
    {"0", "success", 0},
    {"1", "a failure while running; with --once: Redis does not answer", 0},
    {"2", "usage or configuration error", 0},
    {0},
};

/* --- without a terminal ----------------------------------------------------------------------- */

static int from_environment(const char *name, int otherwise, int min) {
    const char *text = getenv(name);
    int n = text ? atoi(text) : 0;
    return n >= min && n <= 1000 ? n : otherwise;
}

static void write_frame(const struct top *t, const struct args *a) {
    struct top_view v = {.width = from_environment("COLUMNS", 80, 40),
                         .height = from_environment("LINES", 24, 6),
                         .interval_ms = a->interval_ms,
                         .selected = SIZE_MAX,
                         .footer = ""};
    struct top_frame f = {0};
    top_draw(t, &v, &f);
    /* the last line is left out, because it lists keys to type */
    for (size_t i = 0; i + 1 < f.n; i++) {
        char *text = f.line[i].text;
        size_t n = strlen(text);
        while (n && text[n - 1] == ' ') n--;
        printf("%.*s\n", (int)n, text);
    }
    top_frame_free(&f);
}

static int plain(struct top *t, const struct args *a) {
    int64_t wait = a->once && a->interval_ms > 1000 ? 1000 : a->interval_ms;
    top_refresh(t);
    do {
        lw_sleep_ms(wait);
        top_refresh(t);
        if (a->cli.json)
            ops_put_json(top_json(t));
        else if (t->up)
            write_frame(t, a);
        if (fflush(stdout) || ferror(stdout)) {
            fputs("latchwork top: cannot write to stdout\n", stderr);
            return CLI_FAILED;
        }
    } while (!a->once);
    if (t->up) return 0;
    fprintf(stderr, "latchwork top: %s\n", t->why);
    return CLI_FAILED;
}

/* --- running ---------------------------------------------------------------------------------- */

static int run(const struct args *a) {
    struct lw_config *c = cli_config(&a->cli);
    if (!c) return CLI_USAGE;
    /* logging is off, because a log line would disturb the display */
    lw_log_setup(LW_LOG_OFF, false, "top");
    struct ops *o = lw_alloc(sizeof *o);
    *o = (struct ops){
        .noun = "queue", .c = c, .quiet = true, .connect_ms = ANSWER_MS, .answer_ms = ANSWER_MS};
    o->args.limit = o->args.partition = o->args.attempts = o->args.older_ms = -1;
    struct top *t = lw_alloc(sizeof *t);
    top_open(t, o);
    if (a->filter) top_set_filter(t, a->filter);
    if (a->sort)
        top_set_sort(t, strcmp(a->sort, "age") == 0        ? TOP_BY_AGE
                        : strcmp(a->sort, "attempts") == 0 ? TOP_BY_ATTEMPTS
                                                           : TOP_BY_WAITING);
    int status = a->once || a->cli.json ? plain(t, a) : top_screen(t, a->interval_ms);
    top_close(t);
    ops_disconnect(o);
    lw_config_free(c);
    free(t);
    free(o);
    return status;
}

static int run_args(void *args) {
    const struct args *a = args;
    if (!a->once && !a->cli.json && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
        return cli_misuse(&a->cli,
                          "stdout is not a terminal; use --once for one frame as text, or --json");
    setlocale(LC_CTYPE, ""); /* LC_NUMERIC is not changed, because JSON needs a decimal point */
    return run(a);
}

const struct cli_command cli_top = {
    .name = "top",
    .summary = "live view: lanes, rates, hot keys, workers",
    .about = "Shows what a fleet is doing now: rates, lag, the lanes with most waiting messages "
             "and who holds them, workers, the newest dead "
             "letters. It asks Redis, and the supervisor on http.listen if it can be reached.\n"
             "\n"
             "    arrows, j, k, home, end   mark a lane\n"
             "    /                         filter; an empty filter shows all\n"
             "    s                         next order\n"
             "    space, ?, q               refresh now, help, quit\n"
             "    P, R                      pause or resume the marked lane\n"
             "    B                         break its lock\n"
             "    D                         drop its waiting messages, after a backup\n"
             "\n"
             "Capitals make a change. They ask first, and only y confirms.",
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct args),
    .run = run_args,
};
