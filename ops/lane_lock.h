/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a command hold the lock of a lane, so that operators' scripts and the handlers of a key
 * exclude each other.
 *
 * The lock is a lock of the lock library with the names of the consumer: lw:{NAME.SHARD}:lock:KEY
 * holds TOKEN:FENCE as a worker writes it, the fence comes from the shard's counter, and the
 * release leaves a hint if messages wait. Only the acquire function differs from the library's: it
 * joins the shard's epoch as a worker does, and takes the lane with hold.lua, which refuses during
 * the quarantine and, unless lw_lane_lock_take_paused() was called, while the lane is paused.
 *
 * A command has no place in the waiting list, but competes for the free lane: it calls hold.lua
 * every 10 to 100 ms. If workers pass a lane from message to message without a gap, the command
 * may wait until the list is empty or max_run is reached. */
#ifndef LW_OPS_LANE_LOCK_H
#define LW_OPS_LANE_LOCK_H

#include "base/bytes.h"
#include "config/config.h"
#include "include/latchwork/lock.h"
#include "ops/ops.h"

struct lw_lane_lock;

/* Makes a client of the lock library for the server of a shard. The client does not connect yet.
 * Close the client with latchwork_client_close(). Returns NULL with *error on failure. */
struct latchwork_client *lw_lane_client_open(const struct lw_config *c, int shard,
                                             struct latchwork_error *error);

/* Opens the lock of the lane with the given name (queue/lane.h), which is copied. The configuration
 * `c` is borrowed until lw_lane_lock_close(). The lock has the given options, with two exceptions:
 * its names are those of the lane, and a ttl_ms of 0 means lock.ttl_ms of `c`. Returns NULL with
 * *error on failure, or if ttl_ms is longer than lock.ttl_ms.
 *
 * A lease of this lock is never longer than the schema's TTL, even if lock.ttl_ms is longer,
 * because a quarantine lasts only as long as the schema's TTL. To hold the lane for a longer time,
 * set LATCHWORK_FLAG_RENEW. A renewal extends the lock only if its value is still the TOKEN:FENCE
 * that was granted, so the renewal fails after Redis was wiped. If an epoch ends but the lock still
 * exists in Redis, the caller keeps the lock, because every worker of the next epoch waits for the
 * end of a lock that it sees. */
struct lw_lane_lock *lw_lane_lock_open(const struct lw_config *c, struct lw_bytes lane,
                                       const struct latchwork_lock_options *options,
                                       struct latchwork_error *error);
void lw_lane_lock_close(struct lw_lane_lock *l); /* does nothing if `l` is NULL */
void lw_lane_lock_take_paused(struct lw_lane_lock *l);

/* Returns the lock as an object of the lock library. The library's functions that acquire the lock,
 * show it and give it a TTL can be used with this object. The object belongs to `l`. */
struct latchwork_lock *lw_lane_lock_lock(struct lw_lane_lock *l);
struct latchwork_client *lw_lane_lock_client(struct lw_lane_lock *l);

#endif
