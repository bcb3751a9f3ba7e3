/* SPDX-License-Identifier: Apache-2.0 */
/* The dev broker is a Kafka of one broker inside this process, for `latchwork dev`, demos and quick
 * tests.
 *
 * The dev broker offers Kafka's protocol on a free port of the loopback interface, to clients of
 * any process, with groups, commits and transactions. Clients built on librdkafka, such as kcat and
 * confluent-kafka, and aiokafka work; the Java client does not. The dev broker runs in threads of
 * the process that opened it, so open it after fork(). Records are kept in memory only, about
 * 23,000 records of 200 bytes (5 MB) per partition. If a partition gets more, the oldest records
 * disappear without a warning. When a member has left or died, the group waits until the member's
 * session.timeout.ms is over. So set session.timeout.ms to 6000, the smallest value that the broker
 * accepts. A topic that was not created is created with 4 partitions when it is first used. */
#ifndef LW_CLI_DEV_DEVBROKER_H
#define LW_CLI_DEV_DEVBROKER_H

#include "base/err.h"

struct lw_devbroker;

/* Opens the broker. Sets *bootstrap to the value that clients need for bootstrap.servers; the
 * broker owns this text. Returns NULL with `err` on failure. */
struct lw_devbroker *lw_devbroker_open(const char **bootstrap, struct lw_err *err);
/* Creates a topic. If `partitions` is 0, the topic gets 4 partitions, like a topic that is created
 * when it is first used. */
int lw_devbroker_topic(struct lw_devbroker *b, const char *topic, int partitions,
                       struct lw_err *err);
void lw_devbroker_close(struct lw_devbroker *b);

#endif
