/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON scan accepts what jansson accepts, and finds the values that jansson has there. */
#include "base/json_scan.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

enum { SIZE_MAX_BYTES = 1500, DEPTH = 2048 }; /* jansson's own limit of nesting is 2,048 */

static const char *const pointers[] = {"", "/id", "/a/0", "/a/0/b", "/", "/~0~1", "/id/id"};
enum { POINTERS = sizeof pointers / sizeof *pointers };

/* Returns the value at a pointer whose steps have no escapes but those of "/~0~1". */
static const json_t *at(const json_t *v, const char *pointer) {
    if (!strcmp(pointer, "/~0~1")) return json_object_get(v, "~/");
    while (v && *pointer) {
        char step[16];
        size_t n = strcspn(++pointer, "/");
        snprintf(step, sizeof step, "%.*s", (int)n, pointer);
        v = json_is_array(v) ? (!strcmp(step, "0") ? json_array_get(v, 0) : NULL)
                             : json_object_get(v, step);
        pointer += n;
    }
    return v;
}

static enum lw_json_kind kind_of(const json_t *v) {
    static const enum lw_json_kind kinds[] = {
        [JSON_OBJECT] = LW_JSON_OBJECT, [JSON_ARRAY] = LW_JSON_ARRAY,
        [JSON_STRING] = LW_JSON_STRING, [JSON_INTEGER] = LW_JSON_INTEGER,
        [JSON_REAL] = LW_JSON_REAL,     [JSON_TRUE] = LW_JSON_TRUE,
        [JSON_FALSE] = LW_JSON_FALSE,   [JSON_NULL] = LW_JSON_NULL};
    return v ? kinds[json_typeof(v)] : LW_JSON_NOTHING;
}

static void compare(const struct lw_json_value *got, const json_t *want, struct lw_buf *scratch) {
    HOLDS(got->kind == kind_of(want));
    if (got->kind == LW_JSON_STRING) {
        struct lw_bytes text = lw_json_text(got, scratch);
        HOLDS(text.n == json_string_length(want));
        HOLDS(!text.n || !memcmp(text.p, json_string_value(want), text.n));
    } else if (got->kind == LW_JSON_INTEGER) {
        int64_t n = 0;
        HOLDS(lw_json_integer(got->raw, &n) && n == json_integer_value(want));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lw_json_path path[POINTERS];
    struct lw_json_value value[POINTERS];
    struct lw_buf scratch = {0}, text = {0};
    struct lw_err err = {0};
    if (size > SIZE_MAX_BYTES) return -1;
    for (size_t i = 0; i < POINTERS; i++) lw_json_path_init(&path[i], pointers[i]);
    json_t *want = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    int got = lw_json_scan(lw_bytes((const char *)data, size),
                           (struct lw_json_rules){.depth_max = DEPTH, .fit = true}, path, POINTERS,
                           value, &scratch, &err);
    /* jansson takes a NUL after a number for the end of the number and goes on behind it. */
    if (size && memchr(data, 0, size)) {
        HOLDS(got);
    } else {
        HOLDS((got == 0) == (want != NULL));
    }
    for (size_t i = 0; !got && i < POINTERS; i++) compare(&value[i], at(want, pointers[i]), &text);
    json_decref(want);
    lw_buf_free(&scratch);
    lw_buf_free(&text);
    return 0;
}
