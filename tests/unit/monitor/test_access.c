/* SPDX-License-Identifier: Apache-2.0 */
/* Tests who may read and write over HTTP, and which hosts and origins the HTTP server accepts. */
#include "monitor/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct lw_token tokens[] = {
    {"anna", "anna-reads-what-is-there", false},
    {"ben", "ben-may-change-everything", true},
    {"token", "the-text-of-the-one-token", true},
};

static struct lw_config with(size_t from, size_t n) {
    return (struct lw_config){.http = {.tokens = tokens + from, .n_tokens = n}};
}

static void check(const struct lw_config *c, const char *authorization, const char *name, bool read,
                  bool write) {
    struct lw_access a = lw_access_of(c, authorization);
    if (name)
        assert_string_equal(a.name ? a.name : "none", name);
    else
        assert_null(a.name);
    assert_int_equal(a.read, read);
    assert_int_equal(a.write, write);
}

static void test_without_tokens_anybody_reads(void **state) {
    struct lw_config c = with(0, 0);
    (void)state;
    check(&c, NULL, NULL, true, false);
    check(&c, "Bearer ben-may-change-everything", NULL, true, false);
    assert_false(lw_access_writable(&c));
}

static void test_a_write_token_leaves_reading_open(void **state) {
    struct lw_config c = with(1, 2);
    (void)state;
    check(&c, NULL, NULL, true, false);
    check(&c, "Bearer something-else-entirely", NULL, true, false);
    check(&c, "Bearer ben-may-change-everything", "ben", true, true);
    check(&c, "Bearer the-text-of-the-one-token", "token", true, true);
    assert_true(lw_access_writable(&c));
}

static void test_a_read_token_closes_reading(void **state) {
    struct lw_config c = with(0, 3);
    (void)state;
    check(&c, NULL, NULL, false, false);
    check(&c, "Bearer ", NULL, false, false);
    check(&c, "Bearer anna-reads-what-is-ther", NULL, false, false);
    check(&c, "Basic anna-reads-what-is-there", NULL, false, false);
    check(&c, "Bearer anna-reads-what-is-there", "anna", true, false);
    check(&c, "Bearer ben-may-change-everything", "ben", true, true);
}

static void check_status(const struct lw_config *c, const char *authorization, bool write,
                         int status) {
    struct lw_http_request q = {.authorization = authorization};
    struct lw_http_answer a = {0};
    assert_int_equal(lw_access_allowed(c, &q, write, &a), status == 0);
    assert_int_equal(a.status, status);
    lw_buf_free(&a.body);
}

static void test_statuses(void **state) {
    struct lw_config none = with(0, 0), only_read = with(0, 1), all = with(0, 3);
    (void)state;
    check_status(&none, NULL, false, 0);
    check_status(&none, NULL, true, 403);
    check_status(&only_read, NULL, false, 401);
    check_status(&only_read, "Bearer anna-reads-what-is-there", true, 403);
    check_status(&all, NULL, true, 401);
    check_status(&all, "Bearer nonsense-of-some-length", true, 401);
    check_status(&all, "Bearer anna-reads-what-is-there", true, 403);
    check_status(&all, "Bearer anna-reads-what-is-there", false, 0);
    check_status(&all, "Bearer ben-may-change-everything", true, 0);
}

static void test_named_hosts(void **state) {
    char *const names[] = {"latchwork.example.com", "box"};
    (void)state;
    assert_true(lw_http_host_named("latchwork.example.com", names, 2));
    assert_true(lw_http_host_named("LATCHWORK.example.com:8443", names, 2));
    assert_true(lw_http_host_named("box", names, 2));
    const char *const wrong[] = {"latchwork.example.co",
                                 "latchwork.example.com.evil.example",
                                 "x.latchwork.example.com",
                                 "box:",
                                 "box:1x",
                                 "box@evil",
                                 "",
                                 ":80"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lw_http_host_named(wrong[i], names, 2));
    assert_false(lw_http_host_named(NULL, names, 2));
    assert_false(lw_http_host_named("box", NULL, 0));
}

static void test_origins(void **state) {
    (void)state;
    assert_true(lw_http_origin_ok(NULL, "localhost:9464"));
    assert_true(lw_http_origin_ok("http://localhost:9464", "localhost:9464"));
    assert_true(lw_http_origin_ok("https://latchwork.example.com", "Latchwork.example.com"));
    const char *const wrong[] = {"null",
                                 "",
                                 "http://localhost",
                                 "http://localhost:94640",
                                 "http://evil.example",
                                 "localhost:9464",
                                 "http://localhost:9464.evil.example",
                                 "http://evil@localhost:9464"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lw_http_origin_ok(wrong[i], "localhost:9464"));
    assert_false(lw_http_origin_ok("http://localhost", NULL));
}

static void test_fetch_sites(void **state) {
    (void)state;
    assert_true(lw_http_fetch_site_ok(NULL));
    assert_true(lw_http_fetch_site_ok("same-origin"));
    assert_true(lw_http_fetch_site_ok("none"));
    const char *const wrong[] = {"cross-site", "same-site", "", "same-origin, none", "other"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lw_http_fetch_site_ok(wrong[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_tokens_anybody_reads),
        cmocka_unit_test(test_a_write_token_leaves_reading_open),
        cmocka_unit_test(test_a_read_token_closes_reading),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_named_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_fetch_sites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
