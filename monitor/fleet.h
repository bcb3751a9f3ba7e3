/* SPDX-License-Identifier: Apache-2.0 */
/* This supervisor's part in the fleet: its exporter writes a heartbeat with its figures to Redis
 * every few seconds, and reads those of the other supervisors in the same call (ops/fleet.h). So
 * the page shows the whole fleet, at no cost per message. Each wait has a limit. */
#ifndef LW_MONITOR_FLEET_H
#define LW_MONITOR_FLEET_H

#include "config/config.h"
#include "consumer/board.h"

#include <jansson.h>

struct lw_fleet;

/* Must be called in a child of the supervisor, whose process id is then the supervisor's. Does not
 * connect yet. `c` and `board` must stay valid. */
struct lw_fleet *lw_fleet_open(const struct lw_config *c, const struct lw_board *board);
void lw_fleet_close(struct lw_fleet *f);
/* Says on which port the page is served, once that is known. Thread-safe. */
void lw_fleet_serves(struct lw_fleet *f, int port);
/* Writes a heartbeat with the figures of `stats` (lw_metrics_stats()), and reads all. If the
 * supervisor itself stands still, only reads. One thread calls this function, every
 * OPS_FLEET_EVERY_MS. Of several failures in a row, only the first is logged. */
void lw_fleet_beat(struct lw_fleet *f, const json_t *stats);
/* Removes this supervisor's heartbeat, because it ends. The thread of lw_fleet_beat() calls it. */
void lw_fleet_leave(struct lw_fleet *f);
/* Returns the fleet as GET /api/v1/fleet answers it (doc/reference/http.md). Thread-safe. */
json_t *lw_fleet_json(struct lw_fleet *f);

#endif
