/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the code for the key rule with the library jansson: which texts are JSON, and which
 * values they contain. */
#include "queue/key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct lw_buf scratch;

static enum lw_key_result find_in(struct lw_bytes payload, const char *pointer,
                                  struct lw_bytes *out, struct lw_err *err) {
    struct lw_rule rule = {LW_KEY_JSON, (char *)(uintptr_t)pointer};
    struct lw_record r = {.payload = payload};
    *out = (struct lw_bytes){0};
    *err = (struct lw_err){0};
    return lw_key_find(&rule, &r, &scratch, out, err);
}

static void expect_key_n(const char *json, size_t n, const char *pointer, const char *key,
                         size_t key_len) {
    struct lw_bytes out;
    struct lw_err err;
    if (find_in(lw_bytes(json, n), pointer, &out, &err) != LW_KEY_OK)
        fail_msg("%s in %s: %s", pointer, json, err.text);
    assert_non_null(out.p);
    assert_int_equal(out.n, key_len);
    assert_memory_equal(out.p, key, key_len);
}

static void expect_key(const char *json, const char *pointer, const char *key) {
    expect_key_n(json, strlen(json), pointer, key, strlen(key));
}

static void expect_not(enum lw_key_result want, const char *json, const char *pointer,
                       const char *why) {
    struct lw_bytes out;
    struct lw_err err;
    assert_int_equal(find_in(lw_bytes_of(json), pointer, &out, &err), want);
    assert_string_equal(err.text, why);
}

static void test_pointer(void **state) {
    (void)state;
    expect_key("{\"id\":\"c-17\"}", "/id", "c-17");
    expect_key(" { \"a\" : { \"b\" : [ 0 , { \"c\" : \"x\" } ] } , \"z\":null } ", "/a/b/1/c", "x");
    expect_key("{\"a/b\":{\"m~n\":\"x\"}}", "/a~1b/m~0n", "x");
    expect_key("{\"\":{\"\":\"x\"}}", "//", "x");
    expect_key("\"whole\"", "", "whole");
    expect_key("[10,11,12]", "/2", "12");
    expect_key("{\"0\":\"x\"}", "/0", "x");
    expect_key("{\"id\":\"\"}", "/id", "");
    expect_key("{\"ab\":1,\"a\":\"x\"}", "/a", "x");
    expect_key("{\"\\u0061\":\"x\"}", "/a", "x");
}

static void test_numbers_are_their_text(void **state) {
    (void)state;
    expect_key("{\"id\":1.0}", "/id", "1.0");
    expect_key("{\"id\":-0}", "/id", "-0");
    expect_key("{\"id\":1E+2 }", "/id", "1E+2");
    expect_key("{\"id\":123456789012345678901234567890}", "/id", "123456789012345678901234567890");
    expect_key("7", "", "7");
}

static void test_escapes(void **state) {
    (void)state;
    expect_key("\"a\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "", "a\n\t\"\\/\b\f\r");
    expect_key("\"\\u00e4\\u20AC\\ud83d\\ude00x\"", "", "ä€😀x");
    expect_key("\"ä€😀\"", "", "ä€😀");
    expect_key_n("\"a\\u0000b\"", 10, "", "a\0b", 3);
}

static void test_last_of_doubled_names_wins(void **state) {
    (void)state;
    expect_key("{\"a\":1,\"a\":2}", "/a", "2");
    expect_key("{\"a\":{\"b\":1},\"a\":{\"b\":2}}", "/a/b", "2");
    expect_not(LW_KEY_MISSING, "{\"a\":{\"b\":1},\"a\":{}}", "/a/b", "the payload has no /a/b");
    expect_not(LW_KEY_MISSING, "{\"a\":{\"b\":1},\"a\":null}", "/a/b", "the payload has no /a/b");
}

static void test_missing(void **state) {
    (void)state;
    struct lw_bytes out;
    struct lw_err err;
    expect_not(LW_KEY_MISSING, "{}", "/id", "the payload has no /id");
    expect_not(LW_KEY_MISSING, "{\"id\":null}", "/id", "/id is null");
    expect_not(LW_KEY_MISSING, "[1,2]", "/2", "the payload has no /2");
    expect_not(LW_KEY_MISSING, "[1,2]", "/01", "the payload has no /01");
    expect_not(LW_KEY_MISSING, "[1,2]", "/-", "the payload has no /-");
    expect_not(LW_KEY_MISSING, "\"text\"", "/a", "the payload has no /a");
    expect_not(LW_KEY_MISSING, "{\"a\":{\"id\":1}}", "/id", "the payload has no /id");
    assert_int_equal(find_in((struct lw_bytes){0}, "/id", &out, &err), LW_KEY_MISSING);
    assert_string_equal(err.text, "the payload is null, so it has no /id");
}

static void test_no_keys(void **state) {
    (void)state;
    expect_not(LW_KEY_BAD, "{\"id\":true}", "/id",
               "/id is true or false, not a string or a number");
    expect_not(LW_KEY_BAD, "{\"id\":{}}", "/id", "/id is an object, not a string or a number");
    expect_not(LW_KEY_BAD, "{\"id\":[1]}", "/id", "/id is a list, not a string or a number");
    expect_not(LW_KEY_BAD, "[]", "", "the payload is a list, not a string or a number");
}

static void test_malformed_has_a_position(void **state) {
    (void)state;
    static const struct {
        const char *json, *why;
    } t[] = {
        {"", "malformed JSON at byte 0: the document ends where a value should be"},
        {"{\"id\":\"x\"", "malformed JSON at byte 9: a comma or } should be here"},
        {"{\"id\":\"x\"} y", "malformed JSON at byte 11: something follows the document"},
        {"{\"id\":\"x\",}", "malformed JSON at byte 10: a name in quotes should be here"},
        {"{\"id\" \"x\"}", "malformed JSON at byte 6: a colon should be here"},
        {"{\"id\":\"x", "malformed JSON at byte 8: the document ends inside a string"},
        {"{\"id\":\"\\x\"}", "malformed JSON at byte 7: unknown escape"},
        {"{\"id\":\"\\u12g4\"}", "malformed JSON at byte 7: \\u needs four hexadecimal digits"},
        {"{\"id\":\"\\ud800\"}", "malformed JSON at byte 7: half a surrogate pair"},
        {"{\"id\":\"\n\"}", "malformed JSON at byte 7: control character in a string"},
        {"{\"id\":\"\xc0\x80\"}", "malformed JSON at byte 7: not UTF-8"},
        {"{\"id\":01}", "malformed JSON at byte 7: a number with a leading zero"},
        {"{\"id\":1.}", "malformed JSON at byte 8: a digit is missing"},
        {"{\"id\":nul}", "malformed JSON at byte 6: a value should be here"},
        {"[1 2]", "malformed JSON at byte 3: a comma or ] should be here"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        expect_not(LW_KEY_BAD, t[i].json, "/id", t[i].why);
}

static void test_depth_is_bounded(void **state) {
    (void)state;
    enum { DEEP = 1 << 20 };
    struct lw_bytes out;
    struct lw_err err;
    char *json = lw_alloc(DEEP);
    memset(json, '[', 512);
    memset(json + 512, ']', 512);
    assert_int_equal(find_in(lw_bytes(json, 1024), "/a", &out, &err), LW_KEY_MISSING);
    memset(json, '[', DEEP);
    assert_int_equal(find_in(lw_bytes(json, DEEP), "/a", &out, &err), LW_KEY_BAD);
    assert_string_equal(err.text, "malformed JSON at byte 512: nested deeper than 512");
    free(json);
}

static void test_one_megabyte(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    struct lw_buf json = {0};
    struct lw_bytes out;
    struct lw_err err;
    char *key = lw_alloc(N);
    memset(key, 'k', N);
    lw_buf_addf(&json, "{\"pad\":\"");
    lw_buf_add(&json, key, N);
    lw_buf_addf(&json, "\",\"id\":\"\\u00e4");
    lw_buf_add(&json, key, N);
    lw_buf_addf(&json, "\"}");
    assert_int_equal(find_in(lw_bytes(json.p, json.n), "/id", &out, &err), LW_KEY_OK);
    assert_int_equal(out.n, N + 2);
    assert_memory_equal(out.p + 2, key, N);
    lw_buf_free(&json);
    free(key);
}

static void test_message_key(void **state) {
    (void)state;
    struct lw_rule rule = {LW_KEY_MESSAGE, NULL};
    struct lw_record r = {.key = lw_bytes("a\0\xff{}", 5)};
    struct lw_bytes out;
    struct lw_err err = {0};
    assert_int_equal(lw_key_find(&rule, &r, &scratch, &out, &err), LW_KEY_OK);
    assert_true(lw_bytes_eq(out, r.key));
    r.key = lw_bytes("", 0);
    assert_int_equal(lw_key_find(&rule, &r, &scratch, &out, &err), LW_KEY_OK);
    assert_int_equal(out.n, 0);
    assert_non_null(out.p);
    r.key = (struct lw_bytes){0};
    assert_int_equal(lw_key_find(&rule, &r, &scratch, &out, &err), LW_KEY_MISSING);
    assert_string_equal(err.text, "the message has no key (key.missing)");
}

static void test_header(void **state) {
    (void)state;
    char name[] = "id";
    struct lw_rule rule = {LW_KEY_HEADER, name};
    struct lw_header h[] = {{lw_bytes("id", 2), lw_bytes("first", 5)},
                            {lw_bytes("id", 2), lw_bytes("last", 4)},
                            {lw_bytes("idx", 3), {0}},
                            {lw_bytes("id", 2), {0}}};
    struct lw_record r = {.headers = h, .n_headers = 3};
    struct lw_bytes out;
    struct lw_err err = {0};
    assert_int_equal(lw_key_find(&rule, &r, &scratch, &out, &err), LW_KEY_OK);
    assert_true(lw_bytes_eq(out, lw_bytes("last", 4)));
    r.n_headers = 4;
    assert_int_equal(lw_key_find(&rule, &r, &scratch, &out, &err), LW_KEY_MISSING);
    assert_string_equal(err.text, "header id is null");
    r.n_headers = 0;
    err = (struct lw_err){0};
    assert_int_equal(lw_key_find(&rule, &r, &scratch, &out, &err), LW_KEY_MISSING);
    assert_string_equal(err.text, "no header id");
}

/* --- against jansson -------------------------------------------------------------------------- */

static unsigned seed;

static unsigned below(unsigned n) { return (unsigned)rand_r(&seed) % n; }

static void put_string(struct lw_buf *b, bool name) {
    static const char *const bits[] = {
        "a",       "b",     "~",   "/",    "0",       "1",       "ä",
        "€",       "😀",     "\\n", "\\\"", "\\u0061", "\\u00e4", "\\ud83d\\ude00",
        "\\u0000", "\\u000"};
    lw_buf_add(b, "\"", 1);
    for (unsigned n = below(4); n--;)
        lw_buf_addf(b, "%s", bits[below(name ? 14 : below(50) ? 15 : 16)]);
    lw_buf_add(b, "\"", 1);
}

static void put_document(struct lw_buf *b, unsigned depth) {
    static const char *const atoms[] = {"1",    "-0",    "0.5",  "1e3", "-12E-2",
                                        "true", "false", "null", "1.0"};
    static const char *const spaces[] = {"", "", "", " ", "\n\t", "\r"};
    unsigned what = below(depth ? 5 : 3), n = below(4);
    lw_buf_addf(b, "%s", spaces[below(6)]);
    if (what == 0)
        put_string(b, false);
    else if (what < 3)
        lw_buf_addf(b, "%s", atoms[below(9)]);
    for (unsigned i = 0; what >= 3 && i <= n; i++) {
        lw_buf_addf(b, "%s", i ? (i < n || n == 1 ? "," : "") : what == 3 ? "{" : "[");
        if (i == n && n != 1) break;
        if (what == 3) put_string(b, true), lw_buf_addf(b, "%s:", spaces[below(6)]);
        put_document(b, depth - 1);
    }
    if (what >= 3) lw_buf_addf(b, "%s", what == 3 ? "}" : "]");
    lw_buf_addf(b, "%s", spaces[below(6)]);
}

/* Returns true if the text is refused for a reason that only jansson has: a number that is too
 * large for jansson, or a NUL in a name. */
static bool jansson_only(const json_error_t *e) {
    return json_error_code(e) == json_error_numeric_overflow ||
           json_error_code(e) == json_error_null_byte_in_key;
}

/* Returns the value to which a JSON pointer without escapes leads in jansson's document, or
 * NULL. */
static json_t *walk(json_t *v, const char *pointer) {
    while (v && *pointer) {
        char step[64];
        size_t n = strcspn(++pointer, "/");
        snprintf(step, sizeof step, "%.*s", (int)n, pointer);
        v = json_is_object(v) ? json_object_get(v, step)
            : json_is_array(v) && n == 1 && *step >= '0' && *step <= '9'
                ? json_array_get(v, (size_t)(*step - '0'))
                : NULL;
        pointer += n;
    }
    return v;
}

static const char *const pointers[] = {"",     "/a", "/0", "/a/0",   "/b/a",
                                       "/1/a", "/ä", "/",  "/0/0/0", "/ab"};

static bool agree(struct lw_bytes text, json_t *root, const char *pointer) {
    struct lw_bytes out;
    struct lw_err err;
    enum lw_key_result r = find_in(text, pointer, &out, &err);
    json_t *v = walk(root, pointer);
    if ((r == LW_KEY_OK) == (err.text[0] != '\0')) return false;
    if (!root) return r == LW_KEY_BAD && !strncmp(err.text, "malformed JSON at byte ", 23);
    if (!v || json_is_null(v)) return r == LW_KEY_MISSING;
    if (json_is_string(v))
        return r == LW_KEY_OK &&
               lw_bytes_eq(out, lw_bytes(json_string_value(v), json_string_length(v)));
    if (!json_is_number(v)) return r == LW_KEY_BAD;
    char *number = lw_memdup(out.p, out.n);
    bool same = r == LW_KEY_OK && strtod(number, NULL) == json_number_value(v);
    free(number);
    return same;
}

/* Compares the results of the key rule with jansson's. The text is copied to a buffer of exactly
 * its length, so that the sanitizer notices a read past the end. */
static int compare(struct lw_bytes text) {
    json_error_t e;
    /* a NUL after the document is removed, because jansson would take it for the end of the text */
    if (text.n && !text.p[text.n - 1]) text.n--;
    char *copy = malloc(text.n ? text.n : 1);
    assert_non_null(copy);
    if (text.n) memcpy(copy, text.p, text.n);
    struct lw_bytes t = lw_bytes(copy, text.n);
    json_t *root = json_loadb(copy, t.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    int accepted = root != NULL;
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers && (root || !jansson_only(&e)); i++)
        if (!agree(t, root, pointers[i]))
            fail_msg("%s of <%.*s> (%zu) differs from jansson (%s)", pointers[i], (int)t.n, copy,
                     t.n, root ? "accepts" : e.text);
    json_decref(root);
    free(copy);
    return accepted;
}

static void test_random_documents_as_jansson(void **state) {
    (void)state;
    int accepted = 0, refused = 0;
    seed = 21;
    for (int i = 0; i < 20000; i++) {
        struct lw_buf b = {0};
        put_document(&b, 4);
        if (compare(lw_bytes(b.p, b.n)))
            accepted++;
        else
            refused++;
        lw_buf_free(&b);
    }
    assert_true(accepted > 10000 && refused > 20);
}

static void test_damaged_documents_as_jansson(void **state) {
    (void)state;
    static const char likely[] = "{}[]\",:\\u0019eE+-. \n\x80\xc3\xed\xf4tfn";
    int accepted = 0, refused = 0;
    seed = 22;
    for (int i = 0; i < 30000; i++) {
        struct lw_buf b = {0};
        put_document(&b, 4);
        size_t n = b.n;
        if (n && i % 3 == 0) n = below((unsigned)n);
        for (unsigned k = i % 3 ? below(3) + 1 : 0; n && k--;)
            b.p[below((unsigned)n)] =
                below(3) ? likely[below(sizeof likely - 1)] : (char)below(256);
        if (compare(lw_bytes(b.p, n)))
            accepted++;
        else
            refused++;
        lw_buf_free(&b);
    }
    assert_true(accepted > 500 && refused > 10000);
}

/* Tries every possible first byte of a character, followed by bytes at the limits of what UTF-8
 * allows. */
static void test_utf8_as_jansson(void **state) {
    (void)state;
    static const unsigned char edges[] = {0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0};
    int accepted = 0, refused = 0;
    for (int i = 0x80; i < 0x100 * 9 * 9; i++) {
        int first = i % 0x100, second = i / 0x100 % 9, third = i / 0x100 / 9;
        char text[] = {'"', (char)first, (char)edges[second], (char)edges[third], (char)0x80, '"'};
        for (size_t n = 3; n <= sizeof text; n++) {
            char whole[sizeof text];
            memcpy(whole, text, n);
            whole[n - 1] = '"';
            if (compare(lw_bytes(whole, n)))
                accepted++;
            else
                refused++;
        }
    }
    assert_true(accepted > 1000 && refused > 10000);
}

static void test_own_key_is_the_identity(void **state) {
    (void)state;
    struct lw_config c = {.key = {.from = {.from = LW_KEY_MESSAGE}, .missing = LW_MISSING_OWN}};
    const struct lw_record_at at = {lw_bytes_of("orders"), 3, 1042};
    struct lw_bytes key;
    struct lw_err err = {0};
    assert_int_equal(lw_key_of(&c, &(struct lw_record){0}, &at, &scratch, &key, &err), LW_KEY_OK);
    assert_int_equal(key.n, strlen("orders/3/1042"));
    assert_memory_equal(key.p, "orders/3/1042", key.n);
    assert_ptr_equal(key.p, scratch.p);
    assert_int_equal(
        lw_key_of(&c, &(struct lw_record){.key = lw_bytes_of("k")}, &at, &scratch, &key, &err),
        LW_KEY_OK);
    assert_true(lw_bytes_eq(key, lw_bytes_of("k")));
    c.key.missing = LW_MISSING_DEAD;
    assert_int_equal(lw_key_of(&c, &(struct lw_record){0}, &at, &scratch, &key, &err),
                     LW_KEY_MISSING);
}

static int free_scratch(void **state) {
    (void)state;
    lw_buf_free(&scratch);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointer),
        cmocka_unit_test(test_numbers_are_their_text),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_last_of_doubled_names_wins),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_no_keys),
        cmocka_unit_test(test_malformed_has_a_position),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_one_megabyte),
        cmocka_unit_test(test_message_key),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_own_key_is_the_identity),
        cmocka_unit_test(test_utf8_as_jansson),
        cmocka_unit_test(test_random_documents_as_jansson),
        cmocka_unit_test(test_damaged_documents_as_jansson),
    };
    return cmocka_run_group_tests_name("key", tests, NULL, free_scratch);
}
