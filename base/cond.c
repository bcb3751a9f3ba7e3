/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cond.h"

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
