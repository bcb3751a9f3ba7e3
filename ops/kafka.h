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
bool ops_is_consumed(const struct lw_config *c, struct lw_bytes topic);
/* For a dead letter that was read from a topic: gives the message the identity of its original,
 * which the last header latchwork-origin names, and removes the headers that the dead letter added.
 * *replay becomes the replay number of the original (0: none), and m->e.topic points to `origin`.
 * Returns false without a change if there is no such header, or if its value is no identity. */
bool ops_take_origin(struct ops_message *m, char origin[256], int64_t *replay);

/* The records of one partition that are to be read. */
struct ops_span {
    char topic[256];
    int32_t partition;
    /* `from` is the first offset to read, and `to` is one more than the last one */
    int64_t from, to;
    int64_t next; /* offset of the next record to read */
    bool over;
};

/* Topics that are open for reading, with one span per partition. */
struct ops_log;
/* Opens topics for reading; `topics` must stay valid. Waits at most most_ms for a broker, and no
 * longer than o->deadline_ms allows; this limit holds for the other functions, too. Returns NULL on
 * failure, with the reason in o->err. */
struct ops_log *ops_log_open(struct ops *o, char *const *topics, size_t n, int most_ms);
/* Returns the spans, whose limits the caller may change, and sets *n to their number. */
struct ops_span *ops_log_spans(struct ops_log *l, size_t *n);
/* Makes the spans anew, one per partition that the topics have now, and sets their limits to the
 * range that --from and --to name; default: to the ends of the log. */
int ops_log_limit(struct ops_log *l);
/* Calls fn for each record in the spans, in the order of the offsets within a partition. The
 * message that fn gets is the record as it is in the log; no filter has been applied except the
 * times --from and --to. Returns 0 after the last record, -1 with o->err on failure, or the value
 * of fn if it is not 0, which ends the reading. */
int ops_log_read(struct ops_log *l, ops_message_fn *fn, void *ctx);
/* Adds up the end offsets of all partitions of the application's topics. The difference between the
 * sums of two calls is the number of records that arrived in between. Returns -1 with the reason in
 * o->err on failure, for example if Kafka does not answer within some seconds. */
int ops_log_ends(struct ops_log *l, int64_t *sum);
void ops_log_close(struct ops_log *l);

#endif
