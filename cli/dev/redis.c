/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the private redis-server of `latchwork dev`. It listens only on a unix socket in the folder,
 * and saves nothing. */
#include "cli/dev/private.h"

#include "base/clock.h"
#include "base/redis/connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UP_MS = 10000, LOOK_MS = 10, ANSWER_MS = 500, LANES = 256 };
#define LANE_NAMES "lw:{" DEV_NAME ".0}:"

static int redis_main(void *ctx, int ready_fd) {
    const struct dev_home *h = ctx;
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", h->socket,
           "--unixsocketperm", "700", "--save", "", "--appendonly", "no", "--daemonize", "no",
           "--dir", h->folder, "--maxmemory-policy", "noeviction", (char *)NULL);
    char why[256];
    if (errno == ENOENT)
        snprintf(why, sizeof why,
                 "redis-server is not installed: apt-get install redis-server (or: make deps)");
    else
        snprintf(why, sizeof why, "cannot start redis-server: %s", strerror(errno));
    dev_child_ready(ready_fd, why);
    return 1;
}

static struct lw_redis *connect_to(const struct dev_home *h) {
    char url[sizeof h->socket + 8];
    struct lw_redis_url at;
    struct lw_err err = {0};
    snprintf(url, sizeof url, "unix://%s", h->socket);
    if (lw_redis_url_parse(url, &at, &err)) return NULL;
    struct lw_redis *c = lw_redis_open(&at, NULL, ANSWER_MS, ANSWER_MS, &err);
    lw_redis_url_free(&at);
    return c;
}

static bool answers(const struct dev_home *h) {
    struct lw_redis *c = connect_to(h);
    redisReply *r = c ? lw_redis_ask(c, "PING") : NULL;
    bool ok = r && r->type == REDIS_REPLY_STATUS;
    freeReplyObject(r);
    lw_redis_close(c);
    return ok;
}

int dev_redis_start(struct dev_child *c, const struct dev_home *h, struct lw_err *err) {
    if (dev_child_start(c, "redis-server", h->log, redis_main, (void *)(uintptr_t)h, err))
        return -1;
    int64_t until = lw_boot_ms() + UP_MS;
    while (!answers(h)) {
        if (dev_child_ended(c)) return lw_fail(err, "redis-server ended at once; see %s", h->log);
        if (lw_boot_ms() >= until)
            return lw_fail(err, "redis-server does not answer after %d s; see %s", UP_MS / 1000,
                           h->log);
        lw_sleep_ms(LOOK_MS);
    }
    return 0;
}

/* Adds up the lengths of the waiting lists of the given lanes. One pipeline requests all
 * lengths. */
static int64_t add_lengths(struct lw_redis *c, const redisReply *lanes) {
    int64_t sum = 0;
    for (size_t i = 0; i < lanes->elements; i++)
        lw_redis_append(c, "LLEN " LANE_NAMES "wait:%b", lanes->element[i]->str,
                        lanes->element[i]->len);
    for (size_t i = 0; i < lanes->elements; i++) {
        redisReply *r = lw_redis_reply(c);
        if (!r) return -1;
        sum += r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
        freeReplyObject(r);
    }
    return sum;
}

int64_t dev_redis_waiting(const struct dev_home *h) {
    struct lw_redis *c = connect_to(h);
    if (!c) return -1;
    redisReply *lanes = lw_redis_ask(c, "ZRANGE " LANE_NAMES "lanes 0 %d", LANES - 1);
    int64_t n = lanes && lanes->type == REDIS_REPLY_ARRAY ? add_lengths(c, lanes) : -1;
    freeReplyObject(lanes);
    lw_redis_close(c);
    return n;
}
