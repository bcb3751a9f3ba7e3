/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether the brokers answer, the topics exist, and the Kafka user has the rights that it
 * needs. */
#include "cli/check/servers.h"
#include "kafka/conf.h"
#include "kafka/explain.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>

/* Keeps the last error that librdkafka reported, because an error such as "connection refused" says
 * more than "timed out". */
struct trouble {
    const struct lw_config *c;
    bool reached; /* true: `text` is about a broker to which a connection was made */
    char text[LW_EXPLAINED_MAX];
};

/* Keeps the latest error. But an error from a broker that was reached, such as a wrong password, is
 * not replaced by a later failure to connect. Such failures are common, because a name such as
 * localhost may have several addresses, and the broker may listen at only one of them. */
static void keep_error(rd_kafka_t *rk, int err, const char *reason, void *trouble) {
    struct trouble *last = trouble;
    bool reached = !strstr(reason, "Connect to ");
    (void)rk;
    if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || (last->reached && !reached)) return;
    last->reached = reached;
    lw_kafka_explain(last->c, err, reason, "READ", NULL, last->text);
}

static void no_log(const rd_kafka_t *rk, int level, const char *fac, const char *buf) {
    (void)rk, (void)level, (void)fac, (void)buf;
}

static rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf, struct trouble *last,
                              struct lw_check_report *r) {
    struct lw_err err = {0};
    rd_kafka_conf_set_opaque(conf, last);
    rd_kafka_conf_set_error_cb(conf, keep_error);
    rd_kafka_conf_set_log_cb(conf, no_log);
    rd_kafka_t *rk = lw_kafka_new(last->c, type, conf, &err);
    if (!rk) lw_problem(&r->problems, "kafka: %s", err.text);
    return rk;
}

/* Opens a client with the same properties as a worker, so that this check finds a combination of
 * properties that librdkafka refuses. */
static rd_kafka_t *open_client(const struct lw_config *c, struct trouble *last,
                               struct lw_check_report *r) {
    struct lw_err err = {0};
    rd_kafka_conf_t *conf = lw_kafka_conf_consumer(c, NULL, &err);
    if (conf) return new_client(RD_KAFKA_CONSUMER, conf, last, r);
    lw_problem(&r->problems, "%s", err.text);
    return NULL;
}

static bool check_topic(const struct lw_config *c, const rd_kafka_metadata_t *md, const char *path,
                        const char *topic, struct lw_check_report *r) {
    for (int i = 0; i < md->topic_cnt; i++) {
        const rd_kafka_metadata_topic_t *t = &md->topics[i];
        if (strcmp(t->topic, topic)) continue;
        if (t->err)
            lw_problem(&r->problems, "%s: %s: %s", path, topic, rd_kafka_err2str(t->err));
        else
            lw_buf_addf(&r->notes, "kafka: topic %s has %d partition%s\n", topic, t->partition_cnt,
                        t->partition_cnt == 1 ? "" : "s");
        return !t->err;
    }
    char who[LW_PRINCIPAL_MAX];
    lw_problem(&r->problems,
               "%s: the brokers know no topic %s: create it, or allow %s to DESCRIBE it", path,
               topic, lw_kafka_principal(c, who));
    return false;
}

static void unreachable(const struct lw_config *c, rd_kafka_t *rk, rd_kafka_resp_err_t res,
                        const struct trouble *last, struct lw_check_report *r) {
    const char *servers = lw_config_property(c, "bootstrap.servers");
    /* polling serves the client's events, which contain the reason why the brokers did not
     * answer */
    for (int i = 0; i < 20; i++) rd_kafka_poll(rk, 10);
    lw_problem(&r->problems, "kafka: no answer from %.300s within %d ms: %s",
               servers ? servers : lw_config_property(c, "metadata.broker.list"), r->wait_ms,
               last->text[0] ? last->text : rd_kafka_err2str(res));
}

/* --- rights ----------------------------------------------------------------------------------- */

enum { NO_PARTITION = INT32_MAX - 1, MOCK_MS = 1000 };

static void tell_group(const struct lw_config *c, rd_kafka_resp_err_t err,
                       struct lw_check_report *r) {
    char out[LW_EXPLAINED_MAX];
    lw_problem(&r->problems, "kafka: %s",
               lw_kafka_explain(c, err, rd_kafka_err2name(err), "READ", NULL, out));
}

/* Reports missing rights if they were the reason why the commit of check_reading() failed. A broker
 * checks the rights first, so any other error of a broker means that the rights are sufficient.
 * Such an error is expected, because the partition does not exist, and nothing was written. */
static void judge_commit(const struct lw_config *c, rd_kafka_event_t *event,
                         struct lw_check_report *r) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(event);
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    char who[LW_PRINCIPAL_MAX];
    for (int i = 0; list && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        if (p->err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED) err = p->err;
        if (p->err != RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED) continue;
        if (c->dead.topic && !strcmp(p->topic, c->dead.topic)) /* only operators read it */
            lw_problem_warn(
                &r->problems,
                "dead.to: %s: %s may not READ it (%s), so `latchwork dead` and the page "
                "cannot show its dead letters; allow READ on it",
                p->topic, lw_kafka_principal(c, who), rd_kafka_err2name(p->err));
        else
            lw_problem(&r->problems, "kafka.topics: %s: %s may not READ it (%s); allow READ on it",
                       p->topic, lw_kafka_principal(c, who), rd_kafka_err2name(p->err));
    }
    if (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED) tell_group(c, err, r);
}

/* Returns why no coordinator was found. If the user has no right to see the group, librdkafka never
 * stops searching for the coordinator. It reports the missing right only in its main queue. */
static rd_kafka_resp_err_t why_no_coordinator(rd_kafka_t *rk) {
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    rd_kafka_poll_set_consumer(rk);
    for (rd_kafka_message_t *m; (m = rd_kafka_consumer_poll(rk, 10)); rd_kafka_message_destroy(m))
        if (m->err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED) err = m->err;
    return err;
}

/* Tests the right READ on the group, on each topic and, if `dead` is true, on the topic of dead
 * letters, which a commit requires. The test commits an offset for a partition that no topic
 * has. */
static void check_reading(const struct lw_config *c, rd_kafka_t *rk, bool dead,
                          struct lw_check_report *r) {
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new((int)c->kafka.n_topics + 1);
    if (dead) rd_kafka_topic_partition_list_add(list, c->dead.topic, NO_PARTITION)->offset = 0;
    for (size_t i = 0; i < c->kafka.n_topics; i++)
        rd_kafka_topic_partition_list_add(list, c->kafka.topics[i], NO_PARTITION)->offset = 0;
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_resp_err_t err = rd_kafka_commit_queue(rk, list, queue, NULL, NULL);
    rd_kafka_event_t *event = err ? NULL : rd_kafka_queue_poll(queue, r->wait_ms);
    bool answered = event && rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR__WAIT_COORD;
    if (!err && !answered) err = why_no_coordinator(rk);
    if (answered)
        judge_commit(c, event, r);
    else if (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        tell_group(c, err, r);
    else
        lw_problem(&r->problems, "kafka: no answer about the consumer group %s within %d ms (%s)",
                   c->kafka.group_id, r->wait_ms, rd_kafka_err2name(err));
    if (event) rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_partition_list_destroy(list);
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    *(rd_kafka_resp_err_t *)m->_private = m->err;
}

static rd_kafka_t *open_producer(const struct lw_config *c, struct trouble *last,
                                 struct lw_check_report *r) {
    char why[512], ms[16];
    struct lw_err err = {0};
    rd_kafka_conf_t *conf = lw_kafka_conf_producer(c, &err);
    if (!conf) {
        lw_problem(&r->problems, "%s", err.text);
        return NULL;
    }
    snprintf(ms, sizeof ms, "%d", r->wait_ms);
    rd_kafka_conf_set(conf, "enable.idempotence", "false", why, sizeof why);
    rd_kafka_conf_set(conf, "message.timeout.ms", ms, why, sizeof why);
    rd_kafka_conf_set(conf, "linger.ms", "0", why, sizeof why);
    rd_kafka_conf_set(conf, "acks", "2", why, sizeof why);
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    return new_client(RD_KAFKA_PRODUCER, conf, last, r);
}

/* Tests WRITE on the dead-letter topic without writing: every broker rejects acks=2, but checks the
 * rights first, so the error is TOPIC_AUTHORIZATION_FAILED or INVALID_REQUIRED_ACKS. The test is
 * left out on the dev broker, which checks neither rights nor acks and would write the record. */
static void check_writing(const struct lw_config *c, rd_kafka_t *consumer,
                          struct lw_check_report *r) {
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    char *cluster = rd_kafka_clusterid(consumer, MOCK_MS);
    bool mock = cluster && !strncmp(cluster, "mockCluster", strlen("mockCluster"));
    if (cluster) rd_kafka_mem_free(consumer, cluster);
    struct trouble last = {.c = c};
    char who[LW_PRINCIPAL_MAX];
    rd_kafka_t *rk = mock ? NULL : open_producer(c, &last, r);
    if (!rk) return;
    rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(c->dead.topic), RD_KAFKA_V_KEY("latchwork-check", 15),
                      RD_KAFKA_V_OPAQUE(&err), RD_KAFKA_V_END);
    rd_kafka_flush(rk, r->wait_ms);
    rd_kafka_destroy(rk);
    if (err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        lw_problem(&r->problems, "dead.to: %s: %s may not WRITE it (%s); allow WRITE on it",
                   c->dead.topic, lw_kafka_principal(c, who), rd_kafka_err2name(err));
    else if (err == RD_KAFKA_RESP_ERR__TIMED_OUT || err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT)
        lw_problem(&r->problems,
                   "dead.to: %s: no answer within %d ms; the right to write it is not checked",
                   c->dead.topic, r->wait_ms);
}

static rd_kafka_topic_partition_list_t *partitions_of(const struct lw_config *c,
                                                      const rd_kafka_metadata_t *md) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
    for (size_t i = 0; i < c->kafka.n_topics; i++)
        for (int k = 0; k < md->topic_cnt; k++)
            if (!strcmp(md->topics[k].topic, c->kafka.topics[i]) && md->topics[k].partition_cnt > 0)
                rd_kafka_topic_partition_list_add_range(list, c->kafka.topics[i], 0,
                                                        md->topics[k].partition_cnt - 1);
    return list;
}

void lw_check_kafka(const struct lw_config *c, struct lw_check_report *r) {
    struct trouble last = {.c = c};
    const rd_kafka_metadata_t *md = NULL;
    rd_kafka_t *rk = open_client(c, &last, r);
    if (!rk) return;
    /* all topics are requested, because a request for one topic by name could create it */
    rd_kafka_resp_err_t res = rd_kafka_metadata(rk, 1, NULL, &md, r->wait_ms);
    if (res) {
        unreachable(c, rk, res, &last, r);
    } else {
        lw_buf_addf(&r->notes, "kafka: %d broker%s\n", md->broker_cnt,
                    md->broker_cnt == 1 ? "" : "s");
        for (size_t i = 0; i < c->kafka.n_topics; i++)
            check_topic(c, md, "kafka.topics", c->kafka.topics[i], r);
        bool dead = c->dead.topic && check_topic(c, md, "dead.to", c->dead.topic, r);
        rd_kafka_topic_partition_list_t *partitions = partitions_of(c, md);
        rd_kafka_metadata_destroy(md);
        int before = r->problems.n_errors;
        check_reading(c, rk, dead, r);
        if (partitions->cnt && r->problems.n_errors == before) lw_check_fleet(c, rk, partitions, r);
        rd_kafka_topic_partition_list_destroy(partitions);
        if (dead) check_writing(c, rk, r);
    }
    rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}
