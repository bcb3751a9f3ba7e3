/* SPDX-License-Identifier: Apache-2.0 */
#include "config/shard.h"

#include <assert.h>
#include <stdio.h>

size_t lw_shard_prefix(const struct lw_config *c, int shard, char out[LW_SHARD_PREFIX]) {
    int n = snprintf(out, LW_SHARD_PREFIX, "lw:{%s.%d}:", c->name, shard);
    assert(n > 0 && n < LW_SHARD_PREFIX); /* a name has at most 100 bytes */
    return (size_t)n;
}
