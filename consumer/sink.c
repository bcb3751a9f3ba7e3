/* The sink: dead letters to a topic. */
#include "consumer/source.h"

#include "base/clock.h"
#include "base/log.h"
#include "consumer/source_conf.h"

#include <stdlib.h>
#include <string.h>

enum { DESTROY_MS = 3000 };

struct lw_sink {
    const struct lw_config *config;
    rd_kafka_t *rk;
    size_t unanswered;
};

/* One record under way. */
struct letter {
    struct lw_sink *sink;
    void (*done)(void *ctx, bool ok, const char *reason);
    void *ctx;
};

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk;
    (void)opaque;
    struct letter *l = m->_private;
    l->sink->unanswered--;
    l->done(l->ctx, !m->err, m->err ? rd_kafka_err2str(m->err) : "");
    free(l);
}

static void on_error(rd_kafka_t *rk, int code, const char *text, void *opaque) {
    (void)rk;
    (void)opaque;
    lw_warn("kafka producer: %s (%s)", text, rd_kafka_err2name(code));
}

static int connect_sink(struct lw_sink *k, struct lw_err *err) {
    rd_kafka_conf_t *conf = lw_kafka_conf_producer(k->config, err);
    if (!conf) return -1;
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    char why[512];
    k->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (k->rk) return 0;
    rd_kafka_conf_destroy(conf);
    return lw_fail(err, "kafka.properties: %s", why);
}

struct lw_sink *lw_sink_open(const struct lw_config *c, struct lw_err *err) {
    struct lw_sink *k = lw_alloc(sizeof *k);
    k->config = c;
    if (!connect_sink(k, err)) return k;
    free(k);
    return NULL;
}

/* An idempotent producer that met a fatal error never sends again; once nothing is under way another one takes its place. */
static int mend(struct lw_sink *k, struct lw_err *err) {
    char why[512];
    if (k->rk && !rd_kafka_fatal_error(k->rk, why, sizeof why)) return 0;
    if (k->rk) {
        if (k->unanswered) return lw_fail(err, "kafka producer: %s", why);
        lw_warn("kafka producer: %s; a new one takes its place", why);
        lw_kafka_destroy(k->rk, DESTROY_MS);
        k->rk = NULL;
    }
    return connect_sink(k, err);
}

static rd_kafka_headers_t *make_headers(const struct lw_header *headers, size_t n) {
    rd_kafka_headers_t *all = rd_kafka_headers_new(n);
    for (size_t i = 0; i < n; i++)
        rd_kafka_header_add(all, headers[i].name.p ? headers[i].name.p : "", (ssize_t)headers[i].name.n, headers[i].value.p,
                            (ssize_t)headers[i].value.n);
    return all;
}

int lw_sink_send(struct lw_sink *k, const char *topic, struct lw_bytes key, struct lw_bytes payload, const struct lw_header *headers,
                 size_t n_headers, void (*done)(void *ctx, bool ok, const char *reason), void *ctx, struct lw_err *err) {
    if (mend(k, err)) return -1;
    struct letter *l = lw_alloc(sizeof *l);
    *l = (struct letter){.sink = k, .done = done, .ctx = ctx};
    rd_kafka_headers_t *all = make_headers(headers, n_headers);
    rd_kafka_resp_err_t code = rd_kafka_producev(k->rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                                 RD_KAFKA_V_KEY(key.p, key.n), RD_KAFKA_V_VALUE((void *)(uintptr_t)payload.p, payload.n),
                                                 RD_KAFKA_V_HEADERS(all), RD_KAFKA_V_OPAQUE(l), RD_KAFKA_V_END);
    if (!code) {
        k->unanswered++;
        return 0;
    }
    rd_kafka_headers_destroy(all);
    free(l);
    return lw_fail(err, "topic %s: %s", topic, rd_kafka_err2str(code));
}

void lw_sink_poll(struct lw_sink *k) {
    if (k->rk) rd_kafka_poll(k->rk, 0);
}

void lw_sink_close(struct lw_sink *k, int64_t timeout_ms) {
    if (!k) return;
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    if (k->rk) {
        if (k->unanswered) rd_kafka_flush(k->rk, (int)timeout_ms);
        if (k->unanswered) { /* what is left is answered with an error, within this call */
            rd_kafka_purge(k->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
            rd_kafka_flush(k->rk, DESTROY_MS);
        }
        int64_t left_ms = until_ms - lw_boot_ms();
        lw_kafka_destroy(k->rk, left_ms > DESTROY_MS ? left_ms : DESTROY_MS);
    }
    free(k);
}
