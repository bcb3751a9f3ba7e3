/* SPDX-License-Identifier: Apache-2.0 */
/* The target of a client: the server, the Sentinels or the cluster that the caller's options
 * name. */
#ifndef LW_LOCK_TARGET_H
#define LW_LOCK_TARGET_H

#include "lock/client.h"

/* The caller initializes the structure with {0}. The client takes the fields over. */
struct lw_target {
    /* the server; for Sentinels and clusters the login for the servers that they name */
    struct lw_redis_url at;
    /* the Sentinels, or the servers of an application; otherwise NULL */
    struct lw_redis_servers *servers;
    int shard;
    struct lw_cluster *cluster; /* the cluster; NULL: the target is no cluster */
    int slot;
    char *where; /* name of the target in errors */
};

/* Fills in the target from the arguments of latchwork_client_open(). Returns false with *error; the
 * target must be freed in any case, unless its fields were taken over. */
bool lw_target_take(const char *url, const struct latchwork_client_options *options,
                    struct lw_target *t, struct latchwork_error *error);
/* Turns the servers of an application into the target for one of its shards. Takes over a part of
 * *servers; the caller still frees *servers. Returns false if an allocation failed. */
bool lw_target_of(struct lw_redis_servers *servers, int shard, const char *where,
                  struct lw_target *t);
void lw_target_free(struct lw_target *t);

#endif
