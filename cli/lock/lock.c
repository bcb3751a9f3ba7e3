/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork lock: the command line of its verbs, and opening what they are about. */
#include "cli/lock/lock.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { EXEC = 1, LS = 2, SHOW = 4, BREAK = 8, ALL = 15, MS_MAX = 24 * 3600 * 1000 };

static const char help_text[] =
    "usage: latchwork lock exec KEY (-c FILE | --redis URL) [--ttl MS] [--wait MS] -- CMD...\n"
    "       latchwork lock ls (-c FILE | --redis URL) [--match GLOB] [--limit N] [--without-ttl]\n"
    "       latchwork lock show KEY (-c FILE | --redis URL) [--set-ttl MS --execute]\n"
    "       latchwork lock break KEY (-c FILE | --redis URL) [--execute]\n"
    "\n"
    "exec runs a command under a lock, as flock(1) does across machines; ls lists the locks that are held;\n"
    "show tells who holds one; break ends one, whoever holds it, and raises its fence.\n"
    "\n"
    "  -c, --config FILE    the locks of this application's lanes: handlers and commands exclude each other\n"
    "      --set PATH=VAL   with -c: override one value of the configuration\n"
    "      --redis URL      the locks of the lock library in this Redis (redis://, unix://)\n"
    "      --plain          with --redis: KEY is the Redis key itself, a plain SET NX PX lock as many clients write it\n"
    "      --json           one JSON object a line\n"
    "  -h, --help           this text\n"
    "\n"
    "exec:\n"
    "      --ttl MS         the lease, renewed at a third of it while the command runs (10000; -c: lock.ttl_ms, at most that)\n"
    "      --wait MS        how long to try (0: once; -1: for ever)\n"
    "      --kill-after MS  from SIGTERM to SIGKILL where the lock is lost (1000; never past the end of the lease)\n"
    "      --paused         with -c: also a lane that is paused\n"
    "ls:\n"
    "      --match GLOB     only keys like this: * ? [a-z]\n"
    "      --limit N        at most so many\n"
    "      --without-ttl    only locks that never end by themselves\n"
    "show, break:\n"
    "      --set-ttl MS     show: gives a TTL to a lock that has none\n"
    "      --execute        does it; without it, what would be done is told\n"
    "\n"
    "The command runs in a process group of its own, with $LATCHWORK_FENCE set: a number that grows with every acquisition.\n"
    "Signals are passed on. Where the lock is lost, the group is ended. The lock is released when CMD ends, whatever it leaves running.\n"
    "\n"
    "Exit status: 0 fine, 1 a failure while running, 2 usage or configuration error. exec: that of the command, 128 + signal\n"
    "where one ended it, 1 where the lock was lost but the command ended with 0, 75 where the lock could not be had within\n"
    "--wait, 126 and 127 where the command cannot be run or found.\n";

static const struct {
    const char *name;
    int bit;
    int (*fn)(const struct lock_args *a);
} verbs[] = {{"exec", EXEC, lock_exec}, {"ls", LS, lock_ls}, {"show", SHOW, lock_show}, {"break", BREAK, lock_break}};
enum { VERBS = sizeof verbs / sizeof *verbs };

enum { O_REDIS = 256, O_PLAIN, O_JSON, O_TTL, O_WAIT, O_KILL, O_PAUSED, O_MATCH, O_LIMIT, O_WITHOUT, O_SET_TTL, O_EXECUTE, O_SET };
static const struct {
    struct option o;
    int verbs;
} table[] = {
    {{"config", required_argument, NULL, 'c'}, ALL},
    {{"set", required_argument, NULL, O_SET}, ALL},
    {{"redis", required_argument, NULL, O_REDIS}, ALL},
    {{"plain", no_argument, NULL, O_PLAIN}, ALL},
    {{"json", no_argument, NULL, O_JSON}, LS | SHOW | BREAK},
    {{"ttl", required_argument, NULL, O_TTL}, EXEC},
    {{"wait", required_argument, NULL, O_WAIT}, EXEC},
    {{"kill-after", required_argument, NULL, O_KILL}, EXEC},
    {{"paused", no_argument, NULL, O_PAUSED}, EXEC},
    {{"match", required_argument, NULL, O_MATCH}, LS},
    {{"limit", required_argument, NULL, O_LIMIT}, LS},
    {{"without-ttl", no_argument, NULL, O_WITHOUT}, LS},
    {{"set-ttl", required_argument, NULL, O_SET_TTL}, SHOW},
    {{"execute", no_argument, NULL, O_EXECUTE}, SHOW | BREAK},
    {{"help", no_argument, NULL, 'h'}, ALL},
};
enum { OPTIONS = sizeof table / sizeof *table };

static int misuse(const char *verb, const char *fmt, const char *what) {
    fprintf(stderr, "latchwork lock%s%s: ", verb ? " " : "", verb ? verb : "");
    fprintf(stderr, fmt, what);
    fputs("; see: latchwork lock --help\n", stderr);
    return -1;
}

static int take_number(const char *verb, const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end;
    *out = strtoll(text, &end, 10);
    if (*text && !*end && strspn(text, "-0123456789") == strlen(text) && *out >= least && *out <= most) return 0;
    char why[128];
    snprintf(why, sizeof why, "%%s: a number from %lld to %lld is wanted", (long long)least, (long long)most);
    return misuse(verb, why, text);
}

static int add_override(struct lock_args *a, char *text) {
    const char *wrong = lw_override_add(a->set, &a->n_set, LOCK_SET_MAX, text);
    return wrong ? misuse(a->verb, wrong, text) : 0;
}

static int take_option(struct lock_args *a, int opt, char *const *argv) {
    switch (opt) {
    case 'c': a->config = optarg; return 0;
    case O_SET: return add_override(a, optarg);
    case O_REDIS: a->redis = optarg; return 0;
    case O_PLAIN: a->plain = true; return 0;
    case O_JSON: a->json = true; return 0;
    case O_TTL: return take_number(a->verb, optarg, 10, MS_MAX, &a->ttl_ms);
    case O_WAIT: return take_number(a->verb, optarg, -1, INT64_MAX / 2, &a->wait_ms);
    case O_KILL: return take_number(a->verb, optarg, 1, MS_MAX, &a->kill_after_ms);
    case O_PAUSED: a->paused = true; return 0;
    case O_MATCH: a->match = optarg; return 0;
    case O_LIMIT: return take_number(a->verb, optarg, 1, INT64_MAX / 2, &a->limit);
    case O_WITHOUT: a->without_ttl = true; return 0;
    case O_SET_TTL: return take_number(a->verb, optarg, 10, MS_MAX, &a->set_ttl_ms);
    case O_EXECUTE: a->execute = true; return 0;
    case ':': return misuse(a->verb, "%s needs a value", argv[optind - 1]);
    default: return misuse(a->verb, "unknown option %s", argv[optind - 1]);
    }
}

static int check(const struct lock_args *a, int bit, int n_args, char *const *args) {
    if (bit == LS && n_args) return misuse(a->verb, "unexpected argument %s", args[0]);
    if (bit != LS && !n_args) return misuse(a->verb, "which KEY?%s", "");
    if (bit == EXEC && n_args > 1) return misuse(a->verb, "unexpected argument %s: the command stands behind --", args[1]);
    if (n_args > 1) return misuse(a->verb, "unexpected argument %s", args[1]);
    if (bit == EXEC && (!a->command || !*a->command)) return misuse(a->verb, "which command? -- CMD... is wanted%s", "");
    if (bit != EXEC && a->command) return misuse(a->verb, "unexpected argument %s", "--");
    if (!a->config == !a->redis) return misuse(a->verb, "either -c FILE or --redis URL is wanted%s", "");
    if (a->plain && !a->redis) return misuse(a->verb, "--plain goes with --redis%s", "");
    if (a->n_set && !a->config) return misuse(a->verb, "--set goes with -c%s", "");
    if (a->paused && !a->config) return misuse(a->verb, "--paused goes with -c%s", "");
    if (bit == LS && a->plain && !a->match)
        return misuse(a->verb, "--plain: any string could be a plain lock; say which with --match GLOB%s", "");
    if (bit == SHOW && a->execute && !a->set_ttl_ms) return misuse(a->verb, "--execute goes with --set-ttl MS%s", "");
    return 0;
}

/* Fills what stands before --. -1: wrong; 1: help is wanted. */
static int parse(struct lock_args *a, int bit, int argc, char **argv) {
    struct option options[OPTIONS + 1] = {{0}};
    for (size_t i = 0, n = 0; i < OPTIONS; i++)
        if (table[i].verbs & bit) options[n++] = table[i].o;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--")) {
            a->command = argv + i + 1;
            argc = i;
        }
    int opt;
    bool help = false;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":c:h", options, NULL)) != -1) {
        if (opt == 'h')
            help = true;
        else if (take_option(a, opt, argv))
            return -1;
    }
    if (help) return 1;
    if (optind < argc) a->key = argv[optind];
    return check(a, bit, argc - optind, argv + optind);
}

static bool is_help(const char *s) { return !strcmp(s, "-h") || !strcmp(s, "--help"); }

int lw_cmd_lock(int argc, char **argv) {
    int at = 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") && !at; i++) {
        if (is_help(argv[i])) {
            fputs(help_text, stdout);
            return 0;
        }
        if (argv[i][0] != '-')
            at = i;
        else if (!strcmp(argv[i], "-c") || !strcmp(argv[i], "--config") || !strcmp(argv[i], "--redis") || !strcmp(argv[i], "--set"))
            i++; /* its value */
    }
    if (!at) return misuse(NULL, "exec, ls, show or break?%s", ""), LOCK_EXIT_USAGE;
    for (size_t v = 0; v < VERBS; v++) {
        if (strcmp(argv[at], verbs[v].name)) continue;
        struct lock_args a = {.verb = verbs[v].name};
        memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv); /* with the NULL at its end */
        int wrong = parse(&a, verbs[v].bit, argc - 1, argv);
        if (wrong == 1) fputs(help_text, stdout);
        if (wrong) return wrong == 1 ? 0 : LOCK_EXIT_USAGE;
        return verbs[v].fn(&a);
    }
    return misuse(NULL, "unknown verb %s: exec, ls, show or break", argv[at]), LOCK_EXIT_USAGE;
}

/* --- what the verbs share ---------------------------------------------------------------------------------------------------------------
 */

void lock_say(const struct lock_args *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "latchwork lock %s: ", a->verb);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

int lock_failed(const struct lock_args *a, const struct latchwork_error *error) {
    lock_say(a, "%s", error->text);
    return error->code == LATCHWORK_E_ARGUMENT ? LOCK_EXIT_USAGE : LOCK_EXIT_FAILED;
}

struct lw_config *lock_config(const struct lock_args *a) {
    struct lw_problems problems = {0};
    struct lw_config *c = lw_config_load(a->config, a->set, a->n_set, &problems);
    if (!c) fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return c;
}

int lock_target_open(struct lock_target *t, const struct lock_args *a, const struct latchwork_lock_options *options) {
    struct latchwork_error error = {0};
    *t = (struct lock_target){0};
    if (a->config) {
        t->config = lock_config(a);
        if (!t->config) return LOCK_EXIT_USAGE;
        t->lane = lw_lane_lock_open(t->config, lw_bytes_of(a->key), options, &error);
        if (!t->lane) return lock_failed(a, &error);
        t->client = lw_lane_lock_client(t->lane);
        t->lock = lw_lane_lock_lock(t->lane);
        return 0;
    }
    struct latchwork_lock_options o = *options;
    if (a->plain) o.flags |= LATCHWORK_LOCK_PLAIN;
    t->client = latchwork_client_open(a->redis, NULL, &error);
    if (t->client) t->lock = latchwork_lock_open(t->client, a->key, &o, &error);
    return t->lock ? 0 : lock_failed(a, &error);
}

void lock_target_close(struct lock_target *t) {
    if (t->config) {
        lw_lane_lock_close(t->lane);
        lw_config_free(t->config);
    } else {
        latchwork_lock_close(t->lock);
        latchwork_client_close(t->client);
    }
    *t = (struct lock_target){0};
}
