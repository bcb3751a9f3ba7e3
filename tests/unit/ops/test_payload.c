/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the HTTP API may show of a payload. */
#include "ops/payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char *pointers[] = {"/card", "/customer/e~1mail", "/customer", "/items/0/price", "/"};

/* Checks how much of a payload may be shown, and compares the text that is shown. The payload is a
 * copy without a NUL after it, so that a sanitizer notices a read beyond its end. */
static void check(enum lw_payloads mode, struct lw_bytes payload, enum lw_payload_view view,
                  const char *shown) {
    struct lw_config c = {
        .http = {.payloads = mode, .mask = pointers, .n_mask = sizeof pointers / sizeof *pointers}};
    struct lw_buf out = {0};
    char *copy = payload.p ? malloc(payload.n + !payload.n) : NULL;
    if (payload.p) memcpy(copy, payload.p, payload.n);
    lw_buf_addf(&out, "<");
    assert_int_equal(lw_payload_shown(&c, lw_bytes(copy, payload.n), &out), view);
    lw_buf_addf(&out, ">");
    char want[512];
    snprintf(want, sizeof want, "<%s>", shown);
    if (out.n != strlen(want) || memcmp(out.p, want, out.n) != 0)
        fail_msg("%.*s, must be %s", (int)out.n, out.p, want);
    lw_buf_free(&out);
    free(copy);
}

static void masked(const char *payload, const char *shown) {
    check(LW_PAYLOADS_MASK, lw_bytes_of(payload), LW_PAYLOAD_MASKED, shown);
}

static void hidden(const char *payload) {
    check(LW_PAYLOADS_MASK, lw_bytes_of(payload), LW_PAYLOAD_HIDDEN, "");
}

static void test_show_and_hide(void **state) {
    (void)state;
    check(LW_PAYLOADS_SHOW, lw_bytes_of("{\"card\":1}"), LW_PAYLOAD_SHOWN, "{\"card\":1}");
    check(LW_PAYLOADS_SHOW, lw_bytes_of("no JSON"), LW_PAYLOAD_SHOWN, "no JSON");
    check(LW_PAYLOADS_HIDE, lw_bytes_of("{\"total\":1}"), LW_PAYLOAD_HIDDEN, "");
    for (int mode = LW_PAYLOADS_SHOW; mode <= LW_PAYLOADS_HIDE; mode++)
        check((enum lw_payloads)mode, lw_bytes(NULL, 0), LW_PAYLOAD_SHOWN, "");
}

static void test_mask(void **state) {
    (void)state;
    masked("{\"card\":\"4111 1111\",\"total\":1.50}", "{\"card\":\"•••\",\"total\":1.50}");
    masked("{ \"card\" : 4111, \"x\" : [ ] }", "{ \"card\" : \"•••\", \"x\" : [ ] }");
    masked("{\"card\":{\"number\":[4,1]}}", "{\"card\":\"•••\"}");
    masked("{\"card\":null}", "{\"card\":\"•••\"}");
    masked("{\"c\\u0061rd\":\"4111\"}", "{\"c\\u0061rd\":\"•••\"}");
    masked("{\"items\":[{\"price\":1},{\"price\":2}]}",
           "{\"items\":[{\"price\":\"•••\"},{\"price\":2}]}");
    masked("{\"\":\"4111\"}", "{\"\":\"•••\"}");
    masked("{\"cards\":1,\"CARD\":2}", "{\"cards\":1,\"CARD\":2}");
    masked("7", "7");
    masked("{\"customer\":{\"e/mail\":\"a@b\",\"name\":\"Anna\"},\"card\":\"\\\"4111\\\"\"}",
           "{\"customer\":\"•••\",\"card\":\"•••\"}");
}

/* A payload must not be shown if it cannot be parsed. It must not be shown either if an object has
 * two members of the same name, because only one of the two values might be masked. */
static void test_doubtful_payloads_are_hidden(void **state) {
    (void)state;
    hidden("");
    hidden("card=4111");
    hidden("{\"card\":\"4111\"");
    hidden("{\"card\":\"4111\"} {\"card\":\"4111\"}");
    hidden("{\"card\":\"4111\",\"card\":\"x\"}");
    hidden("{\"card\":\"4111\",\"c\\u0061rd\":\"x\"}");
    hidden("{\"card\":\"\xff\"}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_show_and_hide),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_doubtful_payloads_are_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
