/* SPDX-License-Identifier: Apache-2.0 */
/* owed: the part of the worker that handles outcomes which a crash would leave uncounted. */
#ifndef LW_CONSUMER_WORKER_OWED_H
#define LW_CONSUMER_WORKER_OWED_H

#include <stdint.h>

struct lw_worker;
struct part;
struct run;
struct settle_item;
struct shard;

/* Writes the outcomes of a settle to the board before the settle is sent. */
void unsure_write(struct lw_worker *w, const struct shard *sh, const struct settle_item *items,
                  int n_items);
/* Marks the outcome of a run on the board as counted. Call this function just before the outcome is
 * counted. */
void unsure_counted(struct lw_worker *w, struct run *r);
/* Clears the outcomes of a settle on the board when the settle is answered. */
void unsure_clear(struct lw_worker *w, struct shard *sh);
/* Marks as owed the outcomes of a settle that will never be answered. */
void unsure_owe(struct lw_worker *w, const struct shard *sh);
/* Marks the outcome of a run as owed. Whoever next finds the message finished counts the outcome:
 * this worker or another one. */
void owed_add(struct lw_worker *w, const struct run *r);
/* Counts the outcome of a message that was found finished, if the outcome is owed. */
void owed_pay(struct lw_worker *w, const struct part *p, int64_t offset);

#endif
