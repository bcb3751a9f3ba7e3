/* SPDX-License-Identifier: Apache-2.0 */
/* Creates configurations for librdkafka, and destroys clients within a time limit. */
#include "kafka/conf.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/librdkafka.h"
#include "kafka/explain.h"

#include <pthread.h>
#include <string.h>
#include <strings.h>
#include <syslog.h>

struct setting {
    const char *name, *value;
};

/* Defaults for a member of the group, which kafka.properties may override. The limit
 * queued.max.messages.kbytes counts per fetch queue, and each partition has its own queue, so
 * librdkafka's default of 64 MiB would be too much for a worker with many partitions. */
static const struct setting consumer_defaults[] = {
    {"client.id", "latchwork"},
    {"queued.max.messages.kbytes", "16384"},
};

/* More defaults, for the classic group protocol only. In the new group protocol the broker decides
 * these values. */
static const struct setting classic_defaults[] = {
    /* the default is not cooperative-sticky, because this strategy can loop forever in versions of
     * librdkafka before 2.6.1 */
    {"partition.assignment.strategy", "range"},
    /* the session timeout, which is five heartbeats; after a host has died, no worker reads its
     * partitions until this timeout is over */
    {"session.timeout.ms", "15000"},
};

/* Properties that the guarantees need. auto.offset.reset is "error" because kafka/assign.c applies
 * the configured reset itself, and only to a partition without a commit, so that a committed offset
 * outside of the log is an error and not a silent jump. The statistics give the state of the
 * brokers and of the group (kafka/state.c). */
static const struct setting consumer_forced[] = {
    {"enable.auto.commit", "false"},    {"enable.auto.offset.store", "false"},
    {"enable.partition.eof", "true"},   {"auto.offset.reset", "error"},
    {"statistics.interval.ms", "2000"}, {"allow.auto.create.topics", "false"},
};

/* Properties of producers. Messages may have up to 64 MiB, so that an envelope around the largest
 * usual record fits; the broker rejects a message that is too large for the topic. A missing topic
 * is reported after 5 s instead of 30 s. */
static const struct setting producer_forced[] = {
    {"enable.idempotence", "true"},    {"allow.auto.create.topics", "false"},
    {"message.timeout.ms", "30000"},   {"topic.metadata.propagation.max.ms", "5000"},
    {"message.max.bytes", "67108864"}, {"linger.ms", "5"},
};

/* Returns true if every kind of client needs the property, because the property describes the
 * cluster or the connection to it. */
static bool concerns_connection(const char *name) {
    static const char *const exact[] = {"bootstrap.servers", "metadata.broker.list", "client.id",
                                        "client.rack", "debug"};
    static const char *const prefix[] = {"security.",  "sasl.",     "ssl.",        "broker.",
                                         "socket.",    "metadata.", "enable.ssl.", "enable.sasl.",
                                         "reconnect.", "https."};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (!strcmp(name, exact[i])) return true;
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (!strncmp(name, prefix[i], strlen(prefix[i]))) return true;
    return false;
}

static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text) {
    (void)rk;
    enum lw_log_level to = level <= LOG_ERR       ? LW_LOG_ERROR
                           : level <= LOG_WARNING ? LW_LOG_WARN
                           : level <= LOG_INFO    ? LW_LOG_INFO
                                                  : LW_LOG_DEBUG;
    /* Log a failed connection only at level debug, because librdkafka reports it to the error
     * callback, too, which logs it (kafka/source.c, kafka/sink.c). */
    if (!strcmp(facility, "FAIL")) to = LW_LOG_DEBUG;
    if (to == LW_LOG_ERROR && !strcmp(facility, "ERROR")) to = LW_LOG_WARN;
    /* Log a rejected certificate only at level debug, because librdkafka repeats the line with each
     * attempt, and kafka/explain.c reports the reason. */
    if (!strcmp(facility, "SSLCERTVRFY")) to = LW_LOG_DEBUG;
    /* Log AUTOCREATE only at level debug. librdkafka logs it if a broker does not support
     * allow.auto.create.topics. The broker of `latchwork dev` does not support it. A real broker
     * that does not support it is older than all brokers that Latchwork works with. */
    if (!strcmp(facility, "AUTOCREATE")) to = LW_LOG_DEBUG;
    if (to == LW_LOG_DEBUG)
        lw_debug("kafka %s: %s", facility, text);
    else
        lw_some(20, to, NULL, 0, "kafka %s: %s", facility, text);
}

static int set(rd_kafka_conf_t *conf, const char *name, const char *value, struct lw_err *err) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) == RD_KAFKA_CONF_OK) return 0;
    return lw_refuse(err, "kafka.properties.%s: %s", name, why);
}

static int set_all(rd_kafka_conf_t *conf, const struct setting *all, size_t n, struct lw_err *err) {
    for (size_t i = 0; i < n; i++)
        if (set(conf, all[i].name, all[i].value, err)) return -1;
    return 0;
}

static rd_kafka_conf_t *new_conf(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, on_log);
    lw_kafka_watch_certificates(conf);
    return conf;
}

/* Disables client metrics if this librdkafka would abort when it pushes them to a broker, as 2.5.0
 * does. */
static int mute(rd_kafka_conf_t *conf, struct lw_err *err) {
    return lw_librdkafka_mute(lw_librdkafka_loaded())
               ? set(conf, "enable.metrics.push", "false", err)
               : 0;
}

rd_kafka_conf_t *lw_kafka_conf_consumer(const struct lw_config *c, const char *member_id,
                                        struct lw_err *err) {
    rd_kafka_conf_t *conf = new_conf();
    int bad =
        set_all(conf, consumer_defaults, sizeof consumer_defaults / sizeof *consumer_defaults, err);
    if (!bad && !c->kafka.new_protocol)
        bad = set_all(conf, classic_defaults, sizeof classic_defaults / sizeof *classic_defaults,
                      err);
    for (size_t i = 0; !bad && i < c->kafka.n_properties; i++) {
        const struct lw_property *p = &c->kafka.properties[i];
        if (strcmp(p->name, "auto.offset.reset") != 0) bad = set(conf, p->name, p->value, err);
    }
    if (!bad) bad = set(conf, "group.id", c->kafka.group_id, err);
    if (!bad && member_id) bad = set(conf, "group.instance.id", *member_id ? member_id : NULL, err);
    if (!bad)
        bad =
            set_all(conf, consumer_forced, sizeof consumer_forced / sizeof *consumer_forced, err) ||
            mute(conf, err);
    if (!bad) return conf;
    rd_kafka_conf_destroy(conf);
    return NULL;
}

static rd_kafka_conf_t *connection_conf(const struct lw_config *c, bool isolation,
                                        struct lw_err *err) {
    rd_kafka_conf_t *conf = new_conf();
    int bad = set(conf, "client.id", "latchwork", err);
    for (size_t i = 0; !bad && i < c->kafka.n_properties; i++) {
        const struct lw_property *p = &c->kafka.properties[i];
        if (concerns_connection(p->name) || (isolation && !strcmp(p->name, "isolation.level")))
            bad = set(conf, p->name, p->value, err);
    }
    if (!bad) bad = mute(conf, err);
    if (!bad) return conf;
    rd_kafka_conf_destroy(conf);
    return NULL;
}

/* Lets a thread of librdkafka refresh the tokens of SASL OAUTHBEARER. Otherwise only polling would
 * refresh the tokens, and a client that waits for an answer without polling would never get one. */
static void refresh_by_itself(rd_kafka_t *rk) {
    rd_kafka_error_t *error = rd_kafka_sasl_background_callbacks_enable(rk);
    if (!error) return;
    lw_warn("kafka: tokens are not refreshed in the background: %s; a client that does not poll "
            "may lack one",
            rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
}

rd_kafka_t *lw_kafka_new(const struct lw_config *c, rd_kafka_type_t type, rd_kafka_conf_t *conf,
                         struct lw_err *err) {
    char why[512];
    const char *how = lw_config_property(c, "sasl.mechanism"),
               *protocol = lw_config_property(c, "security.protocol");
    if (!how) how = lw_config_property(c, "sasl.mechanisms");
    bool tokens =
        how && !strcmp(how, "OAUTHBEARER") && protocol && !strncasecmp(protocol, "sasl_", 5);
    if (tokens) rd_kafka_conf_enable_sasl_queue(conf, 1);
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (rk && tokens) refresh_by_itself(rk);
    if (rk) return rk;
    char explained[LW_EXPLAINED_MAX];
    rd_kafka_conf_destroy(conf);
    lw_refuse(err, "%s", lw_kafka_explain_start(c, why, explained));
    return NULL;
}

rd_kafka_conf_t *lw_kafka_conf_client(const struct lw_config *c, struct lw_err *err) {
    return connection_conf(c, true, err);
}

rd_kafka_t *lw_kafka_open_reader(const struct lw_config *c, struct lw_err *err) {
    rd_kafka_conf_t *conf = lw_kafka_conf_client(c, err);
    if (!conf) return NULL;
    if (set(conf, "group.id", c->kafka.group_id, err)) {
        rd_kafka_conf_destroy(conf);
        return NULL;
    }
    return lw_kafka_new(c, RD_KAFKA_CONSUMER, conf, err);
}

rd_kafka_conf_t *lw_kafka_conf_producer(const struct lw_config *c, struct lw_err *err) {
    rd_kafka_conf_t *conf = connection_conf(c, false, err);
    if (!conf) return NULL;
    if (!set_all(conf, producer_forced, sizeof producer_forced / sizeof *producer_forced, err))
        return conf;
    rd_kafka_conf_destroy(conf);
    return NULL;
}

static void *destroy(void *rk) {
    rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    return NULL;
}

bool lw_kafka_destroy(rd_kafka_t *rk, int64_t timeout_ms) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, destroy, rk)) return false;
    if (lw_join_within(thread, timeout_ms)) return true;
    lw_warn("the Kafka client did not end within %lld ms; the process goes on without it",
            (long long)timeout_ms);
    return false;
}
