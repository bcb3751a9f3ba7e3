/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the text of the error for a malformed reply (base/redis/reply.h). */
#include "base/redis/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char out[LW_REPLY_TEXT];

static void one_value(void **state) {
    (void)state;
    const struct {
        redisReply r;
        const char *text;
    } cases[] = {
        {{.type = REDIS_REPLY_STRING, .str = "secret", .len = 6}, "string of 6 bytes"},
        {{.type = REDIS_REPLY_STATUS, .str = "OK", .len = 2}, "status of 2 bytes"},
        {{.type = REDIS_REPLY_INTEGER, .integer = 7}, "integer"},
        {{.type = REDIS_REPLY_NIL}, "nil"},
        {{.type = REDIS_REPLY_ERROR, .str = "ERR no", .len = 6}, "error \"ERR no\""},
        {{.type = REDIS_REPLY_ARRAY}, "array of 0 elements"},
        {{.type = 99}, "unknown type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[LW_REPLY_TEXT];
        snprintf(want, sizeof want, "malformed reply from renew.lua: expected 3 letters, got %s",
                 cases[i].text);
        assert_string_equal(lw_malformed(out, &cases[i].r, "renew.lua", "%d letters", 3), want);
    }
    lw_malformed(out, NULL, "TIME", "an array");
    assert_string_equal(out, "malformed reply from TIME: expected an array, got nothing");
}

static void an_array(void **state) {
    (void)state;
    redisReply text = {.type = REDIS_REPLY_STRING, .str = "secret", .len = 6},
               number = {.type = REDIS_REPLY_INTEGER, .integer = 7},
               *element[] = {&text, &number, NULL, &text, &text, &text, &text, &number, &text},
               r = {.type = REDIS_REPLY_ARRAY, .elements = 3, .element = element};
    lw_malformed(out, &r, "gate.lua", "[string, string, array]");
    assert_string_equal(out, "malformed reply from gate.lua: expected [string, string, array], "
                             "got array of 3 elements [string of 6 bytes, integer, nothing]");
    r.elements = 9;
    text.type = REDIS_REPLY_NIL;
    lw_malformed(out, &r, "X", "Y");
    assert_string_equal(out, "malformed reply from X: expected Y, got array of 9 elements "
                             "[nil, integer, nothing, nil, nil, nil, nil, integer, ...]");
}

static void a_long_one_is_cut(void **state) {
    (void)state;
    char longer[2 * LW_REPLY_TEXT];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    redisReply r = {.type = REDIS_REPLY_ERROR, .str = longer, .len = sizeof longer - 1};
    assert_int_equal(strlen(lw_malformed(out, &r, "X", "Y")),
                     strlen("malformed reply from X: expected Y, got error \"\"") + 100);
    assert_int_equal(strlen(lw_malformed(out, &r, longer, "Y")), LW_REPLY_TEXT - 1);
    assert_int_equal(strlen(lw_malformed(out, &r, "X", "%s", longer)), LW_REPLY_TEXT - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_value),
        cmocka_unit_test(an_array),
        cmocka_unit_test(a_long_one_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
