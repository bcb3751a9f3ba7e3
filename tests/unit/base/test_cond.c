/* SPDX-License-Identifier: Apache-2.0 */
/* Tests base/thread: deadlines are well-formed and on the monotonic clock, and a wait ends at its
 * deadline. */
#include "base/thread.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static int64_t ns_of(const struct timespec *t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }

static void test_from_now(void **state) {
    (void)state;
    static const int64_t ms[] = {0, 1, 999, 1000, 1500, 86400000};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        /* Try each value 100 times, because the nanoseconds only sometimes carry over into the
         * seconds. */
        for (int k = 0; k < 100; k++) {
            struct timespec before, after, t;
            clock_gettime(CLOCK_MONOTONIC, &before);
            t = lw_from_now(ms[i]);
            clock_gettime(CLOCK_MONOTONIC, &after);
            assert_in_range(t.tv_nsec, 0, 999999999);
            assert_true(ns_of(&t) >= ns_of(&before) + ms[i] * 1000000 &&
                        ns_of(&t) <= ns_of(&after) + ms[i] * 1000000);
        }
}

/* If the condition variable used the wall clock, the deadline would be decades in the past, and the
 * wait would end too early. */
static void test_waits_until_the_deadline(void **state) {
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    struct timespec until = lw_from_now(20), now;
    lw_cond_init(&cond);
    pthread_mutex_lock(&mutex);
    while (pthread_cond_timedwait(&cond, &mutex, &until) != ETIMEDOUT) {}
    clock_gettime(CLOCK_MONOTONIC, &now);
    assert_true(ns_of(&now) >= ns_of(&until));
    /* no thread signals, so only the time limit can end the wait */
    lw_cond_wait_ms(&cond, &mutex, 1);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_from_now),
                                       cmocka_unit_test(test_waits_until_the_deadline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
