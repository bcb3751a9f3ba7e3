/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: the threads on which handlers run, one slot of the handler each.
 *
 *     main thread                                   handler threads
 *     submit ──> queue (FIFO, one lock a batch) ──> hand of a thread ──> run ──> finished (a lock-free stack) ──> reap
 *                                                     └─ stolen by an idle thread where its owner is held up
 *
 * Where the handler is fast (running average), a thread takes a handful of jobs from the queue at once, so that the lock is taken
 * once a handful. Jobs in a hand may be stolen one by one by a thread that has nothing else: a slow job never delays those behind it
 * while another thread idles. Handlers that take batches get as many jobs as there are, up to their batch_max.
 *
 * A job may have a follower of its key (`then` of struct lw_job), which its thread runs next, before the rest of its hand: so the messages
 * of a hot key need not pass the main thread one by one. The rest of the hand may be stolen meanwhile; and where other jobs still wait
 * after CHAIN_US of followers, the next follower goes to the end of the queue. Batch handlers get the followers of a batch in the next.
 *
 * `notify_fd`, an eventfd, is written when something is finished, once until the next reap. The main thread reads it empty before it reaps.
 *
 * A job belongs to the pool from submit (or from its link behind one that is done) to reap, with all it points to. Before a job runs, its
 * thread looks at its lease: cancelled or past its deadline, it is not run, outcome LW_BACK. */
#ifndef LW_CONSUMER_PROCESS_POOL_H
#define LW_CONSUMER_PROCESS_POOL_H

#include "consumer/board.h"
#include "handlers/handler.h"

struct lw_pool;

enum { LW_POOL_THREADS_MAX = 1024 };

/* Opens a slot for each thread, then starts the threads. `seats`: the worker's place on the board,
 * used only if type->blames_worker; NULL: none. timeout_ms: 0 for none. Opens the journal
 * (consumer/process/journal.h) if one is named. */
struct lw_pool *lw_pool_open(const struct lw_handler_type *t, struct lw_handler *h, int threads, int64_t timeout_ms,
                             struct lw_board_worker *seats, int notify_fd, struct lw_err *err);
/* For the main thread. Jobs start in the order of submission as threads become free. Their `then`
 * is NULL or a chain linked before. */
void lw_pool_submit(struct lw_pool *p, struct lw_job **jobs, size_t n);
/* For the main thread: takes up to `max` finished jobs, in the order in which they finished.
 * Returns how many; if that is max, call it again. */
size_t lw_pool_reap(struct lw_pool *p, struct lw_job **out, size_t max);
/* Ends the pool: waits at most grace_ms for jobs in a handler. Jobs not started, followers too, do
 * not run; they and finished jobs not yet reaped stay the caller's. Then closes the slots. Returns
 * false if a thread is stuck in its handler: nothing is freed then, and the process must _exit.
 */
bool lw_pool_close(struct lw_pool *p, int64_t grace_ms);

#endif
