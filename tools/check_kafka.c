/* Are the brokers there, and the topics? */
#include "tools/check_servers.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

/* The last thing that librdkafka found wrong: "connection refused" says more than "timed out". */
static void keep_error(rd_kafka_t *rk, int err, const char *reason, void *opaque) {
    struct lw_err *last = opaque;
    (void)rk;
    if (err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) snprintf(last->text, sizeof last->text, "%s", reason);
}

static void no_log(const rd_kafka_t *rk, int level, const char *fac, const char *buf) { (void)rk, (void)level, (void)fac, (void)buf; }

static rd_kafka_t *open_client(const struct lw_config *c, struct lw_err *last, struct lw_check_report *r) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t i = 0; i < c->kafka.n_properties; i++)
        rd_kafka_conf_set(conf, c->kafka.properties[i].name, c->kafka.properties[i].value, why, sizeof why); /* checked while loading */
    rd_kafka_conf_set_opaque(conf, last);
    rd_kafka_conf_set_error_cb(conf, keep_error);
    rd_kafka_conf_set_log_cb(conf, no_log);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (rk) return rk;
    rd_kafka_conf_destroy(conf);
    lw_problem(&r->problems, "kafka: %s", why);
    return NULL;
}

static const char *property(const struct lw_config *c, const char *name) {
    for (size_t i = 0; i < c->kafka.n_properties; i++)
        if (!strcmp(c->kafka.properties[i].name, name)) return c->kafka.properties[i].value;
    return NULL;
}

static void check_topic(const rd_kafka_metadata_t *md, const char *path, const char *topic, struct lw_check_report *r) {
    for (int i = 0; i < md->topic_cnt; i++) {
        const rd_kafka_metadata_topic_t *t = &md->topics[i];
        if (strcmp(t->topic, topic)) continue;
        if (t->err)
            lw_problem(&r->problems, "%s: %s: %s", path, topic, rd_kafka_err2str(t->err));
        else
            lw_buf_addf(&r->notes, "kafka: topic %s has %d partition%s\n", topic, t->partition_cnt, t->partition_cnt == 1 ? "" : "s");
        return;
    }
    lw_problem(&r->problems, "%s: the brokers know no topic %s (or do not let this user see it)", path, topic);
}

static void unreachable(const struct lw_config *c, rd_kafka_t *rk, rd_kafka_resp_err_t res, struct lw_err *last,
                        struct lw_check_report *r) {
    const char *servers = property(c, "bootstrap.servers");
    for (int i = 0; i < 20; i++) rd_kafka_poll(rk, 10); /* the reasons wait in its queue */
    lw_problem(&r->problems, "kafka: no answer from %.300s within %d ms: %s", servers ? servers : property(c, "metadata.broker.list"),
               r->wait_ms, last->text[0] ? last->text : rd_kafka_err2str(res));
}

void lw_check_kafka(const struct lw_config *c, struct lw_check_report *r) {
    struct lw_err last = {0};
    const rd_kafka_metadata_t *md = NULL;
    rd_kafka_t *rk = open_client(c, &last, r);
    if (!rk) return;
    /* all topics: asking for one by name could create it */
    rd_kafka_resp_err_t res = rd_kafka_metadata(rk, 1, NULL, &md, r->wait_ms);
    if (res) {
        unreachable(c, rk, res, &last, r);
    } else {
        lw_buf_addf(&r->notes, "kafka: %d broker%s\n", md->broker_cnt, md->broker_cnt == 1 ? "" : "s");
        for (size_t i = 0; i < c->kafka.n_topics; i++) check_topic(md, "kafka.topics", c->kafka.topics[i], r);
        if (c->dead.topic) check_topic(md, "dead.to", c->dead.topic, r);
        rd_kafka_metadata_destroy(md);
    }
    rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}
