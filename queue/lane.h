/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane is called, and on which shard it lives. Every program that touches lanes must agree on this. */
#ifndef LW_QUEUE_LANE_H
#define LW_QUEUE_LANE_H

#include "base/bytes.h"

#include <stdint.h>

/* What all workers of an application agree on, kept in the epoch: its first version. */
enum { LW_SCHEMA_VERSION = 1 };
/* Names of one shard of an application all begin with this: lw:{NAME.SHARD}: */
#define LW_LANE_TAG "lw:{%s.%d}:"

enum { LW_LANE_MAX = 512 }; /* bytes of a lane's id */
enum { LW_LANE_ROOM = 64 };
/* A lane's id is the key, or a hash of a long one (written to room): two keys with one hash would only share a lane. */
struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size);
/* Which of `shards` a lane lives on. tag: the 32 bits that this rests on. */
int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag);

#endif
