/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the right which a Redis user lacks is found in the error replies of Redis 7.0 and 8.0.
 * The replies were copied from real servers. */
#include "base/redis/denied.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct lw_script script = {
    "sample",
    "#!lua\n-- a comment\nif heads == 'BAD' and call('EXISTS', lanes) == 0 then call('DEL', lanes) "
    "end\ncall('ZADD', P .. 'lanes')\n",
    ""};

static void expect(const char *error, enum lw_denied what, const char *command) {
    char got[LW_DENIED_NAMES];
    enum lw_denied denied = lw_denied(error, &script, got);
    if (denied != what || strcmp(got, command) != 0) fail_msg("%s: %d %s", error, (int)denied, got);
}

static void test_commands(void **state) {
    (void)state;
    expect("NOPERM this user has no permissions to run the 'zadd' command", LW_DENIED_COMMAND,
           "ZADD");
    expect("NOPERM User u has no permissions to run the 'zadd' command", LW_DENIED_COMMAND, "ZADD");
    expect("NOPERM User u has no permissions to run the 'script|load' command", LW_DENIED_COMMAND,
           "SCRIPT LOAD");
}

static void test_in_scripts(void **state) {
    (void)state;
    expect("ERR ACL failure in script: User u has no permissions to run the 'zadd' command script: "
           "55f8, on @user_script:1.",
           LW_DENIED_COMMAND, "ZADD");
    expect("ERR The user executing the script can't run this command or subcommand script: 55f8, "
           "on @user_script:4.",
           LW_DENIED_COMMAND, "ZADD");
    expect("ERR The user executing the script can't run this command or subcommand script: 55f8, "
           "on @user_script:3.",
           LW_DENIED_COMMAND, "EXISTS or DEL");
    expect("ERR The user executing the script can't run this command or subcommand in LPUSH "
           "script: 55f8, on @user_script:2.",
           LW_DENIED_COMMAND, "LPUSH");
    expect("ERR The user executing the script can't run this command or subcommand script: 55f8, "
           "on @user_script:99.",
           LW_DENIED_COMMAND, "");
}

static void test_keys(void **state) {
    (void)state;
    expect("NOPERM No permissions to access a key", LW_DENIED_KEY, "");
    expect("NOPERM this user has no permissions to access one of the keys used as arguments",
           LW_DENIED_KEY, "");
    expect("ERR ACL failure in script: No permissions to access a key script: 2611, on "
           "@user_script:4.",
           LW_DENIED_KEY, "ZADD");
    expect("ERR The user executing the script can't access at least one of the keys mentioned in "
           "the command arguments script: 2611, on "
           "@user_script:4.",
           LW_DENIED_KEY, "ZADD");
    expect("ERR ACL failure in script: No permissions to access a key in GET script: 2e02, on "
           "@user_script:2.",
           LW_DENIED_KEY, "GET");
}

static void test_login(void **state) {
    (void)state;
    expect("NOAUTH Authentication required.", LW_DENIED_LOGIN, "");
    expect("WRONGPASS invalid username-password pair or user is disabled.", LW_DENIED_LOGIN, "");
}

static void test_others(void **state) {
    (void)state;
    expect("OOM command not allowed when used memory > 'maxmemory'.", LW_DENIED_NOTHING, "");
    expect("NOSCRIPT No matching script. Please use EVAL.", LW_DENIED_NOTHING, "");
    expect("ERR something", LW_DENIED_NOTHING, "");
    expect("", LW_DENIED_NOTHING, "");
}

static void test_long_names_are_cut_whole(void **state) {
    (void)state;
    char text[512] = "#!lua\n", got[LW_DENIED_NAMES];
    for (int i = 0; i < 20; i++) strcat(text, "('ABCDEFGH') ");
    const struct lw_script many = {"many", text, ""};
    lw_denied("ERR The user executing the script can't run this command or subcommand script: 5, "
              "on @user_script:2.",
              &many, got);
    assert_string_equal(strrchr(got, ' '), " ABCDEFGH");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands), cmocka_unit_test(test_in_scripts),
        cmocka_unit_test(test_keys),     cmocka_unit_test(test_login),
        cmocka_unit_test(test_others),   cmocka_unit_test(test_long_names_are_cut_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
