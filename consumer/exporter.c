#include "consumer/exporter.h"

#include "base/clock.h"
#include "base/log.h"
#include "consumer/http.h"
#include "consumer/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 5000, SETTLE_MS = 1000, BIND_MS = 10000 };

struct exporter {
    const struct lw_config *c;
    const struct lw_board *board;
    pthread_mutex_t lock; /* guards shards, between the thread that asks Redis and the one that answers */
    struct lw_shard_look *shards;
    struct lw_shard_looker **lookers;
};

static int answer_json(json_t *v, struct lw_buf *body, const char **type) {
    char *text = json_dumps(v, JSON_COMPACT);
    lw_buf_addf(body, "%s\n", text ? text : "null");
    free(text);
    json_decref(v);
    *type = "application/json";
    return 200;
}

static int answer_health(bool well, struct lw_buf *body) {
    if (well) lw_buf_addf(body, "ok\n");
    return well ? 200 : 503;
}

static int answer(void *ctx, const char *path, struct lw_buf *body, const char **type) {
    struct exporter *e = ctx;
    struct lw_metrics_source m = {e->c, e->board, e->shards, lw_boot_ms()};
    if (!strcmp(path, "/metrics")) {
        *type = LW_METRICS_TYPE;
        pthread_mutex_lock(&e->lock);
        lw_metrics_text(&m, body);
        pthread_mutex_unlock(&e->lock);
        return 200;
    }
    if (!strcmp(path, "/healthz")) return answer_health(lw_metrics_alive(&m, body), body);
    if (!strcmp(path, "/readyz")) return answer_health(lw_metrics_ready(&m, body), body);
    if (!strcmp(path, "/version")) return answer_json(json_pack("{s:s,s:s}", "name", "latchwork", "version", LW_VERSION), body, type);
    if (!strcmp(path, "/api/v1/workers")) return answer_json(lw_metrics_workers(&m), body, type);
    if (!strcmp(path, "/api/v1/partitions")) return answer_json(lw_metrics_partitions(&m), body, type);
    if (!strcmp(path, "/api/v1/counters")) return answer_json(lw_metrics_counters(&m), body, type);
    lw_buf_addf(body, "there are /metrics /healthz /readyz /version /api/v1/workers /api/v1/partitions /api/v1/counters\n");
    return 404;
}

static void look(struct exporter *e) {
    for (int s = 0; s < e->c->redis.shards; s++) {
        struct lw_shard_look now = e->shards[s]; /* only this thread writes it */
        lw_shard_look(e->lookers[s], &now);
        pthread_mutex_lock(&e->lock);
        e->shards[s] = now;
        pthread_mutex_unlock(&e->lock);
    }
}

/* Waits for the port for as long as it is taken; says so once. */
static struct lw_http *serve(struct exporter *e) {
    bool told = false;
    for (;;) {
        struct lw_err err = {0};
        struct lw_http *h = lw_http_open(e->c->http.host, e->c->http.port, answer, e, &err);
        if (h) return h;
        if (!told) lw_warn("%s; the run goes on without metrics, and tries again; choose another http.listen, or \"off\"", err.text);
        told = true;
        lw_sleep_ms(BIND_MS);
    }
}

int lw_exporter_main(const struct lw_config *c, const struct lw_board *board) {
    struct exporter e = {.c = c, .board = board, .lock = PTHREAD_MUTEX_INITIALIZER};
    size_t n = (size_t)c->redis.shards;
    e.shards = lw_alloc(n * sizeof *e.shards);
    e.lookers = lw_alloc(n * sizeof *e.lookers);
    for (int s = 0; s < c->redis.shards; s++) e.lookers[s] = lw_shard_looker_open(c->name, s, c->redis.urls[(size_t)s % c->redis.n_urls]);
    const struct lw_http *h = serve(&e);
    lw_info("metrics on http://%s%s%s:%d/metrics", strchr(c->http.host, ':') ? "[" : "", c->http.host, strchr(c->http.host, ':') ? "]" : "",
            lw_http_port(h));
    lw_sleep_ms(SETTLE_MS); /* at the start the workers come first */
    for (;;) {
        look(&e);
        lw_sleep_ms(LOOK_MS);
    }
}
