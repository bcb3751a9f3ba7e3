/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/search.h"

#include "base/clock.h"
#include "base/redis/connection.h"

#include <stdio.h>
#include <string.h>

enum {
    WHERE_SIZE = 160,
    STEPS = 3 /* number of steps per server, each with its own time limit: connect, log in, ask */
};

void lw_search_begin(struct lw_search *s, int64_t timeout_ms) {
    s->until_ms = lw_boot_ms() + timeout_ms;
    s->each = (struct lw_err){0};
}

static int ask(const struct lw_redis_url *at, int64_t step_ms, const struct lw_question *q,
               struct lw_err *err) {
    struct lw_redis *c = lw_redis_open(at, "latchwork:finder", step_ms, step_ms, err);
    if (!c) return -1;
    redisReply *r = lw_redis_ask_argv(c, q->argc, q->argv, NULL);
    int failed = r                           ? q->read(q->ctx, r, at, err)
                 : c->err == LW_REDIS_MEMORY ? lw_fail_memory(err)
                                             : lw_fail(err, "%s", c->why);
    if (r) freeReplyObject(r);
    lw_redis_close(c);
    return failed;
}

static int ask_in_time(const struct lw_search *s, const struct lw_redis_url *at, size_t others,
                       const struct lw_question *q, struct lw_err *err) {
    int64_t left_ms = s->until_ms - lw_boot_ms(), step_ms = left_ms / (int64_t)(others + 1) / STEPS;
    if (left_ms <= 0) return lw_fail(err, "not asked, because no time was left");
    return ask(at, step_ms > 1 ? step_ms : 1, q, err);
}

static void add_failure(struct lw_err *each, const struct lw_redis_url *at,
                        const struct lw_err *why) {
    char where[WHERE_SIZE];
    size_t n = strlen(each->text);
    snprintf(each->text + n, sizeof each->text - n, "%s%s: %s", n ? "; " : "",
             lw_redis_url_where(at, where, sizeof where), why->text);
    each->memory = why->memory;
}

int lw_search_ask(struct lw_search *s, const struct lw_redis_url *at, size_t others,
                  const struct lw_question *q) {
    struct lw_err why = {0};
    if (!ask_in_time(s, at, others, q, &why)) return 0;
    add_failure(&s->each, at, &why);
    return -1;
}
