/* SPDX-License-Identifier: Apache-2.0 */
/* The renewer is the thread that renews holds. It has a connection of its own, so that a lease
 * cannot end because the pool has no free connection or a call is slow.
 *
 * The renewer extends a hold when a third of its TTL is over, and tries again until two thirds are
 * over. Then it gives the hold up: it marks the hold as lost and calls the hold's callback, while a
 * third of the lease is still left. The renewer sends pipelines of at most LW_KEEP_BATCH holds, and
 * waits for their answers only until the next hold must be given up.
 *
 * In a cluster, the renewer has a connection to each node that stores a lock of its holds. It
 * follows ASK replies, so that holds are renewed while their slot is being moved. The renewer
 * spends only a part of its waiting time on any one node, so that a slow node does not delay the
 * renewal of holds on other nodes. */
#ifndef LW_LOCK_RENEWER_H
#define LW_LOCK_RENEWER_H

#include "lock/client.h"

enum { LW_KEEP_BATCH = 128 };

struct lw_hold_renewer;

/* Starts the renewer's thread. `client` is used for holds that are renewed with the function
 * `keep_call` of their kind, and may be NULL if there are no such holds. Returns NULL with *error
 * if the renewer cannot be started. */
struct lw_hold_renewer *lw_hold_renewer_open(struct latchwork_client *client,
                                             struct latchwork_error *error);
void lw_hold_renewer_close(struct lw_hold_renewer *k); /* does nothing if k is NULL */
/* Adds a hold, which the renewer renews from now on. Returns false with *error if an allocation
 * failed. */
bool lw_hold_renewer_add(struct lw_hold_renewer *k, struct latchwork_hold *hold,
                         struct latchwork_error *error);
/* Removes a hold from the renewer. Waits until a running callback of the hold has returned, unless
 * the caller is that callback. No callback begins afterwards. */
void lw_hold_renewer_remove(struct lw_hold_renewer *k, struct latchwork_hold *hold);

#endif
