/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a lane, and the shard where it lives. Every program that touches lanes must compute
 * both in the same way. */
#ifndef LW_QUEUE_LANE_H
#define LW_QUEUE_LANE_H

#include "base/bytes.h"

#include <stdint.h>

/* The version of the schema. The epoch stores it, and all workers of an application must have the
 * same. */
enum { LW_SCHEMA_VERSION = 1 };

enum { LW_LANE_MAX = 512 }; /* maximum length of a lane's id */
enum { LW_LANE_ROOM = 64 };
/* Returns the lane's id: the key itself, or a hash of a long key (written to room). Two keys
 * with the same hash share a lane, which is harmless. */
struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size);
/* Returns the shard of a lane. *tag receives the 32 bits of the hash that decide it. */
int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag);

#endif
