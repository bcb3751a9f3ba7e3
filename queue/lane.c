/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/lane.h"

#include "base/bytes.h"
#include "base/sha256.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* The names that begin with this byte are made here, so that no key is such a name. */
#define OURS "\001"
#define LONG OURS "long:"
#define WITHOUT_KEY OURS "none:"

enum { LONG_PREFIX = sizeof LONG - 1, LONG_NAME = LONG_PREFIX + 2 * LW_SHA256 };

static bool is_ours(struct lw_bytes name) { return name.n && name.p[0] == OURS[0]; }

struct lw_bytes lw_lane_id(struct lw_bytes key, char *room, size_t size) {
    assert(room && size >= LW_LANE_ROOM);
    if (key.n <= LW_LANE_MAX && !is_ours(key)) return key;
    uint8_t hash[LW_SHA256];
    lw_sha256(key, lw_bytes(NULL, 0), hash);
    memcpy(room, LONG, LONG_PREFIX);
    lw_hex(hash, sizeof hash, room + LONG_PREFIX);
    return lw_bytes(room, LONG_NAME);
}

struct lw_bytes lw_lane_named(struct lw_bytes text, char *room, size_t size) {
    bool is_long = text.n == LONG_NAME && !memcmp(text.p, LONG, LONG_PREFIX);
    return is_long || lw_lane_lacks_key(text) ? text : lw_lane_id(text, room, size);
}

struct lw_bytes lw_lane_without_key(const char *partition, int64_t offset, char *room,
                                    size_t size) {
    assert(partition && offset >= 0);
    int n = snprintf(room, size, WITHOUT_KEY "%s:%" PRId64, partition, offset);
    assert(n > 0 && (size_t)n < size && n <= LW_LANE_MAX);
    return lw_bytes(room, (size_t)n);
}

bool lw_lane_lacks_key(struct lw_bytes lane) {
    return lane.n >= sizeof WITHOUT_KEY && !memcmp(lane.p, WITHOUT_KEY, sizeof WITHOUT_KEY - 1);
}

int lw_lane_shard(struct lw_bytes lane, int shards, uint32_t *tag) {
    assert((lane.p || !lane.n) && shards > 0);
    *tag = (uint32_t)XXH3_64bits(lane.p, lane.n);
    return (int)(*tag % (uint32_t)shards);
}
