/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads as rows: the insert reads a column or refuses the payload with a reason, and the text of
 * a PostgreSQL array has as many elements as were put into it. */
#include "handlers/insert/insert.h"
#include "handlers/insert/postgres/postgres.h"
#include "queue/key.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Counts the elements of the text of an array, as PostgreSQL reads it. */
static size_t elements(const char *text) {
    size_t n = 0;
    bool quoted = false;
    HOLDS(text[0] == '{');
    for (const char *p = text + 1; *p; p++) {
        if (quoted && *p == '\\') {
            HOLDS(*++p);
            continue;
        }
        if (*p == '"') quoted = !quoted;
        if (!quoted && (*p == ',' || (*p == '}' && p > text + 1))) n++;
    }
    HOLDS(!quoted);
    return n;
}

static void check_array(struct lw_bytes text) {
    struct lw_buf a = {0};
    if (memchr(text.p, '\0', text.n)) return; /* no text of PostgreSQL has a NUL */
    lw_array_begin(&a);
    lw_array_text(&a, text);
    lw_array_null(&a);
    lw_array_integer(&a, INT64_MIN);
    lw_array_end(&a);
    HOLDS(elements(a.p) == 3);
    lw_buf_free(&a);
}

static void check_array_of(const struct lw_json_value *v, struct lw_buf *scratch) {
    static const enum lw_pg_form forms[] = {LW_PG_ARRAY, LW_PG_ARRAY_OF_JSON};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct lw_buf a = {0};
        if (lw_array_has_nul(forms[i], v, scratch)) continue;
        lw_array_begin(&a);
        lw_array_value(&a, forms[i], v, scratch);
        lw_array_null(&a);
        lw_array_end(&a);
        HOLDS(elements(a.p) == 2);
        lw_buf_free(&a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const pointers[] = {"/id", "/a/0", "", "/n"};
    struct lw_json_path paths[4];
    struct lw_json_value values[4];
    struct lw_buf scratch = {0};
    struct lw_err err = {0};
    for (size_t i = 0; i < 4; i++) lw_json_path_init(&paths[i], pointers[i]);
    if (lw_json_scan(lw_bytes((const char *)data, size),
                     (struct lw_json_rules){.depth_max = 64, .fit = true}, paths, 4, values,
                     &scratch, &err))
        HOLDS(err.text[0]);
    else
        for (size_t i = 0; i < 4; i++)
            if (values[i].kind == LW_JSON_STRING)
                check_array(lw_json_text(&values[i], &scratch));
            else if (values[i].kind == LW_JSON_ARRAY)
                check_array_of(&values[i], &scratch);
    if (size) check_array(lw_bytes((const char *)data, size));
    lw_buf_free(&scratch);
    return 0;
}
