/* SPDX-License-Identifier: Apache-2.0 */
/* Which server a shard lives on: one of a list, or the master that Sentinels name.
 *
 * A fail-over moves the master, so whoever connects anew asks again: an answer is good for one connection. A Sentinel may be behind the
 * others, so the login of a server that was found asks for its ROLE (base/redis/login.h), and after a connection that failed the next
 * search begins with another Sentinel.
 *
 * An allocation that fails is an error, never an abort: the lock library lives in other people's programs. */
#ifndef LW_BASE_REDIS_SERVERS_H
#define LW_BASE_REDIS_SERVERS_H

#include "base/err.h"
#include "base/redis/url.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lw_redis_kind { LW_REDIS_LIST, LW_REDIS_SENTINEL };

/* All owned; begin with {0}. Once it is filled in, threads may share it. */
struct lw_redis_servers {
    enum lw_redis_kind kind;
    struct lw_redis_url *at; /* the list, or the Sentinels, with their own user, password and TLS */
    size_t n;
    struct lw_redis_url login; /* user, password, database and TLS for the server that is found */
    char *master;              /* its name in the Sentinels */
    atomic_size_t first;       /* the Sentinel to ask first: the last that answered */
};

/* Where a shard is now: a copy into *out, which the caller frees with lw_redis_url_free(). A list answers at once. Sentinels are asked one
 * after the other, within timeout_ms in all, but for the resolver. -1 with *err, which says what each of them answered. */
int lw_redis_servers_find(struct lw_redis_servers *s, int shard, int64_t timeout_ms, struct lw_redis_url *out, struct lw_err *err);
/* The server that was found was of no use: the next search begins with another Sentinel. */
void lw_redis_servers_doubt(struct lw_redis_servers *s);
/* How many servers there are for shards: shards with the same number modulo this share one. */
size_t lw_redis_servers_count(const struct lw_redis_servers *s);
/* Whether an error reply of a server that was found means that it takes no writes any more: a fail-over made it a replica, or cut it off
 * from its replicas. Another connection has to be made, after another search. */
bool lw_redis_deposed(const char *error);
void lw_redis_servers_free(struct lw_redis_servers *s);

#endif
