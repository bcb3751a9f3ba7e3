/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records from Kafka again, with a consumer that never joins the group and commits
 * nothing, so that the application's offsets stay as they are. */
#ifndef LW_OPS_KAFKA_H
#define LW_OPS_KAFKA_H

#include "ops/ops.h"

/* Calls fn for each record that the command line names, in the order of the offsets within a
 * partition. The command line names records either by their identities after the verb, or by
 * --topic, --partition and the range --from to --to (each limit is a time or @OFFSET; default:
 * everything). Filters apply as for waiting messages. The message that fn gets has the record's
 * lane, whose p is NULL if the record has no key. An identity whose record is outside of the log is
 * reported on stderr and skipped. Returns 0 after the last record, -1 with o->err on failure, or
 * the value of fn if it is not 0, which ends the reading. */
int ops_read_kafka(struct ops *o, ops_message_fn *fn, void *ctx);

/* Returns true if the application consumes the topic. */
bool ops_is_consumed(const struct lw_config *c, const char *topic);

struct ops_log;
/* Opens the application's topics for reading. Returns NULL on failure, with the reason in
 * o->err. */
struct ops_log *ops_log_open(struct ops *o);
/* Adds up the end offsets of all partitions of the application's topics. The difference between the
 * sums of two calls is the number of records that arrived in between. Returns -1 with the reason in
 * o->err on failure, for example if Kafka does not answer within some seconds. */
int ops_log_ends(struct ops_log *l, int64_t *sum);
void ops_log_close(struct ops_log *l);

#endif
