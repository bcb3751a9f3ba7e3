/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper is the thread that renews holds. It has a connection of its own, so that neither a
 * full pool nor a slow call lets a lease end.
 *
 * The keeper extends a hold when a third of its TTL is over, and tries again until two thirds are
 * over. Then the keeper gives the hold up: it marks the hold as lost, and calls the hold's callback
 * while a third of the lease is still left. The keeper renews in pipelines of at most LW_KEEP_BATCH
 * holds, and waits for the answers no longer than until the next hold must be given up.
 *
 * In a cluster the keeper has a connection to each node that has a lock of its holds. It follows
 * ASK, so that holds are renewed while their slot is being moved. The keeper waits for one node
 * only a part of the time, so that the holds on other nodes do not suffer. */
#ifndef LW_LOCK_KEEPER_H
#define LW_LOCK_KEEPER_H

#include "lock/client.h"

enum { LW_KEEP_BATCH = 128 };

struct lw_keeper;

/* Starts the thread. `client` is for holds renewed by keep_call and may be NULL if there are
 * none. */
struct lw_keeper *lw_keeper_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_keeper_close(struct lw_keeper *k); /* ignores NULL */
/* Adds a hold to those that the keeper renews. Returns false, with *error, if an allocation
 * failed. */
bool lw_keeper_add(struct lw_keeper *k, struct latchwork_hold *hold, struct latchwork_error *error);
/* Removes the hold. After this call its callback does not run and will not be called, unless this
 * function was called from that callback. */
void lw_keeper_remove(struct lw_keeper *k, struct latchwork_hold *hold);

#endif
