/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP API below /api/v1/ offers what the commands queue, dead and lock show and do, as JSON,
 * in the process that serves the metrics. doc/reference/http.md lists the paths. Each path calls
 * functions of its command.
 *
 * Requests are answered in two threads, each with its own connections (monitor/http.h): one for
 * requests that may look at all lanes or dead letters for seconds, one for all others. Each thread
 * answers one request after the other, so that at most two questions are in flight to Redis. Every
 * question has a timeout, every request a time limit and every answer a maximum size, so a Redis
 * that does not answer makes only this API fail. */
#ifndef LW_CLI_API_API_H
#define LW_CLI_API_API_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/exporter.h"

extern const struct lw_exporter_api lw_api;

/* Runs lw_exporter_main() with this API added. */
int lw_api_exporter_main(const struct lw_config *c, const struct lw_board *board);

#endif
