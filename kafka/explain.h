/* SPDX-License-Identifier: Apache-2.0 */
/* Explains what an error of librdkafka means for this configuration: which right is missing on what
 * and for whom, or why a broker's certificate was rejected. librdkafka's own text follows. */
#ifndef LW_KAFKA_EXPLAIN_H
#define LW_KAFKA_EXPLAIN_H

#include "config/config.h"

#include <librdkafka/rdkafka.h>

enum { LW_EXPLAINED_MAX = 1024, LW_PRINCIPAL_MAX = 320 };

/* Who we are to the brokers, as far as the configuration says: "user \"orders\"". */
const char *lw_kafka_principal(const struct lw_config *c, char out[LW_PRINCIPAL_MAX]);
/* `right` and `topic` are what was tried, such as "READ" and the name of a topic; topic NULL:
 * unknown. Returns `out`. */
const char *lw_kafka_explain(const struct lw_config *c, rd_kafka_resp_err_t code, const char *text, const char *right, const char *topic,
                             char out[LW_EXPLAINED_MAX]);
/* Makes librdkafka say why it rejects a broker's certificate. Call it for every client's
 * configuration. */
void lw_kafka_watch_certificates(rd_kafka_conf_t *conf);
/* The same text for the numbers of OpenSSL's X509_V_ERR_…; public for the tests. */
const char *lw_kafka_certificate_error(int x509_error);

#endif
