/* SPDX-License-Identifier: Apache-2.0 */
/* /api/v1/: what the commands queue, dead and lock show and do, as JSON over HTTP, in the process that serves the metrics.
 * doc/reference/http.md says which paths there are; they are made of the commands' own functions.
 *
 * One request after the other, in a thread and with connections of their own (monitor/http.h): Redis has at most one question of it at a
 * time. Every question has a timeout, every request a limit, every answer a bound; a Redis that does not answer costs this API its answers
 * and nothing else. */
#ifndef LW_CLI_API_API_H
#define LW_CLI_API_API_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/exporter.h"

extern const struct lw_exporter_api lw_api;

/* lw_exporter_main() with this API. */
int lw_api_exporter_main(const struct lw_config *c, const struct lw_board *board);

#endif
