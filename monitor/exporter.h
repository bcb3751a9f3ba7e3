/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter: a process beside the workers that serves metrics and health (`http.listen`). It
 * reads the board and asks Redis every few seconds. Nothing that happens to it can delay a worker.
 * If its port is taken, the run goes on without it, and it tries again. */
#ifndef LW_MONITOR_EXPORTER_H
#define LW_MONITOR_EXPORTER_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/http.h"

/* The part of /api/v1/ that is not on the board. It asks Redis, so it has a thread of its own
 * (http.h) and may be slow. */
struct lw_exporter_api {
    void *(*open)(const struct lw_config *c); /* called once; c stays valid */
    void (*answer)(void *self, const struct lw_http_request *q, struct lw_http_answer *a);
};

/* Main function of the process; ends with its parent, and does not return. api may be NULL. */
int lw_exporter_main(const struct lw_config *c, const struct lw_board *board, const struct lw_exporter_api *api);

#endif
