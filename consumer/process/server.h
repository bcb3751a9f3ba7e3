/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the server, which is the one thread on which a handler with `serve` (handlers/handler.h)
 * runs all messages of its worker. The server is the counterpart of the pool
 * (consumer/process/pool.h), which runs handlers with `run`. lw_server_submit(), lw_server_reap()
 * and lw_server_close() do what lw_pool_submit(), lw_pool_reap() and lw_pool_close() do. */
#ifndef LW_CONSUMER_PROCESS_SERVER_H
#define LW_CONSUMER_PROCESS_SERVER_H

#include "consumer/board.h"
#include "handlers/handler.h"

struct lw_server;

/* Starts the handler's processes, then the thread of the server. `counts` may be NULL. */
struct lw_server *lw_server_open(const struct lw_handler_type *t, struct lw_handler *h,
                                 int processes, int64_t timeout_ms, struct lw_counts *counts,
                                 int notify_fd, struct lw_err *err);
void lw_server_submit(struct lw_server *s, struct lw_job **jobs, size_t n);
size_t lw_server_reap(struct lw_server *s, struct lw_job **out, size_t max);
bool lw_server_close(struct lw_server *s, int64_t grace_ms);

#endif
