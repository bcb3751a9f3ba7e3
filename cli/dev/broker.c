/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the dev broker as a child process of `latchwork dev`. */
#include "cli/dev/private.h"

#include "base/log.h"
#include "cli/dev/devbroker.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(int ready_fd, const struct lw_err *err) {
    dev_child_ready(ready_fd, err->text);
    return 1;
}

/* Lets SIGTERM end the process of the dev broker at once, because the broker has nothing to
 * save. */
static int broker_main(void *ctx, int ready_fd) {
    struct dev_shared *shared = ctx;
    struct lw_err err = {0};
    const char *brokers;
    struct lw_devbroker *b = lw_devbroker_open(&brokers, &err);
    if (!b) return fail(ready_fd, &err);
    for (int t = 0; t < DEV_TOPICS; t++)
        if (lw_devbroker_topic(b, dev_topics[t], DEV_PARTITIONS, &err)) return fail(ready_fd, &err);
    snprintf(shared->brokers, sizeof shared->brokers, "%s", brokers);
    dev_child_ready(ready_fd, NULL);
    for (;;) pause();
}

int dev_broker_start(struct dev_child *c, const struct dev_home *h, struct dev_shared *shared,
                     struct lw_err *err) {
    return dev_child_start(c, "broker", h->log, broker_main, shared, err);
}
