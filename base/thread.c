/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>

enum { NS_PER_S = 1000000000, NS_PER_MS = 1000000 };

void lw_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct timespec lw_from_now(int64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * NS_PER_MS;
    if (t.tv_nsec >= NS_PER_S) t.tv_nsec -= NS_PER_S, t.tv_sec++;
    return t;
}

void lw_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ms) {
    struct timespec until = lw_from_now(ms);
    pthread_cond_timedwait(cond, mutex, &until);
}

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
