/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the W3C trace context: which texts are a valid traceparent, and how the trace id decides
 * whether a trace is sampled. */
#include "base/bytes.h"
#include "base/trace_context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void test_a_traceparent_comes_back(void **state) {
    struct lw_trace_context c;
    char out[LW_TRACEPARENT + 1], hex[33];
    (void)state;
    assert_true(lw_traceparent_read(lw_bytes_of("00-" TRACE "-" SPAN "-01"), &c));
    lw_hex(c.trace_id, sizeof c.trace_id, hex);
    assert_string_equal(hex, TRACE);
    lw_hex(c.span_id, sizeof c.span_id, hex);
    assert_string_equal(hex, SPAN);
    assert_int_equal(c.flags, LW_TRACE_SAMPLED);
    lw_traceparent_write(&c, out);
    assert_string_equal(out, "00-" TRACE "-" SPAN "-01");
    assert_true(lw_traceparent_read(lw_bytes_of("00-" TRACE "-" SPAN "-00"), &c));
    assert_int_equal(c.flags, 0);
}

static void test_malformed(void **state) {
    static const char *const bad[] = {
        "",
        "00",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-011",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-01-more",
        "00-" TRACE "-" SPAN "-0g",
        "00-" TRACE "-" SPAN ".01",
        "00-" TRACE "." SPAN "-01",
        "00." TRACE "-" SPAN "-01",
        " 0-" TRACE "-" SPAN "-01",
        "ff-" TRACE "-" SPAN "-01",
        "01-" TRACE "-" SPAN "-01.more",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" SPAN "-" TRACE "-01",
    };
    struct lw_trace_context c;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lw_traceparent_read(lw_bytes_of(bad[i]), &c)) fail_msg("accepted: %s", bad[i]);
    assert_false(lw_traceparent_read(lw_bytes(NULL, 0), &c));
    assert_false(lw_traceparent_read(lw_bytes("00-" TRACE "-" SPAN "-01", LW_TRACEPARENT - 1), &c));
}

/* If a traceparent has a later version than 00, its first fields must be read as in version 00, as
 * the W3C standard says. */
static void test_later_versions(void **state) {
    struct lw_trace_context c;
    (void)state;
    assert_true(lw_traceparent_read(lw_bytes_of("01-" TRACE "-" SPAN "-01"), &c));
    assert_true(lw_traceparent_read(lw_bytes_of("cc-" TRACE "-" SPAN "-03-what-comes-later"), &c));
    assert_int_equal(c.flags, 3);
}

static void test_the_ratio(void **state) {
    uint8_t low[LW_TRACE_ID] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
            half[LW_TRACE_ID] = {0}, high[LW_TRACE_ID];
    (void)state;
    memset(high, 0xff, sizeof high);
    half[9] = 0x80;
    assert_true(lw_trace_ratio(low, 1) && lw_trace_ratio(half, 1) && lw_trace_ratio(high, 1));
    assert_false(lw_trace_ratio(low, 0) || lw_trace_ratio(half, 0) || lw_trace_ratio(high, 0));
    assert_true(lw_trace_ratio(half, 0.5) && lw_trace_ratio(high, 0.5));
    /* only the last 56 bits of a trace id decide whether the trace is sampled */
    assert_false(lw_trace_ratio(low, 0.5));
    assert_false(lw_trace_ratio(half, 0.4999));
    assert_true(lw_trace_ratio(high, 1e-9));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_traceparent_comes_back),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_later_versions),
        cmocka_unit_test(test_the_ratio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
