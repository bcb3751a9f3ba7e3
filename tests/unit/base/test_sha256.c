/* SPDX-License-Identifier: Apache-2.0 */
/* Tests SHA-256 against the examples of FIPS 180-4. */
#include "base/bytes.h"
#include "base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *hash(struct lw_bytes first, const char *second) {
    static char text[2 * LW_SHA256 + 1];
    uint8_t out[LW_SHA256];
    lw_sha256(first, lw_bytes_of(second), out);
    lw_hex(out, sizeof out, text);
    return text;
}

static void test_values(void **state) {
    (void)state;
    assert_string_equal(hash(lw_bytes(NULL, 0), ""),
                        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    static const char abc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_string_equal(hash(lw_bytes_of("abc"), ""), abc);
    assert_string_equal(hash(lw_bytes_of("a"), "bc"), abc);
    assert_string_equal(hash(lw_bytes(NULL, 0), "abc"), abc);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
