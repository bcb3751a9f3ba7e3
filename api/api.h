/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP API below /api/v1/ offers in JSON what the commands `queue`, `dead` and `lock` show and
 * do. It runs in the process that serves the metrics. doc/reference/http.md lists the paths. Each
 * path calls the functions of the command that does the same work.
 *
 * Two threads answer requests, each with its own connections (monitor/http.h): one thread answers
 * the requests that may take seconds because they look at all lanes or dead letters; the other
 * thread answers the rest. Each thread answers one request after the other, so the two threads
 * together have at most two commands in flight to Redis. Every command has a timeout, every request
 * a time limit and every response a maximum size. So only the API fails if Redis does not answer;
 * the metrics are still served. */
#ifndef LW_API_API_H
#define LW_API_API_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/exporter.h"

/* Runs lw_exporter_main(), the main function of the process that serves the metrics, in such a way
 * that the process also serves the HTTP API. */
int lw_api_exporter_main(const struct lw_config *c, const struct lw_board *board);

#endif
