/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork lock`: parses the command line of its verbs and opens the lock
 * that they name. */
#include "cli/lock/lock.h"

#include "lock/client.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct lock_args, field)

enum { EXEC = 1, LS = 2, SHOW = 4, BREAK = 8, MS_MIN = 10, MS_MAX = 24 * 3600 * 1000 };

static int exec(const void *args) { return lock_exec(args); }
static int ls(const void *args) { return lock_ls(args); }
static int show(const void *args) { return lock_show(args); }
static int break_(const void *args) { return lock_break(args); }

#define WHERE "(-c\1FILE\1|\1--redis\1URL)"
static const struct cli_verb verbs[] = {
    {.name = "exec",
     .bit = EXEC,
     .words = "KEY " WHERE,
     .min_words = 1,
     .max_words = 1,
     .tail = true,
     .run = exec,
     .help = "run a command under a lock, as flock(1) does across machines"},
    {.name = "ls", .bit = LS, .words = WHERE, .run = ls, .help = "list the locks that are held"},
    {.name = "show",
     .bit = SHOW,
     .words = "KEY " WHERE,
     .min_words = 1,
     .max_words = 1,
     .run = show,
     .help = "show who holds a lock"},
    {.name = "break",
     .bit = BREAK,
     .words = "KEY " WHERE,
     .min_words = 1,
     .max_words = 1,
     .run = break_,
     .help = "end a lock, whoever holds it, and raise its fence (default: dry run)"},
};

static const struct cli_option lock_options[] = {
    {.name = "config",
     .brief = 'c',
     .kind = CLI_TEXT,
     .need = CLI_SPOKEN,
     .metavar = "FILE",
     .help = "use the locks of this application's lanes, which handlers and commands share",
     .at = offsetof(struct cli_args, config)},
    {.name = "redis",
     .kind = CLI_TEXT,
     .need = CLI_SPOKEN,
     .metavar = "URL",
     .help = "use the locks of the lock library in this Redis (redis://, rediss://, unix://)",
     .at = AT(redis)},
    {.name = "cluster",
     .kind = CLI_FLAG,
     .help = "use a Redis Cluster, with --redis, whose URL names one or several of its nodes, as "
             "redis://HOST:PORT,HOST:PORT",
     .at = AT(cluster)},
    {.name = "tls-ca",
     .kind = CLI_TEXT,
     .metavar = "FILE",
     .help = "CAs to trust, with --redis rediss://",
     .dflt = "the system's",
     .at = AT(tls_ca)},
    {.name = "tls-cert",
     .kind = CLI_TEXT,
     .metavar = "FILE",
     .help = "certificate of the client, with --redis rediss://",
     .at = AT(tls_cert)},
    {.name = "tls-key",
     .kind = CLI_TEXT,
     .metavar = "FILE",
     .help = "private key of the client, with --redis rediss://",
     .dflt = "in --tls-cert",
     .at = AT(tls_key)},
    {.name = "tls-name",
     .kind = CLI_TEXT,
     .metavar = "NAME",
     .help = "name in the server's certificate, with --redis rediss://",
     .dflt = "the URL's host",
     .at = AT(tls_name)},
    CLI_SET_OPTION,
    {.name = "plain",
     .kind = CLI_FLAG,
     .help = "use KEY as the Redis key itself, for the plain SET NX PX locks that many clients "
             "write, with --redis",
     .at = AT(plain)},
    CLI_JSON_VERBS_OPTION("print one JSON object per line", LS | SHOW | BREAK),
    {.name = "ttl",
     .kind = CLI_NUMBER,
     .metavar = "MS",
     .help = "length of the lease, which is renewed after each third of it while the command runs; "
             "with -c at most lock.ttl_ms",
     .dflt = "10000; with -c: lock.ttl_ms",
     .verbs = EXEC,
     .at = AT(ttl_ms),
     .min = MS_MIN,
     .max = MS_MAX},
    {.name = "wait",
     .kind = CLI_NUMBER,
     .metavar = "MS",
     .help = "maximum wait for the lock (0: try once, -1: unlimited)",
     .dflt = "0",
     .verbs = EXEC,
     .at = AT(wait_ms),
     .min = -1,
     .max = INT64_MAX / 2},
    {.name = "kill-after",
     .kind = CLI_NUMBER,
     .metavar = "MS",
     .help = "time from SIGTERM to SIGKILL if the lock is lost, never past the end of the lease",
     .dflt = "1000",
     .verbs = EXEC,
     .at = AT(kill_after_ms),
     .min = 1,
     .max = MS_MAX},
    {.name = "paused",
     .kind = CLI_FLAG,
     .help = "also lock a paused lane, with -c",
     .verbs = EXEC,
     .at = AT(paused)},
    {.name = "match",
     .kind = CLI_TEXT,
     .metavar = "GLOB",
     .help = "only keys that match GLOB: * ? [a-z]",
     .verbs = LS,
     .at = AT(match)},
    {.name = "limit",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "maximum number of results (0: unlimited)",
     .verbs = LS,
     .at = AT(limit),
     .max = INT64_MAX / 2},
    {.name = "without-ttl",
     .kind = CLI_FLAG,
     .help = "only locks without a TTL",
     .verbs = LS,
     .at = AT(without_ttl)},
    {.name = "set-ttl",
     .kind = CLI_NUMBER,
     .metavar = "MS",
     .help = "give a TTL to a lock that has none",
     .verbs = SHOW,
     .at = AT(set_ttl_ms),
     .min = MS_MIN,
     .max = MS_MAX},
    {.name = "execute",
     .kind = CLI_FLAG,
     .help = "apply the change",
     .dflt = "dry run",
     .verbs = SHOW | BREAK,
     .at = AT(execute)},
    {0},
};

static const char *const examples[] = {
    "exec c-17 -c orders.json --wait 5000 -- ./repair.sh c-17",
    "ls --redis unix:///run/redis.sock --without-ttl",
    "show c-17 -c orders.json",
    "break c-17 -c orders.json --execute",
    "exec nightly --redis redis://h1,h2 --cluster -- ./report",
    NULL,
};

static const struct cli_status statuses[] = {
    {"0", "success, or nothing to do", LS | SHOW | BREAK},
    {"0", "the command ended with status 0", EXEC},
    {"1", "Redis did not answer, or rejected a command", LS | SHOW | BREAK},
    {"1",
     "Redis did not answer, or rejected a command; or the lock was lost although the command ended "
     "with status 0",
     EXEC},
    {"2", "usage or configuration error", 0},
    {"75", "the lock was not acquired within --wait: it was held, paused, or in quarantine", EXEC},
    {"126, 127", "the command cannot be run, or was not found", EXEC},
    {"128 + N", "signal N ended the command, or the wait for the lock", EXEC},
    {"other", "status of the command", EXEC},
    {0},
};

static int check(const struct lock_args *a) {
    const struct cli_args *cli = &a->cli;
    unsigned bit = cli->verb->bit;
    if (!cli->config == !a->redis) return cli_misuse(cli, "expected either -c FILE or --redis URL");
    if ((a->tls_ca || a->tls_cert || a->tls_key || a->tls_name) && !a->redis)
        return cli_misuse(cli, "--tls-… needs --redis; with -c use redis.tls in the configuration");
    if (a->plain && !a->redis) return cli_misuse(cli, "--plain needs --redis");
    if (a->cluster && !a->redis)
        return cli_misuse(
            cli, "--cluster needs --redis; with -c use redis.cluster in the configuration");
    if (cli->n_set && !cli->config) return cli_misuse(cli, "--set needs -c");
    if (a->paused && !cli->config) return cli_misuse(cli, "--paused needs -c");
    if (bit == LS && a->plain && !a->match)
        return cli_misuse(cli,
                          "--plain needs --match GLOB, because any string could be a plain lock");
    if (bit == SHOW && a->execute && !a->set_ttl_ms)
        return cli_misuse(cli, "--execute needs --set-ttl MS");
    return 0;
}

static int run(void *args) {
    struct lock_args *a = args;
    if (a->cli.n_words) a->key = a->cli.words[0];
    int wrong = check(a);
    return wrong ? wrong : cli_run_verb(a);
}

const struct cli_command cli_lock = {
    .name = "lock",
    .summary = "show and break locks; run a command under a lock",
    .about =
        "Locks of an application's lanes (-c), or of the lock library in any Redis (--redis).\n"
        "\n"
        "exec runs its command in a process group of its own, with $LATCHWORK_FENCE set to a "
        "number "
        "that grows with every acquisition. "
        "Signals are passed on. If the lock is lost, the group is ended. The lock is released when "
        "the command ends, whatever it "
        "leaves running.",
    .verbs = verbs,
    .n_verbs = sizeof verbs / sizeof *verbs,
    .options = lock_options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct lock_args),
    .run = run,
};

/* --- what the verbs share --------------------------------------------------------------------- */

void lock_say(const struct lock_args *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "latchwork lock %s: ", a->cli.verb->name);
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
    struct lw_config *c = lw_config_load(a->cli.config, a->cli.set, a->cli.n_set, &problems);
    if (!c) fwrite(problems.errors.p, 1, problems.errors.n, stderr);
    lw_problems_free(&problems);
    return c;
}

/* Holds the nodes that a URL of several hosts names:
 * redis://[USER:PASSWORD@]HOST:PORT,HOST:PORT… */
struct nodes {
    struct lw_buf url; /* copy of the URL with only the first host */
    char *hosts;
    /* `address` has room for one address more than the library accepts, so that the library can
     * refuse a list that is too long. */
    const char *address[LATCHWORK_MAX_ADDRESSES + 1];
    size_t n;
};

static void split_hosts(const char *url, struct nodes *out) {
    const char *at = strrchr(url, '@'), *scheme = strstr(url, "://");
    const char *hosts = at ? at + 1 : scheme ? scheme + 3 : url;
    size_t n = strcspn(hosts, "/"), first = strcspn(hosts, ",/");
    lw_buf_addf(&out->url, "%.*s%s%c", (int)(hosts + first - url), url, hosts + n, 0);
    char *rest = out->hosts = lw_memdup(hosts, n);
    while (rest && out->n <= LATCHWORK_MAX_ADDRESSES) out->address[out->n++] = strsep(&rest, ",");
}

static struct latchwork_client *open_cluster(const char *url,
                                             const struct latchwork_client_options *options,
                                             struct latchwork_error *error) {
    struct nodes nodes = {0};
    split_hosts(url, &nodes);
    struct latchwork_client_options o = *options;
    o.cluster = nodes.address;
    o.n_cluster = nodes.n;
    struct latchwork_client *client = latchwork_client_open(nodes.url.p, &o, error);
    lw_buf_free(&nodes.url);
    free(nodes.hosts);
    return client;
}

/* Opens a client. The user and the password come from the environment, because on the command line
 * every user of the machine could see them in the list of processes. */
struct latchwork_client *lock_client_open(const struct lock_args *a,
                                          struct latchwork_error *error) {
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT,
                                         .user = getenv("LATCHWORK_REDIS_USER"),
                                         .password = getenv("LATCHWORK_REDIS_PASSWORD"),
                                         .tls_ca = a->tls_ca,
                                         .tls_cert = a->tls_cert,
                                         .tls_key = a->tls_key,
                                         .tls_name = a->tls_name};
    return a->cluster ? open_cluster(a->redis, &o, error)
                      : latchwork_client_open(a->redis, &o, error);
}

int lock_target_open(struct lock_target *t, const struct lock_args *a,
                     const struct latchwork_lock_options *options) {
    struct latchwork_error error = {0};
    *t = (struct lock_target){0};
    if (a->cli.config) {
        t->config = lock_config(a);
        if (!t->config) return LOCK_EXIT_USAGE;
        t->name = lw_lane_named(lw_bytes_of(a->key), t->room, sizeof t->room);
        t->lane = lw_lane_lock_open(t->config, t->name, options, &error);
        if (!t->lane) return lock_failed(a, &error);
        t->client = lw_lane_lock_client(t->lane);
        t->lock = lw_lane_lock_lock(t->lane);
        return 0;
    }
    struct latchwork_lock_options o = *options;
    if (a->plain) o.flags |= LATCHWORK_FLAG_PLAIN;
    t->client = lock_client_open(a, &error);
    if (t->client) t->lock = latchwork_lock_open(t->client, a->key, &o, &error);
    return t->lock ? 0 : lock_failed(a, &error);
}

int lock_lane_connect(struct lock_target *t) {
    t->ops.c = t->config;
    return ops_connect_lane(&t->ops, t->name);
}

enum latchwork_result lock_lane_failed(const struct lock_target *t, struct latchwork_error *error) {
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_REPLY, "%s", t->ops.err.text);
}

void lock_target_close(struct lock_target *t) {
    if (t->config) {
        ops_disconnect(&t->ops);
        lw_lane_lock_close(t->lane);
        lw_config_free(t->config);
    } else {
        latchwork_lock_close(t->lock);
        latchwork_client_close(t->client);
    }
    *t = (struct lock_target){0};
}
