/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/lane.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size) {
    assert(room && size >= LW_LANE_ROOM);
    if (key.n <= LW_LANE_MAX) return key;
    XXH128_hash_t h = XXH3_128bits(key.p, key.n);
    int n = snprintf(room, size, "\001long:%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64,
                     (uint64_t)h.low64);
    return lw_bytes(room, (size_t)n);
}

int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag) {
    assert((lane.p || !lane.n) && shards > 0);
    assert(tag);
    *tag = (uint32_t)XXH3_64bits(lane.p, lane.n);
    return (int)(*tag % (uint32_t)shards);
}
