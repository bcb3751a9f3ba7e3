/* SPDX-License-Identifier: Apache-2.0 */
/* For --drain: finds out whether only paused lanes are left. Called only after nothing has moved
 * for a while. */
#ifndef LW_CLI_QUEUE_PAUSED_LANES_H
#define LW_CLI_QUEUE_PAUSED_LANES_H

#include "base/bytes.h"
#include "base/err.h"
#include "config/config.h"

enum { LW_PAUSED_NAMES_MAX = 100 };

/* Returns how many paused lanes have waiting messages, if no other lane has any and no lane is
 * locked (by a handler at work, or a backoff): then nothing will move any more. Appends the first
 * names, printable, separated by ", ". Returns 0 if something may still move, -1 if Redis could not
 * be asked. Blocks for some seconds at most; never blocks Redis (cursors, no KEYS). */
int lw_paused_lanes(const struct lw_config *c, struct lw_buf *names, struct lw_err *err);

#endif
