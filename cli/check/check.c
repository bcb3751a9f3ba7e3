/* SPDX-License-Identifier: Apache-2.0 */
/* latchwork check */
#include "cli/check/check.h"

#include "cli/check/servers.h"
#include "monitor/metrics.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OVERRIDES_MAX = 256, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct check_args {
    const char *path;
    bool connect, json, help;
    void (*page)(struct lw_buf *out); /* to print instead */
    struct lw_override set[OVERRIDES_MAX];
    size_t n_set;
};

static const char help_text[] = "usage: latchwork check -c FILE [--connect] [--set path=value]... [--json]\n"
                                "       latchwork check --reference | --reference-metrics | --metric-names\n"
                                "\n"
                                "Lists every problem of a configuration at once, one a line, on stderr.\n"
                                "\n"
                                "  -c, --config FILE   the configuration (JSON)\n"
                                "      --connect       also: brokers and topics, each Redis (version, policies, rights of the\n"
                                "                      scripts), and whether the handler opens; changes nothing there\n"
                                "      --set PATH=VAL  overrides one value of the configuration, e.g. --set lock.ttl_ms=5000\n"
                                "      --json          the result as one JSON object on stdout\n"
                                "      --reference     prints the reference of all keys (Markdown) instead; --reference-metrics: that of\n"
                                "                      the metrics; --metric-names: their names, one a line\n"
                                "  -h, --help          this text\n"
                                "\n"
                                "Exit status: 0 fine, 1 a problem found by --connect, 2 usage or configuration error.\n";

static int misuse(const char *fmt, const char *what) {
    fputs("latchwork check: ", stderr);
    fprintf(stderr, fmt, what);
    fputs("; see: latchwork check --help\n", stderr);
    return -1;
}

/* ---- options ---- */

static int add_override(struct check_args *a, char *text) {
    const char *wrong = lw_override_add(a->set, &a->n_set, OVERRIDES_MAX, text);
    return wrong ? misuse(wrong, text) : 0;
}

static int take_option(struct check_args *a, int opt, char *const *argv) {
    switch (opt) {
    case 'c': a->path = optarg; return 0;
    case 's': return add_override(a, optarg);
    case 'n': a->connect = true; return 0;
    case 'j': a->json = true; return 0;
    case 'r': a->page = lw_config_reference; return 0;
    case 'm': a->page = lw_metrics_reference; return 0;
    case 'l': a->page = lw_metrics_names; return 0;
    case 'h': a->help = true; return 0;
    case ':': return misuse("%s needs a value", argv[optind - 1]);
    default: return misuse("unknown option %s", argv[optind - 1]);
    }
}

static int parse(struct check_args *a, int argc, char **argv) {
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"set", required_argument, NULL, 's'}, {"connect", no_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},         {"reference", no_argument, NULL, 'r'}, {"reference-metrics", no_argument, NULL, 'm'},
        {"metric-names", no_argument, NULL, 'l'}, {"help", no_argument, NULL, 'h'},      {NULL, 0, NULL, 0},
    };
    int opt;
    optind = 1;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":c:h", options, NULL)) != -1)
        if (take_option(a, opt, argv)) return -1;
    if (a->help || a->page) return 0;
    if (optind < argc) return misuse("unexpected argument %s", argv[optind]);
    return a->path ? 0 : misuse("which configuration? -c FILE is wanted%s", "");
}

/* ---- answers ---- */

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

static void print_json(const struct lw_config *c, const struct lw_problems *loading, const struct lw_check_report *r) {
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
    json_t *o = json_pack("{sb so so so so}", "ok", (int)ok, "errors", errors, "warnings", warnings, "notes", lines(&r->notes), "config",
                          config ? config : json_null());
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
    printf("%s: fine%s\n", path, connected ? "" : " (--connect also asks the servers)");
    printf("  %s: %d worker%s, group %s, %zu topic%s:", c->name, c->workers, c->workers == 1 ? "" : "s", c->kafka.group_id,
           c->kafka.n_topics, c->kafka.n_topics == 1 ? "" : "s");
    for (size_t i = 0; i < c->kafka.n_topics; i++) printf(" %s", c->kafka.topics[i]);
    printf("\n  key %s, lease %lld ms, %d shard%s on %zu Redis, handler %s × %d\n", c->key.from_text, (long long)c->lock.ttl_ms,
           c->redis.shards, c->redis.shards == 1 ? "" : "s", c->redis.n_urls, c->handler.type, c->handler.threads);
}

static void print_text(const struct check_args *a, const struct lw_config *c, const struct lw_problems *loading,
                       const struct lw_check_report *r) {
    put_lines(stderr, "", &loading->errors);
    put_lines(stderr, "", &r->problems.errors);
    put_lines(stderr, "warning: ", &loading->warnings);
    put_lines(stderr, "warning: ", &r->problems.warnings);
    put_lines(stdout, "", &r->notes);
    if (c && !r->problems.n_errors) print_summary(c, a->path, a->connect);
}

static int check(const struct check_args *a) {
    struct lw_problems loading = {0};
    struct lw_check_report r = {.wait_ms = LW_CHECK_WAIT_MS};
    struct lw_config *c = lw_config_load_checked(a->path, a->set, a->n_set, &loading);
    if (c && a->connect) {
        lw_check_handler_opens(c, &r);
        lw_check_redis(c, &r);
        lw_check_kafka(c, &r);
    }
    if (a->json)
        print_json(c, &loading, &r);
    else
        print_text(a, c, &loading, &r);
    int status = !c ? EXIT_USAGE : r.problems.n_errors ? EXIT_FAILED : 0;
    lw_problems_free(&loading);
    lw_problems_free(&r.problems);
    lw_buf_free(&r.notes);
    lw_config_free(c);
    return status;
}

static void print_page(void (*make)(struct lw_buf *out)) {
    struct lw_buf page = {0};
    make(&page);
    fwrite(page.p, 1, page.n, stdout);
    lw_buf_free(&page);
}

int lw_cmd_check(int argc, char **argv) {
    struct check_args a = {0};
    int status = 0;
    if (parse(&a, argc, argv)) return EXIT_USAGE;
    if (a.help)
        fputs(help_text, stdout);
    else if (a.page)
        print_page(a.page);
    else
        status = check(&a);
    if (fflush(stdout) == 0) return status;
    fputs("latchwork check: cannot write the answer\n", stderr);
    return EXIT_FAILED;
}
