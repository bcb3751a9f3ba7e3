/* SPDX-License-Identifier: Apache-2.0 */
/* What the configuration promises beside order and exclusion, in any world: attempts are counted one by one and none is burnt; while others
 * wait, a lane runs at most lock.max_run messages that came later. And in worlds of their own (struct faults): queue.on_busy drop, business
 * ids, suspects of a crash, handlers that give back under a live lease. */
#ifndef LW_SIM_RULES_H
#define LW_SIM_RULES_H

#include "tests/sim/world/world.h"

struct rules;
void rules_open(struct world *w); /* after the records are made; sets the configuration */
void rules_close(struct world *w);
bool rules_step(struct world *w); /* records are written; a poisoned worker dies */

/* Kafka: how many records a partition has so far, where its log ends; a record is read, and gets its headers. */
int rules_written(const struct world *w, int part);
int64_t rules_log_end(const struct world *w, int part);
void rules_arrives(struct world *w, int worker, int part, int index, struct lw_record *r);

/* The worker's process. */
struct lw_board *rules_board(const struct world *w, int worker);
void rules_death(struct world *w, const struct sim_worker *me);

/* Redis: around each command; a server loses what it held. */
void rules_before(struct world *w, const struct server *s, int argc, char **argv, const size_t *len);
void rules_after(struct world *w, const struct server *s, int argc, char **argv, const size_t *len, const redisReply *r);
void rules_lost_data(struct world *w);

/* From the oracles of the world. */
void rules_start(struct world *w, const struct exec *x, int index);
enum lw_outcome rules_finish(struct world *w, const struct exec *x, int index, enum lw_outcome wish);
void rules_died(struct world *w, int part, int index);
bool rules_gone(const struct world *w, int part, int index); /* it was dropped, and had to be */
bool rules_forgot(const struct world *w);                    /* Redis may have forgotten what was dropped, which then runs after all */
/* After a wipe a message may run again, or one with its business id in its place: the order of these two is nobody's. */
bool rules_twin_forgot(const struct world *w, int part, int index);
void rules_end(struct world *w);

#endif
