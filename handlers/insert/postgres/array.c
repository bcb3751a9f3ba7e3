/* SPDX-License-Identifier: Apache-2.0 */
/* Formats values as the text of a PostgreSQL array: {"a","b\"c",NULL}. Numbers keep the digits of
 * the payload, so that no precision is lost. */
#include "handlers/insert/postgres/postgres.h"

#include <inttypes.h>

void lw_array_begin(struct lw_buf *a) {
    a->n = 0;
    lw_buf_add(a, "{", 1);
}

void lw_array_end(struct lw_buf *a) { lw_buf_add(a, "}", 2); }

static void next(struct lw_buf *a) {
    if (a->n > 1) lw_buf_add(a, ",", 1);
}

void lw_array_integer(struct lw_buf *a, int64_t v) {
    next(a);
    lw_buf_addf(a, "%" PRId64, v);
}

void lw_array_bool(struct lw_buf *a, bool v) {
    next(a);
    lw_buf_add(a, v ? "t" : "f", 1);
}

void lw_array_null(struct lw_buf *a) {
    next(a);
    lw_buf_add(a, "NULL", 4);
}

/* Appends a text in quotes. Escapes quotes and backslashes in the text. */
static void add_escaped(struct lw_buf *a, struct lw_bytes text) {
    size_t from = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != '"' && text.p[i] != '\\') continue;
        lw_buf_add(a, text.p + from, i - from);
        lw_buf_add(a, "\\", 1);
        from = i;
    }
    lw_buf_add(a, text.p + from, text.n - from);
}

void lw_array_text(struct lw_buf *a, struct lw_bytes text) {
    next(a);
    lw_buf_add(a, "\"", 1);
    add_escaped(a, text);
    lw_buf_add(a, "\"", 1);
}

void lw_array_bytes(struct lw_buf *a, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    next(a);
    lw_buf_add(a, "\"\\\\x", 4);
    for (size_t i = 0; i < n; i++) lw_buf_addf(a, "%02x", p[i]);
    lw_buf_add(a, "\"", 1);
}

/* Appends a string as JSON, in quotes and with the escapes of the payload. */
static void add_json_string(struct lw_buf *a, struct lw_bytes raw) {
    next(a);
    lw_buf_add(a, "\"\\\"", 3);
    add_escaped(a, raw);
    lw_buf_add(a, "\\\"\"", 3);
}

void lw_array_value(struct lw_buf *a, enum lw_pg_form form, const struct lw_json_value *v,
                    struct lw_buf *scratch) {
    switch (v->kind) {
    case LW_JSON_NOTHING:
    case LW_JSON_NULL: lw_array_null(a); break;
    case LW_JSON_STRING:
        if (form == LW_PG_JSON)
            add_json_string(a, v->raw);
        else
            lw_array_text(a, lw_json_text(v, scratch));
        break;
    case LW_JSON_TRUE: lw_array_text(a, lw_bytes_of("true")); break;
    case LW_JSON_FALSE: lw_array_text(a, lw_bytes_of("false")); break;
    case LW_JSON_INTEGER:
    case LW_JSON_REAL:
    case LW_JSON_OBJECT:
    case LW_JSON_ARRAY: lw_array_text(a, v->raw); break;
    }
}
