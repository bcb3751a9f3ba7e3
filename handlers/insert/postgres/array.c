/* SPDX-License-Identifier: Apache-2.0 */
/* Formats values as the text of a PostgreSQL array: {"a","b\"c",NULL}. Numbers keep the digits of
 * the payload, so that no precision is lost. */
#include "handlers/insert/postgres/postgres.h"

#include <inttypes.h>
#include <stdlib.h>

void lw_array_begin(struct lw_buf *a) {
    lw_buf_clear(a);
    lw_buf_add(a, "{", 1);
}

void lw_array_end(struct lw_buf *a) { lw_buf_add(a, "}", 2); }

static void next(struct lw_buf *a) {
    if (a->n > 1 && a->p[a->n - 1] != '{') lw_buf_add(a, ",", 1);
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

/* --- JSON arrays as arrays of PostgreSQL ------------------------------------------------------ */

/* Returns the end of the value that begins at p, in JSON text that the scan has accepted. */
static const char *end_of_value(const char *p, const char *end) {
    int depth = 0;
    bool text = false;
    for (; p < end; p++) {
        if (text) {
            if (*p == '\\')
                p++;
            else
                text = *p != '"';
        } else if (*p == '"') {
            text = true;
        } else if (*p == '[' || *p == '{') {
            depth++;
        } else if (*p == ']' || *p == '}') {
            if (!depth--) return p;
        } else if (!depth && (*p == ',' || strchr(" \t\r\n", *p))) {
            return p;
        }
    }
    return end;
}

static void add_json_elements(struct lw_buf *out, struct lw_bytes raw, bool json,
                              struct lw_buf *scratch);

static void add_element(struct lw_buf *out, struct lw_bytes raw, bool json,
                        struct lw_buf *scratch) {
    struct lw_json_value v = {.kind = LW_JSON_STRING};
    if (raw.n == 4 && memcmp(raw.p, "null", 4) == 0) {
        lw_array_null(out);
    } else if (*raw.p == '"' && !json) {
        v.raw = lw_bytes(raw.p + 1, raw.n - 2);
        v.escaped = memchr(v.raw.p, '\\', v.raw.n);
        lw_array_text(out, lw_json_text(&v, scratch));
    } else if (*raw.p == '[' && !json) {
        next(out);
        add_json_elements(out, raw, json, scratch);
    } else {
        lw_array_text(out, raw);
    }
}

/* Appends a JSON array as the text of an array: {"a",NULL,{"1","2"}}. */
static void add_json_elements(struct lw_buf *out, struct lw_bytes raw, bool json,
                              struct lw_buf *scratch) {
    const char *p = raw.p + 1, *end = raw.p + raw.n;
    lw_buf_add(out, "{", 1);
    while (p < end && *p != ']') {
        if (*p == ',' || strchr(" \t\r\n", *p)) {
            p++;
            continue;
        }
        const char *to = end_of_value(p, end);
        add_element(out, lw_bytes(p, (size_t)(to - p)), json, scratch);
        p = to;
    }
    lw_buf_add(out, "}", 1);
}

static struct lw_buf text_of_array(enum lw_pg_form form, struct lw_bytes raw,
                                   struct lw_buf *scratch) {
    struct lw_buf out = {0};
    add_json_elements(&out, raw, form == LW_PG_ARRAY_OF_JSON, scratch);
    return out;
}

static bool is_array(enum lw_pg_form form, const struct lw_json_value *v) {
    return v->kind == LW_JSON_ARRAY && (form == LW_PG_ARRAY || form == LW_PG_ARRAY_OF_JSON);
}

bool lw_array_has_nul(enum lw_pg_form form, const struct lw_json_value *v, struct lw_buf *scratch) {
    if (is_array(form, v)) {
        struct lw_buf out = text_of_array(form, v->raw, scratch);
        bool nul = memchr(out.p, 0, out.n);
        lw_buf_free(&out);
        return nul;
    }
    if (v->kind != LW_JSON_STRING || !v->escaped || form == LW_PG_JSON) return false;
    struct lw_bytes text = lw_json_text(v, scratch);
    return text.n && memchr(text.p, 0, text.n);
}

void lw_array_value(struct lw_buf *a, enum lw_pg_form form, const struct lw_json_value *v,
                    struct lw_buf *scratch) {
    if (is_array(form, v)) {
        struct lw_buf out = text_of_array(form, v->raw, scratch);
        lw_array_text(a, lw_bytes(out.p, out.n));
        lw_buf_free(&out);
        return;
    }
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
