/* SPDX-License-Identifier: Apache-2.0 */
/* The rig runs the deliveries of a plan in the handler, in a separate process.
 *
 * The rig opens the handler and gives it messages as a worker does: through a pool of threads
 * (struct lw_pool) or, if the handler type has serve(), through one thread (struct lw_server).
 * There is no Redis: the rig itself gives each message a lease and the fence from the plan, and
 * renews the lease. Messages of one key run in order. Messages of different keys run in
 * parallel. */
#ifndef LW_CLI_HANDLER_RIG_H
#define LW_CLI_HANDLER_RIG_H

#include "cli/handler/plan.h"
#include "consumer/board.h"

/* Runs every delivery that has no result yet, round by round, and writes the results to the plan.
 * The handler threads write to `seats` which messages they are processing. Stores in plan->end how
 * the rig ended. The calling process must then call _exit(). */
void handler_rig(const struct lw_config *c, struct handler_plan *plan,
                 struct lw_board_worker *seats);

#endif
