/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the tests of the lock library: a private Redis server, an administrator's connection
 * to it, and functions that open clients and locks. */
#ifndef LW_TEST_LOCK_FIXTURE_H
#define LW_TEST_LOCK_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "include/latchwork/lock.h"
#include "tests/support/redis_server.h"

static struct lw_test_redis *server;
static redisContext *admin;
static char url[256];
static struct latchwork_error error;

static inline int start_server(void **state) {
    (void)state;
    server = lw_test_redis_start(NULL);
    if (!server) return -1;
    admin = lw_test_redis_connect(server);
    snprintf(url, sizeof url, "unix://%s", lw_test_redis_path(server));
    return admin ? 0 : -1;
}
static inline int stop_server(void **state) {
    (void)state;
    if (admin) redisFree(admin);
    lw_test_redis_stop(server);
    return 0;
}
static inline void admin_anew(void) {
    redisFree(admin);
    admin = lw_test_redis_connect(server);
    assert_non_null(admin);
}
static inline int flush(void **state) {
    (void)state;
    return lw_test_redis_flush(server) ? 0 : -1;
}

/* Sends a command and returns the reply as text. The reply must be nil, a number or a string. */
__attribute__((format(printf, 1, 2))) static inline const char *redis_says(const char *fmt, ...) {
    static char text[16384];
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = redisvCommand(admin, fmt, ap);
    va_end(ap);
    if (!r) fail_msg("redis: %s", admin->errstr);
    if (r->type == REDIS_REPLY_NIL)
        snprintf(text, sizeof text, "nil");
    else if (r->type == REDIS_REPLY_INTEGER)
        snprintf(text, sizeof text, "%lld", r->integer);
    else
        snprintf(text, sizeof text, "%s", r->str ? r->str : "");
    freeReplyObject(r);
    return text;
}
#define redis_number(...) strtoll(redis_says(__VA_ARGS__), NULL, 10)

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
