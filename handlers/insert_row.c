/* A payload becomes the values of a row. Numbers stay exact: integers up to 64 bits, all else as SQLite's REAL. */
#include "handlers/insert.h"

#include <stdio.h>
#include <stdlib.h>

/* Unescapes one reference token; NULL where a '~' is followed by anything but 0 or 1. */
static char *unescape(const char *p, size_t n) {
    char *token = lw_alloc(n + 1);
    size_t w = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '~') {
            token[w++] = p[i];
            continue;
        }
        if (++i == n || (p[i] != '0' && p[i] != '1')) {
            free(token);
            return NULL;
        }
        token[w++] = p[i] == '0' ? '~' : '/';
    }
    return token;
}

int lw_column_parse(struct lw_column *c) {
    const char *p = c->pointer;
    if (*p && *p != '/') return -1;
    size_t slashes = 0;
    for (const char *q = p; *q; q++) slashes += *q == '/';
    c->tokens = lw_alloc((slashes + 1) * sizeof *c->tokens);
    c->n_tokens = 0;
    while (*p) {
        size_t n = strcspn(++p, "/");
        char *token = unescape(p, n);
        if (!token) {
            lw_column_free(c);
            return -1;
        }
        c->tokens[c->n_tokens++] = token;
        p += n;
    }
    return 0;
}

void lw_column_free(struct lw_column *c) {
    for (size_t i = 0; i < c->n_tokens; i++) free(c->tokens[i]);
    free(c->tokens);
    c->tokens = NULL;
    c->n_tokens = 0;
}

/* An array index in RFC 6901: digits without a leading zero. */
static const json_t *element(const json_t *array, const char *token) {
    size_t n = strlen(token);
    if (!n || n > 9 || strspn(token, "0123456789") != n || (n > 1 && token[0] == '0')) return NULL;
    return json_array_get(array, (size_t)strtoul(token, NULL, 10));
}

static const json_t *resolve(const json_t *v, const struct lw_column *c) {
    for (size_t i = 0; v && i < c->n_tokens; i++) {
        if (json_is_object(v))
            v = json_object_get(v, c->tokens[i]);
        else if (json_is_array(v))
            v = element(v, c->tokens[i]);
        else
            v = NULL;
    }
    return v;
}

int lw_row_read(const struct lw_insert *in, const struct lw_job *job, struct lw_row *row, struct lw_err *err) {
    row->document = NULL;
    if (!job->payload.p) return lw_fail(err, "no payload to make a row from");
    json_error_t bad;
    row->document = json_loadb(job->payload.p, job->payload.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &bad);
    if (!row->document) return lw_fail(err, "malformed JSON at byte %d (line %d): %s", bad.position, bad.line, bad.text);
    for (size_t i = 0; i < in->n_columns; i++) {
        const struct lw_column *c = &in->columns[i];
        const json_t *v = row->values[i] = resolve(row->document, c);
        if (c->primary && (!v || json_is_null(v)))
            return lw_fail(err, "primary key column \"%s\": %s at %s", c->name, v ? "null" : "nothing", c->pointer);
    }
    return 0;
}

void lw_row_clear(struct lw_row *row) {
    json_decref(row->document);
    row->document = NULL;
}

static int bind_text_of(sqlite3_stmt *st, int at, const json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT);
    return text ? sqlite3_bind_text64(st, at, text, strlen(text), free, SQLITE_UTF8) : SQLITE_NOMEM;
}

static int bind(sqlite3_stmt *st, int at, const json_t *v) {
    if (!v) return sqlite3_bind_null(st, at);
    switch (json_typeof(v)) {
    case JSON_STRING: return sqlite3_bind_text64(st, at, json_string_value(v), json_string_length(v), SQLITE_STATIC, SQLITE_UTF8);
    case JSON_INTEGER: return sqlite3_bind_int64(st, at, json_integer_value(v));
    case JSON_REAL: return sqlite3_bind_double(st, at, json_real_value(v));
    case JSON_TRUE: return sqlite3_bind_int(st, at, 1);
    case JSON_FALSE: return sqlite3_bind_int(st, at, 0);
    case JSON_NULL: return sqlite3_bind_null(st, at);
    case JSON_OBJECT:
    case JSON_ARRAY: return bind_text_of(st, at, v);
    }
    return SQLITE_MISUSE;
}

int lw_row_bind(const struct lw_insert *in, const struct lw_row *row, sqlite3_stmt *st) {
    int r = SQLITE_OK;
    for (size_t i = 0; i < in->n_columns && r == SQLITE_OK; i++) r = bind(st, (int)i + 1, row->values[i]);
    return r;
}
