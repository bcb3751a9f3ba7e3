/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the dev broker as a separate program. The program prints its bootstrap servers and runs
 * until its standard input ends.
 *
 *   mockcluster [TOPIC:PARTITIONS]... */
#include "cli/dev/devbroker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int make_topic(struct lw_devbroker *b, char *arg, struct lw_err *err) {
    char *colon = strrchr(arg, ':');
    if (colon) *colon = 0;
    return lw_devbroker_topic(b, arg, colon ? atoi(colon + 1) : 0, err);
}

int main(int argc, char **argv) {
    struct lw_err err = {0};
    const char *bootstrap;
    struct lw_devbroker *b = lw_devbroker_open(&bootstrap, &err);
    int bad = !b;
    for (int i = 1; !bad && i < argc; i++) bad = make_topic(b, argv[i], &err) != 0;
    if (bad) {
        fprintf(stderr, "mockcluster: %s\n", err.text);
        lw_devbroker_close(b);
        return 1;
    }
    printf("%s\n", bootstrap);
    fflush(stdout);
    char c[256];
    while (read(0, c, sizeof c) > 0) {}
    lw_devbroker_close(b);
    return 0;
}
