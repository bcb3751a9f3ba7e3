/* SPDX-License-Identifier: Apache-2.0 */
#include "config/librdkafka.h"

#include <librdkafka/rdkafka.h>
#include <string.h>
#include <strings.h>

#define VERSION(major, minor, patch) ((major) << 24 | (minor) << 16 | (patch) << 8)
enum { FINAL = 0xff, EVERY = 0, FEATURES_MAX = 512 };

static bool any(const char *value) { return value != NULL; }
static bool is_true(const char *value) {
    return !strcasecmp(value, "true") || !strcasecmp(value, "t") || !strcmp(value, "1");
}
static bool is_consumer(const char *value) { return !strcasecmp(value, "consumer"); }
static bool is_oidc(const char *value) { return !strcasecmp(value, "oidc"); }
static bool is_cooperative(const char *value) { return strstr(value, "cooperative-sticky"); }
static bool is_tls(const char *value) {
    return !strcasecmp(value, "ssl") || !strcasecmp(value, "sasl_ssl");
}
static bool is_plain(const char *value) { return !strcmp(value, "PLAIN"); }
static bool is_scram(const char *value) { return !strncmp(value, "SCRAM-", 6); }
static bool is_oauth(const char *value) { return !strcmp(value, "OAUTHBEARER"); }
static bool is_kerberos(const char *value) { return !strcmp(value, "GSSAPI"); }

/* Says how a limit is reported. A limit is something that a version of librdkafka cannot do. A NOTE
 * is shown only in `version --verbose`, because such a limit concerns nearly every user and
 * endangers no message. */
enum how { NOTE, WARN, REFUSE };

/* A limit applies to the versions of librdkafka from `from` up to, but not including, `below`
 * (EVERY: no bound) or, if `feature` is set, to a library without that feature. `properties` names
 * the properties that the limit concerns, each followed by a space. The limit concerns a value of
 * such a property only if `meets` returns true for the value. If `properties` is NULL, the limit
 * concerns every configuration. */
static const struct limit {
    int from, below;
    const char *feature, *properties;
    bool (*meets)(const char *value);
    enum how how;
    const char *reason, *advice;
} limits[] = {
    {EVERY, EVERY, "ssl", "security.protocol ", is_tls, REFUSE, "it was built without TLS",
     "use one that was built with OpenSSL"},
    {EVERY, EVERY, "sasl_plain", "sasl.mechanism sasl.mechanisms ", is_plain, REFUSE,
     "it was built without SASL PLAIN", "use another mechanism, or another build"},
    {EVERY, EVERY, "sasl_scram", "sasl.mechanism sasl.mechanisms ", is_scram, REFUSE,
     "it was built without SASL SCRAM", "use one that was built with OpenSSL"},
    {EVERY, EVERY, "sasl_oauthbearer", "sasl.mechanism sasl.mechanisms ", is_oauth, REFUSE,
     "it was built without SASL OAUTHBEARER", "use one that was built with OpenSSL"},
    {EVERY, EVERY, "sasl_gssapi", "sasl.mechanism sasl.mechanisms ", is_kerberos, REFUSE,
     "it was built without SASL GSSAPI (Kerberos)", "use one that was built with libsasl2"},
    {EVERY, EVERY, "oidc", "sasl.oauthbearer.method ", is_oidc, REFUSE, "it was built without OIDC",
     "use one that was built with libcurl and OpenSSL (those of Debian and Ubuntu are not), or "
     "another mechanism"},
    {EVERY, VERSION(2, 15, 0), NULL, "group.protocol ", is_consumer, REFUSE,
     "below 2.15 it can stand still for minutes without a message in the new group protocol",
     "use \"classic\", or librdkafka 2.15"},
    {EVERY, VERSION(2, 6, 1), NULL, "sasl.mechanism sasl.mechanisms ", is_scram, WARN,
     "below 2.6.1 it can't log in by SCRAM to Apache Kafka 4.0 or later, which answers \"invalid "
     "credentials\"",
     "use PLAIN over TLS, mTLS or OAUTHBEARER there, or librdkafka 2.6.1"},
    {EVERY, VERSION(2, 2, 0), NULL, "security.protocol ", is_tls, WARN,
     "below 2.2 it may take a TLS connection that the broker closes for the loss of its offset, "
     "and the worker then stops",
     "use librdkafka 2.2"},
    {EVERY, VERSION(2, 6, 1), NULL, "partition.assignment.strategy ", is_cooperative, REFUSE,
     "below 2.6.1 cooperative-sticky can loop for ever", "use range"},
    {VERSION(2, 6, 1), VERSION(2, 10, 0), NULL, "partition.assignment.strategy ", is_cooperative,
     WARN, "below 2.10 a commit during a rebalance of cooperative-sticky can lose the assignment",
     "range is safe"},
    {EVERY, VERSION(2, 8, 0), NULL, "enable.sasl.oauthbearer.unsecure.jwt ", is_true, REFUSE,
     "2.0.2 crashes when an unsigned token is to be renewed; the first version known to renew it "
     "is 2.8.0",
     "use that, or another mechanism"},
    {VERSION(2, 5, 0), VERSION(2, 5, 1), NULL, "enable.metrics.push ", is_true, REFUSE,
     "2.5.0 aborts when it pushes metrics", "leave it out: Latchwork switches it off for 2.5.0"},
    {VERSION(2, 10, 0), VERSION(2, 10, 1), NULL, NULL, any, WARN,
     "2.10.0 can reconnect to its bootstrap servers in a loop after all brokers were away",
     "use 2.10.1"},
    {EVERY, VERSION(2, 14, 2), NULL, NULL, any, NOTE,
     "below 2.14.2 it can crash at a worker's end if the group's coordinator is away then",
     "the messages are delivered again"},
};

bool lw_librdkafka_has(const struct lw_librdkafka *k, const char *feature) {
    size_t n = strlen(feature);
    for (const char *p = k->features; (p = strstr(p, feature)); p += n)
        if ((p == k->features || p[-1] == ',') && (!p[n] || p[n] == ',')) return true;
    return false;
}

static bool limited(const struct lw_librdkafka *k, const struct limit *l) {
    int version = k->version & ~FINAL;
    if (l->feature) return !lw_librdkafka_has(k, l->feature);
    return version >= l->from && version < l->below;
}

/* Returns true if `name` is one of the names in `properties`, each of which is followed by a
 * space. */
static bool listed(const char *properties, const char *name) {
    size_t n = strlen(name);
    for (const char *p = properties; n && (p = strstr(p, name)); p += n)
        if ((p == properties || p[-1] == ' ') && p[n] == ' ') return true;
    return false;
}

bool lw_librdkafka_judge(const struct lw_librdkafka *k, const char *name, const char *value,
                         struct lw_problems *problems) {
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *l = &limits[i];
        if (!l->properties || !listed(l->properties, name) || !l->meets(value) || !limited(k, l))
            continue;
        if (l->how == REFUSE) {
            lw_problem(problems, "kafka.properties.%s: refused: librdkafka %s is loaded: %s; %s",
                       name, k->text, l->reason, l->advice);
            return true;
        }
        lw_problem_warn(problems, "kafka.properties.%s: librdkafka %s is loaded: %s; %s", name,
                        k->text, l->reason, l->advice);
    }
    return false;
}

void lw_librdkafka_judge_all(const struct lw_librdkafka *k, struct lw_problems *problems) {
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *l = &limits[i];
        if (!l->properties && l->how == WARN && limited(k, l))
            lw_problem_warn(problems, "kafka: librdkafka %s is loaded: %s; %s", k->text, l->reason,
                            l->advice);
    }
}

void lw_librdkafka_limits(const struct lw_librdkafka *k, const char *before, struct lw_buf *out) {
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limited(k, &limits[i]))
            lw_buf_addf(out, "%s%s; %s\n", before, limits[i].reason, limits[i].advice);
}

bool lw_librdkafka_mute(const struct lw_librdkafka *k) {
    return (k->version & ~FINAL) == VERSION(2, 5, 0);
}

const struct lw_librdkafka *lw_librdkafka_loaded(void) {
    static char features[FEATURES_MAX];
    static struct lw_librdkafka loaded;
    size_t n = sizeof features;
    if (loaded.text) return &loaded;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_get(conf, "builtin.features", features, &n) != RD_KAFKA_CONF_OK)
        features[0] = 0;
    rd_kafka_conf_destroy(conf);
    loaded = (struct lw_librdkafka){rd_kafka_version(), rd_kafka_version_str(), features};
    return &loaded;
}
