/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the hash with a secret: against the values that Python's hashlib.blake2b computes, and that
 * the secret and the border between the two texts matter. */
#include "base/hex.h"
#include "base/keyed_hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char *hash(const uint8_t *secret, const char *first, const char *second) {
    static char text[2 * LW_HASH_BYTES + 1];
    uint8_t out[LW_HASH_BYTES];
    struct lw_keyed_hash *h = lw_keyed_hash_open(secret);
    assert_non_null(h);
    lw_keyed_hash(h, lw_bytes_of("other"), lw_bytes_of("text"), out); /* must leave no trace */
    lw_keyed_hash(h, lw_bytes_of(first), lw_bytes_of(second), out);
    lw_keyed_hash_close(h);
    lw_hex(out, sizeof out, text);
    return text;
}

static void test_values(void **state) {
    (void)state;
    uint8_t secret[LW_HASH_SECRET];
    for (int i = 0; i < LW_HASH_SECRET; i++) secret[i] = (uint8_t)i;
    assert_string_equal(hash(secret, "app", "key"), "d53c1e0b582a6649c2269948e1c77a08");
    assert_string_equal(hash(secret, "appk", "ey"), "b2befe4b77a46b1f507c8412df5e4ee2");
    assert_string_equal(hash(secret, "", ""), "bd6794e051bfc763d66f555026c60828");
    secret[0] = 1;
    assert_string_equal(hash(secret, "app", "key"), "3c4b67bdfd782fa6e4043d96b0aa2906");
}

static void test_secrets_differ(void **state) {
    (void)state;
    uint8_t a[LW_HASH_SECRET], b[LW_HASH_SECRET];
    assert_int_equal(lw_hash_secret(a), 0);
    assert_int_equal(lw_hash_secret(b), 0);
    assert_memory_not_equal(a, b, sizeof a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_secrets_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
