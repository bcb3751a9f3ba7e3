/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/live.h"

#include "base/clock.h"
#include "monitor/outcome_list.h"
#include "monitor/percentile.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

enum { FRESH_MS = 3000 };

/* Lists the fields of one point of the time series. The percentiles must come last: first the
 * handler's, then the end-to-end ones. */
static const char *const fields[] = {"at_ms",
                                     "received",
                                     "done",
                                     "retried",
                                     "dead",
                                     "skipped",
                                     "dropped",
                                     "parked",
                                     "drained",
                                     "lag",
                                     "waiting",
                                     "in_handler",
                                     "dead_letters",
                                     "lanes",
                                     "handler_p50_us",
                                     "handler_p99_us",
                                     "end_to_end_p50_us",
                                     "end_to_end_p99_us"};
enum { FIELDS = sizeof fields / sizeof *fields, PERCENTILES = 4 };

struct point {
    /* a percentile is -1 if the interval has no measurement, and a figure of Redis is -1 while a
     * shard does not answer */
    int64_t v[FIELDS];
};

/* The sum of the histograms of all workers. */
struct spread {
    int64_t at_ms; /* when the sum was computed, on the boot clock */
    struct lw_hist_counts handler, end_to_end;
};

struct lw_live {
    pthread_mutex_t lock; /* guards all fields below it */
    struct point point[LW_LIVE_POINTS];
    uint64_t n; /* number of points ever added */
    /* `sampled` is the sum of the histograms when the last point was added, and `told` their sum
     * when the last event "now" was made. */
    struct spread sampled, told;
};

struct lw_live *lw_live_open(void) {
    struct lw_live *l = lw_alloc(sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void lw_live_close(struct lw_live *l) {
    if (!l) return;
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static struct spread spread_of(const struct lw_metrics_source *m) {
    struct spread s = {.at_ms = m->now_ms};
    for (int i = 0; i < m->board->n_workers; i++) {
        lw_hist_counts_add(&s.handler, &m->board->workers[i].counts.handler);
        lw_hist_counts_add(&s.end_to_end, &m->board->workers[i].counts.end_to_end);
    }
    return s;
}

/* Returns -1, for unknown, while a shard does not answer. */
static int64_t sum_of_shards(const json_t *stats, const char *name) {
    const json_t *shards = json_object_get(stats, "shards");
    int64_t n = 0;
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *shard = json_array_get(shards, i);
        if (!json_is_true(json_object_get(shard, "up"))) return -1;
        n += json_integer_value(json_object_get(shard, name));
    }
    return n;
}

static int64_t field_of(const json_t *stats, const char *name) {
    if (!strcmp(name, "dead_letters")) return sum_of_shards(stats, "dead");
    if (!strcmp(name, "lanes")) return sum_of_shards(stats, "lanes");
    const json_t *v = json_object_get(stats, name);
    return json_integer_value(v ? v : json_object_get(json_object_get(stats, "counters"), name));
}

static struct point point_of(const json_t *stats, const struct spread *before,
                             const struct spread *now) {
    struct point p;
    p.v[0] = lw_wall_ms();
    for (int i = 1; i < FIELDS - PERCENTILES; i++) p.v[i] = field_of(stats, fields[i]);
    int64_t *last = &p.v[FIELDS - PERCENTILES];
    for (int i = 0; i < 2; i++) {
        double share = i ? 0.99 : 0.5;
        last[i] = lw_hist_percentile(&lw_bounds_handler, &before->handler, &now->handler, share);
        last[2 + i] =
            lw_hist_percentile(&lw_bounds_end_to_end, &before->end_to_end, &now->end_to_end, share);
    }
    return p;
}

static json_t *point_json(const struct point *p) {
    json_t *j = json_object();
    for (int i = 0; i < FIELDS; i++)
        json_object_set_new(j, fields[i], p->v[i] < 0 ? json_null() : json_integer(p->v[i]));
    return j;
}

/* Appends a Server-sent event to `out`, and frees the event's data. */
static void put_event(struct lw_buf *out, const char *name, json_t *data) {
    char *text = json_dumps(data, JSON_COMPACT);
    json_decref(data);
    lw_buf_addf(out, "event: %s\ndata: ", name);
    lw_buf_add(out, text ? text : "{}", text ? strlen(text) : 2);
    lw_buf_addf(out, "\n\n");
    free(text);
}

void lw_live_sample(struct lw_live *l, const struct lw_metrics_source *m) {
    pthread_mutex_lock(&l->lock);
    if (!l->n || m->now_ms - l->sampled.at_ms >= LW_LIVE_EVERY_MS) {
        struct spread now = spread_of(m);
        json_t *stats = lw_metrics_stats(m);
        l->point[l->n++ % LW_LIVE_POINTS] = point_of(stats, &l->sampled, &now);
        json_decref(stats);
        l->sampled = now;
    }
    pthread_mutex_unlock(&l->lock);
}

json_t *lw_live_last(struct lw_live *l) {
    pthread_mutex_lock(&l->lock);
    json_t *j = l->n ? point_json(&l->point[(l->n - 1) % LW_LIVE_POINTS]) : json_null();
    pthread_mutex_unlock(&l->lock);
    return j;
}

void lw_live_history(struct lw_live *l, struct lw_buf *out) {
    json_t *points = json_array();
    pthread_mutex_lock(&l->lock);
    for (uint64_t i = l->n > LW_LIVE_POINTS ? l->n - LW_LIVE_POINTS : 0; i < l->n; i++)
        json_array_append_new(points, point_json(&l->point[i % LW_LIVE_POINTS]));
    pthread_mutex_unlock(&l->lock);
    put_event(out, "history",
              json_pack("{s:i,s:o}", "every_ms", (int)LW_LIVE_EVERY_MS, "points", points));
}

static json_t *ledger_of(const json_t *stats) {
    static const char *const terms[] = {"received", "done",    "dead",       "dropped",
                                        "skipped",  "waiting", "in_handler", "unfinished"};
    json_t *j = json_object();
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        json_object_set_new(j, terms[i], json_integer(field_of(stats, terms[i])));
    return j;
}

/* Returns the list cut to its first LW_LIVE_PARTITIONS rows, because the list may have thousands
 * of rows. *more becomes true if rows were cut off. */
static json_t *cut(json_t *list, bool *more) {
    *more = json_array_size(list) > LW_LIVE_PARTITIONS;
    while (json_array_size(list) > LW_LIVE_PARTITIONS)
        json_array_remove(list, json_array_size(list) - 1);
    return list;
}

static struct point point_now(struct lw_live *l, const struct lw_metrics_source *m,
                              const json_t *stats) {
    pthread_mutex_lock(&l->lock);
    struct spread now = spread_of(m);
    bool fresh = l->told.at_ms && m->now_ms - l->told.at_ms <= FRESH_MS;
    struct point p = point_of(stats, fresh ? &l->told : &l->sampled, &now);
    l->told = now;
    pthread_mutex_unlock(&l->lock);
    return p;
}

/* Returns the number of dead letters since the oldest point of the last minute. */
static int64_t died_lately(struct lw_live *l, const struct point *now) {
    enum { DEAD = 4, LATELY_MS = 60000 };
    int64_t died = 0;
    assert(!strcmp(fields[DEAD], "dead"));
    pthread_mutex_lock(&l->lock);
    for (uint64_t i = l->n; i > 0 && l->n - i < LW_LIVE_POINTS; i--) {
        const struct point *p = &l->point[(i - 1) % LW_LIVE_POINTS];
        if (now->v[0] - p->v[0] > LATELY_MS) break;
        died = now->v[DEAD] - p->v[DEAD];
    }
    pthread_mutex_unlock(&l->lock);
    return died;
}

void lw_live_now(struct lw_live *l, const struct lw_metrics_source *m, json_t *hot, json_t *fleet,
                 struct lw_buf *out) {
    json_t *stats = lw_metrics_stats(m);
    struct point p = point_now(l, m, stats);
    struct lw_outcome_query failed = {.ends = 1u << LW_END_RETRY | 1u << LW_END_DEAD,
                                      .limit = LW_LIVE_FAILURES};
    bool more;
    json_t *data = json_object();
    json_object_set_new(data, "point", point_json(&p));
    json_object_set_new(data, "ledger", ledger_of(stats));
    json_object_set_new(data, "stats", stats);
    json_object_set_new(data, "workers", lw_metrics_workers(m));
    json_object_set_new(data, "partitions", cut(lw_metrics_partitions(m), &more));
    json_object_set_new(data, "more_partitions", json_boolean(more));
    json_object_set_new(data, "hot", hot);
    json_object_set_new(data, "fleet", fleet);
    json_object_set_new(data, "troubles", lw_metrics_troubles(m, fleet, died_lately(l, &p)));
    json_object_set_new(data, "failures", lw_outcomes_list(m->board, &failed));
    put_event(out, "now", data);
}
