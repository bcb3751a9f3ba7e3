/* SPDX-License-Identifier: Apache-2.0 */
/* librdkafka configurations made from kafka.properties, one for each thing Latchwork does with Kafka. */
#ifndef LW_KAFKA_CONF_H
#define LW_KAFKA_CONF_H

#include "base/err.h"
#include "config/config.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

/* A member of the group: all properties, then what the guarantees rest on, which nothing overrides. NULL with `err` where librdkafka
 * refuses a property (librdkafka's own words name it). member_id: its group.instance.id, "" for none; NULL: what the properties say. The
 * caller owns the result until rd_kafka_new() takes it. */
rd_kafka_conf_t *lw_kafka_conf_consumer(const struct lw_config *c, const char *member_id, struct lw_err *err);
/* rd_kafka_new() for such a configuration, which it takes in any case. NULL with `err`, which is a refusal. Tokens of SASL OAUTHBEARER are
 * refreshed by a thread of librdkafka, whether or not the client is polled. */
rd_kafka_t *lw_kafka_new(const struct lw_config *c, rd_kafka_type_t type, rd_kafka_conf_t *conf, struct lw_err *err);
/* The value of one of kafka.properties, or NULL. */
const char *lw_kafka_property(const struct lw_config *c, const char *name);
/* A client that only asks (ends, cluster id): the properties that say where the cluster is and who we are, and isolation.level. */
rd_kafka_conf_t *lw_kafka_conf_client(const struct lw_config *c, struct lw_err *err);
/* Such a client that can read the commits of the group, which it never joins. NULL with `err`, which is a refusal. */
rd_kafka_t *lw_kafka_open_reader(const struct lw_config *c, struct lw_err *err);
/* An idempotent producer that never creates topics; the same properties as the client. */
rd_kafka_conf_t *lw_kafka_conf_producer(const struct lw_config *c, struct lw_err *err);

/* Destroys a client, waiting at most timeout_ms. rd_kafka_destroy() can hang in 2.0.2: then it goes on in a thread of its own, the
 * client leaks, and false is returned. */
bool lw_kafka_destroy(rd_kafka_t *rk, int64_t timeout_ms);

#endif
