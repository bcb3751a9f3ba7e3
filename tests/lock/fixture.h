/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the tests of the lock library: a private Redis server, an administrator's connection
 * to it, and functions that open clients and locks. */
#ifndef LW_TEST_LOCK_FIXTURE_H
#define LW_TEST_LOCK_FIXTURE_H

#include "base/clock.h"
#include "include/latchwork/lock.h"
#include "tests/support/redis_fixture.h"

static struct latchwork_error error;

static inline void admin_anew(void) {
    redisFree(admin);
    admin = lw_test_redis_connect(server);
    assert_non_null(admin);
}

static inline struct latchwork_client *open_client(const struct latchwork_client_options *o) {
    struct latchwork_client *c = latchwork_client_open(url, o, &error);
    if (!c) fail_msg("client: %s", error.text);
    return c;
}
static inline struct latchwork_lock *open_lock(struct latchwork_client *c, const char *name,
                                               const struct latchwork_lock_options *o) {
    struct latchwork_lock *l = latchwork_lock_open(c, name, o, &error);
    if (!l) fail_msg("lock: %s", error.text);
    return l;
}
static inline struct latchwork_lock *open_kind(struct latchwork_client *c, const char *name,
                                               enum latchwork_kind kind, int64_t ttl_ms) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kind, .ttl_ms = ttl_ms,
                                       .permits = kind == LATCHWORK_KIND_SEMAPHORE ? 3 : 0};
    return open_lock(c, name, &o);
}
#define assert_result(expected, call)                                                \
    do {                                                                             \
        error.text[0] = '\0';                                                        \
        enum latchwork_result got_ = (call);                                         \
        if (got_ != (expected))                                                      \
            fail_msg("%s: %s (%s)", #call, latchwork_result_name(got_), error.text); \
    } while (0)
#define assert_ok(call) assert_result(LATCHWORK_LOCK_OK, call)
static inline struct latchwork_hold *take(struct latchwork_lock *l, int64_t wait_ms) {
    struct latchwork_hold *h = NULL;
    assert_ok(latchwork_lock_acquire(l, wait_ms, &h, &error));
    assert_non_null(h);
    return h;
}

#endif
