/* SPDX-License-Identifier: Apache-2.0 */
#include "config/shard.h"

#include "base/redis/slot.h"

#include <assert.h>
#include <stdio.h>

size_t lw_shard_prefix(const struct lw_config *c, int shard, char out[LW_SHARD_PREFIX]) {
    char k[16] = "";
    if (c->redis.cluster.on)
        snprintf(k, sizeof k, ".%d", lw_slot_suffix(c->name, shard, c->redis.shards));
    int n = snprintf(out, LW_SHARD_PREFIX, "lw:{%s.%d%s}:", c->name, shard, k);
    /* the text always fits, because a name has at most 64 bytes */
    assert(n > 0 && n < LW_SHARD_PREFIX);
    return (size_t)n;
}

int lw_shard_slot(const struct lw_config *c, int shard) {
    char prefix[LW_SHARD_PREFIX];
    return lw_slot(prefix, lw_shard_prefix(c, shard, prefix));
}
