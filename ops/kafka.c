/* SPDX-License-Identifier: Apache-2.0 */

#include "ops/kafka.h"

#include "base/clock.h"
#include "kafka/conf.h"
#include "ops/time.h"
#include "queue/dead_headers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_MS = 10000,
    SHORT_MS = 2000,
    SILENCE_MS = 30000,
    POLL_MS = 100,
    DESTROY_MS = 3000,
    PARTS_MAX = 4096
};

struct span {
    char topic[256];
    int32_t partition;
    /* `from` is the first offset of the range to read, and `to` is one more than its last
     * offset. */
    int64_t from, to;
    int64_t next; /* offset of the next record to read */
    bool over;
};

struct reading {
    struct ops *o;
    rd_kafka_t *rk;
    struct span *span;
    size_t n, cap, n_over;
    /* `from_ms` and `to_ms` are the times of --from and --to in ms since 1970; -1: the option is
     * not given, or is an offset */
    int64_t from_ms, to_ms;
    ops_message_fn *fn;
    void *ctx;
};

static int open_consumer(struct reading *r) {
    struct ops *o = r->o;
    rd_kafka_conf_t *conf = lw_kafka_conf_client(o->c, &o->err);
    if (!conf) return -1;
    static const char *const set[][2] = {
        {"enable.auto.commit", "false"},       {"enable.auto.offset.store", "false"},
        {"enable.partition.eof", "true"},      {"auto.offset.reset", "error"},
        {"allow.auto.create.topics", "false"}, {"fetch.wait.max.ms", "50"}};
    char why[512];
    /* librdkafka requires a group id for assign(), but this consumer never joins the group */
    rd_kafka_conf_res_t bad =
        rd_kafka_conf_set(conf, "group.id", o->c->kafka.group_id, why, sizeof why);
    for (size_t i = 0; !bad && i < sizeof set / sizeof *set; i++)
        bad = rd_kafka_conf_set(conf, set[i][0], set[i][1], why, sizeof why);
    if (bad) {
        rd_kafka_conf_destroy(conf);
        return lw_fail(&o->err, "cannot create a Kafka client: %s", why);
    }
    r->rk = lw_kafka_new(o->c, RD_KAFKA_CONSUMER, conf, &o->err);
    if (!r->rk) return -1;
    rd_kafka_poll_set_consumer(r->rk);
    return 0;
}

/* --- what to read ----------------------------------------------------------------------------- */

/* Returns how long a question to Kafka may take. */
static int ask_ms(const struct ops *o) {
    int64_t left = o->deadline_ms ? o->deadline_ms - lw_boot_ms() : ASK_MS;
    return left < 1 ? 1 : left < ASK_MS ? (int)left : ASK_MS;
}

static struct span *add_span(struct reading *r, const char *topic, int32_t partition) {
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->span = lw_realloc(r->span, r->cap * sizeof *r->span);
    }
    struct span *s = &r->span[r->n++];
    *s = (struct span){.partition = partition};
    snprintf(s->topic, sizeof s->topic, "%s", topic);
    return s;
}

/* Asks Kafka for the offset of the first record at or after a time. If there is no such record,
 * sets *offset to RD_KAFKA_OFFSET_END. */
static int ask_time(struct reading *r, const struct span *s, int64_t ms, int64_t *offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, s->topic, s->partition)->offset = ms;
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(r->rk, list, ask_ms(r->o));
    if (!code) code = list->elems[0].err;
    *offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    return code ? lw_fail(&r->o->err, "%s/%d: cannot find the offset of a time: %s", s->topic,
                          s->partition, rd_kafka_err2str(code))
                : 0;
}

/* Handles the answer that no record is at or after the time `from`. A broker that has no index of
 * times (such as the dev broker) gives this answer even for 1970. With such a broker all records
 * are read, and each record's time decides whether the record is used. */
static int all_of_it(struct reading *r, const struct span *s, int64_t low, int64_t *out) {
    int64_t first;
    if (ask_time(r, s, 0, &first)) return -1;
    if (first < 0) *out = low;
    return 0;
}

static int bound(struct reading *r, const struct span *s, const char *text, int64_t low,
                 int64_t high, int64_t *out) {
    if (*text == '@') {
        char *end;
        *out = strtoll(text + 1, &end, 10);
        if (end == text + 1 || *end)
            return lw_fail(&r->o->err, "%s: expected @ and an offset, such as @1042", text);
    } else if (ask_time(r, s, ops_time_ms(text, r->o->asked_ms), out) ||
               (*out < 0 && low < high && text == r->o->args.from && all_of_it(r, s, low, out))) {
        return -1;
    }
    if (*out < 0 || *out > high) *out = high;
    if (*out < low) *out = low;
    return 0;
}

static int limit_span(struct reading *r, struct span *s) {
    int64_t low, high;
    const struct ops_args *a = &r->o->args;
    rd_kafka_resp_err_t code =
        rd_kafka_query_watermark_offsets(r->rk, s->topic, s->partition, &low, &high, ask_ms(r->o));
    if (code)
        return lw_fail(&r->o->err, "%s/%d: %s", s->topic, s->partition, rd_kafka_err2str(code));
    if (s->to > 0) {
        /* the range consists of a single record, which the command names by its identity */
        if (s->from >= low && s->to <= high) return 0;
        char identity[320];
        snprintf(identity, sizeof identity, "%s/%d/%" PRId64, s->topic, s->partition, s->from);
        if (!r->o->quiet)
            fprintf(stderr,
                    "latchwork %s %s: %s is not in the log, which holds the offsets %" PRId64
                    " to %" PRId64 "\n",
                    r->o->noun, r->o->verb, identity, low, high - 1);
        ops_mark_word(r->o, identity, OPS_TOLD);
        s->to = s->from; /* an empty range, because the record is not in the log */
        return 0;
    }
    s->from = low;
    s->to = high;
    if (a->from && bound(r, s, a->from, low, high, &s->from)) return -1;
    return a->to ? bound(r, s, a->to, low, high, &s->to) : 0;
}

static int all_partitions(struct reading *r, const char *topic, int limit_ms) {
    struct ops *o = r->o;
    size_t before = r->n;
    rd_kafka_topic_t *t = rd_kafka_topic_new(r->rk, topic, NULL);
    const struct rd_kafka_metadata *md = NULL;
    rd_kafka_resp_err_t code =
        t ? rd_kafka_metadata(r->rk, 0, t, &md, limit_ms) : rd_kafka_last_error();
    if (!code && md && md->topic_cnt == 1) code = md->topics[0].err;
    int bad = code ? lw_fail(&o->err, "topic %s: %s", topic, rd_kafka_err2str(code)) : 0;
    for (int i = 0; !bad && md && i < md->topics[0].partition_cnt; i++)
        if (o->args.partition < 0 || o->args.partition == md->topics[0].partitions[i].id)
            add_span(r, topic, md->topics[0].partitions[i].id);
    if (!bad && r->n == before)
        bad = lw_fail(&o->err, "topic %s has no partition %" PRId64, topic, o->args.partition);
    if (md) rd_kafka_metadata_destroy(md);
    if (t) rd_kafka_topic_destroy(t);
    return bad;
}

static int by_place(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    int c = strcmp(x->topic, y->topic);
    if (c) return c;
    if (x->partition != y->partition) return x->partition < y->partition ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static int choose(struct reading *r) {
    struct ops *o = r->o;
    for (int i = 0; i < o->args.n_words; i++) {
        char topic[256];
        int32_t partition;
        int64_t offset, replay;
        if (ops_identity_parse(o->args.words[i], topic, &partition, &offset, &replay))
            return lw_fail(&o->err,
                           "%s: expected an identity TOPIC/PARTITION/OFFSET, such as orders/3/1042",
                           o->args.words[i]);
        if (replay)
            return lw_fail(&o->err, "%s: Kafka has only the original record; leave out #%" PRId64,
                           o->args.words[i], replay);
        struct span *s = add_span(r, topic, partition);
        s->from = offset;
        s->to = offset + 1;
    }
    if (!o->args.n_words && o->args.topic && all_partitions(r, o->args.topic, ASK_MS)) return -1;
    for (size_t i = 0; !o->args.n_words && !o->args.topic && i < o->c->kafka.n_topics; i++)
        if (all_partitions(r, o->c->kafka.topics[i], ASK_MS)) return -1;
    for (size_t i = 0; i < r->n; i++)
        if (limit_span(r, &r->span[i])) return -1;
    qsort(r->span, r->n, sizeof *r->span, by_place);
    for (size_t i = 0; i < r->n; i++) {
        struct span *s = &r->span[i];
        s->next = s->from;
        if (s->to > s->from) o->to_scan += s->to - s->from;
    }
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

bool ops_is_consumed(const struct lw_config *c, const char *topic) {
    for (size_t i = 0; i < c->kafka.n_topics; i++)
        if (strcmp(c->kafka.topics[i], topic) == 0) return true;
    return false;
}

/* Returns the index of the last header latchwork-origin, which names where a message came from. If
 * there is no such header, returns the number of headers. */
static size_t origin_of(const struct lw_envelope *e) {
    size_t i = e->n_headers;
    while (i > 0 && !lw_bytes_eq(e->headers[i - 1].name, lw_bytes_of("latchwork-origin"))) i--;
    return i ? i - 1 : e->n_headers;
}

/* Removes, from index `from` on, the headers that were added to the message when it became a dead
 * letter. */
static void remove_added(struct lw_envelope *e, size_t from) {
    size_t n = from;
    for (size_t i = from; i < e->n_headers; i++)
        if (!lw_dead_headers_have(e->headers[i].name)) e->headers[n++] = e->headers[i];
    if (e->n_headers && !n) {
        free(e->headers);
        e->headers = NULL;
    }
    e->n_headers = n;
}

/* Gives a dead letter that was read from a topic the identity of its original, and removes the
 * headers that were added when the dead letter was sent to the topic. */
static void take_origin(struct ops_message *m, char origin[256]) {
    size_t at = origin_of(&m->e);
    if (at == m->e.n_headers) return;
    struct lw_bytes value = m->e.headers[at].value;
    char text[320];
    int32_t partition;
    int64_t offset, replay;
    snprintf(text, sizeof text, "%.*s", (int)value.n, value.p ? value.p : "");
    if (ops_identity_parse(text, origin, &partition, &offset, &replay)) return;
    m->e.topic = lw_bytes_of(origin);
    m->e.partition = partition;
    m->e.offset = offset;
    remove_added(&m->e, at);
}

static bool in_time(const struct reading *r, const rd_kafka_message_t *k) {
    rd_kafka_timestamp_type_t type;
    int64_t ms = rd_kafka_message_timestamp(k, &type);
    return ms < 0 || (ms >= r->from_ms && (r->to_ms < 0 || ms < r->to_ms));
}

static int tell(struct reading *r, const rd_kafka_message_t *k, const char *topic) {
    struct ops *o = r->o;
    struct ops_message m = {.state = 'w'};
    rd_kafka_timestamp_type_t type;
    m.e.topic = lw_bytes_of(topic);
    m.e.partition = k->partition;
    m.e.offset = k->offset;
    m.e.timestamp_ms = rd_kafka_message_timestamp(k, &type);
    m.e.first_ms = lw_wall_ms();
    m.e.key = lw_bytes(k->key, k->key_len);
    m.e.payload = lw_bytes(k->payload, k->len);
    if (k->key && !k->key_len) m.e.key.p = "";
    if (k->payload && !k->len) m.e.payload.p = "";
    rd_kafka_headers_t *headers = NULL;
    if (!rd_kafka_message_headers(k, &headers)) {
        size_t n = rd_kafka_header_cnt(headers);
        m.e.headers = lw_alloc((n + 1) * sizeof *m.e.headers);
        for (size_t i = 0; i < n; i++) {
            const char *name;
            const void *value;
            size_t size;
            if (rd_kafka_header_get_all(headers, i, &name, &value, &size)) break;
            m.e.headers[m.e.n_headers++] =
                (struct lw_header){lw_bytes_of(name), lw_bytes(value, size)};
        }
    }
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane;
    struct lw_err err = {0};
    char origin[256];
    char read_from[320];
    ops_identity(&m.e, read_from, sizeof read_from);
    ops_mark_word(o, read_from, OPS_MET);
    m.foreign = !ops_is_consumed(o->c, topic);
    if (m.foreign) take_origin(&m, origin);
    if (ops_lane_of(o, &m.e, &scratch, &key, &lane, &err) == 0) {
        m.e.key = key;
        m.lane = lane;
    }
    int stop = ops_message_matches(o, &m) ? r->fn(o, &m, r->ctx) : 0;
    ops_message_clear(&m);
    lw_buf_free(&scratch);
    return stop;
}

static void over(struct reading *r, struct span *s) {
    if (s->over) return;
    s->over = true;
    if (s->to > s->next) r->o->scanned += s->to - s->next;
    r->n_over++;
}

static int take(struct reading *r, struct span *s, const rd_kafka_message_t *k) {
    if (k->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        over(r, s);
        return 0;
    }
    if (k->err)
        return lw_fail(&r->o->err, "%s/%d: %s", s->topic, s->partition, rd_kafka_message_errstr(k));
    if (s->over || k->offset >= s->to) {
        /* The range ends here, because this record is after it. The last record of the range was
         * not read if compaction has removed it. */
        over(r, s);
        return 0;
    }
    r->o->scanned += k->offset + 1 - s->next;
    s->next = k->offset + 1;
    int stop = in_time(r, k) ? tell(r, k, s->topic) : 0;
    if (k->offset + 1 >= s->to) over(r, s);
    return stop;
}

static int poll_until_over(struct reading *r, struct span *first, size_t n) {
    int64_t heard = lw_boot_ms();
    int stop = 0;
    r->n_over = 0;
    for (size_t i = 0; i < n; i++)
        if (first[i].from >= first[i].to) over(r, &first[i]);
    while (!stop && r->n_over < n) {
        if (ops_tick(r->o)) return -1;
        rd_kafka_message_t *k = rd_kafka_consumer_poll(r->rk, POLL_MS);
        if (!k && r->o->deadline_ms && lw_boot_ms() >= r->o->deadline_ms)
            return lw_fail(&r->o->err, "kafka: no record arrived within the time of this request");
        if (!k && lw_boot_ms() - heard > SILENCE_MS)
            return lw_fail(&r->o->err, "kafka: no record arrived for %d s; try again",
                           SILENCE_MS / 1000);
        if (!k) continue;
        struct span *s = NULL;
        for (size_t i = 0; k->rkt && i < n && !s; i++)
            if (first[i].partition == k->partition &&
                strcmp(first[i].topic, rd_kafka_topic_name(k->rkt)) == 0)
                s = &first[i];
        if (s) {
            stop = take(r, s, k);
            heard = lw_boot_ms();
        }
        rd_kafka_message_destroy(k);
    }
    return stop;
}

/* Reads all ranges. Records that the command names by their identities are read one after the
 * other, because several of them may lie in one partition. Otherwise each partition has one range,
 * and all partitions are read together. */
static int read_all(struct reading *r) {
    int stop = 0;
    for (size_t i = 0; i < r->n && !stop;) {
        size_t n = 1;
        bool single = r->o->args.n_words > 0;
        while (!single && i + n < r->n) n++;
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
        for (size_t k = i; k < i + n; k++)
            if (r->span[k].from < r->span[k].to)
                rd_kafka_topic_partition_list_add(list, r->span[k].topic, r->span[k].partition)
                    ->offset = r->span[k].from;
        rd_kafka_resp_err_t code = list->cnt ? rd_kafka_assign(r->rk, list) : 0;
        stop = code ? lw_fail(&r->o->err, "cannot read from Kafka: %s", rd_kafka_err2str(code))
                    : poll_until_over(r, r->span + i, n);
        rd_kafka_topic_partition_list_destroy(list);
        i += n;
    }
    return stop;
}

static int64_t time_of(const struct ops *o, const char *text) {
    return text && *text != '@' ? ops_time_ms(text, o->asked_ms) : -1;
}

int ops_read_kafka(struct ops *o, ops_message_fn *fn, void *ctx) {
    struct reading r = {.o = o,
                        .fn = fn,
                        .ctx = ctx,
                        .from_ms = time_of(o, o->args.from),
                        .to_ms = time_of(o, o->args.to)};
    int stop = open_consumer(&r) || choose(&r) ? -1 : 0;
    if (!stop) stop = read_all(&r);
    if (r.rk) {
        rd_kafka_assign(r.rk, NULL);
        lw_kafka_destroy(r.rk, DESTROY_MS);
    }
    free(r.span);
    return stop;
}

/* --- where the logs end ----------------------------------------------------------------------- */

struct ops_log {
    struct reading r;
};

struct ops_log *ops_log_open(struct ops *o) {
    struct ops_log *l = lw_alloc(sizeof *l);
    l->r.o = o;
    int bad = open_consumer(&l->r);
    for (size_t i = 0; !bad && i < o->c->kafka.n_topics; i++)
        bad = all_partitions(&l->r, o->c->kafka.topics[i], SHORT_MS);
    if (!bad) return l;
    ops_log_close(l);
    return NULL;
}

int ops_log_ends(struct ops_log *l, int64_t *sum) {
    *sum = 0;
    for (size_t i = 0; i < l->r.n; i++) {
        int64_t low, high;
        const struct span *s = &l->r.span[i];
        rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(l->r.rk, s->topic, s->partition,
                                                                    &low, &high, SHORT_MS);
        if (code)
            return lw_fail(&l->r.o->err, "%s/%d: %s", s->topic, s->partition,
                           rd_kafka_err2str(code));
        *sum += high;
    }
    return 0;
}

void ops_log_close(struct ops_log *l) {
    if (!l) return;
    if (l->r.rk) lw_kafka_destroy(l->r.rk, DESTROY_MS);
    free(l->r.span);
    free(l);
}
