/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from the SQLite database the rows that the workers of `latchwork dev` have written. */
#include "cli/dev/private.h"

#include <sqlite3.h>
#include <unistd.h>

enum { BUSY_MS = 2000 };

static sqlite3 *open_database(const struct dev_home *h, struct lw_err *err) {
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(h->database, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(db, BUSY_MS);
        return db;
    }
    lw_fail(err, "%s: %s", h->database, db ? sqlite3_errmsg(db) : "out of memory");
    sqlite3_close(db);
    return NULL;
}

/* Runs a query whose result is one number and returns that number; -1 with `err` on failure. */
static int64_t ask(sqlite3 *db, const char *sql, int64_t arg, struct lw_err *err) {
    sqlite3_stmt *st = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK) {
        if (sqlite3_bind_parameter_count(st)) sqlite3_bind_int64(st, 1, arg);
        if (sqlite3_step(st) == SQLITE_ROW) n = sqlite3_column_int64(st, 0);
    }
    if (n < 0) lw_fail(err, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(st);
    return n;
}

int dev_rows_read(const struct dev_home *h, struct dev_rows *out, struct lw_err *err) {
    *out = (struct dev_rows){0};
    if (access(h->database, F_OK)) return 0;
    sqlite3 *db = open_database(h, err);
    if (!db) return -1;
    int64_t tables =
        ask(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('orders', 'latchwork_count')", 0,
            err);
    if (tables == 2) {
        out->inserted = ask(
            db, "SELECT coalesce(sum(n), 0) FROM latchwork_count WHERE name = 'inserted'", 0, err);
        out->ignored = ask(
            db, "SELECT coalesce(sum(n), 0) FROM latchwork_count WHERE name = 'ignored'", 0, err);
        out->rows = ask(db, "SELECT count(*) FROM orders", 0, err);
    }
    sqlite3_close(db);
    return tables < 0 || out->inserted < 0 || out->ignored < 0 || out->rows < 0 ? -1 : 0;
}

int64_t dev_rows_missing(const struct dev_home *h, int64_t orders, struct lw_err *err) {
    sqlite3 *db = open_database(h, err);
    if (!db) return -1;
    int64_t n =
        ask(db,
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)"
            " SELECT count(*) FROM n WHERE NOT EXISTS (SELECT 1 FROM orders WHERE id = "
            "printf('order-%d', i))",
            orders, err);
    sqlite3_close(db);
    return n;
}
