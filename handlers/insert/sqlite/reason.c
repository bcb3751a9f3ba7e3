/* SPDX-License-Identifier: Apache-2.0 */
/* Why the database has refused a row. SQLite names the columns of most constraints, but not those
 * of a foreign key. */
#include "handlers/insert/sqlite/sqlite.h"

#include <stdio.h>

enum { FOREIGN_MAX = 8 }; /* maximum number of columns of a foreign key that is looked at */

/* A foreign key of the user's table, as far as it was read. */
struct foreign {
    int id;
    char parent[128];
    size_t n;
    struct {
        size_t column; /* of the configured columns */
        char to[128];  /* column of the parent */
    } columns[FOREIGN_MAX];
    bool known; /* all its columns are configured, and none is NULL */
};

static int column_of(const struct lw_insert *in, const unsigned char *name) {
    for (size_t i = 0; name && i < in->n_columns; i++)
        if (sqlite3_stricmp((const char *)name, in->columns[i].name) == 0) return (int)i;
    return -1;
}

static void add_column(struct foreign *f, const struct lw_insert *in,
                       const struct lw_json_value *row, sqlite3_stmt *st) {
    int column = column_of(in, sqlite3_column_text(st, 2));
    const unsigned char *to = sqlite3_column_text(st, 3);
    if (column < 0 || !to || f->n == FOREIGN_MAX || row[column].kind == LW_JSON_NOTHING ||
        row[column].kind == LW_JSON_NULL) {
        f->known = false;
        return;
    }
    f->columns[f->n].column = (size_t)column;
    snprintf(f->columns[f->n++].to, sizeof f->columns[0].to, "%s", to);
}

/* Returns true if the parent has no row for a foreign key. */
static bool lacks_parent(struct lw_sqlite *s, const struct foreign *f,
                         const struct lw_json_value *row) {
    if (!f->known || !f->n) return false;
    sqlite3_stmt *st = NULL;
    sqlite3_str *sql = sqlite3_str_new(NULL);
    sqlite3_str_appendf(sql, "SELECT 1 FROM \"%w\" WHERE ", f->parent);
    for (size_t i = 0; i < f->n; i++)
        sqlite3_str_appendf(sql, "%s\"%w\" = ?", i ? " AND " : "", f->columns[i].to);
    char *text = sqlite3_str_finish(sql);
    bool lacks = text && sqlite3_prepare_v2(s->db, text, -1, &st, NULL) == SQLITE_OK;
    for (size_t i = 0; i < f->n && lacks; i++) {
        size_t column = f->columns[i].column;
        lacks = lw_sqlite_bind_value(&s->in->columns[column], &row[column], &s->reader.scratch, st,
                                     (int)i + 1) == SQLITE_OK;
    }
    lacks = lacks && sqlite3_step(st) == SQLITE_DONE;
    sqlite3_finalize(st);
    sqlite3_free(text);
    return lacks;
}

/* Finds the first foreign key whose parent has no row. Returns false if there is none that can be
 * told. */
static bool find_foreign(struct lw_sqlite *s, const struct lw_json_value *row, struct foreign *f) {
    static const char sql[] =
        "SELECT f.id, f.\"table\", f.\"from\", coalesce(f.\"to\", (SELECT name FROM "
        "pragma_table_info(f.\"table\") WHERE pk = f.seq + 1)) FROM pragma_foreign_key_list(?) AS f "
        "ORDER BY f.id, f.seq";
    sqlite3_stmt *st;
    bool found = false;
    *f = (struct foreign){.id = -1};
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL)) return false;
    sqlite3_bind_text(st, 1, s->in->table, -1, SQLITE_STATIC);
    while (!found && sqlite3_step(st) == SQLITE_ROW) {
        if (sqlite3_column_int(st, 0) != f->id) {
            if ((found = lacks_parent(s, f, row))) break;
            *f = (struct foreign){.id = sqlite3_column_int(st, 0), .known = true};
            snprintf(f->parent, sizeof f->parent, "%s", sqlite3_column_text(st, 1));
        }
        add_column(f, s->in, row, st);
    }
    sqlite3_finalize(st);
    return found || lacks_parent(s, f, row);
}

void lw_sqlite_reason(struct lw_sqlite *s, const struct lw_json_value *row, int code,
                      char reason[LW_REASON_MAX]) {
    char why[LW_REASON_MAX];
    struct lw_column_set columns = {0};
    struct foreign f;
    bool duplicate = code == SQLITE_CONSTRAINT_PRIMARYKEY || code == SQLITE_CONSTRAINT_UNIQUE ||
                     code == SQLITE_CONSTRAINT_ROWID;
    snprintf(why, sizeof why, "%s", sqlite3_errmsg(s->db));
    if (code == SQLITE_CONSTRAINT_FOREIGNKEY && find_foreign(s, row, &f)) {
        for (size_t i = 0; i < f.n; i++) lw_set_add(&columns, f.columns[i].column);
        snprintf(why + strlen(why), sizeof why - strlen(why), ": table \"%s\" has no such row",
                 f.parent);
    } else if (code != SQLITE_CONSTRAINT_TRIGGER) {
        /* "CHECK constraint failed: EXPRESSION", and TABLE.COLUMN in others */
        const char *about = strstr(why, code == SQLITE_CONSTRAINT_CHECK ? ": " : ".");
        if (about) lw_row_find_names(s->in, about, &columns);
        if (code == SQLITE_MISMATCH) columns = lw_row_key(s->in);
    }
    lw_row_blame(s->in, row, &columns,
                 duplicate ? "duplicate primary key" : "the table refuses the row", why, reason);
}
