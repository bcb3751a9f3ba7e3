/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper: the thread that renews holds, on a connection of its own, so that neither a full pool nor a slow call lets a lease run out.
 *
 * A hold is extended when a third of its TTL has gone by, tried again until two thirds have, and then given up: lost, and
 * the callback called, while the lease still has a third to go. What is due is renewed in pipelines of at most LW_KEEP_BATCH; an exchange
 * never takes longer than until the next hold has to be given up. */
#ifndef LW_LOCK_KEEPER_H
#define LW_LOCK_KEEPER_H

#include "lock/client.h"

enum { LW_KEEP_BATCH = 128 };

struct lw_keeper;

/* client: for holds renewed by keep_call; may be NULL if there are none. */
/* Returns NULL with *error if there is no memory, or no thread can be started. */
struct lw_keeper *lw_keeper_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_keeper_close(struct lw_keeper *k); /* ignores NULL */
/* Returns false, with *error, if an allocation failed. */
bool lw_keeper_add(struct lw_keeper *k, struct latchwork_hold *hold, struct latchwork_error *error);
/* After it returns, the keeper neither runs nor will call the callback of this hold, unless it was
 * called from that callback. */
void lw_keeper_remove(struct lw_keeper *k, struct latchwork_hold *hold);

#endif
