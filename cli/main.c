/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command and hands over. */
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

static size_t min3(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance: how many letters to add, drop or change. `b` is one of our own short names. */
static size_t distance(const char *a, const char *b) {
    size_t row[32], nb = strlen(b);
    for (size_t k = 0; k <= nb; k++) row[k] = k;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t k = 1; k <= nb; k++) {
            size_t above = row[k];
            row[k] = min3(above + 1, row[k - 1] + 1, diagonal + (a[i] != b[k - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

static int unknown_command(const char *name) {
    const struct command *best = NULL;
    size_t least = 3; /* further off is no likeness */
    for (size_t i = 0; i < COMMANDS && strlen(name) < 32; i++) {
        size_t d = distance(name, commands[i].name);
        if (d < least) least = d, best = &commands[i];
    }
    fprintf(stderr, "latchwork: unknown command \"%s\"", name);
    if (best) fprintf(stderr, "; did you mean \"%s\"?", best->name);
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
