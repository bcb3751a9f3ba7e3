/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/tool.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { OPTIONS_MAX = 16, ANSWER_S = 10 };

static const char *program = "limits";

void tool_die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s: ", program);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static _Noreturn void usage_error(const char *what, const char *name) {
    fprintf(stderr, "%s: --%s: %s; see --help\n", program, name, what);
    exit(2);
}

static int64_t read_number(const struct tool_option *o, const char *text) {
    char *end, why[80];
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && n >= o->min && n <= o->max) return n;
    snprintf(why, sizeof why, "must be a number from %" PRId64 " to %" PRId64, o->min, o->max);
    usage_error(why, o->name);
}

static void print_help(const char *about, const struct tool_option *options, size_t n) {
    fputs(about, stdout);
    for (size_t i = 0; i < n; i++) {
        const struct tool_option *o = &options[i];
        printf("  --%-18s %s", o->name, o->help);
        if (o->number && *o->number >= 0)
            printf(" (%" PRId64 ")", *o->number);
        else if (o->text && *o->text)
            printf(" (%s)", *o->text);
        putchar('\n');
    }
}

void tool_options(int argc, char **argv, const char *about, const struct tool_option *options,
                  size_t n) {
    struct option known[OPTIONS_MAX + 2] = {{"help", 0, NULL, OPTIONS_MAX}};
    const char *slash = strrchr(argv[0], '/');
    program = slash ? slash + 1 : argv[0];
    if (n > OPTIONS_MAX) tool_die("more than %d options", OPTIONS_MAX);
    for (size_t i = 0; i < n; i++) known[i + 1] = (struct option){options[i].name, 1, NULL, (int)i};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == '?') exit(2);
        if (c == OPTIONS_MAX) {
            print_help(about, options, n);
            exit(0);
        }
        if (options[c].text)
            *options[c].text = optarg;
        else
            *options[c].number = read_number(&options[c], optarg);
    }
    if (optind < argc) {
        fprintf(stderr, "%s: what is \"%s\"? see --help\n", program, argv[optind]);
        exit(2);
    }
    for (size_t i = 0; i < n; i++)
        if (options[i].text ? !*options[i].text : *options[i].number < 0)
            usage_error("must be given", options[i].name);
}

int64_t tool_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t tool_own_cpu_us(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return ((int64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec +
           u.ru_stime.tv_usec;
}

uint64_t tool_draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

redisContext *tool_redis(const char *path) {
    redisContext *redis = redisConnectUnixWithTimeout(path, (struct timeval){.tv_sec = ANSWER_S});
    if (!redis || redis->err)
        tool_die("Redis at %s: %s", path, redis ? redis->errstr : "out of memory");
    if (redisSetTimeout(redis, (struct timeval){.tv_sec = ANSWER_S}))
        tool_die("Redis: %s", redis->errstr);
    return redis;
}

redisReply *tool_ask(redisContext *redis, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    redisReply *r = redisvCommand(redis, fmt, args);
    va_end(args);
    if (!r) tool_die("Redis: %s", redis->errstr);
    if (r->type == REDIS_REPLY_ERROR) tool_die("Redis: %s: %s", fmt, r->str);
    return r;
}

static double seconds_of(const char *info, const char *name) {
    const char *at = strstr(info, name);
    if (!at) tool_die("Redis: INFO cpu without %s", name);
    return strtod(at + strlen(name), NULL);
}

int64_t tool_redis_cpu_us(redisContext *redis) {
    redisReply *r = tool_ask(redis, "INFO cpu");
    if (r->type != REDIS_REPLY_STRING) tool_die("Redis: INFO cpu answered no text");
    double s = seconds_of(r->str, "used_cpu_user:") + seconds_of(r->str, "used_cpu_sys:");
    freeReplyObject(r);
    return (int64_t)(s * 1e6);
}
