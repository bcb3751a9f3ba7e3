/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/exporter.h"

#include "base/clock.h"
#include "base/log.h"
#include "monitor/access.h"
#include "monitor/fleet.h"
#include "monitor/hot.h"
#include "monitor/live.h"
#include "monitor/metrics.h"
#include "monitor/outcome_list.h"
#include "monitor/page.h"
#include "ops/fleet.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOOK_MS = 5000, TICK_MS = 1000, SETTLE_MS = 1000, BIND_MS = 10000 };

struct exporter {
    const struct lw_config *c;
    const struct lw_board *board;
    pthread_mutex_t lock; /* guards `shards`, which one thread writes and other threads read */
    struct lw_shard_look *shards;
    struct lw_shard_looker **lookers;
    struct lw_live *live;
    struct lw_hot *hot;
    struct lw_fleet *fleet;
    struct lw_http *http;
    const struct lw_exporter_api *api;
    void *api_self;
};

static void put_health(struct lw_http_answer *a, bool well) {
    if (well) lw_buf_addf(&a->body, "ok\n");
    a->status = well ? 200 : 503;
}

static json_t *version(const struct lw_metrics_source *m) {
    (void)m;
    return json_pack("{s:s,s:s}", "name", "latchwork", "version", LW_VERSION);
}

/* Requests for these paths, and for the paths in live_paths, are answered from the board. All other
 * paths below /api/v1/ belong to the API. */
static const struct {
    const char *path;
    json_t *(*fn)(const struct lw_metrics_source *m);
} board_paths[] = {
    {"/version", version},
    {"/api/v1/version", version},
    {"/api/v1/workers", lw_metrics_workers},
    {"/api/v1/partitions", lw_metrics_partitions},
    {"/api/v1/counters", lw_metrics_counters},
    {"/api/v1/stats", lw_metrics_stats},
};

static bool answer_page(const struct lw_http_request *q, struct lw_http_answer *a) {
    const struct lw_page_file *file = lw_page_find(q->path);
    if (!file) return false;
    const struct lw_page_form *form = &file->form[q->takes_gzip];
    bool has_it = q->if_none_match && strstr(q->if_none_match, form->tag);
    if (!has_it) lw_buf_add(&a->body, form->bytes, form->n);
    a->status = has_it ? 304 : 200;
    a->type = file->type;
    a->tag = form->tag;
    a->gzip = q->takes_gzip;
    return true;
}

/* The next functions answer the paths that the page requests. They do not wait for Redis. */
typedef void live_fn(struct exporter *e, const struct lw_metrics_source *m,
                     const struct lw_http_request *q, struct lw_http_answer *a);

static void answer_session(struct exporter *e, const struct lw_metrics_source *m,
                           const struct lw_http_request *q, struct lw_http_answer *a) {
    (void)m;
    lw_http_json(a, 200, lw_access_session(e->c, q->authorization));
}

static void answer_outcomes(struct exporter *e, const struct lw_metrics_source *m,
                            const struct lw_http_request *q, struct lw_http_answer *a) {
    struct lw_outcome_query query;
    (void)m;
    if (lw_outcome_query(q, &query, a)) lw_http_json(a, 200, lw_outcomes_answer(e->board, &query));
}

static void answer_point(struct exporter *e, const struct lw_metrics_source *m,
                         const struct lw_http_request *q, struct lw_http_answer *a) {
    (void)m, (void)q;
    lw_http_json(
        a, 200,
        json_pack("{s:i,s:o}", "every_ms", (int)LW_LIVE_EVERY_MS, "point", lw_live_last(e->live)));
}

static void answer_fleet(struct exporter *e, const struct lw_metrics_source *m,
                         const struct lw_http_request *q, struct lw_http_answer *a) {
    (void)m, (void)q;
    lw_http_json(a, 200, lw_fleet_json(e->fleet));
}

static json_t *hot_keys(struct exporter *e) {
    return lw_hot_list(e->hot, e->board, lw_wall_ms(), lw_boot_ms());
}

/* Begins a stream with everything that the page shows at first, so that the page need not wait for
 * the next tick. */
static void answer_events(struct exporter *e, const struct lw_metrics_source *m,
                          const struct lw_http_request *q, struct lw_http_answer *a) {
    /* No stream begins for a POST, which the caller refuses. A stream that has begun can no longer
     * be refused. */
    if (q->post) return;
    lw_live_history(e->live, &a->body);
    pthread_mutex_lock(&e->lock);
    lw_live_now(e->live, m, hot_keys(e), lw_fleet_json(e->fleet), &a->body);
    pthread_mutex_unlock(&e->lock);
    a->status = 200;
    a->type = "text/event-stream";
    a->stream = true;
}

static const struct {
    const char *path;
    bool open; /* true if the path needs no token */
    live_fn *fn;
} live_paths[] = {
    {"/api/v1/session", true, answer_session}, {"/api/v1/outcomes", false, answer_outcomes},
    {"/api/v1/point", false, answer_point},    {"/api/v1/fleet", false, answer_fleet},
    {"/api/v1/events", false, answer_events},
};

/* Answers metrics and health, which need no token. */
static bool answer_health(struct exporter *e, const struct lw_metrics_source *m,
                          const struct lw_http_request *q, struct lw_http_answer *a) {
    const char *path = q->path;
    bool known = true;
    pthread_mutex_lock(&e->lock); /* look() writes the shards meanwhile */
    if (!strcmp(path, "/metrics")) {
        a->type = LW_METRICS_TYPE;
        lw_metrics_text(m, &a->body);
        a->status = 200;
    } else if (!strcmp(path, "/healthz")) {
        put_health(a, lw_metrics_alive(m, &a->body));
    } else if (!strcmp(path, "/readyz")) {
        put_health(a, lw_metrics_ready(m, &a->body));
    } else {
        known = false;
    }
    pthread_mutex_unlock(&e->lock);
    return known;
}

static bool answer_quick(struct exporter *e, const struct lw_http_request *q,
                         struct lw_http_answer *a) {
    struct lw_metrics_source m = {e->c, e->board, e->shards, lw_boot_ms()};
    const char *path = q->path;
    if (answer_health(e, &m, q, a) || answer_page(q, a)) return true;
    for (size_t i = 0; i < sizeof live_paths / sizeof *live_paths; i++) {
        if (strcmp(path, live_paths[i].path)) continue;
        if (live_paths[i].open || lw_access_allowed(e->c, q, false, a))
            live_paths[i].fn(e, &m, q, a);
        return true;
    }
    for (size_t i = 0; i < sizeof board_paths / sizeof *board_paths; i++) {
        if (strcmp(path, board_paths[i].path)) continue;
        if (!strncmp(path, "/api/", 5) && !lw_access_allowed(e->c, q, false, a)) return true;
        pthread_mutex_lock(&e->lock);
        lw_http_json(a, 200, board_paths[i].fn(&m));
        pthread_mutex_unlock(&e->lock);
        return true;
    }
    return false;
}

static void refuse_post(const struct lw_http_request *q, struct lw_http_answer *a) {
    if (!q->post) return;
    lw_buf_free(&a->body);
    *a = (struct lw_http_answer){.status = 405};
    if (!strncmp(q->path, "/api/", 5))
        lw_http_error(a, 405, "read-only path; use GET");
    else
        lw_buf_addf(&a->body, "read-only: GET or HEAD\n");
}

static bool quick(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a) {
    struct exporter *e = ctx;
    bool api = !strncmp(q->path, "/api/", 5);
    if (answer_quick(e, q, a)) return refuse_post(q, a), true;
    if (api && e->api) return false;
    a->status = 404;
    lw_buf_addf(&a->body, "there are / /metrics /healthz /readyz /version /api/v1\n");
    return true;
}

/* Answers requests to http.health_listen. */
static bool quick_health(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a) {
    struct exporter *e = ctx;
    struct lw_metrics_source m = {e->c, e->board, e->shards, lw_boot_ms()};
    if (answer_health(e, &m, q, a)) return refuse_post(q, a), true;
    a->status = 404;
    lw_buf_addf(&a->body, "there are /metrics /healthz /readyz; all else is at http.listen\n");
    return true;
}

static bool lengthy(void *ctx, const struct lw_http_request *q) {
    struct exporter *e = ctx;
    return e->api->lengthy(e->api_self, q);
}

static void slow(void *ctx, const struct lw_http_request *q, struct lw_http_answer *a,
                 bool is_lengthy) {
    struct exporter *e = ctx;
    e->api->answer(e->api_self, q, a, is_lengthy);
}

static void look(struct exporter *e) {
    for (int s = 0; s < e->c->redis.shards; s++) {
        /* no mutex is needed for this read, because only this thread writes `shards` */
        struct lw_shard_look now = e->shards[s];
        lw_shard_look(e->lookers[s], &now);
        pthread_mutex_lock(&e->lock);
        e->shards[s] = now;
        pthread_mutex_unlock(&e->lock);
    }
}

/* Copies the last figures of the shards. The caller works with the copy, so that it does not hold
 * the mutex while it works. */
static void copy_shards(struct exporter *e, struct lw_shard_look *to) {
    pthread_mutex_lock(&e->lock);
    memcpy(to, e->shards, (size_t)e->c->redis.shards * sizeof *to);
    pthread_mutex_unlock(&e->lock);
}

/* Once per second, takes a sample for the charts and sends the current figures to every open page.
 * This thread never waits for Redis. */
static void *tick(void *ctx) {
    struct exporter *e = ctx;
    struct lw_shard_look *shards = lw_alloc((size_t)e->c->redis.shards * sizeof *shards);
    struct lw_buf text = {0};
    for (;; lw_sleep_ms(TICK_MS)) {
        copy_shards(e, shards);
        struct lw_metrics_source m = {e->c, e->board, shards, lw_boot_ms()};
        lw_live_sample(e->live, &m);
        if (!lw_http_streams(e->http)) continue;
        text.n = 0;
        lw_live_now(e->live, &m, hot_keys(e), lw_fleet_json(e->fleet), &text);
        lw_http_publish(e->http, lw_bytes(text.p, text.n));
    }
    return NULL;
}

/* Tells the fleet about this supervisor every few seconds. Ends the process at SIGTERM, which is
 * blocked in all threads, after it has told the fleet that this supervisor ends. */
static void *beat(void *ctx) {
    static const struct timespec every = {.tv_sec = OPS_FLEET_EVERY_MS / 1000};
    struct exporter *e = ctx;
    struct lw_shard_look *shards = lw_alloc((size_t)e->c->redis.shards * sizeof *shards);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    do {
        copy_shards(e, shards);
        struct lw_metrics_source m = {e->c, e->board, shards, lw_boot_ms()};
        json_t *stats = lw_metrics_stats(&m);
        lw_fleet_beat(e->fleet, stats);
        json_decref(stats);
    } while (sigtimedwait(&term, NULL, &every) != SIGTERM);
    lw_fleet_leave(e->fleet);
    _exit(0);
}

static void block_sigterm(void) {
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
}

static void start(struct exporter *e, void *(*fn)(void *), const char *without) {
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, fn, e);
    if (failed) lw_warn("cannot start a thread for HTTP: %s; %s", strerror(failed), without);
}

/* Opens a port. While this fails, for example because another program uses the port, logs the
 * reason once and keeps trying. */
static struct lw_http *serve(const char *key, const char *host, int port,
                             const struct lw_http_handler *handler) {
    const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : "";
    bool told = false;
    for (;;) {
        struct lw_err err = {0};
        struct lw_http *h = lw_http_open(host, port, handler, &err);
        if (h) {
            lw_info("metrics on http://%s%s%s:%d/metrics", open, host, close, lw_http_port(h));
            return h;
        }
        if (!told)
            lw_warn("%s; the run goes on without metrics; retrying every %d ms; choose another "
                    "%s, or \"off\"",
                    err.text, BIND_MS, key);
        told = true;
        lw_sleep_ms(BIND_MS);
    }
}

static void *serve_health(void *ctx) {
    struct exporter *e = ctx;
    struct lw_http_handler handler = {
        .ctx = e, .quick = quick_health, .hosts = e->c->http.hosts, .n_hosts = e->c->http.n_hosts};
    serve("http.health_listen", e->c->http.health_host, e->c->http.health_port, &handler);
    return NULL;
}

int lw_exporter_main(const struct lw_config *c, const struct lw_board *board,
                     const struct lw_exporter_api *api) {
    struct exporter e = {.c = c, .board = board, .lock = PTHREAD_MUTEX_INITIALIZER, .api = api};
    if (api) e.api_self = api->open(c);
    size_t n = (size_t)c->redis.shards;
    e.shards = lw_alloc(n * sizeof *e.shards);
    e.lookers = lw_alloc(n * sizeof *e.lookers);
    for (int s = 0; s < c->redis.shards; s++) e.lookers[s] = lw_shard_looker_open(c, s);
    e.live = lw_live_open();
    e.hot = lw_hot_open();
    e.fleet = lw_fleet_open(c, board);
    block_sigterm();
    start(&e, beat, "this supervisor is missing in the fleet");
    while (!c->http.host) lw_sleep_ms(LOOK_MS); /* nothing is served */
    if (c->http.health_host) start(&e, serve_health, "http.health_listen is not served");
    struct lw_http_handler handler = {&e, quick, lengthy, slow, c->http.hosts, c->http.n_hosts};
    e.http = serve("http.listen", c->http.host, c->http.port, &handler);
    lw_fleet_serves(e.fleet, lw_http_port(e.http));
    start(&e, tick, "the page shows no charts and no live figures");
    lw_sleep_ms(SETTLE_MS); /* the exporter leaves the CPU to the workers while they start */
    for (int64_t next_ms = 0;; lw_sleep_ms(TICK_MS)) {
        int64_t now_ms = lw_boot_ms();
        if (now_ms >= next_ms) {
            look(&e);
            next_ms = now_ms + LOOK_MS;
        }
        if (lw_http_streams(e.http)) lw_hot_ask(e.hot, c, e.lookers, now_ms);
    }
}
