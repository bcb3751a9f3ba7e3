/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: how large the world's messages are, and oracles that nothing is larger than its bounds (consumer/worker/worker.h, struct
 * lw_byte_bounds): what a call to Redis carries, what its script reads of lists, what it hands over, and what a worker holds of Kafka's
 * records.
 *
 * In worlds with `tight` faults the bounds are so small that they are reached all the time. */
#ifndef LW_SIM_BYTES_H
#define LW_SIM_BYTES_H

#include "tests/sim/world/world.h"

struct lw_byte_bounds bytes_bounds(const struct world *w);
/* Fills in payload and headers of a record, which stay valid, and what it is released by. */
void bytes_arrival(struct sim_worker *me, int part, int index, struct lw_arrival *a);
void bytes_release(void *ctx, void *origin); /* of lw_io */
void bytes_started(struct world *w, const struct lw_job *job);
/* A script was called: did it keep to its bounds? list_bytes: what it read of lists. */
void bytes_called(struct world *w, int argc, char *const *argv, const size_t *len, const redisReply *r, uint64_t list_bytes);

#endif
