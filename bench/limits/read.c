/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the upper limit for any consumer: the program only reads a topic in batches. */
#include "bench/limits/tool.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const char about[] =
    "usage: read --brokers H:P --topic T --group G [options]\n"
    "Reads a topic from its beginning, as the only member of a group that has committed nothing; "
    "commits nothing either. Prints\n"
    "{\"messages\", \"bytes\" (of keys and payloads), \"first_us\", \"last_us\" (when the first "
    "and the last batch came), \"own_cpu_us\" a "
    "message}.\n\n";

enum { BATCH_MAX = 10000, POLL_MS = 100, ASK_MS = 20000, STALL_US = 30000000 };

static const char *brokers, *topic, *group;

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) tool_die("%s", why);
}

static rd_kafka_t *join(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", brokers);
    set(conf, "group.id", group);
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "enable.auto.commit", "false");
    char why[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!rk) tool_die("%s", why);
    rd_kafka_poll_set_consumer(rk);
    return rk;
}

static void subscribe(rd_kafka_t *rk) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(rk, list);
    if (code) tool_die("subscribe: %s", rd_kafka_err2str(code));
    rd_kafka_topic_partition_list_destroy(list);
}

/* Returns the number of records in the topic now. For each partition this is the
 * end offset minus the begin offset, because the topics of the benchmark have no gaps. */
static int64_t count_all(rd_kafka_t *rk) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
    const struct rd_kafka_metadata *md;
    rd_kafka_resp_err_t code = rd_kafka_metadata(rk, 0, rkt, &md, ASK_MS);
    if (code) tool_die("%s: %s", topic, rd_kafka_err2str(code));
    if (md->topic_cnt < 1 || md->topics[0].err) tool_die("%s: no such topic", topic);
    int64_t all = 0;
    for (int p = 0; p < md->topics[0].partition_cnt; p++) {
        int64_t low, high;
        code = rd_kafka_query_watermark_offsets(rk, topic, p, &low, &high, ASK_MS);
        if (code) tool_die("%s: partition %d: %s", topic, p, rd_kafka_err2str(code));
        all += high - low;
    }
    rd_kafka_metadata_destroy(md);
    rd_kafka_topic_destroy(rkt);
    return all;
}

struct count {
    int64_t messages, bytes, first_us, last_us;
};

static void take(struct count *c, rd_kafka_message_t *m) {
    if (!m->err) {
        c->messages++;
        c->bytes += (int64_t)(m->len + m->key_len);
    } else if (m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        fprintf(stderr, "read: Kafka: %s\n", rd_kafka_message_errstr(m));
    }
    rd_kafka_message_destroy(m);
}

static void read_all(rd_kafka_t *rk, int64_t messages, int64_t batch, struct count *c) {
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    rd_kafka_message_t **got = lw_alloc((size_t)batch * sizeof(rd_kafka_message_t *));
    c->last_us = tool_now_us();
    while (c->messages < messages) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, POLL_MS, got, (size_t)batch);
        int64_t now = tool_now_us();
        if (n < 0) tool_die("Kafka: %s", rd_kafka_err2str(rd_kafka_last_error()));
        if (n == 0 && now - c->last_us > STALL_US)
            tool_die("nothing comes after %" PRId64 " of %" PRId64
                     " messages; is another member in the group?",
                     c->messages, messages);
        if (n == 0) continue;
        for (ssize_t i = 0; i < n; i++) take(c, got[i]);
        if (c->messages && !c->first_us) c->first_us = now;
        c->last_us = now;
    }
    free(got);
    rd_kafka_queue_destroy(queue);
}

int main(int argc, char **argv) {
    int64_t messages = 0, batch = 1000;
    const struct tool_option options[] = {
        {"brokers", "where Kafka is", &brokers, NULL, 0, 0},
        {"topic", "what to read", &topic, NULL, 0, 0},
        {"group", "a new one", &group, NULL, 0, 0},
        {"messages", "end after so many; 0: at the end of now", NULL, &messages, 0, INT64_MAX},
        {"batch", "messages a call at most", NULL, &batch, 1, BATCH_MAX},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    rd_kafka_t *rk = join();
    int64_t there = count_all(rk);
    if (!messages) messages = there;
    if (!there || messages > there) tool_die("%s holds %" PRId64 " messages only", topic, there);
    subscribe(rk);
    struct count c = {0};
    int64_t cpu_us = tool_own_cpu_us();
    read_all(rk, messages, batch, &c);
    cpu_us = tool_own_cpu_us() - cpu_us;
    printf("{\"messages\":%" PRId64 ",\"bytes\":%" PRId64 ",\"first_us\":%" PRId64
           ",\"last_us\":%" PRId64 ",\"own_cpu_us\":%.3f}\n",
           c.messages, c.bytes, c.first_us, c.last_us, (double)cpu_us / (double)c.messages);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return 0;
}
