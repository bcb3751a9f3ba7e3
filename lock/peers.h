/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: the servers of a client, with a bounded pool of connections to each.
 *
 * A client of one server has one peer. In a cluster each node is a peer, and a table contains the
 * owner of each slot. The table is filled from the slot map, which any node can give. The map is
 * read when a slot's owner is unknown, for example at first, or after the owner could not be
 * reached. If a slot has moved, its old owner names the new one in its refusal (MOVED), and the
 * table is corrected without reading the map again. On each new connection to a node, the client
 * checks that the node is a master (base/redis/login.h).
 *
 * The client uses its own user, password and TLS settings for all nodes. */
#ifndef LW_LOCK_PEERS_H
#define LW_LOCK_PEERS_H

#include "base/redis/cluster.h"
#include "base/redis/connection.h"
#include "base/redis/slot.h"
#include "include/latchwork/lock.h"

#include <pthread.h>

enum { LW_ANY_SLOT = -1, LW_PEERS_MAX = 512 };

struct lw_peer {
    uint64_t id; /* number of the peer, which is never reused */
    /* address of the node, and the login; empty if the client has one server */
    struct lw_redis_url at;
    bool owns;     /* true if the slot table names this peer as an owner */
    int n_open;    /* number of open connections, idle or in use */
    int n_waiting; /* number of threads that wait for a connection */
    int n_idle;
    struct lw_redis *idle[]; /* stack of open connections that are not in use */
};

/* The owners of a cluster's slots. The client's mutex guards all fields except `cluster`. */
struct lw_slot_table {
    struct lw_cluster *cluster;
    pthread_cond_t read;      /* signalled after each attempt to read the slot map */
    bool reading;             /* true while a thread reads the slot map */
    unsigned reads;           /* number of slot maps read so far */
    uint16_t owner[LW_SLOTS]; /* index of the owner's peer + 1; 0: unknown */
};

/* What a refusal says about the node that serves a slot. */
struct lw_turn {
    uint64_t ask; /* id of the peer to which only this call is sent, after ASKING; 0: none */
    /* True if the client must pause before the next try, because no node serves the slot now, or
     * because the keys of the call are on two nodes. */
    bool wait;
    bool half_done; /* true if a script stopped in the middle, so the call may have had an effect */
};

/* Creates the peer of a client of one server, or the slot table of a client of a cluster. Takes
 * ownership of `cluster`, even if this function fails. */
bool lw_peers_open(struct latchwork_client *c, struct lw_cluster *cluster,
                   struct latchwork_error *error);
/* Closes and frees the peers. In a child of fork(), `child` must be true. Then the condition
 * variables are not destroyed, because threads of the parent may wait on them, and
 * pthread_cond_destroy() would wait for those threads without end. */
void lw_peers_close(struct latchwork_client *c, bool child);

/* Returns the id of the owner of `slot`, or 0 with *error. `slot` may be LW_ANY_SLOT. If the owner
 * is unknown, reads the slot map, for timeout_ms at most. In a client of one server, that server
 * owns all slots. */
uint64_t lw_peer_of(struct latchwork_client *c, int slot, int64_t timeout_ms,
                    struct latchwork_error *error);
/* Does the same as lw_peer_of(), but never reads the slot map: returns 0 if the owner is
 * unknown. */
uint64_t lw_peer_known(struct latchwork_client *c, int slot);
/* Copies the address of a peer to *out. Returns false if there is no such peer, or an allocation
 * failed. */
bool lw_peer_url(struct latchwork_client *c, uint64_t peer, struct lw_redis_url *out);
/* Reports that a peer did not answer. The owners of its slots become unknown. */
void lw_peer_doubt(struct latchwork_client *c, uint64_t peer);
/* Reads the slot map, and writes one slot of each master to `slot`. Returns the number of masters,
 * or 0 with *error. */
size_t lw_peers_slots(struct latchwork_client *c, int *slot, size_t max,
                      struct latchwork_error *error);
/* Handles an error text. If it says that the slot is at another node, is being moved, or is not
 * served now, corrects the slot table, describes the refusal in *turn, and returns true. Otherwise
 * returns false. In a client of one server, always returns false. */
bool lw_peer_turned(struct latchwork_client *c, const struct lw_redis *redis, const char *text,
                    int slot, struct lw_turn *turn);

#endif
