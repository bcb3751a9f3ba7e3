/* SPDX-License-Identifier: Apache-2.0 */
/* The hot keys of the overview, with the number of messages that wait for each key. The keys come
 * from the outcomes on the board. Only Redis knows how many messages of a key wait, so a thread
 * that may wait for Redis asks about the listed keys. Each call of lw_hot_ask() costs at most one
 * small pipeline per shard, regardless of the number of open pages. Thread-safe. */
#ifndef LW_MONITOR_HOT_H
#define LW_MONITOR_HOT_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/shard_look.h"

#include <jansson.h>

enum {
    LW_HOT_KEYS = 10,
    /* Redis is asked about more keys than are listed. Then the number of messages that wait for a
     * key is usually known before the key enters the list. */
    LW_HOT_ASKED = 16,
    LW_HOT_FRESH_MS = 5000
};

struct lw_hot;

struct lw_hot *lw_hot_open(void); /* stays until the process ends */
/* Returns the keys with the most outcomes in the minute before `wall_ms`, as
 * [{"key","outcomes","waiting"}], a new reference. "waiting" is null if Redis has not answered
 * within LW_HOT_FRESH_MS before now_ms (boot clock), or cannot be asked because the key is cut off
 * or is not UTF-8. */
json_t *lw_hot_list(struct lw_hot *h, const struct lw_board *b, int64_t wall_ms, int64_t now_ms);
/* Asks Redis how many messages wait for each of the LW_HOT_ASKED hottest keys of the last call of
 * lw_hot_list(). May block for LW_LOOK_TIMEOUT_MS per shard. lookers[S] must be the connection to
 * shard S (monitor/shard_look.h). */
void lw_hot_ask(struct lw_hot *h, const struct lw_config *c, struct lw_shard_looker **lookers,
                int64_t now_ms);

#endif
