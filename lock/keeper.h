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

/* client: for holds that are renewed by keep_call; may be NULL where none is. */
/* NULL with *error: no memory, or the system gives no thread. */
struct lw_keeper *lw_keeper_open(struct latchwork_client *client, struct latchwork_error *error);
void lw_keeper_close(struct lw_keeper *k); /* NULL is ignored */
/* False, with *error, when an allocation failed. */
bool lw_keeper_add(struct lw_keeper *k, struct latchwork_hold *hold, struct latchwork_error *error);
/* After it returns the callback of this hold neither runs nor will be called by the keeper; unless it is called from that callback. */
void lw_keeper_remove(struct lw_keeper *k, struct latchwork_hold *hold);

#endif
