/* SPDX-License-Identifier: Apache-2.0 */
/* The rig runs the deliveries of a plan in the handler, in a separate process.
 *
 * The handler is opened as a worker opens it, and gets its messages through the worker's pool or
 * server. There is no Redis: the rig itself gives each message a lease, which it renews, and the
 * fence from the plan. Messages of one key run in order. Messages of different keys run in
 * parallel. */
#ifndef LW_CLI_HANDLER_RIG_H
#define LW_CLI_HANDLER_RIG_H

#include "cli/handler/plan.h"
#include "consumer/board.h"

/* Runs every delivery that has no result yet, round by round. The handler threads write to `seats`
 * which message they are processing. Sets the plan's `end`. The calling process must then end with
 * _exit(). */
void handler_rig(const struct lw_config *c, struct handler_plan *plan,
                 struct lw_board_worker *seats);

#endif
