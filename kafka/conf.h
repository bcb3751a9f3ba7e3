/* SPDX-License-Identifier: Apache-2.0 */
/* librdkafka configurations made from kafka.properties, one for each thing Latchwork does with Kafka. */
#ifndef LW_KAFKA_CONF_H
#define LW_KAFKA_CONF_H

#include "base/err.h"
#include "config/config.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

/* Configuration of a member of the group: all properties, then those that the guarantees need,
 * which nothing overrides. Returns NULL with `err` if librdkafka refuses a property (its own
 * message names it). member_id: the group.instance.id, "" for none; NULL: what the properties say.
 * The caller owns the result until rd_kafka_new() takes it. */
rd_kafka_conf_t *lw_kafka_conf_consumer(const struct lw_config *c, const char *member_id, struct lw_err *err);
/* Calls rd_kafka_new() with such a configuration, and takes it in any case. Returns NULL with a
 * permanent `err`. A thread of librdkafka refreshes tokens of SASL OAUTHBEARER, whether or not the
 * client is polled. */
rd_kafka_t *lw_kafka_new(const struct lw_config *c, rd_kafka_type_t type, rd_kafka_conf_t *conf, struct lw_err *err);
/* The value of one of kafka.properties, or NULL. */
const char *lw_kafka_property(const struct lw_config *c, const char *name);
/* Configuration of a client that only asks (end offsets, cluster id): the properties that say where
 * the cluster is and who we are, and isolation.level. */
rd_kafka_conf_t *lw_kafka_conf_client(const struct lw_config *c, struct lw_err *err);
/* Opens such a client that can read the commits of the group, without joining it. Returns NULL with
 * a permanent `err`. */
rd_kafka_t *lw_kafka_open_reader(const struct lw_config *c, struct lw_err *err);
/* Configuration of an idempotent producer that never creates topics; with the same properties as
 * the client. */
rd_kafka_conf_t *lw_kafka_conf_producer(const struct lw_config *c, struct lw_err *err);

/* Destroys a client, waiting at most timeout_ms. In 2.0.2 rd_kafka_destroy() can hang: it then
 * continues in a thread of its own, the client leaks, and false is returned. */
bool lw_kafka_destroy(rd_kafka_t *rk, int64_t timeout_ms);

#endif
