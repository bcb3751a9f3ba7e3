/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the group's commits for `run --drain`, because workers of other supervisors may own some
 * of the partitions. */
#ifndef LW_CONSUMER_FLEET_DRAIN_H
#define LW_CONSUMER_FLEET_DRAIN_H

#include "config/config.h"
#include "consumer/board.h"

/* Asks the group's coordinator once per second for the commits of the partitions in board->drain,
 * and stores the commits in board->drain. Run this function in a process of its own, because it
 * returns only if no Kafka client can be created; it then returns LW_EXIT_FAILED. Every partition
 * gets a commit soon after its assignment, even if the partition is empty. */
int lw_drain_follow(const struct lw_config *c, struct lw_board *board);

#endif
