/* SPDX-License-Identifier: Apache-2.0 */
/* Traces the messages of a worker: makes a span for each sampled job, shows it to the handler as
 * the parent, and writes it to the worker's ring on the board (consumer/spans.h) when the job has
 * ended.
 *
 *     the message's traceparent      the span
 *     valid, sampled                 in that trace, below that parent
 *     valid, not sampled             none
 *     missing or malformed           in a new trace, if tracing.ratio says so
 *
 * The id of a new trace is a hash of the message's identity and the record's timestamp. So all
 * attempts of a message are in one trace, even on different workers, and all workers decide alike
 * whether the message is sampled. Only the main thread calls these functions, and none of them
 * waits for anything. */
#ifndef LW_CONSUMER_PROCESS_TRACER_H
#define LW_CONSUMER_PROCESS_TRACER_H

#include "consumer/board.h"
#include "consumer/worker/worker.h"

struct lw_tracer;

/* Makes a tracer. Returns NULL if the configuration has no tracing.endpoint, or if the board has no
 * rings. `seed` makes the ids of spans unique. */
struct lw_tracer *lw_tracer_open(const struct lw_config *c, struct lw_board *board, int worker,
                                 const char *cluster_id, uint64_t seed);
void lw_tracer_close(struct lw_tracer *t); /* frees the tracer; `t` may be NULL */
/* Gives a job a span if its message is sampled: sets job->span, and sets job->headers to headers
 * that name the span as the parent. */
void lw_tracer_begin(struct lw_tracer *t, struct lw_job *job, const struct lw_waited *waited);
/* Writes the span of a job that has ended. Does nothing if the job has no span or was not run. */
void lw_tracer_end(struct lw_tracer *t, const struct lw_job *job);

#endif
