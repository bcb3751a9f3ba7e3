/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for keys, identities, leases and counts, which all kinds of store share. */
#include "handlers/insert/insert.h"

#include "base/clock.h"
#include "base/sha256.h"

#include <stdlib.h>

struct lw_fence_key lw_fence_key(const char *app, struct lw_bytes key) {
    uint8_t bytes[LW_SHA256];
    struct lw_fence_key out;
    lw_sha256(lw_bytes(app, strlen(app) + 1), key, bytes);
    memcpy(&out, bytes, sizeof out);
    if (!out.a && !out.b) out.a = 1; /* 0 marks an empty slot in memory */
    return out;
}

int64_t lw_insert_replay(const char *identity) {
    /* A '#' in an identity can only be the one before the replay number, because Kafka does not
     * allow it in names of topics. */
    const char *mark = strrchr(identity, '#');
    return mark ? strtoll(mark + 1, NULL, 10) : 0;
}

int64_t lw_insert_fence_before(int64_t age_s) { return (lw_wall_ms() - age_s * 1000) * 1000; }
