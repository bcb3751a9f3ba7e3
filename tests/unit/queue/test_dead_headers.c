/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the headers that a dead letter gets in addition to those of its message. */
#include "queue/dead_headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect_header(const struct lw_header *h, const char *name, const char *value,
                          size_t n) {
    assert_true(lw_bytes_eq(h->name, lw_bytes_of(name)));
    assert_int_equal(h->value.n, n);
    assert_memory_equal(h->value.p, value, n);
    assert_true(lw_dead_headers_have(h->name));
}

static struct lw_dead_headers letter_of(int64_t timestamp_ms) {
    return (struct lw_dead_headers){.topic = lw_bytes_of("orders"),
                                    .partition = 3,
                                    .offset = 0x0102030405060708,
                                    .timestamp_ms = timestamp_ms,
                                    .identity = lw_bytes_of("orders/3/72623859790382856#7"),
                                    .reason = lw_bytes_of(""),
                                    .attempts = 12};
}

static void test_each_header(void **state) {
    (void)state;
    struct lw_dead_headers l = letter_of(0x0000018bcfe56800);
    struct lw_header h[LW_DEAD_HEADERS];
    assert_int_equal(lw_dead_headers_write(&l, h), 8);
    expect_header(&h[0], "latchwork-origin", "orders/3/72623859790382856#7", 28);
    expect_header(&h[1], "latchwork-reason", "", 0);
    assert_non_null(h[1].value.p);
    expect_header(&h[2], "latchwork-attempts", "12", 2);
    expect_header(&h[3], "kafka_dlt-original-topic", "orders", 6);
    expect_header(&h[4], "kafka_dlt-original-partition", "\0\0\0\3", 4);
    expect_header(&h[5], "kafka_dlt-original-offset", "\1\2\3\4\5\6\7\10", 8);
    expect_header(&h[6], "kafka_dlt-original-timestamp", "\0\0\1\x8b\xcf\xe5\x68\0", 8);
    expect_header(&h[7], "x-original-topic", "orders", 6);
}

static void test_an_unknown_timestamp_is_left_out(void **state) {
    (void)state;
    struct lw_dead_headers l = letter_of(-1);
    struct lw_header h[LW_DEAD_HEADERS];
    assert_int_equal(lw_dead_headers_write(&l, h), 7);
    expect_header(&h[6], "x-original-topic", "orders", 6);
    assert_false(lw_dead_headers_have(lw_bytes_of("traceparent")));
    assert_false(lw_dead_headers_have(lw_bytes_of("latchwork-origi")));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_header),
                                       cmocka_unit_test(test_an_unknown_timestamp_is_left_out)};
    return cmocka_run_group_tests_name("letter", tests, NULL, NULL);
}
