/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the pool, which consists of the threads on which handlers run, each with a slot of the
 * handler.
 *
 *     main thread                                   handler threads
 *     submit ──> queue (FIFO, one lock per batch) ──> hand of a thread ──> run ──> finished ──> reap
 *                                                       └─ stolen by an idle thread
 *                                                          if its owner is held up
 *
 * If the handler is fast (by a running average), a thread takes several jobs from the queue at
 * once, which are then its hand, so that the lock is taken once per hand. Jobs in a hand may be
 * stolen one by one by a thread that has nothing else to do: a slow job never delays those behind
 * it while another thread idles. Handlers that take batches get as many jobs as there are, up to
 * their batch_max.
 *
 * A job may have a follower of its key (`then` of struct lw_job). The thread of the job runs the
 * follower next, before the rest of its hand, so that the messages of a hot key need not pass the
 * main thread one by one. The rest of the hand may be stolen meanwhile; and if other jobs still
 * wait after CHAIN_US of followers, the next follower goes to the end of the queue. Batch handlers
 * get the followers of a batch in the next batch, or in the same batch if they take several jobs of
 * a key (lw_batch_of). If a batch has only jobs of one key, jobs that come with followers and jobs
 * without take turns, so that a hot key does not wait behind all others each time.
 *
 * When a job has finished, the eventfd `notify_fd` is written, at most once between two reaps. The
 * main thread empties this eventfd before it reaps.
 *
 * A job, with all that it points to, belongs to the pool until it is reaped: from the moment when
 * it is submitted, or is linked behind another job. Before a job runs, its thread looks at the
 * lease: if the lease is cancelled or past its deadline, the job does not run, and its outcome is
 * LW_BACK. */
#ifndef LW_CONSUMER_PROCESS_POOL_H
#define LW_CONSUMER_PROCESS_POOL_H

#include "consumer/board.h"
#include "handlers/handler.h"

struct lw_pool;

enum { LW_POOL_THREADS_MAX = 1024 };

/* Opens a slot for each thread, then starts the threads. `seats` is the worker's place on the
 * board; NULL: the worker has none. If timeout_ms is 0, handlers have no timeout. If the
 * environment names a journal (consumer/process/journal.h), opens the journal. */
struct lw_pool *lw_pool_open(const struct lw_handler_type *t, struct lw_handler *h, int threads,
                             int64_t timeout_ms, struct lw_board_worker *seats, int notify_fd,
                             struct lw_err *err);
/* Called by the main thread only. Jobs start in the order in which they are submitted, as threads
 * become free, except that batches of one key with followers may start earlier. The `then` of each
 * job is NULL or a chain that was linked before. */
void lw_pool_submit(struct lw_pool *p, struct lw_job **jobs, size_t n);
/* Called by the main thread only. Takes up to `max` finished jobs, in the order in which they
 * finished. Returns how many it took. If it took `max`, more jobs may be left, so call the function
 * again. */
size_t lw_pool_reap(struct lw_pool *p, struct lw_job **out, size_t max);
/* Ends the pool: waits at most grace_ms for jobs in a handler, then closes the slots. Jobs that
 * have not started do not run; they, their followers and finished jobs that were not reaped stay
 * the caller's. If a thread is stuck in its handler, returns false and frees nothing; the process
 * must then call _exit(). */
bool lw_pool_close(struct lw_pool *p, int64_t grace_ms);

#endif
