/* SPDX-License-Identifier: Apache-2.0 */
/* The figures that the page shows: the current state, and the charts, which have a point every five
 * seconds of the last 15 minutes. All figures come from the board and from the exporter's last
 * questions to Redis, so a page causes no requests to Redis.
 *
 * The events are Server-sent events, as GET /api/v1/events sends them. Thread-safe. */
#ifndef LW_MONITOR_LIVE_H
#define LW_MONITOR_LIVE_H

#include "monitor/metrics.h"

enum {
    LW_LIVE_EVERY_MS = 5000,
    LW_LIVE_POINTS = 181, /* one point every 5 s for 15 minutes, including both ends */
    LW_LIVE_PARTITIONS = 512,
    LW_LIVE_FAILURES = 20
};

struct lw_live;

struct lw_live *lw_live_open(void);
void lw_live_close(struct lw_live *l);
/* Adds a point if the last point is at least LW_LIVE_EVERY_MS old. The caller must call this
 * function about once a second. m->now_ms is the time of the point. */
void lw_live_sample(struct lw_live *l, const struct lw_metrics_source *m);
/* Returns the last point as JSON, a new reference; null if there is no point yet. */
json_t *lw_live_last(struct lw_live *l);
/* Appends the event "history", which contains all points. */
void lw_live_history(struct lw_live *l, struct lw_buf *out);
/* Appends the event "now": the current point, and rows of workers, partitions, keys and failures.
 * Takes over the references to `hot`, the list of hot keys (hot.h), and to `fleet` (fleet.h). */
void lw_live_now(struct lw_live *l, const struct lw_metrics_source *m, json_t *hot, json_t *fleet,
                 struct lw_buf *out);

#endif
