/* Records read again from Kafka: by a consumer that joins no group and commits nothing, so the application's offsets stay where they are. */
#ifndef LW_TOOLS_OPS_KAFKA_H
#define LW_TOOLS_OPS_KAFKA_H

#include "tools/ops.h"

/* Tells of each record that the options name: of the identities behind the verb, or of --topic (--partition) between --from and --to (times, or
 * @OFFSET; default: all that is there now), in order within a partition. The filters decide as for waiting messages; `lane` is where it belongs.
 * A record without a key has lane.p == NULL. 1 where fn had enough, -1 on failure: also where an offset is not in the log any more. */
int ops_read_kafka(struct ops *o, ops_message_fn *fn, void *ctx);

#endif
