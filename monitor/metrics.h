/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the metrics. One table in metrics.c defines all metrics. The text for Prometheus with its
 * HELP and TYPE lines, and the reference page, are generated from this table.
 *
 * All values come from the board, whose counters survive the deaths of workers, and from the
 * exporter's last questions to Redis (shard_look.h). The functions lock no mutex that a worker
 * could wait for. Labels have few values, such as outcomes, states, shards, topics and partitions.
 * The key of a message is never a label. */
#ifndef LW_MONITOR_METRICS_H
#define LW_MONITOR_METRICS_H

#include "base/bytes.h"
#include "config/config.h"
#include "consumer/board.h"
#include "monitor/shard_look.h"

#include <jansson.h>

struct lw_metrics_source {
    const struct lw_config *config;
    const struct lw_board *board;
    const struct lw_shard_look *shards; /* an array with one element per shard */
    int64_t now_ms;                     /* current time; boot clock */
};

#define LW_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

void lw_metrics_text(const struct lw_metrics_source *m, struct lw_buf *out);
void lw_metrics_reference(struct lw_buf *out); /* writes doc/reference/metrics.md */
/* Lists the names of all metrics as queries use them, one per line. A histogram has three names,
 * with _bucket, _sum and _count. Tests check the dashboards against this list. */
void lw_metrics_names(struct lw_buf *out);

/* The functions below are defined in metrics_api.c. The JSON functions return the same figures as
 * the metrics, each as a new reference. */
json_t *lw_metrics_workers(const struct lw_metrics_source *m);
json_t *lw_metrics_partitions(const struct lw_metrics_source *m);
/* The fields of struct lw_counts that the API reports (api/routes.c makes their shape of them). */
/* clang-format off */
#define LW_API_COUNTERS(X) \
    X(done) X(dead) X(dropped) X(skipped) X(received) X(redelivered) X(parked) X(drained) \
    X(retried) X(stale) X(commits) X(epochs_lost) X(leases_lost) X(locks_granted) \
    X(locks_busy) X(redis_commands) X(redis_round_trips)
/* clang-format on */
json_t *lw_metrics_counters(const struct lw_metrics_source *m);
/* Returns totals over all workers, and the last figures of each shard. */
json_t *lw_metrics_stats(const struct lw_metrics_source *m);
/* Returns what is wrong now, the worst first: [{"text","link"}]. Each text is one sentence, and the
 * link is the part of the page's address behind # that shows more. `fleet` is what lw_fleet_json()
 * returned, and `died` the number of dead letters in the last minute. */
json_t *lw_metrics_troubles(const struct lw_metrics_source *m, const json_t *fleet, int64_t died);
/* lw_metrics_alive() returns true if the main loops of the supervisor and of each running worker
 * turn. lw_metrics_ready() returns true if every worker is connected to all shards, is in the
 * consumer group, and can read its partitions; what ails another host does not count. Otherwise
 * each function writes one line per fault to `why` and returns false. lw_metrics_ready() writes the
 * sentences of lw_metrics_troubles(). */
bool lw_metrics_alive(const struct lw_metrics_source *m, struct lw_buf *why);
bool lw_metrics_ready(const struct lw_metrics_source *m, struct lw_buf *why);

#endif
