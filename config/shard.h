/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a shard's keys in Redis. Every program that touches them computes their beginning here. */
#ifndef LW_CONFIG_SHARD_H
#define LW_CONFIG_SHARD_H

#include "config/config.h"

enum { LW_SHARD_PREFIX = 128 };
/* "lw:{NAME.SHARD}:" into `out`. Returns its length. */
size_t lw_shard_prefix(const struct lw_config *c, int shard, char out[LW_SHARD_PREFIX]);

#endif
