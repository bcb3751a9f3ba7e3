/* SPDX-License-Identifier: Apache-2.0 */
/* --drain: are paused lanes all that is left? Asked only once nothing moved for a while. */
#ifndef LW_CLI_QUEUE_PAUSED_LANES_H
#define LW_CLI_QUEUE_PAUSED_LANES_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

enum { LW_PAUSED_NAMES_MAX = 100 };

/* Returns how many paused lanes have waiters where no other lane has any and no lane is locked (a handler at work, or a backoff): then
 * nothing will move any more. Appends the first names, printable, separated by ", ". 0: something may move yet. -1: Redis could not be
 * asked. Blocks for some seconds at most; never blocks Redis (cursors, no KEYS). */
int lw_paused_lanes(const struct lw_config *c, struct lw_buf *names, struct lw_err *err);

#endif
