/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/lane.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size) {
    assert(room && size >= LW_LANE_ROOM);
    if (key.n <= LW_LANE_MAX) return key;
    XXH128_hash_t h = XXH3_128bits(key.p, key.n);
    int n = snprintf(room, size, "\001long:%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64,
                     (uint64_t)h.low64);
    return lw_bytes(room, (size_t)n);
}

#define WITHOUT_KEY "\001none:"

struct lw_bytes lw_lane_without_key(const char *partition, int64_t offset, char *room,
                                    size_t size) {
    assert(partition && offset >= 0);
    int n = snprintf(room, size, WITHOUT_KEY "%s:%" PRId64, partition, offset);
    assert(n > 0 && (size_t)n < size && n <= LW_LANE_MAX);
    return lw_bytes(room, (size_t)n);
}

bool lw_lane_may_lack_key(struct lw_bytes lane) {
    assert(lane.p || !lane.n);
    return lane.n >= sizeof WITHOUT_KEY && !memcmp(lane.p, WITHOUT_KEY, sizeof WITHOUT_KEY - 1);
}

int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag) {
    assert((lane.p || !lane.n) && shards > 0);
    assert(tag);
    *tag = (uint32_t)XXH3_64bits(lane.p, lane.n);
    return (int)(*tag % (uint32_t)shards);
}
