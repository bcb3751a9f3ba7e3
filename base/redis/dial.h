/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that is connected to a Redis, or on its way to be.
 *
 * hiredis 0.14 connects by functions that abort when an allocation fails, and whose sockets leak into processes that other threads start
 * meanwhile. The socket made here goes to redisConnectFd(). */
#ifndef LW_BASE_REDIS_DIAL_H
#define LW_BASE_REDIS_DIAL_H

#include "base/err.h"
#include "base/redis/url.h"

#include <stdint.h>

/* Connects within timeout_ms and returns a blocking socket. With timeout_ms 0 it returns a non-blocking socket whose connection
 * may still be under way. -1 with *err on failure. Only resolving a host's name can take longer. */
int lw_dial(const struct lw_redis_url *url, int64_t timeout_ms, struct lw_err *err);

#endif
