/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the server of each shard. The configuration lists the servers, or Sentinels name the
 * master, or the server is the cluster node that owns the shard's slot.
 *
 * A failover moves the master, and a migration moves a slot, so every new connection must ask
 * again. A Sentinel may learn of a failover later than the other Sentinels. Therefore the login
 * asks the server with ROLE whether it is a master (base/redis/login.h), and after a failed
 * connection the next search begins with another Sentinel.
 *
 * A failed allocation is an error and never an abort, because the lock library is part of other
 * people's programs. */
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

/* The servers of an application. The structure owns what its fields point to; the caller
 * initializes it with {0}. Once the structure is filled in, threads may share it. */
struct lw_redis_servers {
    enum lw_redis_kind kind;
    /* the servers of the list, the cluster nodes that the user gave, or the Sentinels with their
     * own login and TLS settings */
    struct lw_redis_url *at;
    size_t n;
    /* user, password, database and TLS settings for the server that Sentinels name */
    struct lw_redis_url login;
    char *master; /* name by which the Sentinels know the master */
    /* index, modulo n, of the Sentinel to ask first: the Sentinel that answered last, or another
     * one after lw_redis_servers_doubt() */
    atomic_size_t first;
    struct lw_cluster *cluster;
    int *slot; /* array: the slot of each shard in a cluster */
    size_t n_slots;
};

/* Finds the server of a shard. *out gets a copy, which the caller frees with lw_redis_url_free().
 * With a list the answer is immediate. Sentinels and cluster nodes are asked one after the other,
 * within timeout_ms for all, not counting the time to resolve host names. Returns -1 with *err,
 * which contains the answer of each server. */
int lw_redis_servers_find(struct lw_redis_servers *s, int shard, int64_t timeout_ms,
                          struct lw_redis_url *out, struct lw_err *err);
/* Makes the next lw_redis_servers_find() begin with another Sentinel or cluster node. Call this
 * function if the server that was found last could not be used. */
void lw_redis_servers_doubt(struct lw_redis_servers *s);
/* Returns the number of servers: shard s is stored on server s modulo this number. In a cluster
 * each shard counts as a server, because any two shards may move to different nodes. */
size_t lw_redis_servers_count(const struct lw_redis_servers *s);
/* Checks whether an error reply means that the server no longer serves the shard. If it does,
 * returns the reason as a text for people, for example that the server is a replica now, or that
 * the shard's slot is on another node. The caller must then find the server of the shard again and
 * connect to it. Returns NULL for any other error. */
const char *lw_redis_deposed(const char *error);
/* Returns true if an error reply says that the shard's slot, or a key of it, is on another node. */
bool lw_redis_moved(const char *error);
void lw_redis_servers_free(struct lw_redis_servers *s);

#endif
