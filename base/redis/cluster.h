/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a Redis Cluster: which of them owns a slot.
 *
 * Any node knows the map of all. The nodes that the user gave are asked first; each map that is read names more of them, which are asked
 * when those are gone. Whatever node a map names is spoken to with the same user, password and TLS as those that were given.
 *
 * A map is an opinion: a node that is cut off from the others has an old one. So the login of an owner that was found asks for its ROLE,
 * the owner itself refuses slots which it knows to be elsewhere (MOVED), and after a connection that failed another node is asked. */
#ifndef LW_BASE_REDIS_CLUSTER_H
#define LW_BASE_REDIS_CLUSTER_H

#include "base/err.h"
#include "base/redis/url.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdint.h>

struct lw_place {
    char *host;
    int port;
};

/* Slots first to last, and who has them. */
struct lw_span {
    int first, last;
    struct lw_place *node; /* the owner, then its replicas */
    size_t n_nodes;
};

struct lw_slot_map {
    struct lw_span *span;
    size_t n;
};

/* Reads an answer to CLUSTER SLOTS by the node at `asked`: a node without a host in it is that one. -1 with *err; then *out is empty. */
int lw_slot_map_read(const redisReply *r, const struct lw_redis_url *asked, struct lw_slot_map *out, struct lw_err *err);
/* The span of a slot, or NULL: nobody has it. */
const struct lw_span *lw_slot_map_find(const struct lw_slot_map *m, int slot);
void lw_slot_map_free(struct lw_slot_map *m);

struct lw_cluster;

/* Copies the nodes that were given, with all that says how to log in. An allocation that fails is an error: NULL with *err. */
struct lw_cluster *lw_cluster_open(const struct lw_redis_url *given, size_t n, struct lw_err *err);
void lw_cluster_close(struct lw_cluster *c); /* NULL, too */

/* Both are thread-safe, and take at most timeout_ms, but for the resolver. -1 with *err, which says what each node answered. */
int lw_cluster_map(struct lw_cluster *c, int64_t timeout_ms, struct lw_slot_map *out, struct lw_err *err);
/* Where the owner of a slot is, as what its login has to say; the caller frees *out. */
int lw_cluster_find(struct lw_cluster *c, int slot, int64_t timeout_ms, struct lw_redis_url *out, struct lw_err *err);
/* The owner that was found was of no use: the next search begins with another node. */
void lw_cluster_doubt(struct lw_cluster *c);

#endif
