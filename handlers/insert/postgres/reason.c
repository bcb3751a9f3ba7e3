/* SPDX-License-Identifier: Apache-2.0 */
/* Why the server has refused a row. It names the column only for some errors; for the others, this
 * file finds it by what the server does say. */
#include "handlers/insert/postgres/postgres.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns true if the value is too long, or too large, for a type such as character varying(5) or
 * numeric(5,2). */
static bool exceeds(const char *type, const struct lw_json_value *v, struct lw_buf *scratch) {
    const char *at = strchr(type, '(');
    int n = 0, scale = 0;
    if (!at || sscanf(at, "(%d,%d", &n, &scale) < 1) return false;
    struct lw_bytes text = lw_json_text(v, scratch);
    if (strncmp(type, "numeric", 7) == 0) {
        char digits[64];
        snprintf(digits, sizeof digits, "%.*s", (int)text.n, text.p);
        return fabs(strtod(digits, NULL)) + 0.5 * pow(10, -scale) >= pow(10, n - scale);
    }
    int characters = 0;
    for (size_t i = 0; i < text.n; i++) characters += (text.p[i] & 0xc0) != 0x80;
    return characters > n;
}

/* Returns true if the server's message quotes the value, or an element of it. */
static bool quotes(const char *message, const struct lw_json_value *v, struct lw_buf *scratch) {
    struct lw_buf quoted = {0};
    struct lw_bytes text = lw_json_text(v, scratch);
    lw_buf_addf(&quoted, "\"%.*s\"", (int)text.n, text.p);
    bool found = memmem(message, strlen(message), quoted.p, quoted.n);
    lw_buf_free(&quoted);
    return found || (v->kind == LW_JSON_ARRAY && lw_row_quotes(lw_bytes_of(message), v));
}

static void add_named(const struct lw_insert *in, const char *name, struct lw_column_set *columns) {
    for (size_t i = 0; i < in->n_columns; i++)
        if (strcmp(in->columns[i].name, name) == 0) lw_set_add(columns, i);
}

/* Adds the columns of a check constraint. If the server does not answer, adds none. */
static void find_checked(struct lw_pg *pg, const struct lw_pg_table *t,
                         const struct lw_pg_error *error, const struct lw_pg_wait *wait,
                         struct lw_column_set *columns) {
    static const char sql[] =
        "SELECT a.attname FROM pg_constraint AS c JOIN pg_attribute AS a ON a.attrelid = c.conrelid "
        "AND a.attnum = ANY(c.conkey) WHERE c.conrelid = to_regclass($1) AND c.conname = $2";
    const char *values[] = {t->name, error->constraint};
    struct lw_pg_error other;
    PGresult *result =
        error->constraint[0] && pg->conn ? lw_pg_query(pg, sql, 2, values, wait, &other) : NULL;
    for (int row = 0; result && row < PQntuples(result); row++)
        add_named(pg->in, PQgetvalue(result, row, 0), columns);
    PQclear(result);
}

/* Finds the column whose value does not fit its type. */
static void find_misfit(const struct lw_insert *in, const struct lw_pg_table *t,
                        const struct lw_json_value *row, const struct lw_pg_error *error,
                        struct lw_column_set *columns) {
    struct lw_buf scratch = {0};
    bool length = strcmp(error->state, "22001") == 0,
         overflow = strcmp(error->state, "22003") == 0 && error->detail[0];
    int quoted = -1, n = 0;
    for (size_t i = 0; i < in->n_columns; i++) {
        const char *type = t->columns[i].full_type;
        if (length && strstr(error->text, type) && exceeds(type, &row[i], &scratch))
            lw_set_add(columns, i);
        if (overflow && strncmp(type, "numeric", 7) == 0 && exceeds(type, &row[i], &scratch))
            lw_set_add(columns, i);
        if (row[i].kind != LW_JSON_NOTHING && quotes(error->text, &row[i], &scratch))
            quoted = (int)i, n++;
    }
    if (!length && !overflow && n == 1) lw_set_add(columns, (size_t)quoted);
    lw_buf_free(&scratch);
}

/* Hides the values in a text such as: Key (a, b)=(1, x) is not present in table "t". The server
 * writes them in its own way. */
static void hide_key(const struct lw_insert *in, char *detail, size_t size) {
    bool masked = false;
    for (size_t i = 0; i < in->n_columns; i++) masked |= in->columns[i].masked;
    const char *from = strstr(detail, ")=("), *to = NULL;
    for (const char *p = from; masked && p && (p = strstr(p + 1, ") "));) to = p;
    if (!masked || !from) return;
    char text[300];
    snprintf(text, sizeof text, "%.*s)=(•••%s", (int)(from - detail), detail, to ? to : "");
    snprintf(detail, size, "%s", text);
}

void lw_pg_reason(struct lw_pg *pg, const struct lw_pg_table *t, const struct lw_json_value *row,
                  const struct lw_pg_error *error, const struct lw_pg_wait *wait,
                  char reason[LW_REASON_MAX]) {
    const struct lw_insert *in = pg->in;
    struct lw_column_set columns = {0};
    size_t parameter = (size_t)(error->parameter - 1 - LW_PG_P_COLUMNS);
    bool duplicate = strcmp(error->state, "23505") == 0,
         foreign = strcmp(error->state, "23503") == 0;
    if (error->column[0]) {
        add_named(in, error->column, &columns);
    } else if (error->parameter > LW_PG_P_COLUMNS && parameter < in->n_columns) {
        lw_set_add(&columns, parameter);
    } else if (strcmp(error->state, "23514") == 0) {
        find_checked(pg, t, error, wait, &columns);
    } else if (strncmp(error->state, "22", 2) == 0) {
        find_misfit(in, t, row, error, &columns);
    }
    char why[sizeof error->text + sizeof error->detail + 3], detail[sizeof error->detail];
    snprintf(detail, sizeof detail, "%s", duplicate || foreign ? error->detail : "");
    hide_key(in, detail, sizeof detail);
    snprintf(why, sizeof why, "%s%s%s", error->text, detail[0] ? ": " : "", detail);
    lw_row_blame(in, row, &columns,
                 duplicate ? "duplicate primary key" : "the table refuses the row", why, reason);
}
