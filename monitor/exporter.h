/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter: a process beside the workers that serves metrics and health (`http.listen`), and
 * writes the supervisor's heartbeat for the fleet, even if nothing is served (fleet.h). It reads
 * the board and asks Redis every few seconds. No fault of the exporter can delay a worker. If
 * another program uses the exporter's port, the workers run nevertheless, and the exporter keeps
 * trying to open the port. */
#ifndef LW_MONITOR_EXPORTER_H
#define LW_MONITOR_EXPORTER_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/http.h"

/* The functions that answer those requests below /api/v1/ that cannot be answered from the board.
 * These requests need Redis, which may be slow, so they are answered on two separate threads, one
 * of them for lengthy requests (http.h). */
struct lw_exporter_api {
    /* The process of the exporter calls `open` once, and passes the result as `self`. `c` stays
     * valid until the process ends. */
    void *(*open)(const struct lw_config *c);
    /* `lengthy` returns true if the response to this request may take seconds. It does not ask
     * Redis. */
    bool (*lengthy)(void *self, const struct lw_http_request *q);
    void (*answer)(void *self, const struct lw_http_request *q, struct lw_http_answer *a,
                   bool lengthy);
};

/* The main function of the exporter's process. It never returns; the process ends at SIGTERM, or
 * when its parent ends. `api` may be NULL. */
int lw_exporter_main(const struct lw_config *c, const struct lw_board *board,
                     const struct lw_exporter_api *api);

#endif
