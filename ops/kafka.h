/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records from Kafka again, with a consumer that joins no group and commits nothing, so the
 * application's offsets stay as they are.
 */
#ifndef LW_OPS_KAFKA_H
#define LW_OPS_KAFKA_H

#include "ops/ops.h"

/* Calls fn for each record that the options name: by the identities behind the verb, or of --topic
 * (--partition) between --from and --to (times, or @OFFSET; default: everything), in order within a
 * partition. Filters apply as for waiting messages. `lane` is the record's lane; lane.p is NULL for
 * a record without a key. Returns 1 if fn stopped it, -1 on failure, also if an offset is no longer
 * in the log. */
int ops_read_kafka(struct ops *o, ops_message_fn *fn, void *ctx);

/* The end offsets of the application's topics, summed over all partitions: the difference of two
 * requests is what came in. -1 if Kafka does not answer within some seconds. */
struct ops_log;
struct ops_log *ops_log_open(struct ops *o); /* NULL on failure, with o->err */
int ops_log_ends(struct ops_log *l, int64_t *sum);
void ops_log_close(struct ops_log *l);

#endif
