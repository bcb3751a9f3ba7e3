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
enum { LW_SCHEMA_VERSION = 2 };

enum { LW_LANE_MAX = 512 }; /* maximum length of a lane's name */
enum { LW_LANE_ROOM = 80 };
/* Returns the name of a key's lane: the key itself or, for a key that has more than LW_LANE_MAX
 * bytes or begins with byte 1, byte 1 and a text with the key's SHA-256, which is written to
 * `room`. So no key can be chosen that has the lane of another key or of a record without a key. */
struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size);
/* Returns the name of the lane that a person means: `text` is a lane's name, as the commands list
 * it, or a key. */
struct lw_bytes lw_lane_named(struct lw_bytes text, char *room, size_t size);
/* Writes to `room` the name of the lane of a record without a key, and returns the name. No other
 * record shares this lane. `partition` is "TOPIC:PARTITION". */
struct lw_bytes lw_lane_without_key(const char *partition, int64_t offset, char *room, size_t size);
/* Returns true if lw_lane_without_key() wrote the lane's name. */
bool lw_lane_lacks_key(struct lw_bytes lane);
/* Returns the shard of a lane. *tag receives the 32 bits of the hash from which the shard is
 * computed. Strangers can choose keys of which it is the same. */
int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag);

#endif
