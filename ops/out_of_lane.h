/* SPDX-License-Identifier: Apache-2.0 */
/* Declares replays that do not go to a lane: a message is sent to a topic, or a handler runs it for
 * a trial. The argument `each` is the function that reads the messages and calls fn for each:
 * dead_each(), ops_each_message(), or a function that reads records from Kafka again. */
#ifndef LW_OPS_OUT_OF_LANE_H
#define LW_OPS_OUT_OF_LANE_H

#include "ops/ops.h"

typedef int ops_each_fn(struct ops *o, ops_message_fn *fn, void *ctx);

/* Produces each message to --to-topic, with its key and headers, and with its identity in the
 * header latchwork-origin. The messages also stay in Redis or Kafka; dead letters can be removed
 * with `dead drop`. Returns the exit status. */
int ops_to_topic(struct ops *o, ops_each_fn *each);
/* Runs the configured handler once for each message, one message after the other, under the lock of
 * the message's lane, and prints the outcome. Nothing is recorded in Redis, but the effects of the
 * handler are real. The message has the identity of a replay. If the lock of a lane is not free
 * within three seconds, the message is not run and is reported as a problem. */
int ops_try(struct ops *o, ops_each_fn *each);

#endif
