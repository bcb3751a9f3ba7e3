/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what the configuration promises. Two promises are not checked here: the order of messages,
 * and that only one handler per key runs at a time. In every world, the attempts of a message must
 * be counted one by one, only failed runs may count, and no message may become a dead letter while
 * it has attempts left, unless its handler answered dead. While messages of a lane wait, at most
 * lock.max_run later messages may overtake them. Some worlds (struct faults) add business ids,
 * suspects of a crash, and handlers that give messages back under a live lease. */
#ifndef LW_SIM_RULES_H
#define LW_SIM_RULES_H

#include "tests/sim/world/world.h"

struct rules;
/* Sets the configuration of the world. The caller must have made the world's records already. */
void rules_open(struct world *w);
void rules_close(struct world *w);
/* Kills a worker that runs a poison message. Returns true if it killed one. */
bool rules_step(struct world *w);

/* A worker got the partition, and reads it from the committed offset. */
void rules_assigned(struct world *w, int part);

/* Sets the headers of a record that a worker gets from the fake Kafka. */
void rules_arrives(struct world *w, int part, int index, struct lw_record *r);

/* The world calls rules_board() when the process of a worker starts, to get the board of the
 * worker, and rules_death() when the process ends. */
struct lw_board *rules_board(const struct world *w, int worker);
void rules_death(struct world *w, const struct sim_worker *me);

/* rules_before() is called before each command of a worker, and rules_after() after it.
 * rules_lost_data() is called when a server may have lost data. */
void rules_before(struct world *w, const struct server *s, int argc, char **argv,
                  const size_t *len);
void rules_after(struct world *w, const redisReply *r);
void rules_lost_data(struct world *w);

/* The oracles of the world call the following functions. */
void rules_start(struct world *w, const struct exec *x, int index);
enum lw_outcome rules_finish(struct world *w, const struct exec *x, int index,
                             enum lw_outcome wish);
void rules_died(struct world *w, int part, int index);
/* Returns true if the message does not have to be done, because another message with the same
 * business id is done, or because queue.on_busy is latest and a newer one of its key follows. */
bool rules_gone(const struct world *w, int part, int index);
/* Returns true if Redis may have forgotten business ids. Then messages may run that should not. */
bool rules_forgot(const struct world *w);
/* Returns true if Redis has lost data, and another message with the business id of this message is
 * done. Then both messages may run again, in any order. */
bool rules_twin_forgot(const struct world *w, int part, int index);

#endif
