/* SPDX-License-Identifier: Apache-2.0 */
/* Tests anchors in commit metadata. If an anchor was added to a text, decoding must return exactly
 * this anchor and the length of the original text. */
#include "kafka/anchor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void comes_back(const char *metadata, struct lw_anchor a) {
    char text[200], anchor[LW_ANCHOR_TEXT];
    size_t n = lw_anchor_encode(&a, anchor);
    assert_int_equal(n, strlen(anchor));
    assert_true(n < LW_ANCHOR_TEXT);
    snprintf(text, sizeof text, "%s%s", metadata, anchor);
    struct lw_anchor found;
    assert_int_equal(lw_anchor_decode(text, strlen(text), &found), strlen(metadata));
    assert_int_equal(found.offset, a.offset);
    if (a.offset < 0) return;
    assert_int_equal(found.timestamp_ms, a.timestamp_ms);
    assert_int_equal(found.hash, a.hash);
}

static void test_round_trip(void **state) {
    (void)state;
    static const char *const metadata[] = {"",     "lw1:AQE:12345678", "what is this", "a@b", "@",
                                           "x@1,2"};
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++) {
        comes_back(metadata[i], (struct lw_anchor){0, -1, 0});
        comes_back(metadata[i], (struct lw_anchor){41, 1795324567452, 0x9734a3b664e69e32});
        comes_back(metadata[i], (struct lw_anchor){INT64_MAX, INT64_MIN, UINT64_MAX});
        comes_back(metadata[i], (struct lw_anchor){.offset = -1});
    }
}

/* Commit metadata that another program wrote must not be decoded as an anchor, and the decoder must
 * not change its length. */
static void test_foreign(void **state) {
    (void)state;
    static const char *const foreign[] = {
        "@",        "@1",
        "@1,2",     "@1,2,",
        "@-5,2,3",  "@1,2,3 ",
        "@1,2,3@",  "user@host",
        "@1,2,xyz", "@,,",
        "@1,2,3,4", "@99999999999999999999999999999999999999999999999999999999999999999,1,2"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct lw_anchor found;
        assert_int_equal(lw_anchor_decode(foreign[i], strlen(foreign[i]), &found),
                         strlen(foreign[i]));
        assert_int_equal(found.offset, -1);
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
