/* SPDX-License-Identifier: Apache-2.0 */
/* The dev broker: a Kafka of one broker inside this process, for `latchwork dev`, demos and quick tests.
 *
 * It speaks Kafka's protocol on a free loopback port to clients of any process that are made of librdkafka (kcat, confluent-kafka,
 * aiokafka; not Java's), with groups, commits and transactions. It lives in threads of the process that opened it, so open it after fork().
 * Memory only, and little of it: about 23,000 records of 200 bytes (5 MB) a partition, then the oldest are dropped without a word. A member
 * that left or died is waited for until its session.timeout.ms is over: use 6000. Topics that nobody made come into being with 4
 * partitions. */
#ifndef LW_CLI_DEV_DEVBROKER_H
#define LW_CLI_DEV_DEVBROKER_H

#include "base/err.h"

struct lw_devbroker;

/* `*bootstrap` (for bootstrap.servers) is owned by the broker. Returns NULL with `err` on
 * failure. */
struct lw_devbroker *lw_devbroker_open(const char **bootstrap, struct lw_err *err);
/* Makes a topic; partitions 0 means 4, as for a topic that nobody created. */
int lw_devbroker_topic(struct lw_devbroker *b, const char *topic, int partitions, struct lw_err *err);
void lw_devbroker_close(struct lw_devbroker *b);

#endif
