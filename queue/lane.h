/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a lane, and the shard in which the lane is stored. Every program that accesses lanes
 * must compute the name and the shard in the same way. */
#ifndef LW_QUEUE_LANE_H
#define LW_QUEUE_LANE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

/* The version of the schema. The epoch contains it, and all workers of an application must have the
 * same version. */
enum { LW_SCHEMA_VERSION = 1 };

enum { LW_LANE_MAX = 512 }; /* maximum length of a lane's name */
enum { LW_LANE_ROOM = 64 };
/* Returns the name of a key's lane: the key itself or, for a key of more than LW_LANE_MAX bytes, a
 * text with a hash of the key, which is written to `room`. Two keys with the same hash share a
 * lane, which is harmless. */
struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size);
/* Writes to `room` the name of the lane of a record without a key, and returns the name. No other
 * record shares this lane. `partition` is "TOPIC:PARTITION". */
struct lw_bytes lw_lane_without_key(const char *partition, int64_t offset, char *room, size_t size);
/* Returns true if a lane's name has the form that lw_lane_without_key() writes. An unusual key can
 * have the same form, so make sure that the record has no key before you treat the lane as
 * keyless. */
bool lw_lane_may_lack_key(struct lw_bytes lane);
/* Returns the shard of a lane. *tag receives the 32 bits of the hash from which the shard is
 * computed. */
int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag);

#endif
