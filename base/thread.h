/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads without signals, and joins threads with a timeout. The timeouts of condition
 * variables are counted on the monotonic clock, so that a change of the wall clock neither shortens
 * nor lengthens a wait. */
#ifndef LW_BASE_THREAD_H
#define LW_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Starts a thread in which every signal is blocked, so that only the threads of the program that
 * uses this code handle signals. Returns 0, or an errno value. */
int lw_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* Waits at most timeout_ms for the end of a thread. If the thread has not ended by then, detaches
 * it and returns false; the data that the thread uses must then stay valid until the thread
 * ends. */
bool lw_join_within(pthread_t thread, int64_t timeout_ms);

/* Initialises a condition variable for pthread_cond_timedwait() with times from lw_from_now(). The
 * owner destroys the variable with pthread_cond_destroy(). */
void lw_cond_init(pthread_cond_t *cond);
/* Returns the time on CLOCK_MONOTONIC that is `ms` milliseconds from now. `ms` must not be
 * negative. */
struct timespec lw_from_now(int64_t ms);
/* Waits at most `ms` milliseconds for a signal, and may return early without one. The caller holds
 * the mutex before and after the call. */
void lw_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ms);

#endif
