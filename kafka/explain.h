/* SPDX-License-Identifier: Apache-2.0 */
/* Says what an error of librdkafka means for this configuration: which right is missing on what and for whom, why a broker's certificate
 * was not accepted. librdkafka's own text stands behind it. */
#ifndef LW_KAFKA_EXPLAIN_H
#define LW_KAFKA_EXPLAIN_H

#include "config/config.h"

#include <librdkafka/rdkafka.h>

enum { LW_EXPLAINED_MAX = 1024, LW_PRINCIPAL_MAX = 320 };

/* Who we are to the brokers, as far as the configuration tells: "user \"orders\"". */
const char *lw_kafka_principal(const struct lw_config *c, char out[LW_PRINCIPAL_MAX]);
/* `right` and `topic` are what was tried, as "READ" and a topic's name; topic NULL: not known. Returns `out`. */
const char *lw_kafka_explain(const struct lw_config *c, rd_kafka_resp_err_t code, const char *text, const char *right, const char *topic,
                             char out[LW_EXPLAINED_MAX]);
/* Makes librdkafka tell why it does not accept a broker's certificate. Every client's configuration gets it. */
void lw_kafka_watch_certificates(rd_kafka_conf_t *conf);
/* The same text for the numbers of OpenSSL's X509_V_ERR_…; public for the tests. */
const char *lw_kafka_certificate_error(int x509_error);

#endif
