/* SPDX-License-Identifier: Apache-2.0 */
/* Condition variables whose waits end at a time of the monotonic clock, so that no change of the
 * wall clock moves them. */
#ifndef LW_BASE_COND_H
#define LW_BASE_COND_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Initialises the condition variable for pthread_cond_timedwait() with lw_from_now(). The owner
 * ends it by pthread_cond_destroy(). */
void lw_cond_init(pthread_cond_t *cond);
/* Returns the time on CLOCK_MONOTONIC that is `ms` from now; ms may not be negative. */
struct timespec lw_from_now(int64_t ms);
/* Waits at most `ms` to be signalled; may also return early. The mutex is held before and after. */
void lw_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ms);

#endif
