/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the dev broker: wraps librdkafka's mock cluster so that it opens and closes like a
 * server. */
#include "cli/dev/devbroker.h"

#include "base/bytes.h"
#include "base/log.h"
#include "kafka/conf.h"

#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

enum { DEFAULT_PARTITIONS = 4, DESTROY_MS = 5000 };

struct lw_devbroker {
    rd_kafka_t *rk; /* the mock cluster needs a client, which connects to nothing */
    rd_kafka_mock_cluster_t *cluster;
};

static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text) {
    (void)rk;
    (void)level;
    lw_debug("dev broker %s: %s", facility, text);
}

static rd_kafka_t *open_host(struct lw_err *err) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, on_log);
    char why[512];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (rk) return rk;
    rd_kafka_conf_destroy(conf);
    lw_fail(err, "dev broker: %s", why);
    return NULL;
}

struct lw_devbroker *lw_devbroker_open(const char **bootstrap, struct lw_err *err) {
    rd_kafka_t *rk = open_host(err);
    if (!rk) return NULL;
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, 1);
    if (!cluster) {
        rd_kafka_destroy(rk);
        lw_fail(err, "dev broker: cannot open a loopback port");
        return NULL;
    }
    struct lw_devbroker *b = lw_alloc(sizeof *b);
    *b = (struct lw_devbroker){.rk = rk, .cluster = cluster};
    *bootstrap = rd_kafka_mock_cluster_bootstraps(cluster);
    return b;
}

int lw_devbroker_topic(struct lw_devbroker *b, const char *topic, int partitions,
                       struct lw_err *err) {
    rd_kafka_resp_err_t code = rd_kafka_mock_topic_create(
        b->cluster, topic, partitions > 0 ? partitions : DEFAULT_PARTITIONS, 1);
    return code ? lw_fail(err, "dev broker: topic %s: %s", topic, rd_kafka_err2str(code)) : 0;
}

void lw_devbroker_close(struct lw_devbroker *b) {
    if (!b) return;
    rd_kafka_mock_cluster_destroy(b->cluster);
    lw_kafka_destroy(b->rk, DESTROY_MS);
    free(b);
}
