/* SPDX-License-Identifier: Apache-2.0 */
/* Explains what an error of librdkafka means for this configuration, for example which right is
 * missing, on which resource and for which user, or why a broker's certificate was rejected. The
 * explanation usually contains the text of librdkafka. */
#ifndef LW_KAFKA_EXPLAIN_H
#define LW_KAFKA_EXPLAIN_H

#include "config/config.h"

#include <librdkafka/rdkafka.h>

enum { LW_EXPLAINED_MAX = 1024, LW_PRINCIPAL_MAX = 320 };

/* Writes the name by which the brokers know this client to `out`, for example "user \"orders\"", or
 * "this user" if the configuration does not show the name. Returns `out`. */
const char *lw_kafka_principal(const struct lw_config *c, char out[LW_PRINCIPAL_MAX]);
/* Writes the explanation of an error to `out`, and returns `out`. `right` and `topic` say what was
 * tried, for example "READ" and the name of a topic; `topic` is NULL if it is not known. */
const char *lw_kafka_explain(const struct lw_config *c, rd_kafka_resp_err_t code, const char *text,
                             const char *right, const char *topic, char out[LW_EXPLAINED_MAX]);
/* Makes librdkafka report why it rejects a broker's certificate. Call this function for the
 * configuration of every client. */
void lw_kafka_watch_certificates(rd_kafka_conf_t *conf);
/* Returns the explanation for one of OpenSSL's numbers X509_V_ERR_…, or NULL if this number has no
 * explanation. Public only for the tests. */
const char *lw_kafka_certificate_error(int x509_error);

/* Writes to `out` why librdkafka could not start with a configuration: which file cannot be read,
 * or that the password of the private key may be wrong. Unless a file cannot be read, `out` also
 * gets librdkafka's own text. Returns `out`. */
const char *lw_kafka_explain_start(const struct lw_config *c, const char *text,
                                   char out[LW_EXPLAINED_MAX]);

#endif
