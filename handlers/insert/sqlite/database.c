/* SPDX-License-Identifier: Apache-2.0 */
/* The database: opens the file while other processes may use it, creates the tables, and prepares
 * the statements. */
#include "handlers/insert/sqlite/sqlite.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { OPEN_BUSY_MS = 10000, LOOK_MS = 250 };

/* The schema of Latchwork's own tables. The column `fence` of latchwork_replayed shows how old
 * an identity is. The cleaner deletes identities of replays by their age, because no watermark
 * ever passes them. */
static const char tables[] =
    "CREATE TABLE IF NOT EXISTS latchwork_seen(app TEXT NOT NULL, topic TEXT NOT NULL, partition "
    "INTEGER NOT NULL,"
    " segment INTEGER NOT NULL, bits BLOB NOT NULL, PRIMARY KEY(app, topic, partition, segment)) "
    "WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS latchwork_replayed(app TEXT NOT NULL, topic TEXT NOT NULL, "
    "partition INTEGER NOT NULL,"
    " offset INTEGER NOT NULL, replay INTEGER NOT NULL, fence INTEGER NOT NULL, PRIMARY KEY(app, "
    "topic, partition, offset, replay))"
    " WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS latchwork_replayed_age ON latchwork_replayed(fence);"
    "CREATE TABLE IF NOT EXISTS latchwork_recent(id INTEGER PRIMARY KEY, fences BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS latchwork_fences(hash BLOB PRIMARY KEY, fence INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS latchwork_count(app TEXT NOT NULL, name TEXT NOT NULL, n INTEGER "
    "NOT NULL, PRIMARY KEY(app, name))"
    " WITHOUT ROWID;";

/* Waits while another connection holds SQLite's lock. Replaces SQLite's own busy handler, whose
 * sleeps grow to 100 ms, although Latchwork's writers hold the lock for a few ms only. The wait
 * ends at busy_until_ms, so that it can end together with the leases of the jobs. */
static int on_busy(void *ctx, int count) {
    const struct lw_sqlite *s = ctx;
    if (lw_boot_ms() >= s->busy_until_ms) return 0;
    /* Short sleeps cover the first 4 ms, which is longer than most transactions. */
    nanosleep(&(struct timespec){.tv_nsec = count < 20 ? 200000 : 2000000}, NULL);
    return 1;
}

static int fail(struct lw_sqlite *s, const char *path, const char *what, struct lw_err *err) {
    return lw_fail(err, "insert: %s: %s: %s", path, what,
                   s->db ? sqlite3_errmsg(s->db) : "out of memory");
}

/* Sets WAL mode. Tries repeatedly, because SQLite refuses at once, without calling the busy
 * handler, while another process changes the mode. */
static int set_wal(struct lw_sqlite *s) {
    int r;
    while ((r = sqlite3_exec(s->db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL)) == SQLITE_BUSY &&
           lw_boot_ms() < s->busy_until_ms)
        lw_sleep_ms(5);
    return r;
}

int lw_sqlite_connect(struct lw_sqlite *s, const char *path, struct lw_err *err) {
    *s = (struct lw_sqlite){.busy_until_ms = lw_boot_ms() + OPEN_BUSY_MS};
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, &s->db, flags, NULL) != SQLITE_OK)
        return fail(s, path, "cannot open", err);
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_handler(s->db, on_busy, s);
    if (set_wal(s) != SQLITE_OK) return fail(s, path, "cannot switch to WAL", err);
    /* synchronous=FULL makes SQLite wait for the disk at each commit: once Redis has recorded a
     * message as done, its row must survive a power cut. A checkpoint costs two more fsyncs and
     * writes each page that has changed since the last checkpoint, so fewer checkpoints write
     * less. */
    static const char setup[] =
        "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000; PRAGMA foreign_keys=ON";
    if (sqlite3_exec(s->db, setup, NULL, NULL, NULL) != SQLITE_OK)
        return fail(s, path, "cannot set up", err);
    return 0;
}

/* Looks up which file is at the path now. */
static struct lw_sqlite_place look(const struct lw_sqlite *s, int file) {
    static const char *const suffixes[LW_SQLITE_FILES] = {"", "-wal", "-shm"};
    char path[4096];
    struct stat there;
    snprintf(path, sizeof path, "%s%s", s->in->address, suffixes[file]);
    if (stat(path, &there)) return (struct lw_sqlite_place){0};
    return (struct lw_sqlite_place){there.st_dev, there.st_ino};
}

static bool same(struct lw_sqlite_place a, struct lw_sqlite_place b) {
    return a.dev == b.dev && a.ino == b.ino;
}

bool lw_sqlite_in_place(struct lw_sqlite *s) {
    if (!same(look(s, 0), s->places[0])) return false;
    int64_t now = lw_boot_ms();
    if (s->looked_ms && now < s->looked_ms + LOOK_MS) return true;
    for (int i = 1; i < LW_SQLITE_FILES; i++)
        if (s->places[i].ino && !same(look(s, i), s->places[i])) return false;
    s->looked_ms = now;
    return true;
}

int lw_sqlite_step(sqlite3_stmt *st) {
    int r = sqlite3_step(st);
    int e = sqlite3_reset(st);
    return e != SQLITE_OK ? e : r;
}

void lw_sqlite_close(struct lw_sqlite *s) {
    for (int i = 0; i < LW_ST_N; i++) sqlite3_finalize(s->st[i]);
    for (int i = 0; i < LW_SQLITE_ROWS; i++) sqlite3_finalize(s->rows[i].st);
    sqlite3_close(s->db);
    lw_seen_free(&s->seen);
    lw_fences_free(&s->fences);
    lw_reader_free(&s->reader);
    free(s->items);
    free(s->values);
    free(s->columns);
    *s = (struct lw_sqlite){0};
}

/* Appends the names of the columns, separated by commas, each in the printf format `form`. If
 * `primary_only` is true, appends only the columns of the primary key. */
static void add_names(sqlite3_str *sql, const struct lw_insert *in, bool primary_only,
                      const char *form) {
    const char *comma = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (primary_only && !in->columns[i].primary) continue;
        sqlite3_str_appendall(sql, comma);
        sqlite3_str_appendf(sql, form, in->columns[i].name);
        comma = ", ";
    }
}

/* Returns the CREATE TABLE statement. The columns have no types, so that SQLite stores every value
 * unchanged. */
static char *create_sql(const struct lw_insert *in) {
    sqlite3_str *sql = sqlite3_str_new(NULL);
    sqlite3_str_appendf(sql, "CREATE TABLE IF NOT EXISTS \"%w\"(", in->table);
    for (size_t i = 0; i < in->n_columns; i++)
        sqlite3_str_appendf(sql, "%s\"%w\"%s", i ? ", " : "", in->columns[i].name,
                            in->columns[i].primary ? " NOT NULL" : "");
    sqlite3_str_appendall(sql, ", PRIMARY KEY(");
    add_names(sql, in, true, "\"%w\"");
    sqlite3_str_appendall(sql, "))");
    return sqlite3_str_finish(sql);
}

static void add_update(sqlite3_str *sql, const struct lw_insert *in,
                       const struct lw_column_set *absent) {
    sqlite3_str_appendall(sql, " ON CONFLICT(");
    add_names(sql, in, true, "\"%w\"");
    sqlite3_str_appendall(sql, ") DO ");
    const char *before = "UPDATE SET ";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (in->columns[i].primary) continue;
        if (lw_in_set(absent, i) && in->missing == LW_MISSING_KEEP) continue;
        /* of an absent column, `excluded` has the default */
        sqlite3_str_appendf(sql, "%s\"%w\" = excluded.\"%w\"", before, in->columns[i].name,
                            in->columns[i].name);
        before = ", ";
    }
    /* If every column belongs to the primary key or is absent, no column is left to update. */
    if (before[0] == 'U') sqlite3_str_appendall(sql, "NOTHING");
}

/* Appends the value that an absent column has in the row that is there already, or NULL. SQLite
 * refuses a new row without a required column before it looks whether the row is there. */
static void add_kept(sqlite3_str *sql, const struct lw_insert *in, size_t column) {
    sqlite3_str_appendf(sql, "(SELECT o.\"%w\" FROM \"%w\" AS o WHERE ", in->columns[column].name,
                        in->table);
    const char *before = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (!in->columns[i].primary) continue;
        sqlite3_str_appendf(sql, "%so.\"%w\" = ?%d", before, in->columns[i].name, (int)i + 1);
        before = " AND ";
    }
    sqlite3_str_appendall(sql, ")");
}

static char *row_sql(const struct lw_sqlite *s, const struct lw_column_set *absent) {
    const struct lw_insert *in = s->in;
    bool update = in->on_conflict == LW_CONFLICT_UPDATE;
    sqlite3_str *sql = sqlite3_str_new(NULL), *values = sqlite3_str_new(NULL);
    sqlite3_str_appendf(sql, "INSERT INTO \"%w\"(", in->table);
    const char *comma = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        bool gone = lw_in_set(absent, i);
        if (gone && !(update && in->missing == LW_MISSING_KEEP && s->columns[i].required)) continue;
        sqlite3_str_appendf(sql, "%s\"%w\"", comma, in->columns[i].name);
        sqlite3_str_appendall(values, comma);
        if (gone)
            add_kept(values, in, i);
        else
            sqlite3_str_appendf(values, "?%d", (int)i + 1);
        comma = ", ";
    }
    char *list = sqlite3_str_finish(values);
    sqlite3_str_appendf(sql, ") VALUES (%s)", list ? list : "");
    sqlite3_free(list);
    /* ON CONFLICT ignores only duplicates, whereas INSERT OR IGNORE would also ignore other
     * errors */
    if (in->on_conflict == LW_CONFLICT_IGNORE)
        sqlite3_str_appendall(sql, " ON CONFLICT DO NOTHING");
    if (update) add_update(sql, in, absent);
    return sqlite3_str_finish(sql);
}

sqlite3_stmt *lw_sqlite_row_statement(struct lw_sqlite *s, const struct lw_column_set *absent) {
    for (int i = 0; i < LW_SQLITE_ROWS && s->rows[i].st; i++)
        if (lw_same_set(&s->rows[i].absent, absent)) return s->rows[i].st;
    struct lw_sqlite_row *row = &s->rows[s->next_row];
    sqlite3_stmt *st = NULL;
    char *sql = row_sql(s, absent);
    int r = sql ? sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL)
                : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (r != SQLITE_OK) return NULL;
    sqlite3_finalize(row->st);
    *row = (struct lw_sqlite_row){.absent = *absent, .st = st};
    s->next_row = (s->next_row + 1) % LW_SQLITE_ROWS;
    return st;
}

/* --- the user's table ------------------------------------------------------------------------- */

/* Returns what a column of this declared type makes of texts, by the rules that SQLite's
 * documentation gives for the affinity of a column. */
static enum lw_sqlite_holds what_it_holds(const char *type) {
    static const char *const texts[] = {"CHAR", "CLOB", "TEXT", "BLOB"}, *const doubles[] = {
                                                                             "REAL", "FLOA",
                                                                             "DOUB"};
    if (strcasestr(type, "INT")) return LW_HOLDS_NUMBERS;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcasestr(type, texts[i])) return LW_HOLDS_ANYTHING;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        if (strcasestr(type, doubles[i])) return LW_HOLDS_DOUBLES;
    return type[0] ? LW_HOLDS_NUMBERS : LW_HOLDS_ANYTHING;
}

/* Reads what the database says of the configured columns. A column that is not found is reported
 * when the statement is prepared. */
static int read_columns(struct lw_sqlite *s) {
    const struct lw_insert *in = s->in;
    sqlite3_stmt *st;
    s->columns = lw_alloc(in->n_columns * sizeof *s->columns);
    static const char sql[] =
        "SELECT name, type, \"notnull\" AND dflt_value IS NULL FROM pragma_table_info(?)";
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL)) return -1;
    sqlite3_bind_text(st, 1, in->table, -1, SQLITE_STATIC);
    while (sqlite3_step(st) == SQLITE_ROW)
        for (size_t i = 0; i < in->n_columns; i++) {
            if (sqlite3_stricmp((const char *)sqlite3_column_text(st, 0), in->columns[i].name))
                continue;
            const char *type = (const char *)sqlite3_column_text(st, 1);
            s->columns[i].holds = what_it_holds(type ? type : "");
            s->columns[i].required = sqlite3_column_int(st, 2);
        }
    return sqlite3_finalize(st) == SQLITE_OK ? 0 : -1;
}

static bool table_exists(struct lw_sqlite *s, const char *table) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db,
                           "SELECT 1 FROM sqlite_schema WHERE type IN ('table', 'view') AND name = "
                           "? COLLATE NOCASE",
                           -1, &st, NULL))
        return true; /* the error will show up again in the caller's next statement */
    sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
    bool there = sqlite3_step(st) != SQLITE_DONE;
    sqlite3_finalize(st);
    return there;
}

static int make_tables(struct lw_sqlite *s, const struct lw_insert *in) {
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return -1;
    int r = sqlite3_exec(s->db, tables, NULL, NULL, NULL);
    if (r == SQLITE_OK && in->create) {
        char *sql = create_sql(in);
        r = sql ? sqlite3_exec(s->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
    }
    if (r == SQLITE_OK) r = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
    return r == SQLITE_OK ? 0 : -1;
}

static int prepare(struct lw_sqlite *s, enum lw_statement which, const char *sql) {
    if (!sql) return -1;
    return sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->st[which], NULL) ==
                   SQLITE_OK
               ? 0
               : -1;
}

static int prepare_all(struct lw_sqlite *s) {
    static const char *const sql[LW_ST_N] = {
        [LW_ST_BEGIN] = "BEGIN IMMEDIATE",
        [LW_ST_COMMIT] = "COMMIT",
        [LW_ST_ROLLBACK] = "ROLLBACK",
        [LW_ST_SEEN] = "SELECT bits FROM latchwork_seen WHERE app = ? AND topic = ? AND partition "
                       "= ? AND segment = ?",
        [LW_ST_SET_SEEN] = "INSERT INTO latchwork_seen(app, topic, partition, segment, bits) "
                           "VALUES (?, ?, ?, ?, ?)"
                           " ON CONFLICT DO UPDATE SET bits = excluded.bits",
        [LW_ST_REPLAYED] = "SELECT 1 FROM latchwork_replayed WHERE app = ? AND topic = ? AND "
                           "partition = ? AND offset = ? AND replay = ?",
        [LW_ST_SET_REPLAYED] = "INSERT INTO latchwork_replayed(app, topic, partition, offset, "
                               "replay, fence) VALUES (?, ?, ?, ?, ?, ?)",
        [LW_ST_RECENT] = "SELECT id, fences FROM latchwork_recent WHERE id > ? ORDER BY id",
        [LW_ST_ADD_RECENT] = "INSERT INTO latchwork_recent(id, fences) VALUES (?, ?)",
        [LW_ST_MERGED] = "DELETE FROM latchwork_recent",
        [LW_ST_FENCE] = "SELECT fence FROM latchwork_fences WHERE hash = ?",
        [LW_ST_SET_FENCE] =
            "INSERT INTO latchwork_fences(hash, fence) VALUES (?, ?) ON CONFLICT DO "
            "UPDATE SET fence = max(fence, excluded.fence)",
        [LW_ST_COUNT] = "INSERT INTO latchwork_count(app, name, n) VALUES (?, ?, ?) ON CONFLICT DO "
                        "UPDATE SET n = n + excluded.n",
    };
    for (int i = 0; i < LW_ST_N; i++)
        if (sql[i] && prepare(s, i, sql[i])) return -1;
    return 0;
}

/* Returns true if the table of fences is of the form that had a 64-bit hash. */
static bool old_fences(struct lw_sqlite *s) {
    sqlite3_stmt *st;
    static const char sql[] =
        "SELECT 1 FROM pragma_table_info('latchwork_fences') WHERE name = 'key'";
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL)) return false;
    bool old = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return old;
}

static int prepare_row(struct lw_sqlite *s, const struct lw_insert *in, struct lw_err *err) {
    if (!table_exists(s, in->table))
        return lw_refuse(
            err, "insert: %s: there is no table \"%s\"; create it, or set handler.create to true",
            in->address, in->table);
    if (read_columns(s) || !lw_sqlite_row_statement(s, &(struct lw_column_set){0}))
        return lw_fail(err, "insert: %s: table \"%s\" does not fit handler.columns: %s",
                       in->address, in->table, sqlite3_errmsg(s->db));
    return 0;
}

int lw_sqlite_open(struct lw_sqlite *s, const struct lw_insert *in, struct lw_err *err) {
    int r = lw_sqlite_connect(s, in->address, err);
    s->in = in;
    if (!r) lw_reader_init(&s->reader, in);
    if (!r && table_exists(s, "latchwork_done"))
        r = lw_refuse(err,
                      "insert: %s: made by an older version, which kept identities in "
                      "latchwork_done; once all that it has read is committed, "
                      "drop latchwork_done and latchwork_fence",
                      in->address);
    if (!r && old_fences(s))
        r = lw_refuse(err,
                      "insert: %s: made by an older version, whose latchwork_fences has another "
                      "form; stop all workers for longer than lock.ttl_ms, then drop "
                      "latchwork_fences and latchwork_recent",
                      in->address);
    if (!r && make_tables(s, in)) r = fail(s, in->address, "cannot create the tables", err);
    if (!r && prepare_all(s)) r = fail(s, in->address, "cannot prepare", err);
    if (!r) r = prepare_row(s, in, err);
    for (int i = 0; i < LW_SQLITE_FILES && !r; i++) s->places[i] = look(s, i);
    if (!r && !s->places[0].ino)
        r = lw_fail(err, "insert: %s: the file was removed while it was opened", in->address);
    if (r) lw_sqlite_close(s);
    return r;
}
