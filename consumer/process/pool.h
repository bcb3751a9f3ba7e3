/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the pool, which consists of the threads on which handlers run. Each thread has a slot of the
 * handler.
 *
 *   main thread                                   handler threads
 *   submit ──> queue (FIFO, mutex held briefly) ──> hand of a thread ──> run ──> finished ──> reap
 *                                                     └─ stolen by an idle thread
 *                                                        if its owner is held up
 *
 * If the handler is fast (by a running average), a thread takes several jobs from the queue at
 * once, so that it locks the mutex of the queue once for all of them. These jobs are its hand. A
 * thread that has nothing else to do may steal jobs from another thread's hand one by one, so that
 * a slow job does not delay the jobs after it for long while a thread is idle. Handlers that take
 * batches get all jobs that wait, up to their batch_max.
 *
 * A job may have a follower of its key (`then` of struct lw_job). The thread of the job runs the
 * follower next, before the rest of its hand, so that the messages of a hot key do not go through
 * the main thread one by one. While a thread runs followers, other threads may steal the rest of
 * its hand. If other jobs still wait after CHAIN_US of followers, the next follower goes to the end
 * of the queue. Batch handlers get the followers of a batch in the next batch. If a handler takes
 * several jobs of a key at once (lw_batch_of), as many followers as fit are in the same batch. If a
 * batch has only jobs of one key, jobs with followers and jobs without followers take turns, so
 * that a hot key does not wait behind all other keys each time.
 *
 * When a job has finished, the eventfd `notify_fd` is written, at most once between two reaps. The
 * main thread empties this eventfd before it reaps.
 *
 * From the moment when a job is submitted, or linked behind another job, until it is reaped, the
 * job and all that it points to belong to the pool. Before a job runs, its thread checks the lease:
 * if it is cancelled or past its deadline, the job does not run, and its outcome is LW_BACK. */
#ifndef LW_CONSUMER_PROCESS_POOL_H
#define LW_CONSUMER_PROCESS_POOL_H

#include "consumer/board.h"
#include "handlers/handler.h"

struct lw_pool;

enum { LW_POOL_THREADS_MAX = 1024 };

/* Opens a slot of the handler for each thread, then starts the threads. `seats` is the worker's
 * struct on the board, which holds its seats and counts; NULL: there is no board. If timeout_ms is
 * 0, handlers have no timeout. If the environment names a journal (consumer/process/journal.h),
 * this function opens it. */
struct lw_pool *lw_pool_open(const struct lw_handler_type *t, struct lw_handler *h, int threads,
                             int64_t timeout_ms, struct lw_board_worker *seats, int notify_fd,
                             struct lw_err *err);
/* Gives jobs to the threads. Only the main thread calls this function. Jobs start in the order in
 * which they are submitted, as threads become free. There is one exception: if each batch has jobs
 * of one key only, jobs with followers may start before jobs that were submitted earlier. The
 * `then` of each job is NULL or a chain that was linked before the call. */
void lw_pool_submit(struct lw_pool *p, struct lw_job **jobs, size_t n);
/* Takes up to `max` finished jobs, in the order in which they finished, and returns their number.
 * Only the main thread calls this function. If the result is `max`, more jobs may be left, so call
 * the function again. */
size_t lw_pool_reap(struct lw_pool *p, struct lw_job **out, size_t max);
/* Ends the pool: waits at most grace_ms for jobs in a handler, then closes the slots. Jobs that
 * have not started do not run. They, their followers, and finished jobs that were not reaped belong
 * to the caller again. If a thread is stuck in its handler, this function returns false and frees
 * nothing. The process must then call _exit(). */
bool lw_pool_close(struct lw_pool *p, int64_t grace_ms);

#endif
