/* SPDX-License-Identifier: Apache-2.0 */
/* The hot keys of the overview, with the number of messages that wait behind each. The keys come
 * from the outcomes on the board. How many messages wait, only Redis knows for one key, so a thread
 * that may wait for Redis asks about the listed keys: at most one small pipeline per shard and
 * call, however many pages are open. Thread-safe. */
#ifndef LW_MONITOR_HOT_H
#define LW_MONITOR_HOT_H

#include "config/config.h"
#include "consumer/board.h"
#include "monitor/shard_look.h"

#include <jansson.h>

enum {
    LW_HOT_KEYS = 10,
    /* more are asked about than listed, so that a key that enters the list is known already */
    LW_HOT_ASKED = 16,
    LW_HOT_FRESH_MS = 5000
};

struct lw_hot;

struct lw_hot *lw_hot_open(void);
void lw_hot_close(struct lw_hot *h);
/* Returns the keys with the most outcomes before `wall_ms`, as [{"key","outcomes","waiting"}], a
 * new reference. "waiting" is null if it was not asked within LW_HOT_FRESH_MS before now_ms (boot
 * clock), or cannot be asked because only the beginning of the key is known. */
json_t *lw_hot_list(struct lw_hot *h, const struct lw_board *b, int64_t wall_ms, int64_t now_ms);
/* Asks Redis how many messages wait behind the keys of the last list. May wait for
 * LW_LOOK_TIMEOUT_MS per shard. lookers[S] is that of shard S. */
void lw_hot_ask(struct lw_hot *h, const struct lw_config *c, struct lw_shard_looker **lookers,
                int64_t now_ms);

#endif
