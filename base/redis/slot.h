/* SPDX-License-Identifier: Apache-2.0 */
/* Computes which of the 16,384 slots of a Redis Cluster a name belongs to, and chooses hash tags
 * whose slots spread the shards over the masters.
 *
 * The slot is the CRC-16/XMODEM (polynomial 0x1021, initial value 0) of the name, or of the part
 * between its first braces, modulo 16384:
 *
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model */
#ifndef LW_BASE_REDIS_SLOT_H
#define LW_BASE_REDIS_SLOT_H

#include <stddef.h>
#include <stdint.h>

enum { LW_SLOTS = 16384 };

uint16_t lw_crc16(const char *p, size_t n);
/* Returns the slot of a name, 0 to 16383. */
int lw_slot(const char *name, size_t n);

/* Returns the smallest K for which the slot of "NAME.SHARD.K" is at most 64 slots away from the
 * shard's place (slot.c), so that the shards are spread evenly. K is usually below 1,000. */
int lw_slot_suffix(const char *name, int shard, int shards);

#endif
