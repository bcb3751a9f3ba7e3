/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: the servers of a client, with a bounded pool of connections to each.
 *
 * A client of one server has one peer. In a cluster each node is a peer, and a table names the
 * owner of each slot. The table comes from the map that any node gives. The map is read when a
 * slot's owner is unknown: at first, and after no connection to the owner could be made. An owner
 * that a slot has left names the new one in its refusal (MOVED), which corrects the table without
 * reading the map again. A new connection to a node checks that its role is master
 * (base/redis/login.h).
 *
 * All nodes get the user, password and TLS settings of the client. */
#ifndef LW_LOCK_PEERS_H
#define LW_LOCK_PEERS_H

#include "base/redis/cluster.h"
#include "base/redis/connection.h"
#include "base/redis/slot.h"
#include "include/latchwork/lock.h"

#include <pthread.h>

enum { LW_ANY_SLOT = -1, LW_PEERS_MAX = 512 };

struct lw_peer {
    uint64_t id;            /* number of the peer, never used again for another one */
    struct lw_redis_url at; /* the node and the login for it; empty in a client of one server */
    bool owns;              /* the table names this peer as the owner of a slot */
    int n_open;             /* number of connections, idle or in use */
    int n_waiting;          /* number of threads that wait for a connection */
    int n_idle;
    struct lw_redis *idle[]; /* stack of open connections that are not in use */
};

/* The table of a cluster. The client's mutex guards all fields but `cluster`. */
struct lw_slot_table {
    struct lw_cluster *cluster;
    pthread_cond_t read;      /* signalled when a map was read, or could not be */
    bool reading;             /* a thread reads the map */
    unsigned reads;           /* number of maps read so far */
    uint16_t owner[LW_SLOTS]; /* index of the owner's peer + 1; 0: unknown */
};

/* What a reply says about where a slot is. */
struct lw_turn {
    uint64_t ask; /* the peer to ask once, after ASKING; 0: none */
    /* wait before the next try: nobody serves the slot now, or its keys are on two nodes */
    bool wait;
    bool half_done; /* a script stopped in the middle, so the call may have taken effect */
};

/* Makes the peers of a new client: one for its server, or those of the cluster. The client takes
 * over the cluster even if this fails. */
bool lw_peers_open(struct latchwork_client *c, struct lw_cluster *cluster,
                   struct latchwork_error *error);
/* Closes and frees the peers. In a child of fork() `child` must be true: condition variables on
 * which threads of the parent wait are not destroyed, because pthread_cond_destroy() would wait for
 * those threads for ever. */
void lw_peers_close(struct latchwork_client *c, bool child);

/* Returns the id of the owner of a slot, which may be LW_ANY_SLOT, or 0 with *error. Reads the map,
 * within timeout_ms, if the owner is unknown. A client of one server returns that server. */
uint64_t lw_peer_of(struct latchwork_client *c, int slot, int64_t timeout_ms,
                    struct latchwork_error *error);
/* Does what lw_peer_of() does, but never reads the map: returns 0 if the owner is unknown. */
uint64_t lw_peer_known(struct latchwork_client *c, int slot);
/* Copies the address of a peer. Returns false if there is no such peer, or an allocation failed. */
bool lw_peer_url(struct latchwork_client *c, uint64_t peer, struct lw_redis_url *out);
/* Reports that a peer did not answer; the owners of its slots are unknown from then on. */
void lw_peer_doubt(struct latchwork_client *c, uint64_t peer);
/* Reads the map, and writes one slot of each master to `slot`. Returns the number of masters, or 0
 * with *error. */
size_t lw_peers_slots(struct latchwork_client *c, int *slot, size_t max,
                      struct latchwork_error *error);
/* Returns true, and fills in *turn, if the error of this connection's server says that the slot is
 * elsewhere, is being moved, or is served by nobody. Corrects the table. Always false in a client
 * of one server. */
bool lw_peer_turned(struct latchwork_client *c, const struct lw_redis *redis, const char *text,
                    int slot, struct lw_turn *turn);

#endif
