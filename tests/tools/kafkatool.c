/* SPDX-License-Identifier: Apache-2.0 */
/* A small Kafka tool for the live tests. Its usage text below lists the commands. */
#include "base/bytes.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage_text[] =
    "usage: kafkatool BROKERS COMMAND ...\n"
    "  create TOPIC PARTITIONS [NAME=VALUE…] make a topic, with configuration\n"
    "  partitions TOPIC TOTAL     add partitions to a topic\n"
    "  delete TOPIC\n"
    "  allow PRINCIPAL read|write|describe group|topic NAME\n"
    "                                        adds an ACL\n"
    "  produce TOPIC [options]               lines of standard input: partition|key|payload. An "
    "empty partition is chosen by the\n"
    "                                        partitioner; \\N as key or payload is null\n"
    "  generate TOPIC --messages N --keys K [options]\n"
    "                                        keys k-0 ... k-(K-1); payload "
    "{\"id\":KEY,\"seq\":n,\"amount\":0..9999};\n"
    "                                        n counts the messages of this call from --first\n"
    "     --partitioner key|random|roundrobin   key (default): a key always goes to the same "
    "partition\n"
    "     --zipf S        some keys are hot: key r is drawn with weight 1/(r+1)^S (default 0: all "
    "alike)\n"
    "     --seed N        of keys, partitions and amounts (default 1); the same arguments make the "
    "same messages\n"
    "     --size BYTES    payloads are filled up to this size\n"
    "     --first N       the first n (default 0)\n"
    "     --hot SHARE     this share (0..1) of the messages has the key PREFIXhot instead (default "
    "0)\n"
    "     --prefix TEXT   of keys (default k-)\n"
    "     --repeat SHARE  this share of the messages has key, seq and amount of one of the 1,000 "
    "before (default 0)\n"
    "     --produced FILE lines: partition offset µs, CLOCK_MONOTONIC when the message was due "
    "(--rate) or sent\n"
    "     --linger-ms N   how long messages are collected for a request (default 5)\n"
    "     --rate N        messages a second (default 0: as fast as it goes)\n"
    "     --hex           produce: keys and payloads are given in hex, so that they may hold "
    "anything\n"
    "     --header N=V    produce: each message has the header N with the value V; may be given "
    "eight times\n"
    "  ends TOPIC...                         lines: topic partition begin end\n"
    "  committed GROUP TOPIC...              lines: topic partition offset metadata; offset -1: "
    "none\n"
    "  dump TOPIC                            each record from the beginning to the end of now, a "
    "JSON object a line\n"
    "  delete-records TOPIC PARTITION OFFSET the log begins at OFFSET afterwards\n"
    "  set-offsets GROUP TOPIC PARTITION OFFSET [METADATA]\n"
    "                                        commits for a group without members\n"
    "Producers are idempotent. Exit status 0; 1 on failure; 2 on wrong usage.\n";

enum { ASK_MS = 20000, FLUSH_MS = 280000, HEADERS_MAX = 8 };

struct options {
    const char *partitioner, *prefix, *produced, *linger_ms;
    int64_t messages, keys, first, rate, size;
    uint64_t seed;
    double zipf, hot, repeat;
    bool hex;
    char *headers[HEADERS_MAX]; /* each element is a header in the form NAME=VALUE */
    int n_headers;
};

static const char *brokers;
static int64_t refused;    /* number of messages that the broker did not accept */
static FILE *produced_log; /* the file that --produced names */

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("kafkatool: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static _Noreturn void usage(void) {
    fputs(usage_text, stderr);
    exit(2);
}

static int64_t number(const char *text) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end) {
        fprintf(stderr, "kafkatool: not a number: %s\n", text);
        exit(2);
    }
    return n;
}

static void check(rd_kafka_resp_err_t code, const char *what) {
    if (code) die("%s: %s", what, rd_kafka_err2str(code));
}

/* --- clients ---------------------------------------------------------------------------------- */

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk;
    (void)opaque;
    if (!m->err) {
        if (produced_log)
            fprintf(produced_log, "%d %" PRId64 " %" PRIdPTR "\n", (int)m->partition, m->offset,
                    (intptr_t)m->_private);
        return;
    }
    if (!refused++) fprintf(stderr, "kafkatool: not taken: %s\n", rd_kafka_err2str(m->err));
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *const *settings) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers, why, sizeof why)) die("%s", why);
    for (; *settings; settings += 2)
        if (rd_kafka_conf_set(conf, settings[0], settings[1], why, sizeof why)) die("%s", why);
    if (type == RD_KAFKA_PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk) die("%s", why);
    return rk;
}

static rd_kafka_t *producer(const struct options *o) {
    const char *const settings[] = {"enable.idempotence",
                                    "true",
                                    "allow.auto.create.topics",
                                    "false",
                                    "linger.ms",
                                    o->linger_ms,
                                    "queue.buffering.max.messages",
                                    "500000",
                                    "message.max.bytes",
                                    "10000000",
                                    NULL};
    return client(RD_KAFKA_PRODUCER, settings);
}

static rd_kafka_t *reader(const char *group) {
    const char *const settings[] = {"enable.auto.commit",
                                    "false",
                                    "enable.partition.eof",
                                    "true",
                                    group ? "group.id" : NULL,
                                    group,
                                    NULL};
    return client(RD_KAFKA_CONSUMER, settings);
}

static int count_partitions(rd_kafka_t *rk, const char *topic) {
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
    const struct rd_kafka_metadata *md;
    check(rd_kafka_metadata(rk, 0, rkt, &md, ASK_MS), topic);
    if (md->topic_cnt < 1) die("%s: unknown topic", topic);
    check(md->topics[0].err, topic);
    int n = md->topics[0].partition_cnt;
    rd_kafka_metadata_destroy(md);
    rd_kafka_topic_destroy(rkt);
    return n;
}

/* --- administration --------------------------------------------------------------------------- */

static rd_kafka_event_t *answer(rd_kafka_queue_t *queue, const char *what) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, ASK_MS);
    if (!event) die("%s: no answer", what);
    if (rd_kafka_event_error(event)) die("%s: %s", what, rd_kafka_event_error_string(event));
    return event;
}

static void check_topic(const rd_kafka_topic_result_t *const *results, size_t n,
                        const char *topic) {
    if (n && rd_kafka_topic_result_error(results[0]))
        die("%s: %s", topic, rd_kafka_topic_result_error_string(results[0]));
}

static void set_topic_config(rd_kafka_NewTopic_t *new, const char *setting) {
    char name[256];
    const char *value = strchr(setting, '=');
    if (!value || (size_t)(value - setting) >= sizeof name) die("not NAME=VALUE: %s", setting);
    snprintf(name, sizeof name, "%.*s", (int)(value - setting), setting);
    rd_kafka_NewTopic_set_config(new, name, value + 1);
}

static void create_topic(const char *topic, int partitions, char **settings, int n_settings) {
    rd_kafka_t *rk = reader(NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    char why[512];
    rd_kafka_NewTopic_t *new = rd_kafka_NewTopic_new(topic, partitions, 1, why, sizeof why);
    if (!new) die("%s: %s", topic, why);
    for (int i = 0; i < n_settings; i++) set_topic_config(new, settings[i]);
    rd_kafka_CreateTopics(rk, &new, 1, NULL, queue);
    rd_kafka_event_t *event = answer(queue, topic);
    size_t n;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
    check_topic(results, n, topic);
    rd_kafka_event_destroy(event);
    rd_kafka_NewTopic_destroy(new);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
}

static void add_partitions(const char *topic, int total) {
    rd_kafka_t *rk = reader(NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    char why[512];
    rd_kafka_NewPartitions_t *new =
        rd_kafka_NewPartitions_new(topic, (size_t)total, why, sizeof why);
    if (!new) die("%s: %s", topic, why);
    rd_kafka_CreatePartitions(rk, &new, 1, NULL, queue);
    rd_kafka_event_t *event = answer(queue, topic);
    size_t n;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result(event), &n);
    check_topic(results, n, topic);
    rd_kafka_event_destroy(event);
    rd_kafka_NewPartitions_destroy(new);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
}

static void delete_topic(const char *topic) {
    rd_kafka_t *rk = reader(NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_DeleteTopic_t *old = rd_kafka_DeleteTopic_new(topic);
    rd_kafka_DeleteTopics(rk, &old, 1, NULL, queue);
    rd_kafka_event_t *event = answer(queue, topic);
    size_t n;
    const rd_kafka_topic_result_t **results =
        rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &n);
    check_topic(results, n, topic);
    rd_kafka_event_destroy(event);
    rd_kafka_DeleteTopic_destroy(old);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
}

static void allow(char **words) {
    static const struct {
        const char *word;
        rd_kafka_AclOperation_t operation;
    } operations[] = {{"read", RD_KAFKA_ACL_OPERATION_READ},
                      {"write", RD_KAFKA_ACL_OPERATION_WRITE},
                      {"describe", RD_KAFKA_ACL_OPERATION_DESCRIBE}};
    rd_kafka_AclOperation_t operation = RD_KAFKA_ACL_OPERATION_UNKNOWN;
    rd_kafka_ResourceType_t type =
        !strcmp(words[2], "group") ? RD_KAFKA_RESOURCE_GROUP : RD_KAFKA_RESOURCE_TOPIC;
    char why[512];
    size_t n;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].word, words[1])) operation = operations[i].operation;
    rd_kafka_AclBinding_t *acl =
        rd_kafka_AclBinding_new(type, words[3], RD_KAFKA_RESOURCE_PATTERN_LITERAL, words[0], "*",
                                operation, RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW, why, sizeof why);
    if (!acl) die("%s: %s", words[3], why);
    rd_kafka_t *rk = reader(NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_CreateAcls(rk, &acl, 1, NULL, queue);
    rd_kafka_event_t *event = answer(queue, words[3]);
    const rd_kafka_acl_result_t **results =
        rd_kafka_CreateAcls_result_acls(rd_kafka_event_CreateAcls_result(event), &n);
    const rd_kafka_error_t *error = n ? rd_kafka_acl_result_error(results[0]) : NULL;
    if (error) die("%s: %s", words[3], rd_kafka_error_string(error));
    rd_kafka_event_destroy(event);
    rd_kafka_AclBinding_destroy(acl);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
}

static void delete_records(const char *topic, int32_t partition, int64_t offset) {
    rd_kafka_t *rk = reader(NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = offset;
    rd_kafka_DeleteRecords_t *request = rd_kafka_DeleteRecords_new(list);
    rd_kafka_DeleteRecords(rk, &request, 1, NULL, queue);
    rd_kafka_event_t *event = answer(queue, topic);
    check(rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event))
              ->elems[0]
              .err,
          topic);
    rd_kafka_event_destroy(event);
    rd_kafka_DeleteRecords_destroy(request);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
}

static void set_offsets(const char *group, const char *topic, int32_t partition, int64_t offset,
                        const char *metadata) {
    rd_kafka_t *rk = reader(group);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, topic, partition);
    tp->offset = offset;
    if (metadata) {
        tp->metadata = lw_strdup(metadata);
        tp->metadata_size = strlen(metadata);
    }
    check(rd_kafka_commit(rk, list, 0), group);
    check(list->elems[0].err, group);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ends(char **topics, int n) {
    rd_kafka_t *rk = reader(NULL);
    for (int t = 0; t < n; t++) {
        int partitions = count_partitions(rk, topics[t]);
        for (int p = 0; p < partitions; p++) {
            int64_t low, high;
            check(rd_kafka_query_watermark_offsets(rk, topics[t], p, &low, &high, ASK_MS),
                  topics[t]);
            printf("%s %d %" PRId64 " %" PRId64 "\n", topics[t], p, low, high);
        }
    }
    rd_kafka_destroy(rk);
}

static void committed(const char *group, char **topics, int n) {
    rd_kafka_t *rk = reader(group);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);
    for (int t = 0; t < n; t++)
        rd_kafka_topic_partition_list_add_range(list, topics[t], 0,
                                                count_partitions(rk, topics[t]) - 1);
    check(rd_kafka_committed(rk, list, ASK_MS), group);
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        check(tp->err, tp->topic);
        printf("%s %d %" PRId64 " %.*s\n", tp->topic, (int)tp->partition,
               tp->offset < 0 ? (int64_t)-1 : tp->offset, (int)tp->metadata_size,
               tp->metadata ? (const char *)tp->metadata : "");
    }
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
}

/* Returns the bytes as a JSON string, or as {"hex": ...} if they are not valid UTF-8. */
static json_t *as_json(const void *p, size_t n) {
    if (!p) return json_null();
    json_t *text = json_stringn(p, n);
    if (text) return text;
    struct lw_buf hex = {0};
    for (size_t i = 0; i < n; i++) lw_buf_addf(&hex, "%02x", ((const unsigned char *)p)[i]);
    json_t *out = json_pack("{s:s#}", "hex", hex.p, (int)hex.n);
    lw_buf_free(&hex);
    return out;
}

static void dump_record(rd_kafka_message_t *m) {
    json_t *headers = json_array();
    rd_kafka_headers_t *all;
    if (!rd_kafka_message_headers(m, &all)) {
        const char *name;
        const void *value;
        size_t size;
        for (size_t i = 0; !rd_kafka_header_get_all(all, i, &name, &value, &size); i++)
            json_array_append_new(headers, json_pack("[s,o]", name, as_json(value, size)));
    }
    json_t *line = json_pack("{s:i,s:I,s:I,s:o,s:o,s:o}", "partition", (int)m->partition, "offset",
                             (json_int_t)m->offset, "timestamp_ms",
                             (json_int_t)rd_kafka_message_timestamp(m, NULL), "key",
                             as_json(m->key, m->key_len), "headers", headers, "payload",
                             as_json(m->payload, m->len));
    json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(line);
}

static void dump(const char *topic) {
    rd_kafka_t *rk = reader("kafkatool-dump");
    rd_kafka_poll_set_consumer(rk);
    int left = count_partitions(rk, topic);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(left);
    for (int p = 0; p < left; p++)
        rd_kafka_topic_partition_list_add(list, topic, p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    check(rd_kafka_assign(rk, list), topic);
    rd_kafka_topic_partition_list_destroy(list);
    while (left > 0) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, ASK_MS);
        if (!m) die("%s: no answer", topic);
        if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
            left--;
        else if (m->err)
            die("%s: %s", topic, rd_kafka_message_errstr(m));
        else
            dump_record(m);
        rd_kafka_message_destroy(m);
    }
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
}

/* --- producing -------------------------------------------------------------------------------- */

struct stream {
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    int partitions;
    const struct options *o;
    uint64_t state, turn;
    int64_t sent, start_us;
};

static uint64_t draw(struct stream *s) { /* returns the next random number of splitmix64 */
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t fnv(const char *p, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 16777619u;
    return h;
}

static int32_t choose(struct stream *s, const char *key, size_t n) {
    uint32_t all = (uint32_t)s->partitions;
    if (!strcmp(s->o->partitioner, "random")) return (int32_t)(draw(s) % all);
    if (!strcmp(s->o->partitioner, "roundrobin") || !key) return (int32_t)(s->turn++ % all);
    return (int32_t)(fnv(key, n) % all);
}

static int64_t monotonic_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Waits until the next message is due, and returns the time at which it was due. Without --rate,
 * every message is due at once. Latency is measured from the time at which the message was due,
 * even if the message is sent late. */
static int64_t keep_rate(struct stream *s) {
    if (!s->o->rate) return monotonic_us();
    int64_t due_us = s->start_us + s->sent * 1000000 / s->o->rate, ahead_us;
    while ((ahead_us = due_us - monotonic_us()) >= 1000)
        rd_kafka_poll(s->rk, (int)(ahead_us / 1000));
    if (ahead_us <= 0) return due_us;
    struct timespec left = {.tv_nsec = (long)ahead_us * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &left, NULL);
    return due_us;
}

/* Returns the headers that the --header options ask for, or NULL if there are none. The message
 * that is sent with these headers takes ownership of them. */
static rd_kafka_headers_t *headers_of(const struct options *o) {
    if (!o->n_headers) return NULL;
    rd_kafka_headers_t *all = rd_kafka_headers_new(HEADERS_MAX);
    for (int i = 0; i < o->n_headers; i++) {
        const char *name = o->headers[i], *value = strchr(name, '=');
        if (!value) die("--header %s: must be NAME=VALUE", name);
        check(rd_kafka_header_add(all, name, value - name, value + 1, -1), "header");
    }
    return all;
}

static void send_one(struct stream *s, int32_t partition, const char *key, size_t key_n,
                     const char *payload, size_t n) {
    if (partition >= s->partitions) die("no partition %d", (int)partition);
    /* Pass the time at which the message is due as the message's opaque pointer, because the
     * delivery report returns that pointer. */
    void *due_us = (void *)(intptr_t)keep_rate(s);
    rd_kafka_headers_t *headers = headers_of(s->o);
    rd_kafka_resp_err_t error;
    while ((error = rd_kafka_producev(
                s->rk, RD_KAFKA_V_RKT(s->topic), RD_KAFKA_V_PARTITION(partition),
                RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                RD_KAFKA_V_VALUE((void *)(uintptr_t)payload, n),
                RD_KAFKA_V_KEY((void *)(uintptr_t)key, key_n), RD_KAFKA_V_OPAQUE(due_us),
                RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END))) {
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce: %s", rd_kafka_err2str(error));
        rd_kafka_poll(s->rk, 10);
    }
    if (++s->sent % 1000 == 0) rd_kafka_poll(s->rk, 0);
}

static struct stream open_stream(const char *topic, const struct options *o) {
    if (o->produced && !(produced_log = fopen(o->produced, "we")))
        die("%s: %s", o->produced, strerror(errno));
    struct stream s = {.rk = producer(o), .o = o, .state = o->seed, .start_us = monotonic_us()};
    s.partitions = count_partitions(s.rk, topic);
    s.topic = rd_kafka_topic_new(s.rk, topic, NULL);
    return s;
}

static void close_stream(struct stream *s) {
    check(rd_kafka_flush(s->rk, FLUSH_MS), "flush");
    if (produced_log && fclose(produced_log)) die("--produced: %s", strerror(errno));
    rd_kafka_topic_destroy(s->topic);
    rd_kafka_destroy(s->rk);
    if (refused) die("%" PRId64 " of %" PRId64 " messages were not taken", refused, s->sent);
}

static int nibble(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    die("not a hex digit: %c", c);
}

/* Decodes hexadecimal digits in place, and returns the number of bytes. */
static size_t from_hex(char *text, size_t n) {
    if (n % 2) die("an odd number of hex digits");
    for (size_t i = 0; i < n; i += 2)
        text[i / 2] = (char)(nibble(text[i]) << 4 | nibble(text[i + 1]));
    return n / 2;
}

static void produce(const char *topic, const struct options *o) {
    struct stream s = open_stream(topic, o);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        if (line[n - 1] == '\n') line[--n] = 0;
        char *key = strchr(line, '|'), *payload = key ? strchr(key + 1, '|') : NULL;
        if (!payload) die("line %" PRId64 " is not partition|key|payload", s.sent + 1);
        *key++ = 0;
        *payload++ = 0;
        if (!strcmp(key, "\\N")) key = NULL;
        size_t key_n = key ? strlen(key) : 0, payload_n = (size_t)(line + n - payload);
        if (!strcmp(payload, "\\N")) payload = NULL, payload_n = 0;
        if (o->hex) key_n = from_hex(key, key_n), payload_n = from_hex(payload, payload_n);
        send_one(&s, *line ? (int32_t)number(line) : choose(&s, key, key_n), key, key_n, payload,
                 payload_n);
    }
    free(line);
    close_stream(&s);
}

/* Returns the running sums of the weights of all keys. Key number r has the weight 1/(r+1)^zipf. To
 * draw a key, the caller looks up a random number among these sums by bisection. */
static double *weights(const struct options *o) {
    double *sum = lw_alloc((size_t)o->keys * sizeof *sum), all = 0;
    for (int64_t r = 0; r < o->keys; r++) sum[r] = all += pow((double)(r + 1), -o->zipf);
    return sum;
}

static int64_t draw_key(struct stream *s, const double *sum) {
    double x = (double)(draw(s) >> 11) / 9007199254740992.0 * sum[s->o->keys - 1];
    int64_t low = 0, high = s->o->keys - 1;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (sum[mid] <= x)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The content of a message, without the bytes that pad its payload to the length that the option
 * --size gives. */
struct content {
    char key[64];
    int key_n, amount;
    int64_t seq;
};

enum { RECENT = 1000 };

static double chance(struct stream *s) { return (double)(draw(s) >> 11) / 9007199254740992.0; }

/* Chooses the content of the next message. Draws random numbers only for options that are given, so
 * that adding a new option does not change the messages that a given seed produces. */
static struct content next_content(struct stream *s, const double *sum, struct content *recent,
                                   int64_t i) {
    const struct options *o = s->o;
    struct content c = {.seq = o->first + i};
    if (o->repeat > 0 && i > 0 && chance(s) < o->repeat)
        return recent[draw(s) % (uint64_t)(i < RECENT ? i : RECENT)];
    if (o->hot > 0 && chance(s) < o->hot)
        c.key_n = snprintf(c.key, sizeof c.key, "%shot", o->prefix);
    else
        c.key_n = snprintf(c.key, sizeof c.key, "%s%" PRId64, o->prefix, draw_key(s, sum));
    if (c.key_n >= (int)sizeof c.key) die("--prefix is too long");
    c.amount = (int)(draw(s) % 10000);
    return c;
}

static void generate(const char *topic, const struct options *o) {
    struct stream s = open_stream(topic, o);
    struct content *recent = lw_alloc(RECENT * sizeof *recent);
    double *sum = weights(o);
    struct lw_buf payload = {0};
    for (int64_t i = 0; i < o->messages; i++) {
        struct content c = recent[i % RECENT] = next_content(&s, sum, recent, i);
        payload.n = 0;
        lw_buf_addf(&payload, "{\"id\":\"%s\",\"seq\":%" PRId64 ",\"amount\":%d", c.key, c.seq,
                    c.amount);
        int64_t pad = o->size - (int64_t)payload.n - (int64_t)strlen(",\"pad\":\"\"}");
        if (pad > 0) lw_buf_addf(&payload, ",\"pad\":\"%0*d\"", (int)pad, 0);
        lw_buf_add(&payload, "}", 1);
        send_one(&s, choose(&s, c.key, (size_t)c.key_n), c.key, (size_t)c.key_n, payload.p,
                 payload.n);
    }
    lw_buf_free(&payload);
    free(sum);
    free(recent);
    close_stream(&s);
}

/* --- the command line ------------------------------------------------------------------------- */

static struct options parse_options(int *argc, char ***argv) {
    static const struct option known[] = {
        {"partitioner", 1, NULL, 'p'}, {"messages", 1, NULL, 'm'},
        {"keys", 1, NULL, 'k'},        {"zipf", 1, NULL, 'z'},
        {"seed", 1, NULL, 's'},        {"size", 1, NULL, 'b'},
        {"first", 1, NULL, 'f'},       {"rate", 1, NULL, 'r'},
        {"hex", 0, NULL, 'x'},         {"hot", 1, NULL, 'h'},
        {"prefix", 1, NULL, 'P'},      {"repeat", 1, NULL, 'R'},
        {"produced", 1, NULL, 'o'},    {"linger-ms", 1, NULL, 'l'},
        {"header", 1, NULL, 'H'},      {0},
    };
    struct options o = {.partitioner = "key", .prefix = "k-", .linger_ms = "5", .seed = 1};
    int c;
    while ((c = getopt_long(*argc, *argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'p': o.partitioner = optarg; break;
        case 'm': o.messages = number(optarg); break;
        case 'k': o.keys = number(optarg); break;
        case 'z': o.zipf = atof(optarg); break;
        case 's': o.seed = (uint64_t)number(optarg); break;
        case 'b': o.size = number(optarg); break;
        case 'f': o.first = number(optarg); break;
        case 'r': o.rate = number(optarg); break;
        case 'x': o.hex = true; break;
        case 'h': o.hot = atof(optarg); break;
        case 'P': o.prefix = optarg; break;
        case 'R': o.repeat = atof(optarg); break;
        case 'o': o.produced = optarg; break;
        case 'l': o.linger_ms = optarg; break;
        case 'H':
            if (o.n_headers == HEADERS_MAX) die("--header: at most %d", HEADERS_MAX);
            o.headers[o.n_headers++] = optarg;
            break;
        default: usage();
        }
    }
    if (strcmp(o.partitioner, "key") != 0 && strcmp(o.partitioner, "random") != 0 &&
        strcmp(o.partitioner, "roundrobin") != 0)
        usage();
    *argc -= optind;
    *argv += optind;
    return o;
}

int main(int argc, char **argv) {
    struct options o = parse_options(&argc, &argv);
    if (argc < 3) usage();
    brokers = argv[0];
    const char *command = argv[1];
    char **a = argv + 2;
    int n = argc - 2;
    if (!strcmp(command, "create") && n >= 2)
        create_topic(a[0], (int)number(a[1]), a + 2, n - 2);
    else if (!strcmp(command, "partitions") && n == 2)
        add_partitions(a[0], (int)number(a[1]));
    else if (!strcmp(command, "delete") && n == 1)
        delete_topic(a[0]);
    else if (!strcmp(command, "allow") && n == 4)
        allow(a);
    else if (!strcmp(command, "produce") && n == 1)
        produce(a[0], &o);
    else if (!strcmp(command, "generate") && n == 1 && o.messages > 0 && o.keys > 0)
        generate(a[0], &o);
    else if (!strcmp(command, "ends"))
        ends(a, n);
    else if (!strcmp(command, "committed") && n >= 2)
        committed(a[0], a + 1, n - 1);
    else if (!strcmp(command, "dump") && n == 1)
        dump(a[0]);
    else if (!strcmp(command, "delete-records") && n == 3)
        delete_records(a[0], (int32_t)number(a[1]), number(a[2]));
    else if (!strcmp(command, "set-offsets") && (n == 4 || n == 5))
        set_offsets(a[0], a[1], (int32_t)number(a[2]), number(a[3]), n == 5 ? a[4] : NULL);
    else
        usage();
    return 0;
}
