/* SPDX-License-Identifier: Apache-2.0 */
/* A private Redis server for all tests of a program, with a connection to it. */
#ifndef LW_TEST_REDIS_FIXTURE_H
#define LW_TEST_REDIS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/redis_server.h"

static struct lw_test_redis *server;
static redisContext *admin;
static char url[256];

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
static inline int flush(void **state) {
    (void)state;
    return lw_test_redis_flush(server) ? 0 : -1;
}

/* Sends a command and returns the reply as text. The reply must be nil, a number or a
 * text. */
static inline const char *redis_says(const char *fmt, ...) {
    static char text[16384];
    va_list ap;
    va_start(ap, fmt);
    redisReply *r = redisvCommand(admin, fmt, ap);
    va_end(ap);
    if (!r) fail_msg("redis: %s", admin->errstr);
    if (r->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", fmt, r->str);
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

#endif
