/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a Redis Cluster, and which of them owns a slot.
 *
 * Each node has a map of all slots. The nodes that the user gave are asked for their map first.
 * Each map names more nodes, which are asked if the given nodes do not answer. The user, password
 * and TLS settings of the given nodes are used for all nodes.
 *
 * A map may be wrong, because a node that is cut off from the others has an old map. Three things
 * correct such an error: the login asks the server with ROLE whether it is a master, a node refuses
 * slots that it knows to be elsewhere (MOVED), and after a failed connection another node is asked
 * for its map. */
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

/* A range of slots, from `first` to `last`, and the nodes that store them. */
struct lw_span {
    int first, last;
    struct lw_place *node; /* array: the owner of the range, then its replicas */
    size_t n_nodes;
};

struct lw_slot_map {
    struct lw_span *span;
    size_t n;
};

/* Reads the answer of the node at `asked` to CLUSTER SLOTS. An entry without a host means the node
 * that answered. Returns 0. If the answer is an error or malformed, or if an allocation failed,
 * returns -1 with *err and an empty *out. */
int lw_slot_map_read(const redisReply *r, const struct lw_redis_url *asked, struct lw_slot_map *out,
                     struct lw_err *err);
/* Returns the range that contains a slot, or NULL if no node owns the slot. */
const struct lw_span *lw_slot_map_find(const struct lw_slot_map *m, int slot);
void lw_slot_map_free(struct lw_slot_map *m);

struct lw_cluster;

/* Copies the nodes that the user gave, with their login. Returns NULL with *err if an allocation
 * failed. */
struct lw_cluster *lw_cluster_open(const struct lw_redis_url *given, size_t n, struct lw_err *err);
void lw_cluster_close(struct lw_cluster *c); /* ignores NULL */

/* lw_cluster_map() and lw_cluster_find() are thread-safe, and take at most timeout_ms, not counting
 * the time to resolve host names. They return -1 with *err, which contains the answer of each
 * node. */
/* Sets *out to a slot map in which `slot` has an owner, or to any map if `slot` is -1. */
int lw_cluster_map(struct lw_cluster *c, int slot, int64_t timeout_ms, struct lw_slot_map *out,
                   struct lw_err *err);
/* Finds the owner of a slot, and fills in the login for that server. The caller frees *out. */
int lw_cluster_find(struct lw_cluster *c, int slot, int64_t timeout_ms, struct lw_redis_url *out,
                    struct lw_err *err);
/* Makes the next search begin with another node. Call this function if the owner that was found
 * last could not be used. */
void lw_cluster_doubt(struct lw_cluster *c);

#endif
