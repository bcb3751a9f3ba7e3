/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how a server's program, such as Redis or Valkey, is recognized from its reply to INFO.
 * The texts are those of real servers. */
#include "queue/life.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(const char *info, const char *text, bool too_old) {
    struct lw_redis_server s;
    lw_redis_server_read(&s, info);
    assert_string_equal(s.text, text);
    assert_int_equal(s.too_old, too_old);
}

static void test_redis(void **state) {
    (void)state;
    expect("# Server\r\nredis_version:8.0.2\r\nredis_git_sha1:00000000\r\n", "Redis 8.0.2", false);
    expect("# Server\r\nredis_version:7.0.15\r\n", "Redis 7.0.15", false);
    expect("# Server\r\nredis_version:6.2.14\r\n", "Redis 6.2.14", true);
}

static void test_valkey_names_its_own_version(void **state) {
    (void)state;
    expect("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n",
           "Valkey 8.1.1", false);
}

static void test_unknown(void **state) {
    (void)state;
    expect("# Server\r\nuptime_in_seconds:1\r\n", "Redis of unknown version", true);
    expect("", "Redis of unknown version", true);
}

static void test_lacks_lua(void **state) {
    (void)state;
    assert_true(lw_redis_lacks_lua("ERR Could not find scripting engine 'lua'"));
    assert_false(lw_redis_lacks_lua("ERR unknown command 'EVALSHA'"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis),
        cmocka_unit_test(test_valkey_names_its_own_version),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_lacks_lua),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
