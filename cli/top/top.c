/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork top: its options, and what it writes without a terminal. */
#include "cli/top/top.h"

#include "base/clock.h"
#include "cli/check/check.h"
#include "cli/top/private.h"
#include "ops/time.h"

#include <getopt.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL_MS = 2000, INTERVAL_MIN_MS = 100, INTERVAL_MAX_MS = 3600000, ANSWER_MS = 1000 };

struct args {
    const char *path, *filter, *sort;
    struct lw_override set[OPS_LIST_MAX];
    size_t n_set;
    int64_t interval_ms;
    bool once, json, help;
};

static const char help_text[] =
    "usage: latchwork top -c FILE [--interval TIME] [--filter TEXT] [--sort waiting|age|tries] [--once] [--json]\n"
    "\n"
    "What a fleet is doing now: rates, lag, the lanes with most waiting and who holds them, workers, the newest dead\n"
    "letters. From Redis, and from the supervisor on http.listen where it can be reached.\n"
    "\n"
    "  -c, --config FILE    the configuration (JSON)\n"
    "      --set PATH=VAL   overrides one value of the configuration\n"
    "      --interval TIME  between two looks: 2s unless you say more; 100ms to 1h\n"
    "      --filter TEXT    only lanes and dead letters whose key holds TEXT, or is like it (* ? [a-z])\n"
    "      --sort ORDER     lanes by waiting (the default), age or tries\n"
    "      --once           one frame as plain text (80x24, or COLUMNS and LINES); looks twice, an interval\n"
    "                       of at most 1 s apart, so that there are rates\n"
    "      --json           one JSON object a look\n"
    "  -h, --help           this text\n"
    "\n"
    "Keys: ? help  / filter  s sort  q quit; P pause  R resume  B break lock  D drop: these ask first.\n"
    "\n"
    "Exit status: 0 done, 1 a failure while running, 2 usage or configuration error.\n";

static int misuse(const char *fmt, const char *what) {
    fputs("latchwork top: ", stderr);
    fprintf(stderr, fmt, what);
    fputs("; see: latchwork top --help\n", stderr);
    return -1;
}

static int add_override(struct args *a, char *text) {
    const char *wrong = lw_override_add(a->set, &a->n_set, OPS_LIST_MAX, text);
    return wrong ? misuse(wrong, text) : 0;
}

static int take(struct args *a, int opt, char *const *argv) {
    switch (opt) {
    case 'c': a->path = optarg; return 0;
    case '=': return add_override(a, optarg);
    case 'f': a->filter = optarg; return 0;
    case 'S': a->sort = optarg; return 0;
    case 'o': a->once = true; return 0;
    case 'j': a->json = true; return 0;
    case 'h': a->help = true; return 0;
    case 'i':
        a->interval_ms = ops_duration_ms(optarg);
        if (a->interval_ms >= INTERVAL_MIN_MS && a->interval_ms <= INTERVAL_MAX_MS) return 0;
        return misuse("--interval %s: a time from 100ms to 1h is wanted", optarg);
    case ':': return misuse("%s needs a value", argv[optind - 1]);
    default: return misuse("unknown option %s", argv[optind - 1]);
    }
}

static int parse(struct args *a, int argc, char **argv) {
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"set", required_argument, NULL, '='},  {"interval", required_argument, NULL, 'i'},
        {"filter", required_argument, NULL, 'f'}, {"sort", required_argument, NULL, 'S'}, {"once", no_argument, NULL, 'o'},
        {"json", no_argument, NULL, 'j'},         {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0},
    };
    int opt;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":c:h", options, NULL)) != -1)
        if (take(a, opt, argv)) return -1;
    if (a->help) return 0;
    if (optind < argc) return misuse("unexpected argument %s", argv[optind]);
    if (!a->path) return misuse("which configuration? -c FILE is wanted%s", "");
    if (a->sort && strcmp(a->sort, "waiting") && strcmp(a->sort, "age") && strcmp(a->sort, "tries"))
        return misuse("--sort %s: waiting, age or tries is wanted", a->sort);
    if (!a->once && !a->json && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
        return misuse("no terminal to draw on: --once writes one frame as text, --json objects%s", "");
    return 0;
}

/* ---- without a terminal ---- */

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
    for (size_t i = 0; i + 1 < f.n; i++) { /* the last is for keys */
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
        if (a->json)
            ops_put_json(top_json(t));
        else if (t->up)
            write_frame(t, a);
        if (fflush(stdout) || ferror(stdout)) {
            fputs("latchwork top: cannot write\n", stderr);
            return OPS_FAILED;
        }
    } while (!a->once);
    if (t->up) return 0;
    fprintf(stderr, "latchwork top: %s\n", t->why);
    return OPS_FAILED;
}

/* ---- running ---- */

static struct lw_config *load(const struct args *a) {
    struct lw_problems problems = {0};
    struct lw_config *c = lw_config_load_checked(a->path, a->set, a->n_set, &problems);
    if (problems.n_errors) fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return c;
}

static int run(const struct args *a) {
    struct lw_config *c = load(a);
    if (!c) return OPS_USAGE;
    lw_log_setup(LW_LOG_OFF, false, "top"); /* a line of the log would tear the picture */
    struct ops *o = lw_alloc(sizeof *o);
    *o = (struct ops){.noun = "queue", .c = c, .quiet = true, .connect_ms = ANSWER_MS, .answer_ms = ANSWER_MS};
    o->args.limit = o->args.partition = o->args.attempts = o->args.older_ms = -1;
    struct top *t = lw_alloc(sizeof *t);
    top_open(t, o);
    if (a->filter) top_set_filter(t, a->filter);
    if (a->sort) top_set_sort(t, a->sort[0] == 'a' ? TOP_BY_AGE : a->sort[0] == 't' ? TOP_BY_TRIES : TOP_BY_WAITING);
    int status = a->once || a->json ? plain(t, a) : top_screen(t, a->interval_ms);
    top_close(t);
    ops_disconnect(o);
    lw_config_free(c);
    free(t);
    free(o);
    return status;
}

int lw_cmd_top(int argc, char **argv) {
    struct args *a = lw_alloc(sizeof *a);
    a->interval_ms = INTERVAL_MS;
    setlocale(LC_CTYPE, ""); /* not the numbers: JSON has a point */
    int status = parse(a, argc, argv) ? OPS_USAGE : 0;
    if (!status && a->help) fputs(help_text, stdout);
    if (!status && !a->help) status = run(a);
    free(a);
    return status;
}
