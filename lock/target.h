/* SPDX-License-Identifier: Apache-2.0 */
/* The target of a client: the server, the Sentinels or the cluster named by the caller's
 * options. */
#ifndef LW_LOCK_TARGET_H
#define LW_LOCK_TARGET_H

#include "lock/client.h"

/* The caller initializes the structure with {0}. When a client is opened, ownership of the fields
 * passes to the client. */
struct lw_target {
    /* The server's address and login. If the target has Sentinels, only the login is used, for the
     * server that the Sentinels name. In a cluster the login is used for all nodes. */
    struct lw_redis_url at;
    /* The Sentinels, or the servers of an application. NULL: the target has neither. */
    struct lw_redis_servers *servers;
    int shard;
    struct lw_cluster *cluster; /* the cluster; NULL: the target is not a cluster */
    int slot;
    char *where; /* name of the target in error texts */
};

/* Fills *t from the arguments of latchwork_client_open(). Returns false with *error. The caller
 * must free the target on success and on failure, unless ownership of its fields has passed to a
 * client. */
bool lw_target_take(const char *url, const struct latchwork_client_options *options,
                    struct lw_target *t, struct latchwork_error *error);
/* Makes *t the target for one shard of an application. Moves a part of *servers to *t; the caller
 * must still free *servers. Returns false if an allocation failed. */
bool lw_target_of(struct lw_redis_servers *servers, int shard, const char *where,
                  struct lw_target *t);
void lw_target_free(struct lw_target *t);

#endif
