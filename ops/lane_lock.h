/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's own lock, held by a command: scripts and handlers of one key exclude each other.
 *
 * It is a lock of the lock library with the names of the consumer: lw:{NAME.SHARD}:lock:KEY holds TOKEN:FENCE as a worker writes it, the
 * fence comes from the shard's counter, and the release leaves a hint where messages wait. Only acquire is of its own: it joins the
 * shard's epoch as a worker does, and takes the lane by hold.lua, which refuses it in the quarantine and where it is paused.
 *
 * A command does not queue behind waiting messages, it competes for the free lane: hold.lua looks every 10 to 100 ms. A lane whose workers
 * hand it from message to message without a break may keep it waiting until its list is empty, or max_run is reached. */
#ifndef LW_OPS_LANE_LOCK_H
#define LW_OPS_LANE_LOCK_H

#include "base/bytes.h"
#include "config/config.h"
#include "include/latchwork/lock.h"

struct lw_lane_lock;

/* A client of the lock library for the server of a shard. Connects to nothing yet. Close it with latchwork_client_close(). */
struct latchwork_client *lw_lane_client_open(const struct lw_config *c, int shard, struct latchwork_error *error);

/* c is borrowed until close. options: ttl_ms (0: that of c, which is also the maximum), flags RENEW, and the
 * callback; this function sets the rest.
 *
 * A lease of this lock is never longer than the schema's TTL, whatever the configuration says, because a
 * quarantine lasts no longer. To hold the lane for longer, set RENEW. A renewal extends the exact
 * TOKEN:FENCE that was granted, so it fails after a wipe. If an epoch ends and the lock still exists, every
 * worker of the next epoch sees the lock and waits for it, so it stays ours. */
struct lw_lane_lock *lw_lane_lock_open(const struct lw_config *c, struct lw_bytes key, const struct latchwork_lock_options *options,
                                       struct latchwork_error *error);
void lw_lane_lock_close(struct lw_lane_lock *l); /* ignores NULL */
void lw_lane_lock_take_paused(struct lw_lane_lock *l);

/* The lock for acquire, show and give_ttl; it belongs to l. */
struct latchwork_lock *lw_lane_lock_lock(struct lw_lane_lock *l);
struct latchwork_client *lw_lane_lock_client(struct lw_lane_lock *l);
int lw_lane_lock_shard(const struct lw_lane_lock *l);

/* Reads how many messages wait, and whether the lane is paused. Returns false with *error. */
bool lw_lane_lock_look(struct lw_lane_lock *l, int64_t *waiting, bool *paused, struct latchwork_error *error);
/* Ends the lock whoever holds it: *fence gets the raised fence, `was` the old value. Returns BUSY
 * if nobody held it. by: the operator, for the audit. */
enum latchwork_result lw_lane_lock_break(struct lw_lane_lock *l, const char *by, uint64_t *fence, struct lw_buf *was,
                                         struct latchwork_error *error);

#endif
