/* SPDX-License-Identifier: Apache-2.0 */
/* Binds the values of a row to a statement of SQLite. An integer is bound as INTEGER and stays
 * exact. Any other number is bound as REAL, the nearest double. A number that needs more than 64
 * bits, or is too large for a double, is bound as text, which keeps its digits; in a column for
 * numbers it was refused when the payload was read. Objects and arrays are texts as they are in the
 * payload. */
#include "handlers/insert/sqlite/sqlite.h"

static int bind_string(sqlite3_stmt *st, int at, const struct lw_json_value *v,
                       struct lw_buf *scratch) {
    struct lw_bytes text = lw_json_text(v, scratch);
    return sqlite3_bind_text64(st, at, text.p, text.n,
                               v->escaped ? SQLITE_TRANSIENT : SQLITE_STATIC, SQLITE_UTF8);
}

static int bind_raw(sqlite3_stmt *st, int at, struct lw_bytes raw) {
    return sqlite3_bind_text64(st, at, raw.p, raw.n, SQLITE_STATIC, SQLITE_UTF8);
}

static int bind(sqlite3_stmt *st, int at, const struct lw_json_value *v, struct lw_buf *scratch) {
    int64_t integer;
    double real;
    switch (v->kind) {
    case LW_JSON_STRING: return bind_string(st, at, v, scratch);
    case LW_JSON_INTEGER:
        return lw_json_integer(v->raw, &integer) ? sqlite3_bind_int64(st, at, integer)
                                                 : bind_raw(st, at, v->raw);
    case LW_JSON_REAL:
        return lw_json_real(v->raw, &real) ? sqlite3_bind_double(st, at, real)
                                           : bind_raw(st, at, v->raw);
    case LW_JSON_TRUE: return sqlite3_bind_int(st, at, 1);
    case LW_JSON_FALSE: return sqlite3_bind_int(st, at, 0);
    case LW_JSON_NULL:
    case LW_JSON_NOTHING: return sqlite3_bind_null(st, at);
    case LW_JSON_OBJECT:
    case LW_JSON_ARRAY: return bind_raw(st, at, v->raw);
    }
    return SQLITE_MISUSE;
}

int lw_sqlite_bind_value(const struct lw_column *c, const struct lw_json_value *value,
                         struct lw_buf *scratch, sqlite3_stmt *st, int at) {
    char time[LW_TIME_TEXT];
    struct lw_json_value v = lw_row_value(c, value, time);
    if (v.raw.p == time) return sqlite3_bind_text(st, at, time, (int)v.raw.n, SQLITE_TRANSIENT);
    return bind(st, at, &v, scratch);
}

int lw_sqlite_bind(const struct lw_insert *in, struct lw_reader *reader,
                   const struct lw_json_value *values, const struct lw_column_set *absent,
                   sqlite3_stmt *st) {
    int r = SQLITE_OK;
    for (size_t i = 0; i < in->n_columns && r == SQLITE_OK; i++)
        if (!lw_in_set(absent, i))
            r = lw_sqlite_bind_value(&in->columns[i], &values[i], &reader->scratch, st, (int)i + 1);
    return r;
}
