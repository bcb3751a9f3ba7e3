/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the lines of the log: what they hold is never more than one line, always UTF-8, and cannot
 * be taken for fields; lines that come many times are counted. */
#include "base/log.h"

#include "tests/support/handler_fixture.h"

static char *folder, path[256];

static char *logged(bool json, const char *text, const struct lw_log_field *f, int n) {
    unlink(path);
    lw_log_setup(LW_LOG_INFO, json, "test");
    int keep = fx_capture(path);
    lw_log_with(LW_LOG_WARN, f, n, "%s", text);
    fx_release(keep);
    char *line = fx_read(path);
    size_t end = strlen(line);
    assert_true(end && line[end - 1] == '\n' && strchr(line, '\n') == line + end - 1);
    line[end - 1] = '\0';
    char *from = strstr(line, json ? "\"text\":" : "test: ");
    assert_non_null(from);
    from = strdup(from + (json ? 7 : 6));
    free(line);
    return from;
}

static void expect(bool json, const char *text, const char *want) {
    char *got = logged(json, text, NULL, 0);
    assert_string_equal(got, want);
    free(got);
}

static void test_bytes(void **state) {
    (void)state;
    expect(false, "sch\xc3\xb6n \xe2\x9c\x93 \xf0\x9f\x94\x91",
           "sch\xc3\xb6n \xe2\x9c\x93 \xf0\x9f\x94\x91");
    expect(false, "a\nb\x1b[31m\x7f", "a\\x0ab\\x1b[31m\\x7f");
    expect(false, "\xff\xc0\xaf \xe2\x9c \xed\xa0\x80 \xf5",
           "\\xff\\xc0\\xaf \\xe2\\x9c \\xed\\xa0\\x80 \\xf5");
    expect(true, "\xff \xe2\x9c", "\"\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\"}");
    /* C1 controls (NEL, CSI), and the controls of the writing direction */
    expect(false, "\xc2\x85 \xc2\x9b", "\\u0085 \\u009b");
    expect(false,
           "\xe2\x80\xae \xe2\x81\xa6 \xe2\x80\x8f \xd8\x9c \xe2\x80\xa8 \xe2\x81\xa9 \xe2\x80\xac",
           "\\u202e \\u2066 \\u200f \\u061c \\u2028 \\u2069 \\u202c");
    /* characters that nobody sees */
    expect(false, "a\xe2\x80\x8b\xc2\xad\xe2\x81\xa0\xef\xbf\xb9\xf3\xa0\x80\x81",
           "a\\u200b\\u00ad\\u2060\\ufff9\\udb40\\udc01");
    expect(true, "\xe2\x80\xae\n\x7f\xe2\x80\xac", "\"\\u202e\\u000a\\u007f\\u202c\"}");
}

static void test_fields(void **state) {
    (void)state;
    expect(false, "failed: all is well", "failed: all is well");
    expect(false, "failed: x id=orders/0/1 outcome=done",
           "\"failed: x id=orders/0/1 outcome=done\"");
    expect(false, "failed: \" id=1", "\"failed: \\\" id=1\"");
    expect(false, "\"quoted\"", "\"\\\"quoted\\\"\"");
    expect(false, "outcome=done", "\"outcome=done\"");
    expect(false, "a==b, x=1", "\"a==b, x=1\"");
    expect(false, "/path?x=1 && 2=3", "/path?x=1 && 2=3");
    const struct lw_log_field f[] = {{"id", "a b", 0}, {"n", NULL, 7}, {"k", "\xc2\x9b\xff", 0}};
    char *got = logged(false, "x id=1", f, 3);
    assert_string_equal(got, "\"x id=1\" id=\"a b\" n=7 k=\\u009b\\xff");
    free(got);
}

static void say(int i) { lw_warn_some(2, "message %d", i); }

static void test_many(void **state) {
    (void)state;
    unlink(path);
    lw_log_setup(LW_LOG_INFO, false, "test");
    int keep = fx_capture(path);
    for (int i = 0; i < 1000; i++) say(i);
    static struct lw_log_some site;
    lw_log_some(&site, 1, LW_LOG_WARN, NULL, 0, "site %d", 1);
    lw_log_some(&site, 1, LW_LOG_WARN, NULL, 0, "site %d", 2);
    lw_log_some(&site, 1, LW_LOG_WARN, NULL, 0, "site %d", 3);
    site.since_ms -= LW_LOG_SOME_MS;
    lw_log_some(&site, 1, LW_LOG_WARN, NULL, 0, "site %d", 4);
    fx_release(keep);
    char *text = fx_read(path);
    assert_contains(text, "message 0\n");
    assert_contains(text, "message 1\n");
    assert_null(strstr(text, "message 2\n"));
    assert_contains(text, "site 1\n");
    assert_null(strstr(text, "test: site 2\n"));
    assert_contains(text, "2 more lines in 10");
    assert_contains(text, "were left out, such as: site 3\n");
    assert_contains(text, "test: site 4\n");
    free(text);
}

int main(void) {
    folder = fx_folder();
    snprintf(path, sizeof path, "%s/log", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_many),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fx_remove(folder);
    return failed;
}
