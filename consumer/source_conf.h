/* librdkafka configurations made from kafka.properties, one for each thing Latchwork does with Kafka. */
#ifndef LW_CONSUMER_SOURCE_CONF_H
#define LW_CONSUMER_SOURCE_CONF_H

#include "base/err.h"
#include "config/config.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

/* A member of the group: all properties, then what the guarantees rest on, which nothing overrides. NULL with `err` where librdkafka
 * refuses a property (librdkafka's own words name it). The caller owns the result until rd_kafka_new() takes it. */
rd_kafka_conf_t *lw_kafka_conf_consumer(const struct lw_config *c, struct lw_err *err);
/* A client that only asks (ends, cluster id): the properties that say where the cluster is and who we are, and isolation.level. */
rd_kafka_conf_t *lw_kafka_conf_client(const struct lw_config *c, struct lw_err *err);
/* An idempotent producer that never creates topics; the same properties as the client. */
rd_kafka_conf_t *lw_kafka_conf_producer(const struct lw_config *c, struct lw_err *err);

/* Destroys a client, waiting at most timeout_ms. rd_kafka_destroy() can hang in 2.0.2: then it goes on in a thread of its own, the
 * client leaks, and false is returned. */
bool lw_kafka_destroy(rd_kafka_t *rk, int64_t timeout_ms);

#endif
