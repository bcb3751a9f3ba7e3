/* SPDX-License-Identifier: Apache-2.0 */
/* Binds the values of a row to a statement of SQLite. An integer is bound as INTEGER and stays
 * exact. Any other number is bound as REAL, the nearest double. Integers of more than 64 bits, and
 * numbers too large for a double, were refused when the payload was read. */
#include "handlers/insert/sqlite/sqlite.h"

#include <jansson.h>
#include <stdlib.h>

static int bind_string(sqlite3_stmt *st, int at, const struct lw_json_value *v,
                       struct lw_buf *scratch) {
    struct lw_bytes text = lw_json_text(v, scratch);
    return sqlite3_bind_text64(st, at, text.p, text.n,
                               v->escaped ? SQLITE_TRANSIENT : SQLITE_STATIC, SQLITE_UTF8);
}

/* Binds an object or array as compact JSON, as jansson writes it. Of members with the same name,
 * the last is kept. The text is known to be valid, so parsing can fail only for lack of memory. */
static int bind_container(sqlite3_stmt *st, int at, struct lw_bytes raw) {
    json_t *v = json_loadb(raw.p, raw.n, JSON_ALLOW_NUL, NULL);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text ? sqlite3_bind_text64(st, at, text, strlen(text), free, SQLITE_UTF8) : SQLITE_NOMEM;
}

static int bind(sqlite3_stmt *st, int at, const struct lw_json_value *v, struct lw_buf *scratch) {
    int64_t integer;
    double real;
    switch (v->kind) {
    case LW_JSON_STRING: return bind_string(st, at, v, scratch);
    case LW_JSON_INTEGER:
        return lw_json_integer(v->raw, &integer) ? sqlite3_bind_int64(st, at, integer)
                                                 : SQLITE_MISMATCH;
    case LW_JSON_REAL:
        return lw_json_real(v->raw, &real) ? sqlite3_bind_double(st, at, real) : SQLITE_MISMATCH;
    case LW_JSON_TRUE: return sqlite3_bind_int(st, at, 1);
    case LW_JSON_FALSE: return sqlite3_bind_int(st, at, 0);
    case LW_JSON_NULL:
    case LW_JSON_NOTHING: return sqlite3_bind_null(st, at);
    case LW_JSON_OBJECT:
    case LW_JSON_ARRAY: return bind_container(st, at, v->raw);
    }
    return SQLITE_MISUSE;
}

int lw_sqlite_bind(const struct lw_insert *in, struct lw_reader *reader,
                   const struct lw_json_value *values, sqlite3_stmt *st) {
    int r = SQLITE_OK;
    for (size_t i = 0; i < in->n_columns && r == SQLITE_OK; i++)
        r = bind(st, (int)i + 1, &values[i], &reader->scratch);
    return r;
}
