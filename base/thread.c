/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/cond.h"

#include <signal.h>
#include <time.h>

int lw_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

bool lw_join_within(pthread_t thread, int64_t timeout_ms) {
    struct timespec until = lw_from_now(timeout_ms);
    if (!pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until)) return true;
    pthread_detach(thread);
    return false;
}
