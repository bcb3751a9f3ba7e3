/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a payload into the values of a row. Numbers stay exact: integers of up to 64 bits as such, all others
 * as SQLite's REAL. */
#include "handlers/insert/insert.h"

#include <jansson.h>
#include <stdlib.h>

void lw_reader_init(struct lw_reader *r, const struct lw_insert *in) {
    *r = (struct lw_reader){.paths = lw_alloc(in->n_columns * sizeof *r->paths)};
    for (size_t i = 0; i < in->n_columns; i++) lw_json_path_init(&r->paths[i], in->columns[i].pointer);
}

void lw_reader_free(struct lw_reader *r) {
    free(r->paths);
    lw_buf_free(&r->scratch);
    *r = (struct lw_reader){0};
}

int lw_row_read(const struct lw_insert *in, struct lw_reader *reader, const struct lw_job *job, struct lw_json_value *values,
                struct lw_err *err) {
    static const struct lw_json_rules rules = {.depth_max = JSON_PARSER_MAX_DEPTH, .fit = true};
    if (!job->payload.p) return lw_fail(err, "no payload to make a row from");
    if (lw_json_scan(job->payload, rules, reader->paths, in->n_columns, values, &reader->scratch, err)) return -1;
    for (size_t i = 0; i < in->n_columns; i++) {
        const struct lw_column *c = &in->columns[i];
        if (c->primary && (values[i].kind == LW_JSON_NOTHING || values[i].kind == LW_JSON_NULL))
            return lw_fail(err, "primary key column \"%s\": %s at %s", c->name, values[i].kind ? "null" : "nothing", c->pointer);
    }
    return 0;
}

static int bind_string(sqlite3_stmt *st, int at, const struct lw_json_value *v, struct lw_buf *scratch) {
    struct lw_bytes text = lw_json_text(v, scratch);
    return sqlite3_bind_text64(st, at, text.p, text.n, v->escaped ? SQLITE_TRANSIENT : SQLITE_STATIC, SQLITE_UTF8);
}

/* Binds an object or array as compact JSON, as jansson writes it; of duplicate names the last one counts. The text was scanned
 * before, so only a lack of memory can make it fail. */
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
    case LW_JSON_INTEGER: return lw_json_integer(v->raw, &integer) ? sqlite3_bind_int64(st, at, integer) : SQLITE_MISMATCH;
    case LW_JSON_REAL: return lw_json_real(v->raw, &real) ? sqlite3_bind_double(st, at, real) : SQLITE_MISMATCH;
    case LW_JSON_TRUE: return sqlite3_bind_int(st, at, 1);
    case LW_JSON_FALSE: return sqlite3_bind_int(st, at, 0);
    case LW_JSON_NULL:
    case LW_JSON_NOTHING: return sqlite3_bind_null(st, at);
    case LW_JSON_OBJECT:
    case LW_JSON_ARRAY: return bind_container(st, at, v->raw);
    }
    return SQLITE_MISUSE;
}

int lw_row_bind(const struct lw_insert *in, struct lw_reader *reader, const struct lw_json_value *values, sqlite3_stmt *st) {
    int r = SQLITE_OK;
    for (size_t i = 0; i < in->n_columns && r == SQLITE_OK; i++) r = bind(st, (int)i + 1, &values[i], &reader->scratch);
    return r;
}
