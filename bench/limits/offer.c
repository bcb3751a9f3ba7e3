/* SPDX-License-Identifier: Apache-2.0 */
/* Produces messages at a fixed rate, so that latency can be measured. Message i is due i / rate
 * seconds after the first message, and contains its due time. Latency is counted from the due time,
 * so any delay of this program or of the broker is part of the latency. */
#include "bench/limits/tool.h"

#include "base/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static const char about[] = "usage: offer --brokers H:P --topic T --messages N --rate R [options]\n"
                            "Produces JSON {\"id\",\"seq\",\"t\",\"amount\",\"pad\"} with keys k-0 "
                            "… to random partitions, evenly, linger.ms 0 and acks 1. Header "
                            "\"t\" and the\n"
                            "field \"t\" hold the message's due time in us of CLOCK_MONOTONIC, as "
                            "text and as a number. Prints {\"messages\", \"first_us\", "
                            "\"last_us\" (when\n"
                            "the first and the last were due), \"late_us\" (mean), \"late_max_us\" "
                            "(how late they were given to the producer), \"end_us\" (last\n"
                            "acknowledgement)}.\n\n";

enum {
    ASK_MS = 20000,
    FLUSH_MS = 60000,
    LEAD_US = 200000 /* LEAD_US: time to prepare before the first message is due */
};

static int64_t refused, reported_us;

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    reported_us = tool_now_us();
    if (m->err && !refused++) fprintf(stderr, "offer: not taken: %s\n", rd_kafka_err2str(m->err));
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) tool_die("%s", why);
}

static rd_kafka_t *producer(const char *brokers) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", brokers);
    set(conf, "allow.auto.create.topics", "false");
    set(conf, "linger.ms", "0");
    set(conf, "acks", "1");
    set(conf, "queue.buffering.max.messages", "1000000");
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    char why[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!rk) tool_die("%s", why);
    return rk;
}

static int count_partitions(rd_kafka_t *rk, rd_kafka_topic_t *rkt) {
    const struct rd_kafka_metadata *md;
    rd_kafka_resp_err_t code = rd_kafka_metadata(rk, 0, rkt, &md, ASK_MS);
    if (code) tool_die("%s: %s", rd_kafka_topic_name(rkt), rd_kafka_err2str(code));
    if (md->topic_cnt < 1 || md->topics[0].err)
        tool_die("%s: no such topic", rd_kafka_topic_name(rkt));
    int n = md->topics[0].partition_cnt;
    rd_kafka_metadata_destroy(md);
    return n;
}

static void wait_until(int64_t us) {
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

struct offer {
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    int partitions;
    int64_t keys, size;
    uint64_t random;
    struct lw_buf payload;
};

static void send_one(struct offer *o, int64_t seq, int64_t due_us) {
    char key[24], t[24];
    int key_n = snprintf(key, sizeof key, "k-%" PRIu64, tool_draw(&o->random) % (uint64_t)o->keys);
    int t_n = snprintf(t, sizeof t, "%" PRId64, due_us);
    struct lw_buf *p = &o->payload;
    p->n = 0;
    lw_buf_addf(p, "{\"id\":\"%s\",\"seq\":%" PRId64 ",\"t\":%s,\"amount\":%d", key, seq, t,
                (int)(tool_draw(&o->random) % 10000));
    int64_t pad = o->size - (int64_t)p->n - (int64_t)strlen(",\"pad\":\"\"}");
    if (pad > 0) lw_buf_addf(p, ",\"pad\":\"%0*d\"", (int)pad, 0);
    lw_buf_add(p, "}", 1);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
    rd_kafka_header_add(headers, "t", 1, t, t_n);
    rd_kafka_resp_err_t code = rd_kafka_producev(
        o->rk, RD_KAFKA_V_RKT(o->topic),
        RD_KAFKA_V_PARTITION((int32_t)(tool_draw(&o->random) % (uint64_t)o->partitions)),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, (size_t)key_n),
        RD_KAFKA_V_VALUE(p->p, p->n), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (code)
        tool_die("produce: %s; the rate is above what the broker takes", rd_kafka_err2str(code));
}

int main(int argc, char **argv) {
    const char *brokers = NULL, *topic = NULL;
    int64_t messages = -1, rate = -1, keys = 10000, size = 200, seed = 1;
    const struct tool_option options[] = {
        {"brokers", "where Kafka is", &brokers, NULL, 0, 0},
        {"topic", "an existing one", &topic, NULL, 0, 0},
        {"messages", "how many", NULL, &messages, 1, INT64_MAX / 1000000},
        {"rate", "messages a second", NULL, &rate, 1, 1000000},
        {"keys", "drawn uniformly from as many", NULL, &keys, 1, INT64_MAX},
        {"size", "of a payload, bytes", NULL, &size, 0, 100000},
        {"seed", "of keys, partitions and amounts", NULL, &seed, 0, INT64_MAX},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    struct offer o = {
        .rk = producer(brokers), .keys = keys, .size = size, .random = (uint64_t)seed};
    o.topic = rd_kafka_topic_new(o.rk, topic, NULL);
    o.partitions = count_partitions(o.rk, o.topic);
    /* The kernel's default timer slack would wake this process up to 50 µs late. */
    prctl(PR_SET_TIMERSLACK, 1L, 0L, 0L, 0L);
    int64_t first_us = tool_now_us() + LEAD_US, due_us = first_us, late_us = 0, late_max_us = 0;
    for (int64_t i = 0; i < messages; i++) {
        due_us = first_us + i * 1000000 / rate;
        if (tool_now_us() < due_us) wait_until(due_us);
        int64_t late = tool_now_us() - due_us;
        late_us += late;
        if (late > late_max_us) late_max_us = late;
        send_one(&o, i, due_us);
        rd_kafka_poll(o.rk, 0);
    }
    rd_kafka_resp_err_t code = rd_kafka_flush(o.rk, FLUSH_MS);
    if (code) tool_die("flush: %s", rd_kafka_err2str(code));
    if (refused) tool_die("%" PRId64 " of %" PRId64 " messages were not taken", refused, messages);
    printf("{\"messages\":%" PRId64 ",\"first_us\":%" PRId64 ",\"last_us\":%" PRId64
           ",\"end_us\":%" PRId64 ",\"late_us\":%" PRId64 ",\"late_max_us\":%" PRId64 "}\n",
           messages, first_us, due_us, reported_us, late_us / messages, late_max_us);
    rd_kafka_topic_destroy(o.topic);
    rd_kafka_destroy(o.rk);
    lw_buf_free(&o.payload);
    return 0;
}
