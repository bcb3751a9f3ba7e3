/* SPDX-License-Identifier: Apache-2.0 */
/* Replays that do not go into a lane: to a topic, or to a handler for a trial. `each` lists the
 * messages (dead_each, ops_each_message, or those read again from Kafka). */
#ifndef LW_OPS_OUT_OF_LANE_H
#define LW_OPS_OUT_OF_LANE_H

#include "ops/ops.h"

typedef int ops_each_fn(struct ops *o, ops_message_fn *fn, void *ctx);

/* Produces each to --to-topic, with its key and headers, and with its identity in the header
 * latchwork-origin. The messages stay where they are (dead letters too: use dead drop). Returns the
 * exit status. */
int ops_to_topic(struct ops *o, ops_each_fn *each);
/* Runs each once through the configured handler, one after the other, under its lane's lock, and
 * prints the outcome. Redis records nothing, but what the handler does is done. Its identity is
 * that of a replay. A lane that stays held for three seconds is left out. */
int ops_try(struct ops *o, ops_each_fn *each);

#endif
