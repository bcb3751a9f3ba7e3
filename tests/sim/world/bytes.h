/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how large the messages of the simulated world are, and checks that four sizes keep
 * within their bounds (struct lw_byte_bounds in consumer/worker/worker.h): what a call to Redis
 * carries, what its script reads of lists, what it hands over, and what a worker holds of
 * Kafka's records.
 *
 * In worlds with `tight` faults the bounds are so small that messages reach them all the time. */
#ifndef LW_SIM_BYTES_H
#define LW_SIM_BYTES_H

#include "tests/sim/world/world.h"

struct lw_byte_bounds bytes_bounds(const struct world *w);
/* Fills in the record's payload and headers, and the `origin` that the worker passes to
 * bytes_release(). The bytes stay valid until the program ends. */
void bytes_arrival(struct sim_worker *me, int part, int index, struct lw_arrival *a);
void bytes_release(void *ctx, void *origin); /* implements lw_io.release */
void bytes_started(struct world *w, const struct lw_job *job);
/* Checks that a call of a script kept to its bounds. list_bytes: how many bytes of lists the
 * script read. */
void bytes_called(struct world *w, int argc, char *const *argv, const size_t *len,
                  const redisReply *r, uint64_t list_bytes);

#endif
