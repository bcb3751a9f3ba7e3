/* SPDX-License-Identifier: Apache-2.0 */
/* Explains what an error of librdkafka means for this configuration: which right is missing, on
 * what and for which user, or why a broker's certificate was rejected. librdkafka's own text
 * follows. */
#ifndef LW_KAFKA_EXPLAIN_H
#define LW_KAFKA_EXPLAIN_H

#include "config/config.h"

#include <librdkafka/rdkafka.h>

enum { LW_EXPLAINED_MAX = 1024, LW_PRINCIPAL_MAX = 320 };

/* Returns the name by which the brokers know us, if the configuration tells it, for example "user
 * \"orders\"". */
const char *lw_kafka_principal(const struct lw_config *c, char out[LW_PRINCIPAL_MAX]);
/* Writes the explanation to `out` and returns it. `right` and `topic` say what was tried, for
 * example "READ" and the name of a topic; topic NULL: unknown. */
const char *lw_kafka_explain(const struct lw_config *c, rd_kafka_resp_err_t code, const char *text,
                             const char *right, const char *topic, char out[LW_EXPLAINED_MAX]);
/* Makes librdkafka say why it rejects a broker's certificate. Call it for every client's
 * configuration. */
void lw_kafka_watch_certificates(rd_kafka_conf_t *conf);
/* Returns the explanation for one of OpenSSL's numbers X509_V_ERR_…; public for the tests. */
const char *lw_kafka_certificate_error(int x509_error);

/* Explains why librdkafka could not start with a configuration, from its own text: which file can't
 * be read, or that the password of the key may be wrong. Returns out. */
const char *lw_kafka_explain_start(const struct lw_config *c, const char *text,
                                   char out[LW_EXPLAINED_MAX]);

#endif
