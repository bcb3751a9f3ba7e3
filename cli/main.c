/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command and hands over. */
#include "base/nearest.h"
#include "cli/check/check.h"
#include "cli/dead/dead.h"
#include "cli/dev/dev.h"
#include "cli/ledger/ledger.h"
#include "cli/lock/lock.h"
#include "cli/queue/queue.h"
#include "cli/run/run.h"
#include "cli/top/top.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

struct command {
    const char *name;
    int (*fn)(int argc, char **argv); /* argv[0] is the command's name; NULL: not in this version */
    const char *help;
};

static const struct command commands[] = {
    {"run", lw_cmd_run, "consume: the supervisor and its workers"},
    {"dev", lw_cmd_dev, "everything on this machine, nothing configured: try it"},
    {"check", lw_cmd_check, "all errors of a configuration at once; --connect: also the servers"},
    {"queue", lw_cmd_queue, "lanes and waiting messages: list, show, export, replay, drop, pause"},
    {"dead", lw_cmd_dead, "dead letters: list, show, replay, edit, drop"},
    {"lock", lw_cmd_lock, "who holds which key; break a lock; run a command under one"},
    {"handler", NULL, "start a handler project; run a handler on a file of messages"},
    {"top", lw_cmd_top, "live view: lanes, rates, hot keys, workers"},
    {"ledger", lw_cmd_ledger, "an audit from Kafka and Redis alone"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out) {
    fputs("usage: latchwork COMMAND [options]\n\n", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-9s %s%s\n", commands[i].name, commands[i].help, commands[i].fn ? "" : " (not in this version)");
    fputs("\nlatchwork COMMAND --help tells more; latchwork --version tells which this is.\n", out);
}

static bool wants(const char *arg, const char *brief, const char *name) { return strcmp(arg, brief) == 0 || strcmp(arg, name) == 0; }

static int unknown_command(const char *name) {
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *near = lw_nearest(name, names, COMMANDS);
    fprintf(stderr, "latchwork: unknown command \"%s\"", name);
    if (near) fprintf(stderr, "; did you mean \"%s\"?", near);
    fputs("\nlatchwork --help lists the commands\n", stderr);
    return EXIT_USAGE;
}

static int not_in_this_version(const struct command *c, int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!wants(argv[i], "-h", "--help")) continue;
        printf("latchwork %s: %s (not in this version)\n", c->name, c->help);
        return 0;
    }
    fprintf(stderr, "latchwork %s: not in this version (%s)\n", c->name, LW_VERSION);
    return EXIT_USAGE;
}

static int run_command(int argc, char **argv) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].fn ? commands[i].fn(argc, argv) : not_in_this_version(&commands[i], argc, argv);
    return unknown_command(argv[0]);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (wants(argv[1], "-h", "--help") || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    if (wants(argv[1], "-V", "--version")) {
        puts("latchwork " LW_VERSION);
        return 0;
    }
    if (argv[1][0] == '-') {
        fprintf(stderr, "latchwork: unknown option %s; a command comes first; see: latchwork --help\n", argv[1]);
        return EXIT_USAGE;
    }
    return run_command(argc - 1, argv + 1);
}
