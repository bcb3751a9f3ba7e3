/* Replays that do not go into a lane: to a topic, or to a handler for a trial. `each` tells of the messages (dead_each, ops_each_message, or those
 * read again from Kafka). */
#ifndef LW_TOOLS_OPS_OUT_OF_LANE_H
#define LW_TOOLS_OPS_OUT_OF_LANE_H

#include "tools/ops.h"

typedef int ops_each_fn(struct ops *o, ops_message_fn *fn, void *ctx);

/* Produces each to --to-topic, with its key, headers and timestamp, and its origin in a header. What is there stays where it is. Returns the exit
 * status. */
int ops_to_topic(struct ops *o, ops_each_fn *each);
/* Runs each through the configured handler, once, one after the other, and tells the outcome. No lane is locked and nothing is recorded; what
 * the handler does is done. */
int ops_try(struct ops *o, ops_each_fn *each);

#endif
