/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the prefix with which the names of a shard's keys in Redis begin. Every program that
 * accesses such keys gets the prefix from here.
 *
 * All names of a shard have the same hash tag: NAME.SHARD, or NAME.SHARD.K in a cluster. K is a
 * number that places the shard near a computed slot (base/redis/slot.h). K depends on the number of
 * shards, and never on the number of masters, which may change while the shards have data. */
#ifndef LW_CONFIG_SHARD_H
#define LW_CONFIG_SHARD_H

#include "config/config.h"

enum { LW_SHARD_PREFIX = 128 };
/* Writes the prefix of a shard, "lw:{NAME.SHARD}:" or "lw:{NAME.SHARD.K}:", into `out`. Returns the
 * length of the prefix. */
size_t lw_shard_prefix(const struct lw_config *c, int shard, char out[LW_SHARD_PREFIX]);
/* Returns the slot of a shard's keys in a cluster. */
int lw_shard_slot(const struct lw_config *c, int shard);

#endif
