/* SPDX-License-Identifier: Apache-2.0 */

#include "ops/kafka.h"

#include "base/clock.h"
#include "kafka/conf.h"
#include "kafka/explain.h"
#include "ops/time.h"
#include "queue/dead_headers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    ASK_MS = 10000,
    SHORT_MS = 2000,
    SILENCE_MS = 30000,
    /* time, before the end of a request's time, at which reading ends, so that an answer is left */
    SPARE_MS = 500,
    POLL_MS = 100,
    DESTROY_MS = 3000
};
#define OFFSET_MAX (INT64_C(1) << 53)

struct ops_log {
    struct ops *o;
    rd_kafka_t *rk;
    char *const *topics; /* of a log that stays open */
    size_t n_topics;
    struct ops_span *span;
    size_t n, cap, n_over;
    /* `from_ms` and `to_ms` are the times of --from and --to in ms since 1970; -1: the option is
     * not given, or is an offset */
    int64_t from_ms, to_ms;
    bool single;    /* true: each span is one record, which the command names */
    bool as_stored; /* true: `fn` gets each record as it is in the log, and applies the filters */
    ops_message_fn *fn;
    void *ctx;
};

/* --- waiting for a broker --------------------------------------------------------------------- */

/* Returns how long a request to a broker may take: `most`, or less if the command ends before. */
static int ask_ms(const struct ops *o, int most) {
    int64_t left = o->deadline_ms ? o->deadline_ms - SPARE_MS - lw_boot_ms() : most;
    return left < 1 ? 1 : left < most ? (int)left : most;
}

/* Sets the error for a request to a broker about a topic that failed. `asked_ms` is the time on the
 * boot clock at which the request was sent. Always returns -1. */
static int refused(struct ops *o, const char *topic, rd_kafka_resp_err_t code, int64_t asked_ms) {
    char why[LW_EXPLAINED_MAX];
    switch (code) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
        return lw_fail(&o->err, "topic %s does not exist", topic);
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
        return lw_fail(&o->err, "topic %s does not have this partition", topic);
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
        return lw_fail(&o->err, "topic %s cannot be read: broker does not answer for %.1f s", topic,
                       (double)(lw_boot_ms() - asked_ms) / 1000);
    default:
        return lw_fail(&o->err, "topic %s: %s", topic,
                       lw_kafka_explain(o->c, code, rd_kafka_err2str(code), "READ", topic, why));
    }
}

static int open_consumer(struct ops_log *r) {
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

static struct ops_span *add_span(struct ops_log *r, const char *topic, int32_t partition) {
    r->span = lw_more(r->span, r->n, &r->cap, sizeof *r->span);
    struct ops_span *s = &r->span[r->n++];
    *s = (struct ops_span){.partition = partition};
    snprintf(s->topic, sizeof s->topic, "%s", topic);
    return s;
}

/* Asks Kafka for the offset of the first record at or after a time. If there is no such record,
 * sets *offset to RD_KAFKA_OFFSET_END. */
static int ask_time(struct ops_log *r, const struct ops_span *s, int64_t ms, int64_t *offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, s->topic, s->partition)->offset = ms;
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(r->rk, list, ask_ms(r->o, ASK_MS));
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
static int all_of_it(struct ops_log *r, const struct ops_span *s, int64_t low, int64_t *out) {
    int64_t first;
    if (ask_time(r, s, 0, &first)) return -1;
    if (first < 0) *out = low;
    return 0;
}

static int bound(struct ops_log *r, const struct ops_span *s, const char *text, int64_t low,
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

static int limit_span(struct ops_log *r, struct ops_span *s) {
    int64_t low, high, asked_ms = lw_boot_ms();
    const struct ops_args *a = &r->o->args;
    rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(r->rk, s->topic, s->partition, &low,
                                                                &high, ask_ms(r->o, ASK_MS));
    if (code) return refused(r->o, s->topic, code, asked_ms);
    if (r->single) {
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

/* Adds a span for the partition `only` of a topic, or for all its partitions if `only` is -1. */
static int all_partitions(struct ops_log *r, const char *topic, int64_t only, int limit_ms) {
    struct ops *o = r->o;
    size_t before = r->n;
    int64_t asked_ms = lw_boot_ms();
    rd_kafka_topic_t *t = rd_kafka_topic_new(r->rk, topic, NULL);
    const struct rd_kafka_metadata *md = NULL;
    rd_kafka_resp_err_t code =
        t ? rd_kafka_metadata(r->rk, 0, t, &md, limit_ms) : rd_kafka_last_error();
    if (!code && md && md->topic_cnt == 1) code = md->topics[0].err;
    int bad = code ? refused(o, topic, code, asked_ms) : 0;
    for (int i = 0; !bad && md && i < md->topics[0].partition_cnt; i++)
        if (only < 0 || only == md->topics[0].partitions[i].id)
            add_span(r, topic, md->topics[0].partitions[i].id);
    if (!bad && r->n == before)
        bad = lw_fail(&o->err, "topic %s has no partition %" PRId64, topic, only);
    if (md) rd_kafka_metadata_destroy(md);
    if (t) rd_kafka_topic_destroy(t);
    return bad;
}

static int by_place(const void *a, const void *b) {
    const struct ops_span *x = a, *y = b;
    int c = strcmp(x->topic, y->topic);
    if (c) return c;
    if (x->partition != y->partition) return x->partition < y->partition ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static int choose(struct ops_log *r) {
    struct ops *o = r->o;
    r->single = o->args.n_words > 0;
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
        struct ops_span *s = add_span(r, topic, partition);
        s->from = offset;
        s->to = offset + 1;
    }
    if (!o->args.n_words && o->args.topic &&
        all_partitions(r, o->args.topic, o->args.partition, ASK_MS))
        return -1;
    for (size_t i = 0; !o->args.n_words && !o->args.topic && i < o->c->kafka.n_topics; i++)
        if (all_partitions(r, o->c->kafka.topics[i], o->args.partition, ASK_MS)) return -1;
    for (size_t i = 0; i < r->n; i++)
        if (limit_span(r, &r->span[i])) return -1;
    qsort(r->span, r->n, sizeof *r->span, by_place);
    for (size_t i = 0; i < r->n; i++) {
        struct ops_span *s = &r->span[i];
        s->next = s->from;
        if (s->to > s->from) o->to_scan += s->to - s->from;
    }
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

bool ops_is_consumed(const struct lw_config *c, struct lw_bytes topic) {
    for (size_t i = 0; i < c->kafka.n_topics; i++)
        if (lw_bytes_eq(lw_bytes_of(c->kafka.topics[i]), topic)) return true;
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

/* Anybody may write to the topic, so the header must have exactly the form that Latchwork writes.
 * An envelope could not hold another topic name, nor could a script tell larger offsets apart. */
bool ops_take_origin(struct ops_message *m, char origin[256], int64_t *replay) {
    size_t at = origin_of(&m->e);
    if (at == m->e.n_headers) return false;
    struct lw_bytes value = m->e.headers[at].value;
    char text[320];
    int32_t partition;
    int64_t offset;
    if (!value.p || value.n >= sizeof text) return false;
    memcpy(text, value.p, value.n);
    text[value.n] = 0;
    if (strlen(text) != value.n || ops_identity_parse(text, origin, &partition, &offset, replay) ||
        !ops_topic_ok(origin) || offset >= OFFSET_MAX)
        return false;
    m->e.topic = lw_bytes_of(origin);
    m->e.partition = partition;
    m->e.offset = offset;
    remove_added(&m->e, at);
    return true;
}

static bool in_time(const struct ops_log *r, const rd_kafka_message_t *k) {
    rd_kafka_timestamp_type_t type;
    int64_t ms = rd_kafka_message_timestamp(k, &type);
    return ms < 0 || (ms >= r->from_ms && (r->to_ms < 0 || ms < r->to_ms));
}

static void read_record(struct ops_message *m, const rd_kafka_message_t *k, const char *topic) {
    rd_kafka_timestamp_type_t type;
    m->e.topic = lw_bytes_of(topic);
    m->e.partition = k->partition;
    m->e.offset = k->offset;
    m->e.timestamp_ms = rd_kafka_message_timestamp(k, &type);
    m->e.first_ms = lw_wall_ms();
    m->e.key = lw_bytes(k->key, k->key_len);
    m->e.payload = lw_bytes(k->payload, k->len);
    if (k->key && !k->key_len) m->e.key.p = "";
    if (k->payload && !k->len) m->e.payload.p = "";
    rd_kafka_headers_t *headers = NULL;
    if (rd_kafka_message_headers(k, &headers)) return;
    size_t n = rd_kafka_header_cnt(headers);
    m->e.headers = lw_alloc((n + 1) * sizeof *m->e.headers);
    for (size_t i = 0; i < n; i++) {
        const char *name;
        const void *value;
        size_t size;
        if (rd_kafka_header_get_all(headers, i, &name, &value, &size)) break;
        m->e.headers[m->e.n_headers++] =
            (struct lw_header){lw_bytes_of(name), lw_bytes(value, size)};
    }
}

/* Calls fn with the message that is to be run again, if it passes the filters. */
static int tell_message(struct ops_log *r, struct ops_message *m, const char *topic) {
    struct ops *o = r->o;
    struct lw_buf scratch = {0};
    struct lw_bytes key, lane;
    struct lw_err err = {0};
    char origin[256];
    char read_from[320];
    int64_t replay;
    ops_identity(&m->e, read_from, sizeof read_from);
    ops_mark_word(o, read_from, OPS_MET);
    m->foreign = !ops_is_consumed(o->c, lw_bytes_of(topic));
    if (m->foreign) ops_take_origin(m, origin, &replay);
    if (ops_lane_of(o, &m->e, &scratch, &key, &lane, &err) == 0) {
        m->e.key = key;
        m->lane = lane;
    }
    int stop = ops_message_matches(o, m) ? r->fn(o, m, r->ctx) : 0;
    lw_buf_free(&scratch);
    return stop;
}

static int tell(struct ops_log *r, const rd_kafka_message_t *k, const char *topic) {
    struct ops_message m = {.state = 'w'};
    read_record(&m, k, topic);
    int stop = r->as_stored ? r->fn(r->o, &m, r->ctx) : tell_message(r, &m, topic);
    ops_message_clear(&m);
    return stop;
}

static void over(struct ops_log *r, struct ops_span *s) {
    if (s->over) return;
    s->over = true;
    if (s->to > s->next) r->o->scanned += s->to - s->next;
    r->n_over++;
}

static int take(struct ops_log *r, struct ops_span *s, const rd_kafka_message_t *k) {
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

/* Returns an error if no record arrived since `heard_ms`, or if the command's time is up. */
static int check_silence(struct ops *o, const char *topic, int64_t heard_ms) {
    int64_t now = lw_boot_ms();
    if (now - heard_ms > SILENCE_MS)
        return refused(o, topic, RD_KAFKA_RESP_ERR__TIMED_OUT, heard_ms);
    if (!o->deadline_ms || now < o->deadline_ms - SPARE_MS) return 0;
    return now - heard_ms > SPARE_MS
               ? refused(o, topic, RD_KAFKA_RESP_ERR__TIMED_OUT, heard_ms)
               : lw_fail(&o->err,
                         "topic %s: its records take longer to read than a request may; "
                         "use a shorter range of time",
                         topic);
}

static int poll_until_over(struct ops_log *r, struct ops_span *first, size_t n) {
    int64_t heard = lw_boot_ms();
    int stop = 0;
    r->n_over = 0;
    for (size_t i = 0; i < n; i++)
        if (first[i].from >= first[i].to) over(r, &first[i]);
    while (!stop && r->n_over < n) {
        if (ops_tick(r->o)) return -1;
        rd_kafka_message_t *k = rd_kafka_consumer_poll(r->rk, POLL_MS);
        if (check_silence(r->o, first->topic, heard)) {
            if (k) rd_kafka_message_destroy(k);
            return -1;
        }
        if (!k) continue;
        struct ops_span *s = NULL;
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
static int read_all(struct ops_log *r) {
    int stop = 0;
    for (size_t i = 0; i < r->n && !stop;) {
        size_t n = 1;
        while (!r->single && i + n < r->n) n++;
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

static void take_times(struct ops_log *r) {
    r->from_ms = time_of(r->o, r->o->args.from);
    r->to_ms = time_of(r->o, r->o->args.to);
}

int ops_read_kafka(struct ops *o, ops_message_fn *fn, void *ctx) {
    struct ops_log *r = lw_alloc(sizeof *r);
    *r = (struct ops_log){.o = o, .fn = fn, .ctx = ctx};
    take_times(r);
    int stop = open_consumer(r) || choose(r) ? -1 : 0;
    if (!stop) stop = read_all(r);
    ops_log_close(r);
    return stop;
}

/* --- logs that stay open ---------------------------------------------------------------------- */

/* Makes the spans anew, since a topic may have got more partitions. */
static int find_partitions(struct ops_log *l, int most_ms) {
    int bad = 0;
    l->n = 0;
    for (size_t i = 0; !bad && i < l->n_topics; i++)
        bad = all_partitions(l, l->topics[i], -1, ask_ms(l->o, most_ms));
    return bad;
}

struct ops_log *ops_log_open(struct ops *o, char *const *topics, size_t n, int most_ms) {
    struct ops_log *l = lw_alloc(sizeof *l);
    *l = (struct ops_log){.o = o, .topics = topics, .n_topics = n, .from_ms = -1, .to_ms = -1};
    if (!open_consumer(l) && !find_partitions(l, most_ms)) return l;
    ops_log_close(l);
    return NULL;
}

int ops_log_ends(struct ops_log *l, int64_t *sum) {
    *sum = 0;
    for (size_t i = 0; i < l->n; i++) {
        int64_t low, high, asked_ms = lw_boot_ms();
        const struct ops_span *s = &l->span[i];
        rd_kafka_resp_err_t code =
            rd_kafka_query_watermark_offsets(l->rk, s->topic, s->partition, &low, &high, SHORT_MS);
        if (code) return refused(l->o, s->topic, code, asked_ms);
        *sum += high;
    }
    return 0;
}

struct ops_span *ops_log_spans(struct ops_log *l, size_t *n) {
    *n = l->n;
    return l->span;
}

int ops_log_limit(struct ops_log *l) {
    take_times(l);
    if (find_partitions(l, ASK_MS)) return -1;
    for (size_t i = 0; i < l->n; i++)
        if (limit_span(l, &l->span[i])) return -1;
    return 0;
}

int ops_log_read(struct ops_log *l, ops_message_fn *fn, void *ctx) {
    l->fn = fn;
    l->ctx = ctx;
    l->as_stored = true;
    for (size_t i = 0; i < l->n; i++) {
        l->span[i].next = l->span[i].from;
        l->span[i].over = false;
    }
    int stop = read_all(l);
    rd_kafka_assign(l->rk, NULL); /* so that nothing more is fetched meanwhile */
    return stop;
}

void ops_log_close(struct ops_log *l) {
    if (!l) return;
    if (l->rk) {
        rd_kafka_assign(l->rk, NULL);
        lw_kafka_destroy(l->rk, DESTROY_MS);
    }
    free(l->span);
    free(l);
}
