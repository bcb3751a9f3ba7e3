/* SPDX-License-Identifier: Apache-2.0 */
/* The sink sends dead letters to a topic. */
#include "kafka/source.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/conf.h"
#include "kafka/explain.h"

#include <stdlib.h>
#include <string.h>

enum { DESTROY_MS = 3000 };

/* A sink has two Kafka clients. The first client sends dead letters in batches, and a broker
 * accepts or rejects a whole batch. If a batch is rejected, the second client sends each of its
 * letters again alone, so another rejection proves that the letter itself is at fault. */
enum { BATCHED, ALONE, CLIENTS };

struct lw_sink {
    const struct lw_config *config;
    rd_kafka_t *rk[CLIENTS]; /* the second client, rk[ALONE], is created when it is first needed */
    size_t unanswered[CLIENTS];
    bool closing;
};

/* A dead letter that was sent and not answered yet. */
struct letter {
    struct lw_sink *sink;
    int by; /* index in `rk` of the client that sent the letter */
    void (*done)(void *ctx, enum lw_letter_end how, const char *reason);
    void *ctx;
};

/* Returns true if every retry would fail because of the letter itself. A missing topic or missing
 * rights do not count, because they affect every letter and can be fixed. */
static bool for_good(rd_kafka_resp_err_t code) {
    return code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
           code == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE ||
           code == RD_KAFKA_RESP_ERR_INVALID_RECORD;
}

static int produce(struct letter *l, const char *topic, struct lw_bytes key,
                   struct lw_bytes payload, rd_kafka_headers_t *headers, struct lw_err *err);

static bool send_alone(struct letter *l, const rd_kafka_message_t *m) {
    struct lw_err err = {0};
    rd_kafka_headers_t *headers = NULL;
    if (l->by == ALONE || l->sink->closing) return false;
    l->by = ALONE;
    headers = rd_kafka_message_headers(m, &headers) ? rd_kafka_headers_new(0)
                                                    : rd_kafka_headers_copy(headers);
    if (!produce(l, rd_kafka_topic_name(m->rkt), lw_bytes(m->key, m->key_len),
                 lw_bytes(m->payload, m->len), headers, &err))
        return true;
    l->by = BATCHED;
    return false;
}

/* Explains an error. The code of a fatal error may hide its cause: a producer that is not allowed
 * to write to any topic gets CLUSTER_AUTHORIZATION_FAILED. */
static const char *explain(const struct lw_sink *k, rd_kafka_t *rk, rd_kafka_resp_err_t code,
                           const char *text, const char *topic, char out[LW_EXPLAINED_MAX]) {
    char why[512];
    rd_kafka_resp_err_t cause = code == RD_KAFKA_RESP_ERR__FATAL
                                    ? rd_kafka_fatal_error(rk, why, sizeof why)
                                    : RD_KAFKA_RESP_ERR_NO_ERROR;
    return lw_kafka_explain(k->config, cause ? cause : code, cause ? why : text, "WRITE", topic,
                            out);
}

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)opaque;
    struct letter *l = m->_private;
    l->sink->unanswered[l->by]--;
    bool refused = for_good(m->err);
    if (refused && send_alone(l, m)) return;
    enum lw_letter_end how = !m->err                     ? LW_SENT
                             : refused && l->by == ALONE ? LW_SENT_NEVER
                                                         : LW_SENT_LATER;
    char why[LW_EXPLAINED_MAX];
    const char *topic = rd_kafka_topic_name(m->rkt), *text = rd_kafka_err2str(m->err);
    l->done(l->ctx, how, m->err ? explain(l->sink, rk, m->err, text, topic, why) : "");
    free(l);
}

static void on_error(rd_kafka_t *rk, int code, const char *text, void *sink) {
    char out[LW_EXPLAINED_MAX];
    const struct lw_sink *k = sink;
    lw_warn_some(3, "kafka producer: %s (%s)", explain(k, rk, code, text, NULL, out),
                 rd_kafka_err2name(code));
}

static int connect_sink(struct lw_sink *k, int which, struct lw_err *err) {
    rd_kafka_conf_t *conf = lw_kafka_conf_producer(k->config, err);
    if (!conf) return -1;
    char why[512];
    if (which == ALONE && rd_kafka_conf_set(conf, "batch.num.messages", "1", why, sizeof why))
        lw_warn("kafka producer: can't set batch.num.messages: %s; its default stays", why);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_opaque(conf, k);
    k->rk[which] = lw_kafka_new(k->config, RD_KAFKA_PRODUCER, conf, err);
    return k->rk[which] ? 0 : -1;
}

struct lw_sink *lw_sink_open(const struct lw_config *c, struct lw_err *err) {
    struct lw_sink *k = lw_alloc(sizeof *k);
    k->config = c;
    if (!connect_sink(k, BATCHED, err)) return k;
    free(k);
    return NULL;
}

/* Connects a producer, or replaces it after a fatal error, because an idempotent producer never
 * sends again after such an error. Returns -1 with *err if this fails, or if letters of the old
 * producer are still in flight; the caller then tries again later. */
static int mend(struct lw_sink *k, int which, struct lw_err *err) {
    char why[512];
    rd_kafka_t *rk = k->rk[which];
    if (rk && !rd_kafka_fatal_error(rk, why, sizeof why)) return 0;
    if (rk) {
        if (k->unanswered[which]) return lw_fail(err, "kafka producer: %s", why);
        char out[LW_EXPLAINED_MAX];
        lw_warn("kafka producer: %s; replacing it with a new one",
                explain(k, rk, RD_KAFKA_RESP_ERR__FATAL, why, NULL, out));
        lw_kafka_destroy(rk, DESTROY_MS);
        k->rk[which] = NULL;
    }
    return connect_sink(k, which, err);
}

static rd_kafka_headers_t *make_headers(const struct lw_header *headers, size_t n) {
    rd_kafka_headers_t *all = rd_kafka_headers_new(n);
    for (size_t i = 0; i < n; i++)
        rd_kafka_header_add(all, headers[i].name.p ? headers[i].name.p : "",
                            (ssize_t)headers[i].name.n, headers[i].value.p,
                            (ssize_t)headers[i].value.n);
    return all;
}

/* Passes a letter to librdkafka and takes ownership of the headers. Returns 0 if the letter is in
 * flight. On failure returns -1 or 1, as lw_sink_send() does, with *err. */
static int produce(struct letter *l, const char *topic, struct lw_bytes key,
                   struct lw_bytes payload, rd_kafka_headers_t *headers, struct lw_err *err) {
    struct lw_sink *k = l->sink;
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR__FAIL;
    bool ready = !mend(k, l->by, err);
    if (ready)
        code = rd_kafka_producev(k->rk[l->by], RD_KAFKA_V_TOPIC(topic),
                                 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                 RD_KAFKA_V_KEY((void *)(uintptr_t)key.p, key.n),
                                 RD_KAFKA_V_VALUE((void *)(uintptr_t)payload.p, payload.n),
                                 RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(l), RD_KAFKA_V_END);
    if (!code) {
        k->unanswered[l->by]++;
        return 0;
    }
    rd_kafka_headers_destroy(headers);
    if (ready) lw_fail(err, "topic %s: %s", topic, rd_kafka_err2str(code));
    return for_good(code) ? 1 : -1;
}

int lw_sink_send(struct lw_sink *k, const char *topic, struct lw_bytes key, struct lw_bytes payload,
                 const struct lw_header *headers, size_t n_headers,
                 void (*done)(void *ctx, enum lw_letter_end how, const char *reason), void *ctx,
                 struct lw_err *err) {
    struct letter *l = lw_alloc(sizeof *l);
    *l = (struct letter){.sink = k, .done = done, .ctx = ctx};
    int bad = produce(l, topic, key, payload, make_headers(headers, n_headers), err);
    if (bad) free(l);
    return bad;
}

void lw_sink_poll(struct lw_sink *k) {
    for (int i = 0; i < CLIENTS; i++)
        if (k->rk[i]) rd_kafka_poll(k->rk[i], 0);
}

static size_t unanswered(const struct lw_sink *k) {
    size_t n = 0;
    for (int i = 0; i < CLIENTS; i++) n += k->unanswered[i];
    return n;
}

size_t lw_sink_wait(struct lw_sink *k, size_t most, int64_t limit_ms) {
    int64_t until_ms = lw_boot_ms() + limit_ms;
    while (unanswered(k) > most && lw_boot_ms() < until_ms) {
        lw_sink_poll(k);
        if (unanswered(k) > most) lw_sleep_ms(1);
    }
    return unanswered(k);
}

void lw_sink_close(struct lw_sink *k, int64_t timeout_ms) {
    if (!k) return;
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    k->closing = true;
    for (int i = 0; i < CLIENTS; i++) {
        int64_t left_ms = until_ms - lw_boot_ms();
        if (!k->rk[i]) continue;
        if (k->unanswered[i]) rd_kafka_flush(k->rk[i], left_ms > 0 ? (int)left_ms : 0);
        if (k->unanswered[i]) {
            /* purge the remaining letters, so that the second flush reports each of them as an
             * error */
            rd_kafka_purge(k->rk[i], RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
            rd_kafka_flush(k->rk[i], DESTROY_MS);
        }
        left_ms = until_ms - lw_boot_ms();
        lw_kafka_destroy(k->rk[i], left_ms > DESTROY_MS ? left_ms : DESTROY_MS);
    }
    free(k);
}
