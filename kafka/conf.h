/* SPDX-License-Identifier: Apache-2.0 */
/* Creates librdkafka's configurations from kafka.properties, one for each kind of client that
 * Latchwork uses. */
#ifndef LW_KAFKA_CONF_H
#define LW_KAFKA_CONF_H

#include "base/err.h"
#include "config/config.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

/* Creates the configuration of a member of the group: all of kafka.properties, overridden by the
 * properties that the guarantees need. member_id is the group.instance.id; "" means none, and NULL
 * means the one in kafka.properties. If librdkafka refuses a property, returns NULL with *err,
 * which names the property. The caller owns the result until rd_kafka_new() takes it. */
rd_kafka_conf_t *lw_kafka_conf_consumer(const struct lw_config *c, const char *member_id,
                                        struct lw_err *err);
/* Calls rd_kafka_new() and takes ownership of `conf`, even on failure. Returns NULL with a
 * permanent *err. A thread of librdkafka refreshes the tokens of SASL OAUTHBEARER, whether or not
 * the client is polled. */
rd_kafka_t *lw_kafka_new(const struct lw_config *c, rd_kafka_type_t type, rd_kafka_conf_t *conf,
                         struct lw_err *err);
/* Creates the configuration of a client that only asks for end offsets or the cluster id. This
 * configuration contains isolation.level and the properties that describe the cluster and our
 * login. Returns NULL with *err on failure. */
rd_kafka_conf_t *lw_kafka_conf_client(const struct lw_config *c, struct lw_err *err);
/* Opens a client that can read the commits of the group without joining it. Returns NULL with a
 * permanent *err. */
rd_kafka_t *lw_kafka_open_reader(const struct lw_config *c, struct lw_err *err);
/* Creates the configuration of an idempotent producer that never creates topics. The configuration
 * contains all properties of lw_kafka_conf_client(). Returns NULL with *err on failure. */
rd_kafka_conf_t *lw_kafka_conf_producer(const struct lw_config *c, struct lw_err *err);

/* Destroys a client. Returns false if the destruction takes longer than timeout_ms; it then
 * continues in a separate thread, and the client's memory may leak. The limit is needed because
 * rd_kafka_destroy() can hang in librdkafka 2.0.2. */
bool lw_kafka_destroy(rd_kafka_t *rk, int64_t timeout_ms);

#endif
