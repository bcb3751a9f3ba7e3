/* SPDX-License-Identifier: Apache-2.0 */
/* A search asks several servers the same question, one after the other, until one of them answers
 * it.
 *
 *     lw_search_begin() → lw_search_ask() for each server, until it returns 0
 *
 * Each server may use only a part of the time, so that a server that does not answer leaves time
 * for the others. The error contains the answer or failure of each server. */
#ifndef LW_BASE_REDIS_SEARCH_H
#define LW_BASE_REDIS_SEARCH_H

#include "base/err.h"
#include "base/redis/url.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

struct lw_search {
    int64_t until_ms; /* time limit for all servers together, on the boot clock */
    /* text with the answer or failure of each server asked so far; its flag `memory` is set if an
     * allocation failed */
    struct lw_err each;
};

/* A question, and the function that reads its reply. */
struct lw_question {
    const char **argv;
    int argc;
    /* Returns 0 if the reply answers the question. Otherwise sets *err and returns -1. `reply` may
     * also be an error reply of Redis, which this function must judge as well. */
    int (*read)(void *ctx, const redisReply *reply, const struct lw_redis_url *asked,
                struct lw_err *err);
    void *ctx;
};

void lw_search_begin(struct lw_search *s, int64_t timeout_ms);
/* Asks one server, and waits for its reply. `others` is the number of servers that may be asked
 * afterwards. Returns 0 if the reply answers the question, otherwise -1. After -1, the caller asks
 * the next server, unless s->each.memory says that an allocation failed. */
int lw_search_ask(struct lw_search *s, const struct lw_redis_url *at, size_t others,
                  const struct lw_question *q);

#endif
