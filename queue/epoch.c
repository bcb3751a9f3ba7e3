/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/epoch.h"

#include "queue/lane.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void lw_epoch_id(int64_t wall_ms, uint64_t random1, uint64_t random2, char out[LW_EPOCH_ID]) {
    assert(out && wall_ms >= 0);
    snprintf(out, LW_EPOCH_ID, "%011" PRIx64 "%05" PRIx64 "%016" PRIx64,
             (uint64_t)wall_ms & 0xfffffffffff, random1 & 0xfffff, random2);
    assert(strlen(out) == LW_EPOCH_ID - 1);
}

static const char *copy(const char *name, const char *from, char value[LW_SCHEMA_VALUE]) {
    snprintf(value, LW_SCHEMA_VALUE, "%s", from);
    return name;
}

static const char *number(const char *name, int n, char value[LW_SCHEMA_VALUE]) {
    assert(name && n > 0);
    snprintf(value, LW_SCHEMA_VALUE, "%d", n);
    return name;
}

const char *lw_schema_part(const struct lw_config *c, const char *cluster_id, const char *part,
                           char value[LW_SCHEMA_VALUE]) {
    if (!strcmp(part, "version")) return number("schema version", LW_SCHEMA_VERSION, value);
    if (!strcmp(part, "shards")) return number("redis.shards", c->redis.shards, value);
    if (!strcmp(part, "key_rule")) return copy("key.from", c->key.from_text, value);
    if (!strcmp(part, "group_id")) return copy("group.id", c->kafka.group_id, value);
    return copy(strcmp(part, "kafka_cluster") ? part : "Kafka cluster id", cluster_id, value);
}
