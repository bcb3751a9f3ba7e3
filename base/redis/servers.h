/* SPDX-License-Identifier: Apache-2.0 */
/* Which server a shard lives on: one of a list, the master that Sentinels name, or the cluster node that owns its slot.
 *
 * A fail-over moves the master, and a migration moves a slot, so whoever connects anew asks again: an answer is good for one connection. A
 * Sentinel may be behind the others, so the login of a server that was found asks for its ROLE (base/redis/login.h), and after a connection
 * that failed the next search begins with another Sentinel.
 *
 * An allocation that fails is an error, never an abort: the lock library lives in other people's programs. */
#ifndef LW_BASE_REDIS_SERVERS_H
#define LW_BASE_REDIS_SERVERS_H

#include "base/err.h"
#include "base/redis/cluster.h"
#include "base/redis/url.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lw_redis_kind { LW_REDIS_LIST, LW_REDIS_SENTINEL, LW_REDIS_CLUSTER };

/* All owned; begin with {0}. Once it is filled in, threads may share it. */
struct lw_redis_servers {
    enum lw_redis_kind kind;
    struct lw_redis_url *at; /* the list, the Sentinels, with their own user, password and TLS, or the cluster nodes that were given */
    size_t n;
    struct lw_redis_url login; /* user, password, database and TLS for the server that is found */
    char *master;              /* its name in the Sentinels */
    atomic_size_t first;       /* the Sentinel to ask first: the last that answered */
    struct lw_cluster *cluster;
    int *slot; /* in a cluster the slot of each shard */
    size_t n_slots;
};

/* Where a shard is now: a copy into *out, which the caller frees with lw_redis_url_free(). A list answers at once. Sentinels and cluster
 * nodes are asked one after the other, within timeout_ms in all, but for the resolver. -1 with *err, which says what each answered. */
int lw_redis_servers_find(struct lw_redis_servers *s, int shard, int64_t timeout_ms, struct lw_redis_url *out, struct lw_err *err);
/* The server that was found was of no use: the next search begins with another Sentinel or node. */
void lw_redis_servers_doubt(struct lw_redis_servers *s);
/* How many servers there are for shards: shards with the same number modulo this share one. In a cluster each shard has its own, because
 * any two may part. */
size_t lw_redis_servers_count(const struct lw_redis_servers *s);
/* What an error reply of a server that was found says about it, for people, if it means that it does not serve the shard any more: a
 * fail-over made it a replica, or cut it off from the others, or the shard's slot moves. Another connection has to be made, after another
 * search. NULL: it is another error. */
const char *lw_redis_deposed(const char *error);
void lw_redis_servers_free(struct lw_redis_servers *s);

#endif
