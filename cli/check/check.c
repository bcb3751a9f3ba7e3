/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the command `latchwork check`. */
#include "cli/check/check.h"

#include "cli/check/acl.h"
#include "cli/check/servers.h"
#include "monitor/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check_args {
    struct cli_args cli;
    bool connect, reference, reference_metrics, metric_names;
    const char *acl, *whose; /* values of the options --acl and --for */
};

static const struct cli_option options[] = {
    {.name = "config",
     .brief = 'c',
     .kind = CLI_TEXT,
     .metavar = "FILE",
     .help = "configuration file (JSON)",
     .at = offsetof(struct cli_args, config)},
    {.name = "connect",
     .kind = CLI_FLAG,
     .help = "also check brokers and topics, each Redis (version, policies, rights of the "
             "scripts), and whether the handler opens; changes "
             "nothing there",
     .at = offsetof(struct check_args, connect)},
    {.name = "acl",
     .kind = CLI_TEXT,
     .metavar = "USER",
     .help = "print the Redis command that gives this user the rights that the application needs, "
             "and no others; its passwords stay as they "
             "are",
     .at = offsetof(struct check_args, acl)},
    {.name = "for",
     .kind = CLI_WORD,
     .metavar = "application|lock",
     .dflt = "application",
     .help = "programs that log in as USER (with --acl). application: run, queue, dead, "
             "ledger and lock "
             "-c with the configuration. lock: the "
             "lock library and lock --redis, which need no configuration",
     .at = offsetof(struct check_args, whose)},
    CLI_SET_OPTION,
    CLI_JSON_OPTION("print the result as one JSON object"),
    {.name = "reference",
     .kind = CLI_FLAG,
     .help = "print the reference of all configuration keys (Markdown)",
     .at = offsetof(struct check_args, reference)},
    {.name = "reference-metrics",
     .kind = CLI_FLAG,
     .help = "print the reference of all metrics (Markdown)",
     .at = offsetof(struct check_args, reference_metrics)},
    {.name = "metric-names",
     .kind = CLI_FLAG,
     .help = "print the names of all metrics, one per line",
     .at = offsetof(struct check_args, metric_names)},
    {0},
};

static const char *const usage[] = {"-c\1FILE [--connect] [--set\1PATH=VALUE]... [--json]",
                                    "--acl\1USER -c\1FILE [--set\1PATH=VALUE]...",
                                    "--acl\1USER --for\1lock",
                                    "--reference | --reference-metrics | --metric-names", NULL};
static const char *const examples[] = {"-c orders.json --connect",
                                       "--acl orders -c orders.json | redis-cli", NULL};

static const struct cli_status statuses[] = {
    {"0", "no problem", 0},
    {"1", "--connect found a problem", 0},
    {"2", "usage or configuration error", 0},
    {0},
};

/* --- answers ---------------------------------------------------------------------------------- */

static json_t *lines(const struct lw_buf *b) {
    json_t *list = json_array();
    for (size_t i = 0; i < b->n;) {
        const char *end = memchr(b->p + i, '\n', b->n - i);
        size_t n = end ? (size_t)(end - b->p) - i : b->n - i;
        json_t *line = json_stringn(b->p + i, n);
        json_array_append_new(list, line ? line : json_string("(a line that is not UTF-8)"));
        i += n + 1;
    }
    return list;
}

static void print_json(const struct lw_config *c, const struct lw_problems *loading,
                       const struct lw_check_report *r) {
    json_t *errors = lines(&loading->errors), *more = lines(&r->problems.errors), *config = NULL;
    json_t *warnings = lines(&loading->warnings), *more_warnings = lines(&r->problems.warnings);
    json_array_extend(errors, more);
    json_array_extend(warnings, more_warnings);
    json_decref(more);
    json_decref(more_warnings);
    struct lw_buf text = {0};
    if (c) lw_config_print(c, &text);
    if (text.n) config = json_loadb(text.p, text.n, 0, NULL);
    bool ok = json_array_size(errors) == 0;
    json_t *o = json_pack("{sb so so so so}", "ok", (int)ok, "errors", errors, "warnings", warnings,
                          "notes", lines(&r->notes), "config", config ? config : json_null());
    char *out = json_dumps(o, JSON_COMPACT);
    puts(out ? out : "{\"ok\":false}");
    free(out);
    json_decref(o);
    lw_buf_free(&text);
}

static void put_lines(FILE *out, const char *before, const struct lw_buf *b) {
    for (size_t i = 0; i < b->n;) {
        size_t n = (size_t)((const char *)memchr(b->p + i, '\n', b->n - i) - b->p) - i + 1;
        fputs(before, out);
        fwrite(b->p + i, 1, n, out);
        i += n;
    }
}

static void print_summary(const struct lw_config *c, const char *path, bool connected) {
    printf("%s: fine%s\n", path, connected ? "" : " (use --connect to check the servers, too)");
    printf("  %s: %d worker%s, group %s, %zu topic%s:", c->name, c->workers,
           c->workers == 1 ? "" : "s", c->kafka.group_id, c->kafka.n_topics,
           c->kafka.n_topics == 1 ? "" : "s");
    for (size_t i = 0; i < c->kafka.n_topics; i++) printf(" %s", c->kafka.topics[i]);
    char servers[32] = "a cluster";
    if (!c->redis.cluster.on)
        snprintf(servers, sizeof servers, "%zu Redis", lw_config_servers_count(c));
    printf("\n  key %s, lease %lld ms, %d shard%s on %s, handler %s × %d\n", c->key.from_text,
           (long long)c->lock.ttl_ms, c->redis.shards, c->redis.shards == 1 ? "" : "s", servers,
           c->handler.type, lw_config_at_once(c));
}

static void print_text(const struct check_args *a, const struct lw_config *c,
                       const struct lw_problems *loading, const struct lw_check_report *r) {
    put_lines(stderr, "", &loading->errors);
    put_lines(stderr, "", &r->problems.errors);
    put_lines(stderr, "warning: ", &loading->warnings);
    put_lines(stderr, "warning: ", &r->problems.warnings);
    put_lines(stdout, "", &r->notes);
    if (c && !r->problems.n_errors) print_summary(c, a->cli.config, a->connect);
}

static int check(const struct check_args *a) {
    struct lw_problems loading = {0};
    struct lw_check_report r = {.wait_ms = LW_CHECK_WAIT_MS};
    struct lw_config *c = lw_config_load_checked(a->cli.config, a->cli.set, a->cli.n_set, &loading);
    if (c && !a->connect) lw_check_program(c, &r.problems);
    if (c && a->connect) {
        lw_check_handler_opens(c, &r);
        lw_check_redis(c, &r);
        lw_check_kafka(c, &r);
    }
    if (a->cli.json)
        print_json(c, &loading, &r);
    else
        print_text(a, c, &loading, &r);
    int status = !c ? CLI_USAGE : r.problems.n_errors ? CLI_FAILED : 0;
    lw_problems_free(&loading);
    lw_problems_free(&r.problems);
    lw_buf_free(&r.notes);
    lw_config_free(c);
    return status;
}

static int print_acl(const struct check_args *a) {
    bool lock = a->whose && !strcmp(a->whose, "lock");
    struct lw_buf line = {0};
    if (a->connect || a->cli.json)
        return cli_misuse(&a->cli, "use --acl without --connect and --json");
    if (!lw_acl_may_name(a->acl))
        return cli_misuse(&a->cli,
                          "--acl %s: expected the name of a user other than default, without "
                          "spaces, quotes and backslashes",
                          a->acl);
    if (!lock && !a->cli.config)
        return cli_misuse(&a->cli, "--acl: expected -c FILE or --for lock");
    struct lw_config *c = lock ? NULL : cli_config(&a->cli);
    if (!lock && !c) return CLI_USAGE;
    lw_acl_line(&line, a->acl, c ? c->name : NULL);
    fwrite(line.p, 1, line.n, stdout);
    lw_buf_free(&line);
    lw_config_free(c);
    return 0;
}

static int print_page(void (*make)(struct lw_buf *out)) {
    struct lw_buf page = {0};
    make(&page);
    fwrite(page.p, 1, page.n, stdout);
    lw_buf_free(&page);
    return 0;
}

static int run(void *args) {
    const struct check_args *a = args;
    int status;
    if (a->acl)
        status = print_acl(a);
    else if (a->whose)
        status = cli_misuse(&a->cli, "--for needs --acl");
    else if (a->metric_names)
        status = print_page(lw_metrics_names);
    else if (a->reference_metrics)
        status = print_page(lw_metrics_reference);
    else if (a->reference)
        status = print_page(lw_config_reference);
    else
        status = a->cli.config
                     ? check(a)
                     : cli_misuse(&a->cli, "-c FILE is required: configuration file (JSON)");
    return cli_written(&a->cli, status);
}

const struct cli_command cli_check = {
    .name = "check",
    .summary = "check a configuration; with --connect also the servers",
    .about = "Lists every problem of a configuration at once, one per line, on stderr.",
    .usage = usage,
    .options = options,
    .examples = examples,
    .statuses = statuses,
    .args_size = sizeof(struct check_args),
    .run = run,
};
