/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests to the Kafka cluster. Each request uses a new client, which is closed
 * afterwards. */
#include "kafka/source.h"

#include "base/clock.h"
#include "kafka/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DESTROY_MS = 3000 };

static rd_kafka_t *open_client(const struct lw_config *c, struct lw_err *err) {
    rd_kafka_conf_t *conf = lw_kafka_conf_client(c, err);
    if (!conf) return NULL;
    return lw_kafka_new(c, RD_KAFKA_CONSUMER, conf, err);
}

struct ends {
    rd_kafka_t *rk;
    int64_t until_ms;
    void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end);
    void *ctx;
};

static int ends_of(const struct ends *e, const rd_kafka_metadata_topic_t *t, struct lw_err *err) {
    if (t->err) return lw_fail(err, "topic %s: %s", t->topic, rd_kafka_err2str(t->err));
    for (int i = 0; i < t->partition_cnt; i++) {
        int64_t low, high;
        int32_t partition = t->partitions[i].id;
        rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
            e->rk, t->topic, partition, &low, &high, lw_ms_until(e->until_ms));
        if (code)
            return lw_fail(err, "%s/%d: can't ask for its end: %s", t->topic, (int)partition,
                           rd_kafka_err2str(code));
        e->fn(e->ctx, t->topic, partition, high);
    }
    return 0;
}

static int ends_of_topic(const struct ends *e, const char *topic, struct lw_err *err) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(e->rk, topic, NULL);
    const struct rd_kafka_metadata *md = NULL;
    rd_kafka_resp_err_t code = rkt ? rd_kafka_metadata(e->rk, 0, rkt, &md, lw_ms_until(e->until_ms))
                                   : rd_kafka_last_error();
    int r = code ? lw_fail(err, "topic %s: can't ask for its partitions: %s", topic,
                           rd_kafka_err2str(code))
            : !md || md->topic_cnt < 1
                ? lw_fail(err, "topic %s: the broker does not know it", topic)
                : ends_of(e, &md->topics[0], err);
    if (md) rd_kafka_metadata_destroy(md);
    if (rkt) rd_kafka_topic_destroy(rkt);
    return r;
}

int lw_source_ends(const struct lw_config *c, int64_t timeout_ms,
                   void (*fn)(void *ctx, const char *topic, int32_t partition, int64_t end),
                   void *ctx, struct lw_err *err) {
    struct ends e = {.until_ms = lw_boot_ms() + timeout_ms, .fn = fn, .ctx = ctx};
    e.rk = open_client(c, err);
    if (!e.rk) return -1;
    int r = 0;
    for (size_t i = 0; !r && i < c->kafka.n_topics; i++)
        r = ends_of_topic(&e, c->kafka.topics[i], err);
    lw_kafka_destroy(e.rk, DESTROY_MS);
    return r;
}

int lw_source_cluster_id(const struct lw_config *c, int64_t timeout_ms, char *out, size_t size,
                         struct lw_err *err) {
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    rd_kafka_t *rk = open_client(c, err);
    if (!rk) return -1;
    /* request the metadata first, because this request fails if no broker answers; the request for
     * the cluster id would return an empty id instead */
    const struct rd_kafka_metadata *md = NULL;
    rd_kafka_resp_err_t code = rd_kafka_metadata(rk, 0, NULL, &md, lw_ms_until(until_ms));
    int r = 0;
    if (code) {
        r = lw_fail(err, "kafka: no answer from the brokers: %s", rd_kafka_err2str(code));
    } else {
        char *id = rd_kafka_clusterid(rk, lw_ms_until(until_ms));
        if (id && strlen(id) >= size)
            r = lw_fail(err, "kafka: the cluster's id has %zu bytes, more than %zu", strlen(id),
                        size - 1);
        else
            snprintf(out, size, "%s", id ? id : "");
        if (id) rd_kafka_mem_free(rk, id);
        rd_kafka_metadata_destroy(md);
    }
    lw_kafka_destroy(rk, DESTROY_MS);
    return r;
}
