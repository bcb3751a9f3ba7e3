/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads without signals, and joins threads with a timeout. */
#ifndef LW_BASE_THREAD_H
#define LW_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts a thread in which every signal is blocked, so that only the threads of the program that
 * uses this code handle signals. Returns 0, or an errno value. */
int lw_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);
/* Waits at most timeout_ms for the end of a thread. If the thread has not ended by then, detaches
 * it and returns false; the data that the thread uses must then stay valid until the thread
 * ends. */
bool lw_join_within(pthread_t thread, int64_t timeout_ms);

#endif
