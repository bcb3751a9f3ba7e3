/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/slot.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PLACE = 96, NEAR = 64, TAG_SIZE = 128 };

uint16_t lw_crc16(const char *p, size_t n) {
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)p[i] << 8;
        for (int bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    }
    return (uint16_t)crc;
}

int lw_slot(const char *name, size_t n) {
    const char *open = memchr(name, '{', n);
    const char *close = open ? memchr(open + 1, '}', n - (size_t)(open + 1 - name)) : NULL;
    if (close && close > open + 1) return lw_crc16(open + 1, (size_t)(close - open - 1)) % LW_SLOTS;
    return lw_crc16(name, n) % LW_SLOTS;
}

/* Returns the place of a shard: a slot such that the names of the shard should be in slots near it.
 * With these places, `shards` shards are spread evenly over masters that share the slots evenly.
 * Shard 0 has the same place for any number of shards, so that workers with different numbers of
 * shards find each other's epoch in shard 0. The other shards follow at equal distances. The place
 * of shard 0 is a little after slot 0, because the slots of a master usually begin at a multiple of
 * 16384 / number of masters. */
static int place_of(int shard, int shards) {
    assert(shard >= 0 && shard < shards && shards <= LW_SLOTS);
    return (FIRST_PLACE + shard * LW_SLOTS / shards) % LW_SLOTS;
}

int lw_slot_suffix(const char *name, int shard, int shards) {
    char tag[TAG_SIZE];
    for (int k = 0, place = place_of(shard, shards);; k++) {
        int n = snprintf(tag, sizeof tag, "%s.%d.%d", name, shard, k);
        assert(n > 0 && n < TAG_SIZE);
        if (abs(lw_slot(tag, (size_t)n) - place) <= NEAR) return k;
    }
}
