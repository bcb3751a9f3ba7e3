/* SPDX-License-Identifier: Apache-2.0 */
/* The operator of the simulation. At random times during a run it does to Redis what `latchwork
 * queue`, `dead` and `lock break` do, with the real scripts of ops/lua. Some of its calls are sent
 * twice, as if an answer was lost or a job was resumed.
 *
 * The operator adds four oracles. A dropped message never runs, and was in no handler when it was
 * dropped. Each replay is done, in order, and has one effect. Nothing is granted in a paused lane.
 * Nothing runs in a lane that the operator holds for a trial. */
#ifndef LW_SIM_OPERATOR_H
#define LW_SIM_OPERATOR_H

#include "tests/sim/world/world.h"

struct operator;
struct operator* operator_new(void);
void operator_free(struct operator* op);
/* Takes one action of an operator, chosen at random. */
void operator_act(struct world *w);
/* Renews or ends the leases of the running trials. The world calls this function in each step. */
void operator_tend(struct world *w);
/* Resumes all paused lanes and ends all trials. The world calls this function when faults stop. */
void operator_rest(struct world *w);

/* The oracles of the world call the following functions. */
void operator_start(struct world *w, const struct exec *x);
/* Returns the number of the replay that the job runs, or 0 if the job is no replay. */
int64_t operator_replay(const struct lw_job *job);
enum lw_outcome operator_finish(struct world *w, const struct exec *x, int index);
void operator_died(struct world *w, int part, int64_t offset, int64_t number);
/* Returns true if the run's lease was granted before the operator broke the lane. The run may
 * overlap a run of the next holder until the worker learns of the break, but its fence is below
 * that of the next holder, so a store can refuse it. */
bool operator_broke(const struct world *w, const struct exec *x);
/* Returns true if the operator dropped the message. The oracle of order ignores the effects of a
 * dropped message, because a run of the message may have ended without being recorded in Redis. */
bool operator_dropped(const struct world *w, int part, int index);
void operator_end(struct world *w);

#endif
