/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `latchwork queue` and `latchwork dead`. */
#include "base/clock.h"
#include "cli/check/check.h"
#include "ops/job.h"
#include "ops/ops.h"
#include "ops/time.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- parsing ---- */

static int misuse(const struct ops *o, const char *fmt, const char *what) {
    const char *verb = o->verb ? o->verb->name : "", *space = o->verb ? " " : "";
    fprintf(stderr, "latchwork %s%s%s: ", o->noun, space, verb);
    fprintf(stderr, fmt, what);
    fprintf(stderr, "; see: latchwork %s%s%s --help\n", o->noun, space, verb);
    return -1;
}

static const struct option options[] = {
    {"config", required_argument, NULL, 'c'},
    {"set", required_argument, NULL, '='},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {"key", required_argument, NULL, 'k'},
    {"match", required_argument, NULL, 'm'},
    {"topic", required_argument, NULL, 't'},
    {"partition", required_argument, NULL, 'p'},
    {"older-than", required_argument, NULL, 'o'},
    {"attempts", required_argument, NULL, 'a'},
    {"limit", required_argument, NULL, 'l'},
    {"rate", required_argument, NULL, 'R'},
    {"sort", required_argument, NULL, 'S'},
    {"reverse", no_argument, NULL, 'r'},
    {"where", required_argument, NULL, 'w'},
    {"reason", required_argument, NULL, 'e'},
    {"error", required_argument, NULL, 'E'},
    {"from", required_argument, NULL, 'f'},
    {"to", required_argument, NULL, 'T'},
    {"execute", no_argument, NULL, 'x'},
    {"again", no_argument, NULL, 'g'},
    {"stop-on-error", no_argument, NULL, 's'},
    {"to-topic", required_argument, NULL, 'P'},
    {"backup", required_argument, NULL, 'b'},
    {"resume", required_argument, NULL, 'u'},
    {"raw", no_argument, NULL, 'W'},
    {"try", no_argument, NULL, 'y'},
    {"over", required_argument, NULL, 'O'},
    {NULL, 0, NULL, 0},
};

static const char *name_of(int opt) {
    for (size_t i = 0; options[i].name; i++)
        if (options[i].val == opt) return options[i].name;
    return "?";
}

static int add_override(struct ops *o, char *text) {
    const char *wrong = lw_override_add(o->args.set, &o->args.n_set, OPS_LIST_MAX, text);
    return wrong ? misuse(o, wrong, text) : 0;
}

static int number(const struct ops *o, const char *fmt, int64_t min, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(optarg, &end, 10);
    if (end == optarg || *end || errno || v < min) return misuse(o, fmt, optarg);
    *out = v;
    return 0;
}

static int take_rate(struct ops *o) {
    char *end;
    o->args.rate = strtod(optarg, &end);
    if (strcmp(end, "/s") == 0) end += 2;
    if (end == optarg || *end || !(o->args.rate > 0) || o->args.rate > 1e9)
        return misuse(o, "--rate %s: messages a second are wanted", optarg);
    return 0;
}

static int add(const struct ops *o, const char **list, size_t *n, const char *name) {
    if (*n == OPS_LIST_MAX) return misuse(o, "--%s: too many", name);
    list[(*n)++] = optarg;
    return 0;
}

static int take(struct ops *o, int opt) {
    struct ops_args *a = &o->args;
    switch (opt) {
    case 'c': a->path = optarg; return 0;
    case '=': return add_override(o, optarg);
    case 'j': a->json = true; return 0;
    case 'h': a->help = true; return 0;
    case 'k': return add(o, a->keys, &a->n_keys, "key");
    case 'w': return add(o, a->where, &a->n_where, "where");
    case 'm': a->match = optarg; return 0;
    case 't': a->topic = optarg; return 0;
    case 'p': return number(o, "--partition %s: a number is wanted", 0, &a->partition);
    case 'a': return number(o, "--attempts %s: a number is wanted", 0, &a->attempts);
    case 'l': return number(o, "--limit %s: a number is wanted; 0 means all", 0, &a->limit);
    case 'u': return number(o, "--resume %s: the number of a job is wanted", 1, &a->resume);
    case 'o':
        a->older_ms = ops_duration_ms(optarg);
        return a->older_ms < 0 ? misuse(o, "--older-than %s: a time such as 90s, 15m, 2h or 3d is wanted", optarg) : 0;
    case 'O':
        a->over_ms = ops_duration_ms(optarg);
        return a->over_ms < 100 || a->over_ms > 3600000 ? misuse(o, "--over %s: a time from 100ms to 1h is wanted", optarg) : 0;
    case 'R': return take_rate(o);
    case 'S': a->sort = optarg; return 0;
    case 'r': a->reverse = true; return 0;
    case 'e': a->reason = optarg; return 0;
    case 'E': a->error = optarg; return 0;
    case 'f': a->from = optarg; return 0;
    case 'T': a->to = optarg; return 0;
    case 'x': a->execute = true; return 0;
    case 'g': a->again = true; return 0;
    case 's': a->stop_on_error = true; return 0;
    case 'P': a->to_topic = optarg; return 0;
    case 'b': a->backup = optarg; return 0;
    case 'W': a->raw = true; return 0;
    default: a->try_handler = true; return 0;
    }
}

static int find_verb(struct ops *o, const struct ops_verb *verbs, size_t n, const char *name) {
    for (size_t i = 0; i < n && !o->verb; i++)
        if (strcmp(verbs[i].name, name) == 0) o->verb = &verbs[i];
    if (o->verb) return 0;
    if (name[0] == '-') return misuse(o, "options stand before --, and %s behind it is none", name);
    fprintf(stderr, "latchwork %s: it has no %s, only", o->noun, name);
    for (size_t i = 0; i < n; i++) fprintf(stderr, "%s %s", i ? "," : "", verbs[i].name);
    fprintf(stderr, "; see: latchwork %s --help\n", o->noun);
    return -1;
}

static int parse(struct ops *o, const struct ops_verb *verbs, size_t n, int argc, char **argv) {
    int opt, seen[64], n_seen = 0;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":c:hk:x", options, NULL)) != -1) {
        if (opt == ':') return misuse(o, "%s needs a value", argv[optind - 1]);
        if (opt == '?') return misuse(o, "unknown option %s", argv[optind - 1]);
        if (take(o, opt)) return -1;
        if (!strchr("c=jh", opt) && n_seen < 64) seen[n_seen++] = opt;
    }
    if (optind < argc && find_verb(o, verbs, n, argv[optind])) return -1;
    if (o->args.help) return 0;
    if (!o->verb) {
        fprintf(stderr, "usage: latchwork %s VERB -c FILE [options]\n\n", o->noun);
        for (size_t i = 0; i < n; i++) fprintf(stderr, "  %-24s %s\n", verbs[i].usage, verbs[i].help);
        fprintf(stderr, "\nlatchwork %s VERB --help tells more.\n", o->noun);
        return -1;
    }
    for (int i = 0; i < n_seen; i++)
        if (!strchr(o->verb->options, seen[i])) return misuse(o, "--%s means nothing here", name_of(seen[i]));
    o->args.words = argv + optind + 1;
    o->args.n_words = argc - optind - 1;
    if (o->args.n_words < o->verb->min_args) return misuse(o, "wanted: %s", o->verb->usage);
    if (o->verb->max_args >= 0 && o->args.n_words > o->verb->max_args)
        return misuse(o, "unexpected argument %s", o->args.words[o->verb->max_args]);
    if (o->args.match && o->args.n_keys) return misuse(o, "--key and --match: one of them%s", "");
    return o->args.path ? 0 : misuse(o, "which configuration? -c FILE is wanted%s", "");
}

/* ---- help ---- */

static const struct {
    int opt;
    const char *text;
} option_help[] = {
    {'k', "      --key KEY           of this key; may be given several times"},
    {'m', "      --match GLOB        of keys like this (* ? [a-z])"},
    {'t', "      --topic NAME        of this topic"},
    {'p', "      --partition N       of this partition"},
    {'o', "      --older-than TIME   that arrived longer ago: 90s, 15m, 2h, 3d"},
    {'a', "      --attempts N        that were tried at least so often"},
    {'e', "      --reason GLOB       whose reason is like this"},
    {'E', "      --error TEXT        whose reason holds this text"},
    {'w', "      --where 'PTR OP V'  whose payload is so: '/total>100', '/city=Ulm', '/note~late'; ops = != < <= > >= ~"},
    {'f', "      --from WHEN         since then: 2026-11-21T12:00:00Z, 1h (ago); with replay also @OFFSET"},
    {'T', "      --to WHEN           before then"},
    {'O', "      --over TIME         how long the rates are measured: 1s unless you say more"},
    {'S', "      --sort age|size     age: who waits longest first (the default); size: who has most waiting"},
    {'r', "      --reverse           the other way round"},
    {'l', "      --limit N           at most so many; 0: all"},
    {'W', "      --raw               payloads as they are, whole"},
    {'x', "      --execute           do it; without it only what would be done is told"},
    {'g', "      --again             also what is done already"},
    {'P', "      --to-topic NAME     to this topic instead of its lane"},
    {'y', "      --try               to the handler once, here, for a trial; nothing is recorded"},
    {'R', "      --rate N            at most so many a second"},
    {'s', "      --stop-on-error     end at the first that can't be dealt with"},
    {'b', "      --backup FILE       where what is dropped is written first (latchwork-NOUN-drop-NUMBER.jsonl)"},
    {'u', "      --resume JOB        go on with a job that was interrupted (its number; what it was asked for is known)"},
};

static void verbs_help(const struct ops *o, const struct ops_verb *verbs, size_t n) {
    if (o->verb) {
        printf("usage: latchwork %s %s -c FILE [options]\n\n  %s\n", o->noun, o->verb->usage, o->verb->help);
        return;
    }
    printf("usage: latchwork %s VERB -c FILE [options]\n\n", o->noun);
    for (size_t i = 0; i < n; i++) printf("  %-24s %s\n", verbs[i].usage, verbs[i].help);
}

static void examples(const struct ops *o, const struct ops_help *h) {
    bool any = false;
    for (const char *const *e = h->examples; *e; e++) {
        size_t n = o->verb ? strlen(o->verb->name) : 0;
        if (o->verb && (strncmp(*e, o->verb->name, n) != 0 || (*e)[n] != ' ')) continue;
        printf("%s  latchwork %s %s\n", any ? "" : "\nExamples:\n", o->noun, *e);
        any = true;
    }
}

static void help(const struct ops *o, const struct ops_help *h, const struct ops_verb *verbs, size_t n) {
    verbs_help(o, verbs, n);
    printf("\n%s", h->about);
    puts("\n  -c, --config FILE       the configuration (JSON)\n"
         "      --set PATH=VAL      overrides one value of the configuration\n"
         "      --json              one JSON object a line");
    printf("  -h, --help              this text%s%s%s\n", o->verb ? "" : "; latchwork ", o->verb ? "" : o->noun,
           o->verb ? "" : " VERB --help: of one verb");
    for (size_t i = 0; i < sizeof option_help / sizeof *option_help; i++) {
        bool any = false;
        for (size_t k = 0; k < n; k++)
            if ((!o->verb || o->verb == &verbs[k]) && strchr(verbs[k].options, option_help[i].opt)) any = true;
        if (any) puts(option_help[i].text);
    }
    examples(o, h);
    puts("\nExit status: 0 done, 1 a failure while running, 2 usage or configuration error.");
}

/* ---- running ---- */

static int load(struct ops *o) {
    struct lw_problems problems = {0};
    o->c = lw_config_load_checked(o->args.path, o->args.set, o->args.n_set, &problems);
    if (problems.n_errors) fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    if (!o->c) return -1;
    lw_log_setup(o->args.try_handler ? LW_LOG_INFO : LW_LOG_ERROR, false, o->noun); /* of a trial: what its handler says on stderr */
    struct lw_err err = {0};
    if (ops_filter_check(o, &err) == 0) return 0;
    return misuse(o, "%s", err.text);
}

static int run(struct ops *o) {
    o->terminal = isatty(STDOUT_FILENO);
    int status = ops_connect(o) == 0 && (!o->args.resume || ops_job_adopt(o) == 0) ? 0 : OPS_FAILED;
    if (strchr(o->verb->options, 'I')) o->met = lw_alloc((size_t)o->args.n_words + 1);
    if (!status) status = o->verb->fn(o);
    if (o->err.text[0]) {
        fprintf(stderr, "latchwork %s %s: %s\n", o->noun, o->verb->name, o->err.text);
        if (!status) status = OPS_FAILED;
    }
    ops_disconnect(o);
    return status;
}

int ops_main(const char *noun, const struct ops_help *h, const struct ops_verb *verbs, size_t n, int argc, char **argv) {
    struct ops *o = lw_alloc(sizeof *o);
    o->noun = noun;
    o->asked_ms = lw_wall_ms();
    o->args.limit = o->args.partition = o->args.attempts = o->args.older_ms = -1;
    int status = OPS_USAGE;
    if (parse(o, verbs, n, argc, argv) == 0) {
        if (o->args.help) {
            help(o, h, verbs, n);
            status = 0;
        } else if (load(o) == 0) {
            status = run(o);
        }
    }
    if (fflush(stdout) && !status) {
        fprintf(stderr, "latchwork %s: cannot write the answer\n", noun);
        status = OPS_FAILED;
    }
    lw_config_free(o->c);
    json_decref(o->resumed);
    free(o->met);
    free(o);
    return status;
}
