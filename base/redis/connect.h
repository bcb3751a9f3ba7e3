/* SPDX-License-Identifier: Apache-2.0 */
/* One blocking Redis connection, for tools and for the exporter: connects within timeout_ms, logs in as the URL says, and gives up on any
 * answer after timeout_ms. Workers have connections of their own that never block (base/redis/wire.h). */
#ifndef LW_BASE_REDIS_CONNECT_H
#define LW_BASE_REDIS_CONNECT_H

#include "base/err.h"

#include <hiredis/hiredis.h>
#include <stdint.h>

/* Returns NULL with *err on failure; err never holds the password. Free the connection with
 * redisFree(). */
redisContext *lw_redis_connect(const char *url, int64_t timeout_ms, struct lw_err *err);

#endif
