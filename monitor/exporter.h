/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter: a process beside the workers that serves metrics and health (`http.listen`). It
 * reads the board and asks Redis every few seconds. Whatever happens to the exporter, it cannot
 * delay a worker. If its port is taken, the run continues, and the exporter keeps trying to get the
 * port. */
#ifndef LW_MONITOR_EXPORTER_H
#define LW_MONITOR_EXPORTER_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/http.h"

/* The part of /api/v1/ that the board cannot answer. This part asks Redis, so it may be slow and
 * runs in two threads of its own, one of them for lengthy requests (http.h). */
struct lw_exporter_api {
    /* called once; c stays valid until the process ends */
    void *(*open)(const struct lw_config *c);
    /* returns true if the answer may take seconds; asks no Redis */
    bool (*lengthy)(void *self, const struct lw_http_request *q);
    void (*answer)(void *self, const struct lw_http_request *q, struct lw_http_answer *a,
                   bool lengthy);
};

/* The main function of the process. It never returns; the process ends with its parent. api may
 * be NULL. */
int lw_exporter_main(const struct lw_config *c, const struct lw_board *board,
                     const struct lw_exporter_api *api);

#endif
