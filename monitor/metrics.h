/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the metrics. One table (metrics.c) defines all metrics; the text for Prometheus, its HELP
 * and TYPE lines, and the reference page are made from this table.
 *
 * All values are read from the board, whose counters survive the deaths of workers, and from what
 * the exporter asked Redis shortly before (shard_look.h). Reading takes no lock that a worker could
 * wait for. Labels never hold keys: they hold only outcomes, states, shards, topics and partitions,
 * of which there are few. */
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
    int64_t now_ms;                     /* the time now, ms on the boot clock */
};

#define LW_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

void lw_metrics_text(const struct lw_metrics_source *m, struct lw_buf *out);
void lw_metrics_reference(struct lw_buf *out); /* writes doc/reference/metrics.md */
/* Lists the names of the metrics, one per line, as queries use them: a histogram has three names,
 * with _bucket, _sum and _count. Tests check the dashboards against this list. */
void lw_metrics_names(struct lw_buf *out);

/* The functions defined in metrics_api.c return the contents of the metrics as JSON, each as a new
 * reference. */
json_t *lw_metrics_workers(const struct lw_metrics_source *m);
json_t *lw_metrics_partitions(const struct lw_metrics_source *m);
json_t *lw_metrics_counters(const struct lw_metrics_source *m);
/* returns totals over all workers, and the last answer of each shard */
json_t *lw_metrics_stats(const struct lw_metrics_source *m);
/* The functions for health return true if all is well; otherwise they write to `why` what does not
 * work, in one line per fault. alive: the main loops of the supervisor and of each running worker
 * turn. ready: every worker is connected to all shards, is in the consumer group, and can read its
 * partitions. */
bool lw_metrics_alive(const struct lw_metrics_source *m, struct lw_buf *why);
bool lw_metrics_ready(const struct lw_metrics_source *m, struct lw_buf *why);

#endif
