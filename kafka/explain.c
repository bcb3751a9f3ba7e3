/* SPDX-License-Identifier: Apache-2.0 */
#include "kafka/explain.h"

#include "config/librdkafka.h"
#include "kafka/conf.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- certificates ----------------------------------------------------------------------------- */

/* Texts for OpenSSL's error numbers, which are part of its ABI. Unlike OpenSSL's own texts, these
 * texts name the setting or the clock to check. */
static const struct {
    int number;
    const char *text;
} certificate_errors[] = {
    {9, "it is not valid yet; compare the clocks"},
    {10, "it has expired"},
    {18, "it is self-signed, and not in ssl.ca.location"},
    {19, "its CA is not in ssl.ca.location"},
    {20, "its CA is not in ssl.ca.location"},
    {21, "its CA is not in ssl.ca.location"},
    {23, "it was revoked"},
    {26, "it was not made for servers"},
    {62, "it is for another host name than the one in bootstrap.servers or the broker's "
         "advertised.listeners"},
    {64, "it is for another IP address than the one in bootstrap.servers or the broker's "
         "advertised.listeners"},
};

const char *lw_kafka_certificate_error(int x509_error) {
    for (size_t i = 0; i < sizeof certificate_errors / sizeof *certificate_errors; i++)
        if (certificate_errors[i].number == x509_error) return certificate_errors[i].text;
    return NULL;
}

/* The reason why the last certificate was rejected. The reason is kept here because librdkafka
 * reports the failed connection later, without the reason. The mutex is needed because several
 * threads of librdkafka may verify certificates at the same time. */
static struct {
    pthread_mutex_t lock;
    char why[192];
} last = {PTHREAD_MUTEX_INITIALIZER, ""};

static int verify(rd_kafka_t *rk, const char *broker, int32_t id, int *x509_error, int depth,
                  const char *der, size_t size, char *why, size_t why_size, void *opaque) {
    (void)rk, (void)broker, (void)id, (void)der, (void)size, (void)opaque;
    if (!*x509_error) return 1;
    const char *text = lw_kafka_certificate_error(*x509_error);
    pthread_mutex_lock(&last.lock);
    bool unknown_ca = *x509_error >= 18 && *x509_error <= 21;
    snprintf(last.why, sizeof last.why, "%s%s", depth && !unknown_ca ? "of a CA above it: " : "",
             text ? text : "");
    if (!text) snprintf(last.why, sizeof last.why, "OpenSSL's verify error %d", *x509_error);
    snprintf(why, why_size, "%s", last.why);
    pthread_mutex_unlock(&last.lock);
    return 0;
}

void lw_kafka_watch_certificates(rd_kafka_conf_t *conf) {
    /* setting the callback fails only if librdkafka was built without TLS; then there is no
     * certificate to verify */
    rd_kafka_conf_set_ssl_cert_verify_cb(conf, verify);
}

static bool of_certificate(const char *text, char why[192]) {
    if (!strstr(text, "certificate verify failed")) return false;
    pthread_mutex_lock(&last.lock);
    memcpy(why, last.why, sizeof last.why);
    pthread_mutex_unlock(&last.lock);
    return *why;
}

/* --- rights ----------------------------------------------------------------------------------- */

static const struct lw_property *given(const struct lw_config *c, const char *name) {
    for (size_t i = 0; i < c->kafka.n_properties; i++)
        if (!strcmp(c->kafka.properties[i].name, name)) return &c->kafka.properties[i];
    return NULL;
}

static const char *value(const struct lw_config *c, const char *name) {
    const struct lw_property *p = given(c, name);
    return p ? p->value : "";
}

const char *lw_kafka_principal(const struct lw_config *c, char out[LW_PRINCIPAL_MAX]) {
    const struct lw_property *user = given(c, "sasl.username");
    bool sasl = !strncasecmp(value(c, "security.protocol"), "sasl_", 5),
         tls = !strcasecmp(value(c, "security.protocol"), "ssl");
    const char *file = *value(c, "ssl.certificate.location") ? value(c, "ssl.certificate.location")
                                                             : value(c, "ssl.keystore.location");
    if (sasl && user && !user->secret)
        snprintf(out, LW_PRINCIPAL_MAX, "user \"%.250s\"", user->value);
    else if (tls && *file)
        snprintf(out, LW_PRINCIPAL_MAX, "the user of the certificate in %.250s", file);
    else if (!sasl && !*file)
        snprintf(out, LW_PRINCIPAL_MAX, "user \"ANONYMOUS\"");
    else
        snprintf(out, LW_PRINCIPAL_MAX, "this user");
    return out;
}

static bool scram_is_old(const struct lw_config *c) {
    const char *how =
        *value(c, "sasl.mechanism") ? value(c, "sasl.mechanism") : value(c, "sasl.mechanisms");
    struct lw_problems problems = {0};
    lw_librdkafka_judge(lw_librdkafka_loaded(), "sasl.mechanism", how, &problems);
    bool old = !strncmp(how, "SCRAM-", 6) && problems.n_warnings > 0;
    lw_problems_free(&problems);
    return old;
}

const char *lw_kafka_explain(const struct lw_config *c, rd_kafka_resp_err_t code, const char *text,
                             const char *right, const char *topic, char out[LW_EXPLAINED_MAX]) {
    char who[LW_PRINCIPAL_MAX], why[192];
    lw_kafka_principal(c, who);
    if (code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        snprintf(out, LW_EXPLAINED_MAX,
                 "%s may not READ the consumer group %s; allow READ on it (%s)", who,
                 c->kafka.group_id, text);
    else if (code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        snprintf(out, LW_EXPLAINED_MAX, "%s may not %s %s%s; allow %s on it (%s)", who, right,
                 topic ? "topic " : "a topic", topic ? topic : "", right, text);
    else if (code == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED && c->dead.topic)
        /* a broker answers with CLUSTER_AUTHORIZATION_FAILED if an idempotent producer is not
         * allowed to write to any topic */
        snprintf(out, LW_EXPLAINED_MAX,
                 "%s may not WRITE topic %s; allow WRITE on it, and on a broker before 2.8 also "
                 "IDEMPOTENT_WRITE on the cluster (%s)",
                 who, c->dead.topic, text);
    else if (code == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED)
        snprintf(out, LW_EXPLAINED_MAX, "%s lacks a right on the cluster (%s)", who, text);
    else if (code == RD_KAFKA_RESP_ERR__AUTHENTICATION && scram_is_old(c))
        snprintf(out, LW_EXPLAINED_MAX,
                 "%s. librdkafka %s can't log in by SCRAM to Apache Kafka 4.0 or later, even with "
                 "the right password",
                 text, lw_librdkafka_loaded()->text);
    else if ((strstr(text, "SSL handshake failed") || strstr(text, "in state SSL_HANDSHAKE")) &&
             (strstr(text, "unexpected eof") || strstr(text, "wrong version number")))
        snprintf(
            out, LW_EXPLAINED_MAX,
            "%s. Perhaps this listener has no TLS: try another port or another security.protocol",
            text);
    else if (strstr(text, "SSL alert number"))
        snprintf(out, LW_EXPLAINED_MAX,
                 "the broker does not accept this client's certificate, or the lack of one: see "
                 "ssl.certificate.location (%s)",
                 text);
    else if (of_certificate(text, why))
        snprintf(out, LW_EXPLAINED_MAX, "the broker's certificate is not accepted: %s (%s)", why,
                 text);
    else
        snprintf(out, LW_EXPLAINED_MAX, "%s", text);
    return out;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Returns the first property that names an unreadable file, with the reason in errno, or NULL if
 * there is none. */
static const struct lw_property *unreadable(const struct lw_config *c) {
    for (size_t i = 0; i < c->kafka.n_properties; i++) {
        const struct lw_property *p = &c->kafka.properties[i];
        bool file = !strncmp(p->name, "ssl.", 4) && strstr(p->name, ".location") &&
                    strcmp(p->value, "probe") != 0;
        if (file && *p->value && access(p->value, R_OK)) return p;
    }
    return NULL;
}

const char *lw_kafka_explain_start(const struct lw_config *c, const char *text,
                                   char out[LW_EXPLAINED_MAX]) {
    const struct lw_property *missing = unreadable(c);
    if (missing)
        snprintf(out, LW_EXPLAINED_MAX, "kafka.properties.%s: %.400s can't be read: %s",
                 missing->name, missing->secret ? "the file" : missing->value, strerror(errno));
    else if (strstr(text, "ssl.key.location failed"))
        snprintf(out, LW_EXPLAINED_MAX,
                 "kafka.properties.ssl.key.location: the key can't be used: ssl.key.password is "
                 "wrong or missing, or the file is no PEM key "
                 "(%s)",
                 text);
    else
        snprintf(out, LW_EXPLAINED_MAX, "kafka.properties: %s", text);
    return out;
}
