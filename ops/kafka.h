/* SPDX-License-Identifier: Apache-2.0 */
/* Records read again from Kafka: by a consumer that joins no group and commits nothing, so the application's offsets stay where they are.
 */
#ifndef LW_OPS_KAFKA_H
#define LW_OPS_KAFKA_H

#include "ops/ops.h"

/* Tells of each record that the options name: of the identities behind the verb, or of --topic (--partition) between --from and --to
 * (times, or
 * @OFFSET; default: all that is there now), in order within a partition. The filters decide as for waiting messages; `lane` is where it
 * belongs. A record without a key has lane.p == NULL. 1 where fn had enough, -1 on failure: also where an offset is not in the log any
 * more. */
int ops_read_kafka(struct ops *o, ops_message_fn *fn, void *ctx);

/* Where the logs of the application's topics end, all partitions summed up: asked twice, it tells what comes in. -1 where Kafka does not
 * answer within some seconds. */
struct ops_log;
struct ops_log *ops_log_open(struct ops *o); /* NULL: o->err */
int ops_log_ends(struct ops_log *l, int64_t *sum);
void ops_log_close(struct ops_log *l);

#endif
