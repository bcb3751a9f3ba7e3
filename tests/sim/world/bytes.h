/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the sizes of the messages in the simulated world, and checks four bounds in bytes (struct
 * lw_byte_bounds in consumer/worker/worker.h). The bounds limit what a call to Redis carries, what
 * the script of the call reads from lists, the messages that the script hands over, and the Kafka
 * records that a worker holds in memory.
 *
 * In worlds with `tight` faults the bounds are so low that messages reach them all the time. */
#ifndef LW_SIM_BYTES_H
#define LW_SIM_BYTES_H

#include "tests/sim/world/world.h"

struct lw_byte_bounds bytes_bounds(const struct world *w);
/* Fills in the payload and headers of a record, and the `origin` that the worker later passes to
 * bytes_release(). The bytes stay valid until the program ends. */
void bytes_arrival(struct sim_worker *me, int part, int index, struct lw_arrival *a);
void bytes_release(void *ctx, void *origin); /* implements lw_io.release */
void bytes_started(struct world *w, const struct lw_job *job);
/* Checks that one call of a script kept within its bounds. list_bytes is the number of bytes of
 * lists that the script read. */
void bytes_called(struct world *w, int argc, char *const *argv, const size_t *len,
                  const redisReply *r, uint64_t list_bytes);

#endif
