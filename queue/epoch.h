/* SPDX-License-Identifier: Apache-2.0 */
/* The id of an epoch: 32 hex digits that begin with the wall time at which the id was made. If two
 * fleets use two servers, the ids of their epochs show which fleet is younger. The first
 * LW_FLEET digits name the fleet in commit metadata (kafka/anchor.h, consumer/worker/commit.c). */
#ifndef LW_QUEUE_EPOCH_H
#define LW_QUEUE_EPOCH_H

#include "config/config.h"

#include <stdint.h>

enum { LW_EPOCH_ID = 33, LW_FLEET = 16, LW_SCHEMA_VALUE = 200 };

/* Makes the id of an epoch from the wall time and two random numbers. */
void lw_epoch_id(int64_t wall_ms, uint64_t random1, uint64_t random2, char out[LW_EPOCH_ID]);

/* Returns the name under which people know a part of the schema, such as "redis.shards" for the
 * part "shards" (enter.lua). All workers of a fleet must agree on the schema. Writes the part's
 * value for this configuration into `value`, and truncates it if it does not fit. `cluster_id` is
 * the id of the Kafka cluster, or "" if it is not known. */
const char *lw_schema_part(const struct lw_config *c, const char *cluster_id, const char *part,
                           char value[LW_SCHEMA_VALUE]);

#endif
