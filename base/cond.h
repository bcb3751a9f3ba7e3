/* SPDX-License-Identifier: Apache-2.0 */
/* Condition variables whose timeouts are counted on the monotonic clock, so that a change of the
 * wall clock neither shortens nor lengthens a wait. */
#ifndef LW_BASE_COND_H
#define LW_BASE_COND_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

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
