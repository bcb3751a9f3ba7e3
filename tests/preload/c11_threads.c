/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that makes C11 threads of POSIX threads, and pthread_clockjoin_np of
 * pthread_timedjoin_np. librdkafka uses the ones and the programs the other; ThreadSanitizer of
 * gcc 12 knows neither, so it would see threads without a beginning, and races between all of
 * them. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

#define VISIBLE __attribute__((visibility("default")))
#define NS 1000000000L

struct begin {
    thrd_start_t run;
    void *arg;
};

static void *begin(void *p) {
    struct begin b = *(struct begin *)p;
    free(p);
    return (void *)(intptr_t)b.run(b.arg);
}
static int status(int error) {
    return error == 0           ? thrd_success
           : error == ETIMEDOUT ? thrd_timedout
           : error == EBUSY     ? thrd_busy
                                : thrd_error;
}
static pthread_mutex_t *mutex(mtx_t *m) { return (pthread_mutex_t *)m; }
static pthread_cond_t *cond(cnd_t *c) { return (pthread_cond_t *)c; }

VISIBLE int thrd_create(thrd_t *t, thrd_start_t run, void *arg) {
    struct begin *b = malloc(sizeof *b);
    if (!b) return thrd_nomem;
    *b = (struct begin){run, arg};
    int error = pthread_create(t, NULL, begin, b);
    if (error) free(b);
    return status(error);
}
VISIBLE int thrd_join(thrd_t t, int *result) {
    void *r = NULL;
    int error = pthread_join(t, &r);
    if (result) *result = (int)(intptr_t)r;
    return status(error);
}
VISIBLE int thrd_detach(thrd_t t) { return status(pthread_detach(t)); }

VISIBLE int mtx_init(mtx_t *m, int type) {
    if (type != mtx_plain) return thrd_error; /* librdkafka makes no other */
    return status(pthread_mutex_init(mutex(m), NULL));
}
VISIBLE int mtx_lock(mtx_t *m) { return status(pthread_mutex_lock(mutex(m))); }
VISIBLE int mtx_trylock(mtx_t *m) { return status(pthread_mutex_trylock(mutex(m))); }
VISIBLE int mtx_unlock(mtx_t *m) { return status(pthread_mutex_unlock(mutex(m))); }
VISIBLE void mtx_destroy(mtx_t *m) { pthread_mutex_destroy(mutex(m)); }

VISIBLE int cnd_init(cnd_t *c) { return status(pthread_cond_init(cond(c), NULL)); }
VISIBLE int cnd_signal(cnd_t *c) { return status(pthread_cond_signal(cond(c))); }
VISIBLE int cnd_broadcast(cnd_t *c) { return status(pthread_cond_broadcast(cond(c))); }
VISIBLE int cnd_wait(cnd_t *c, mtx_t *m) { return status(pthread_cond_wait(cond(c), mutex(m))); }
VISIBLE int cnd_timedwait(cnd_t *c, mtx_t *m, const struct timespec *until) {
    return status(pthread_cond_timedwait(cond(c), mutex(m), until));
}
VISIBLE void cnd_destroy(cnd_t *c) { pthread_cond_destroy(cond(c)); }

VISIBLE int pthread_clockjoin_np(pthread_t t, void **result, clockid_t clock,
                                 const struct timespec *until) {
    struct timespec now, real;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &real);
    real.tv_sec += until->tv_sec - now.tv_sec;
    real.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (real.tv_nsec < 0) real.tv_nsec += NS, real.tv_sec--;
    if (real.tv_nsec >= NS) real.tv_nsec -= NS, real.tv_sec++;
    return pthread_timedjoin_np(t, result, &real);
}
