/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out for `run --drain` whether all remaining messages wait in paused lanes. `run --drain`
 * calls lw_paused_lanes() only after the workers have made no progress for a while. */
#ifndef LW_OPS_QUEUE_PAUSED_LANES_H
#define LW_OPS_QUEUE_PAUSED_LANES_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

enum { LW_PAUSED_NAMES_MAX = 100 };

/* Returns 0 if a message may still run, because an unpaused lane has waiting messages, or because
 * any lane has a lock (of a running handler, or of a backoff). Otherwise returns the number of
 * paused lanes with waiting messages. Returns -1 with *err if a request to Redis failed or the time
 * is up. Appends the names of at most LW_PAUSED_NAMES_MAX of the paused lanes to `names`, in
 * printable form and separated by ", ". The function may take some seconds, but never blocks Redis
 * for long, because it uses cursors instead of KEYS. */
int lw_paused_lanes(const struct lw_config *c, struct lw_buf *names, struct lw_err *err);

#endif
