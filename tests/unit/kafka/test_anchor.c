/* SPDX-License-Identifier: Apache-2.0 */
/* Tests commit metadata, and the anchors in it. */
#include "kafka/anchor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void comes_back(const char *fleet, struct lw_anchor a) {
    char text[LW_META_TEXT], found_fleet[LW_FLEET + 1];
    size_t n = lw_meta_encode(fleet, &a, text);
    assert_int_equal(n, strlen(text));
    struct lw_anchor found;
    lw_meta_decode(text, n, found_fleet, &found);
    assert_string_equal(found_fleet, fleet);
    assert_int_equal(found.offset, a.offset);
    if (a.offset < 0) return;
    assert_int_equal(found.timestamp_ms, a.timestamp_ms);
    assert_int_equal(found.hash, a.hash);
}

static void test_round_trip(void **state) {
    (void)state;
    static const char *const fleets[] = {"", "0123456789abcdef"};
    for (size_t i = 0; i < sizeof fleets / sizeof *fleets; i++) {
        comes_back(fleets[i], (struct lw_anchor){0, -1, 0});
        comes_back(fleets[i], (struct lw_anchor){41, 1795324567452, 0x9734a3b664e69e32});
        comes_back(fleets[i], (struct lw_anchor){INT64_MAX, INT64_MIN, UINT64_MAX});
        comes_back(fleets[i], (struct lw_anchor){.offset = -1});
    }
}

/* Commit metadata that another program wrote must name neither a fleet nor an anchor. */
static void test_foreign(void **state) {
    (void)state;
    static const char *const foreign[] = {
        "what is this",
        "lw1:AQE:12345678",
        "@1,2,3",
        "lw3",
        "lw3:@1",
        "lw3:@1,2,",
        "lw3:@-5,2,3",
        "lw3:@1,2,3 ",
        "lw3:@1,2,xyz",
        "lw3:@1,2,3,4",
        "lw3:0123456789abcde",
        "lw3:0123456789abcdeg",
        "lw3:0123456789abcdef0@1,2,3",
        "lw3:0123456789ABCDEF",
        "lw3:@1,2,3                                                                              "};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct lw_anchor found;
        char fleet[LW_FLEET + 1];
        lw_meta_decode(foreign[i], strlen(foreign[i]), fleet, &found);
        assert_int_equal(found.offset, -1);
        assert_string_equal(fleet, "");
    }
}

/* Records that differ in any way must have different anchors. A null value also differs from an
 * empty value. */
static void test_differs(void **state) {
    (void)state;
    char a[] = "a", b[] = "b";
    rd_kafka_message_t m[] = {{.key = a, .key_len = 1, .payload = a, .len = 1},
                              {.key = a, .key_len = 1, .payload = b, .len = 1},
                              {.key = b, .key_len = 1, .payload = a, .len = 1},
                              {.payload = a, .len = 1},
                              {.key = a, .payload = a, .len = 1},
                              {.key = a, .key_len = 1}};
    enum { N = sizeof m / sizeof *m };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++) {
            uint64_t one = lw_anchor_of(&m[i]).hash, other = lw_anchor_of(&m[k]).hash;
            assert_true(one != other);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
