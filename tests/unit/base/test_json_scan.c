/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the JSON scanner, which reads the values of several JSON pointers in one pass, with the
 * library jansson: which texts are JSON, which pointers lead to a value, and the values. */
#include "base/json_scan.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATHS_MAX = 8, DEPTH = 4, FLAGS = JSON_DECODE_ANY | JSON_ALLOW_NUL };

static const struct lw_json_rules rules = {.depth_max = JSON_PARSER_MAX_DEPTH, .fit = true};
static struct lw_buf scratch;

static int scan(struct lw_bytes text, const char *const *pointers, size_t n,
                struct lw_json_value *values, struct lw_err *err) {
    struct lw_json_path paths[PATHS_MAX];
    *err = (struct lw_err){0};
    for (size_t i = 0; i < n; i++) lw_json_path_init(&paths[i], pointers[i]);
    return lw_json_scan(text, rules, paths, n, values, &scratch, err);
}

static void test_several_at_once(void **state) {
    (void)state;
    static const char *const pointers[] = {"/a",   "/a/b",     "/c/1/d", "",
                                           "/a/b", "/m~0n~1/", "/none",  "/c/01"};
    struct lw_json_value v[PATHS_MAX];
    struct lw_err err;
    const char *text =
        " {\"a\":{\"b\":\"x\\n\"},\"c\":[{\"d\":1},{\"d\":-2.50}],\"m~n/\":{\"\":true}} ";
    assert_int_equal(scan(lw_bytes_of(text), pointers, PATHS_MAX, v, &err), 0);
    static const struct {
        enum lw_json_kind kind;
        const char *raw;
    } want[PATHS_MAX] = {{LW_JSON_OBJECT, "{\"b\":\"x\\n\"}"},
                         {LW_JSON_STRING, "x\\n"},
                         {LW_JSON_REAL, "-2.50"},
                         {LW_JSON_OBJECT, NULL},
                         {LW_JSON_STRING, "x\\n"},
                         {LW_JSON_TRUE, "true"},
                         {LW_JSON_NOTHING, NULL},
                         {LW_JSON_NOTHING, NULL}};
    for (size_t i = 0; i < PATHS_MAX; i++) {
        assert_int_equal(v[i].kind, want[i].kind);
        if (want[i].raw) assert_true(lw_bytes_eq(v[i].raw, lw_bytes_of(want[i].raw)));
    }
    assert_true(lw_bytes_eq(v[3].raw, lw_bytes(text + 1, strlen(text) - 2)));
    assert_true(v[1].escaped && lw_bytes_eq(lw_json_text(&v[1], &scratch), lw_bytes_of("x\n")));
}

static void test_pointer_ok(void **state) {
    (void)state;
    assert_true(lw_json_pointer_ok("") && lw_json_pointer_ok("/") &&
                lw_json_pointer_ok("/a~0~1/b"));
    assert_false(lw_json_pointer_ok("a") || lw_json_pointer_ok("/~") ||
                 lw_json_pointer_ok("/a~2") || lw_json_pointer_ok("/~/0"));
}

static void test_what_does_not_fit(void **state) {
    (void)state;
    static const struct {
        /* `why` is the reason for which the text is refused, or "" if the text is accepted */
        const char *json, *why;
    } t[] = {
        {"[9223372036854775807,-9223372036854775808,-0]", ""},
        {"[1, 9223372036854775808]", "malformed JSON at byte 4: too big integer"},
        {"-9223372036854775809", "malformed JSON at byte 0: too big negative integer"},
        {"1000000000000000000000", "malformed JSON at byte 0: too big integer"},
        {"[1.7976931348623157e308,1e-999]", ""},
        {"{\"a\":-1e309}", "malformed JSON at byte 5: real number overflow"},
        {"{\"\\u0000\":1}", "malformed JSON at byte 1: NUL in a name"},
        {"{\"a\":\"\\u0000\"}", ""},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct lw_json_path none;
        struct lw_json_value v;
        struct lw_err err = {0};
        assert_int_equal(lw_json_scan(lw_bytes_of(t[i].json), rules, &none, 0, &v, &scratch, &err),
                         *t[i].why ? -1 : 0);
        assert_string_equal(err.text, t[i].why);
        err.text[0] = '\0';
        assert_int_equal(lw_json_scan(lw_bytes_of(t[i].json), (struct lw_json_rules){512, false},
                                      &none, 0, &v, &scratch, &err),
                         0);
    }
}

static void test_depth_as_jansson(void **state) {
    (void)state;
    enum { DEEP = JSON_PARSER_MAX_DEPTH + 1 };
    char *json = lw_alloc(2 * (size_t)DEEP);
    for (size_t n = DEEP - 1; n <= DEEP; n++) {
        static const char *const pointers[] = {"/0", "/1"};
        struct lw_json_value v[2];
        struct lw_err err;
        memset(json, '[', n);
        memset(json + n, ']', n);
        json_t *root = json_loadb(json, 2 * n, FLAGS, NULL);
        assert_int_equal(scan(lw_bytes(json, 2 * n), pointers, 2, v, &err), root ? 0 : -1);
        assert_string_equal(err.text,
                            root ? "" : "malformed JSON at byte 2048: nested deeper than 2048");
        json_decref(root);
    }
    free(json);
}

/* The scanner reads strings one machine word at a time. The test puts one special byte at every
 * position of such a word. */
static void test_every_place_in_a_word(void **state) {
    (void)state;
    static const char *const odd[] = {"\x1f", "\x7f", "\x80", "ä", "\\n",
                                      "\\",   "\"",   "\xff", "!", "]"};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        for (size_t n = 0; n < 20; n++) {
            for (size_t at = 0; at <= n; at++) {
                struct lw_buf b = {0};
                struct lw_json_value v;
                struct lw_err err;
                lw_buf_addf(&b, "\"%.*s%s%.*s\"", (int)at, "abcdefghijklmnopqrstuvwxyz", odd[k],
                            (int)(n - at), "abcdefghijklmnopqrstuvwxyz");
                /* the copy ends with a NUL that is not counted in the length of the text */
                char *text = lw_memdup(b.p, b.n);
                json_t *root = json_loadb(b.p, b.n, FLAGS, NULL);
                static const char *const whole[] = {""};
                assert_int_equal(scan(lw_bytes(text, b.n), whole, 1, &v, &err), root ? 0 : -1);
                if (root)
                    assert_true(
                        lw_bytes_eq(lw_json_text(&v, &scratch),
                                    lw_bytes(json_string_value(root), json_string_length(root))));
                json_decref(root);
                free(text);
                lw_buf_free(&b);
            }
        }
    }
}

/* A large text must not leave its size in the scratch space, of which each place of a handler has
 * one. */
static void test_a_large_text_leaves_no_memory(void **state) {
    (void)state;
    struct lw_json_value v;
    struct lw_err err;
    struct lw_buf b = {0};
    lw_buf_add(&b, "\"\\n", 3);
    for (int i = 0; i < 1 << 20; i++) lw_buf_add(&b, "x", 1);
    lw_buf_add(&b, "\"", 1);
    static const char *const whole[] = {""};
    assert_int_equal(scan(lw_bytes(b.p, b.n), whole, 1, &v, &err), 0);
    assert_int_equal(lw_json_text(&v, &scratch).n, (1 << 20) + 1);
    lw_buf_free(&b);
    assert_int_equal(scan(lw_bytes_of("\"\\n\""), whole, 1, &v, &err), 0);
    assert_true(lw_bytes_eq(lw_json_text(&v, &scratch), lw_bytes_of("\n")));
    assert_true(scratch.cap < 1 << 16);
}

/* --- random documents ------------------------------------------------------------------------- */

static unsigned seed;

static unsigned below(unsigned n) { return (unsigned)rand_r(&seed) % n; }

static void put_string(struct lw_buf *b, bool name) {
    static const char *const names[] = {"a", "b", "a", "b", "", "a/b", "\\u0061", "\\u0000"};
    static const char *const bits[] = {"x",
                                       "ä",
                                       "€",
                                       "😀",
                                       "\\n",
                                       "\\/",
                                       "\\ud83d\\ude00",
                                       "\\u0000",
                                       "plain text of more than a word",
                                       "\\ud83d"};
    lw_buf_add(b, "\"", 1);
    if (name)
        lw_buf_addf(b, "%s", names[below(60) ? below(7) : 7]);
    else
        for (unsigned n = below(4); n--;) lw_buf_addf(b, "%s", bits[below(60) ? below(9) : 9]);
    lw_buf_add(b, "\"", 1);
}

static void put_number(struct lw_buf *b) {
    static const char *const edges[] = {"0",
                                        "-0",
                                        "-0.0",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "123456789012345678",
                                        "1e308",
                                        "1e-400",
                                        "-1E-5",
                                        "0.1",
                                        "1e+2",
                                        "2.2250738585072014e-308",
                                        "1e309",
                                        "-2e308",
                                        "-",
                                        "9223372036854775808",
                                        "-9223372036854775809",
                                        "00"};
    if (below(3) == 0)
        lw_buf_addf(b, "%s", edges[below(60) ? below(12) : below(18)]);
    else if (below(2))
        lw_buf_addf(b, "%s%u", below(2) ? "-" : "", below(100000));
    else
        lw_buf_addf(b, "%u.%u%s%.*s", below(1000), below(100000), below(2) ? "" : "25",
                    (int)below(2) * 400 * (below(20) == 0),
                    "000000000000000000000000000000000000000000000000000000000000000000000000000000"
                    "00000000000000000000000000000000000000"
                    "000000000000000000000000000000000000000000000000000000000000000000000000000000"
                    "00000000000000000000000000000000000000"
                    "000000000000000000000000000000000000000000000000000000000000000000000000000000"
                    "00000000000000000000000000000000000000");
}

static void put_value(struct lw_buf *b, unsigned depth) {
    static const char *const spaces[] = {"", "", "", " ", "\n\t", "\r"}, *const words[] = {"true",
                                                                                           "false",
                                                                                           "null"};
    unsigned what = depth == DEPTH && below(8) ? 4 + below(3) : below(depth ? 7 : 4), n = below(5);
    lw_buf_addf(b, "%s", spaces[below(6)]);
    if (what == 0)
        put_string(b, false);
    else if (what == 1)
        lw_buf_addf(b, "%s", words[below(3)]);
    else if (what < 4)
        put_number(b);
    else {
        bool object = what > 4;
        lw_buf_addf(b, "%s", object ? "{" : "[");
        for (unsigned i = 0; i < n; i++) {
            lw_buf_addf(b, "%s%s", i ? "," : "", spaces[below(6)]);
            if (object) put_string(b, true), lw_buf_addf(b, "%s:", spaces[below(6)]);
            put_value(b, depth - 1);
        }
        lw_buf_addf(b, "%s", object ? "}" : "]");
    }
    lw_buf_addf(b, "%s", spaces[below(6)]);
}

/* Returns the value to which a JSON pointer leads in jansson's document, or NULL if there is no
 * such value. */
static const json_t *walk(const json_t *v, const char *pointer) {
    while (v && *pointer) {
        char step[64];
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/'; pointer++)
            step[n++] = *pointer == '~' ? (*++pointer == '1' ? '/' : '~') : *pointer;
        step[n] = '\0';
        bool index = n == 1 && *step >= '0' && *step <= '9';
        v = json_is_object(v)           ? json_object_get(v, step)
            : json_is_array(v) && index ? json_array_get(v, (size_t)(*step - '0'))
                                        : NULL;
    }
    return v;
}

static bool same_container(const struct lw_json_value *got, const json_t *want) {
    json_t *slice = json_loadb(got->raw.p, got->raw.n, JSON_ALLOW_NUL, NULL);
    char *a = slice ? json_dumps(slice, JSON_COMPACT) : NULL, *b = json_dumps(want, JSON_COMPACT);
    bool same = a && b && strcmp(a, b) == 0;
    free(a);
    free(b);
    json_decref(slice);
    return same;
}

static bool same(const struct lw_json_value *got, const json_t *want) {
    int64_t integer;
    double real, expected;
    if (!want) return got->kind == LW_JSON_NOTHING;
    switch (json_typeof(want)) {
    case JSON_STRING:
        return got->kind == LW_JSON_STRING &&
               lw_bytes_eq(lw_json_text(got, &scratch),
                           lw_bytes(json_string_value(want), json_string_length(want)));
    case JSON_INTEGER:
        return got->kind == LW_JSON_INTEGER && lw_json_integer(got->raw, &integer) &&
               integer == json_integer_value(want);
    case JSON_REAL:
        expected = json_real_value(want);
        return got->kind == LW_JSON_REAL && lw_json_real(got->raw, &real) && real == expected &&
               !signbit(real) == !signbit(expected);
    case JSON_TRUE: return got->kind == LW_JSON_TRUE;
    case JSON_FALSE: return got->kind == LW_JSON_FALSE;
    case JSON_NULL: return got->kind == LW_JSON_NULL;
    case JSON_OBJECT: return got->kind == LW_JSON_OBJECT && same_container(got, want);
    case JSON_ARRAY: return got->kind == LW_JSON_ARRAY && same_container(got, want);
    }
    return false;
}

static struct { int accepted, refused, found; } seen;

/* Copies the text to a buffer of exactly its length, so that the sanitizer notices a read past the
 * end. Scans the copy, and compares the result with jansson's. */
static void compare(struct lw_bytes given) {
    static const char *const all[] = {"",       "/a", "/b",   "/a/a",   "/a/b", "/b/a",
                                      "/0",     "/1", "/a/0", "/0/a",   "/1/1", "/a~1b",
                                      "/a/a/a", "/",  "/0/0", "/b/b/0", "/2/a", "/a/01"};
    const char *pointers[PATHS_MAX];
    struct lw_json_value values[PATHS_MAX];
    struct lw_err err;
    char *copy = malloc(given.n ? given.n : 1);
    assert_non_null(copy);
    if (given.n) memcpy(copy, given.p, given.n);
    size_t n = below(PATHS_MAX + 1);
    for (size_t i = 0; i < n; i++) pointers[i] = all[below(sizeof all / sizeof *all)];
    json_error_t bad;
    json_t *root = json_loadb(copy, given.n, FLAGS, &bad);
    if ((scan(lw_bytes(copy, given.n), pointers, n, values, &err) == 0) != (root != NULL))
        fail_msg("<%.*s>: %s; jansson: %s", (int)given.n, copy, err.text,
                 root ? "accepts" : bad.text);
    if (!root && strncmp(err.text, "malformed JSON at byte ", 23) != 0) fail_msg("%s", err.text);
    for (size_t i = 0; root && i < n; i++) {
        if (!same(&values[i], walk(root, pointers[i])))
            fail_msg("\"%s\" of <%.*s> differs from jansson", pointers[i], (int)given.n, copy);
        seen.found += values[i].kind != LW_JSON_NOTHING;
    }
    if (root)
        seen.accepted++;
    else
        seen.refused++;
    json_decref(root);
    free(copy);
}

static void test_random_documents_as_jansson(void **state) {
    (void)state;
    memset(&seen, 0, sizeof seen);
    seed = 31;
    for (int i = 0; i < 30000; i++) {
        struct lw_buf b = {0};
        put_value(&b, DEPTH);
        compare(lw_bytes(b.p, b.n));
        lw_buf_free(&b);
    }
    assert_true(seen.accepted > 20000 && seen.refused > 1000 && seen.found > 10000);
}

/* The test never inserts a NUL, because jansson ignores a NUL after a number. */
static void test_damaged_documents_as_jansson(void **state) {
    (void)state;
    static const char likely[] = "{}[]\",:\\u0019eE+-. \n\x80\xc3\xed\xf4tfn";
    memset(&seen, 0, sizeof seen);
    seed = 32;
    for (int i = 0; i < 60000; i++) {
        struct lw_buf b = {0};
        put_value(&b, DEPTH);
        size_t n = i % 4 ? b.n : below((unsigned)b.n + 1);
        for (unsigned k = i % 4 ? below(3) + 1 : 0; n && k--;)
            b.p[below((unsigned)n)] =
                below(3) ? likely[below(sizeof likely - 1)] : (char)(1 + below(255));
        compare(lw_bytes(b.p, n));
        lw_buf_free(&b);
    }
    assert_true(seen.accepted > 2000 && seen.refused > 20000 && seen.found > 1000);
}

static int free_scratch(void **state) {
    (void)state;
    lw_buf_free(&scratch);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_a_large_text_leaves_no_memory),
        cmocka_unit_test(test_pointer_ok),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_depth_as_jansson),
        cmocka_unit_test(test_every_place_in_a_word),
        cmocka_unit_test(test_random_documents_as_jansson),
        cmocka_unit_test(test_damaged_documents_as_jansson),
    };
    return cmocka_run_group_tests_name("json_scan", tests, NULL, free_scratch);
}
