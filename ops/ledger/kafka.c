/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the group's commits and the ends of the logs from Kafka. */
#include "ops/ledger/private.h"

#include "base/clock.h"
#include "kafka/conf.h"

#include <stdlib.h>

enum { DESTROY_MS = 3000 };

struct ledger_kafka {
    const struct lw_config *c;
    /* a client that is configured with the group's id, but never joins the group, because it
     * subscribes to no topic */
    rd_kafka_t *rk;
};

struct ledger_kafka *ledger_kafka_open(const struct lw_config *c, struct lw_err *err) {
    rd_kafka_t *rk = lw_kafka_open_reader(c, err);
    if (!rk) return NULL;
    struct ledger_kafka *k = lw_alloc(sizeof *k);
    *k = (struct ledger_kafka){c, rk};
    return k;
}

void ledger_kafka_close(struct ledger_kafka *k) {
    if (!k) return;
    lw_kafka_destroy(k->rk, DESTROY_MS);
    free(k);
}

static int find_parts(struct ledger_kafka *k, struct ledger *l, int64_t until_ms,
                      struct lw_err *err) {
    for (size_t i = 0; i < k->c->kafka.n_topics; i++) {
        const char *topic = k->c->kafka.topics[i];
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(k->rk, topic, NULL);
        const struct rd_kafka_metadata *md = NULL;
        rd_kafka_resp_err_t code =
            rkt ? rd_kafka_metadata(k->rk, 0, rkt, &md, lw_ms_until(until_ms))
                : rd_kafka_last_error();
        if (!code && md && md->topic_cnt == 1) code = md->topics[0].err;
        for (int p = 0; !code && md && md->topic_cnt == 1 && p < md->topics[0].partition_cnt; p++)
            ledger_part(l, topic, strlen(topic), md->topics[0].partitions[p].id)->in_kafka = true;
        if (md) rd_kafka_metadata_destroy(md);
        if (rkt) rd_kafka_topic_destroy(rkt);
        if (code) return lw_fail(err, "kafka: topic %s: %s", topic, rd_kafka_err2str(code));
    }
    return 0;
}

static int ask_committed(struct ledger_kafka *k, struct ledger *l, bool first, int64_t until_ms,
                         struct lw_err *err) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)l->n_parts);
    for (size_t i = 0; i < l->n_parts; i++)
        if (l->parts[i].in_kafka)
            rd_kafka_topic_partition_list_add(list, l->parts[i].topic, l->parts[i].partition);
    rd_kafka_resp_err_t code = rd_kafka_committed(k->rk, list, lw_ms_until(until_ms));
    for (int i = 0; !code && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        struct ledger_part *p = ledger_part(l, tp->topic, strlen(tp->topic), tp->partition);
        int64_t offset = tp->offset < 0 ? -1 : tp->offset;
        code = tp->err;
        if (first) p->committed = offset;
        p->committed_after = offset;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return code ? lw_fail(err, "kafka: the commits of group %s: %s", k->c->kafka.group_id,
                          rd_kafka_err2str(code))
                : 0;
}

static int ask_ends(struct ledger_kafka *k, struct ledger *l, int64_t until_ms,
                    struct lw_err *err) {
    for (size_t i = 0; i < l->n_parts; i++) {
        struct ledger_part *p = &l->parts[i];
        if (!p->in_kafka) continue;
        rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
            k->rk, p->topic, p->partition, &p->begin, &p->end, lw_ms_until(until_ms));
        if (code)
            return lw_fail(err, "kafka: %s/%d: the ends of its log: %s", p->topic,
                           (int)p->partition, rd_kafka_err2str(code));
    }
    return 0;
}

int ledger_kafka_ask(struct ledger_kafka *k, struct ledger *l, bool first, struct lw_err *err) {
    int64_t until_ms = lw_boot_ms() + LW_LEDGER_TIMEOUT_MS;
    if (first && find_parts(k, l, until_ms, err)) return -1;
    if (ask_committed(k, l, first, until_ms, err)) return -1;
    return first ? 0 : ask_ends(k, l, until_ms, err);
}
