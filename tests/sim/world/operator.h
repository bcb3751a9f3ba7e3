/* SPDX-License-Identifier: Apache-2.0 */
/* The operator of the simulation: what `latchwork queue`, `dead` and `lock break` do to Redis, in the middle of everything, by the real
 * scripts of ops/lua. Some of its calls are sent twice, as after a lost answer or by a job that goes on.
 *
 * Its oracles, beside those of the world: what was dropped never runs and was in no handler; each replay is done, once by the store, in
 * order; nothing is granted in a paused lane; nobody runs in a lane that it holds for a trial. */
#ifndef LW_SIM_OPERATOR_H
#define LW_SIM_OPERATOR_H

#include "tests/sim/world/world.h"

struct operator;
struct operator* operator_new(void);
void operator_free(struct operator* op);
/* One act, by chance. */
void operator_act(struct world *w);
/* Its trials go on: leases are renewed, lost, given back. Each step. */
void operator_tend(struct world *w);
/* Faults stop: all lanes go on. */
void operator_rest(struct world *w);

/* From the oracles of the world. */
void operator_start(struct world *w, const struct exec *x);
int64_t operator_replay(const struct lw_job *job); /* its number, 0 none */
enum lw_outcome operator_finish(struct world *w, const struct exec *x, int index);
void operator_died(struct world *w, int part, int64_t offset, int64_t number);
/* Was its lease of before a break of its lane? It may run beside the next holder until it hears of it; its fence is too low. */
bool operator_broke(const struct world *w, const struct exec *x);
/* Its effect, if it had one unrecorded, does not count: who drops a message does not ask for it. */
bool operator_dropped(const struct world *w, int part, int index);
void operator_end(struct world *w);

#endif
