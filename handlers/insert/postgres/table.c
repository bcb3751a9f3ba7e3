/* SPDX-License-Identifier: Apache-2.0 */
/* Latchwork's tables, and the user's table: its columns, their types, and its primary key. */
#include "handlers/insert/postgres/postgres.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

/* The schema of Latchwork's own tables, which doc/how-to/insert.md also shows. COLLATE "C" makes
 * names compare by their bytes, which is faster. PostgreSQL leaves free space in the pages of the
 * tables latchwork_fences and latchwork_count, so that an updated row can stay in its page. */
static const char own_tables[] =
    "CREATE TABLE IF NOT EXISTS latchwork_seen(app text COLLATE \"C\" NOT NULL, topic text COLLATE "
    "\"C\" NOT NULL, partition integer NOT "
    "NULL,"
    " \"offset\" bigint NOT NULL, replay bigint NOT NULL, fence bigint NOT NULL, PRIMARY KEY (app, "
    "topic, partition, \"offset\", replay));"
    "CREATE INDEX IF NOT EXISTS latchwork_seen_replays ON latchwork_seen(app, fence) WHERE replay "
    "> 0;"
    "CREATE TABLE IF NOT EXISTS latchwork_fences(hash bytea PRIMARY KEY, fence bigint NOT NULL) "
    "WITH (fillfactor = 70);"
    "CREATE TABLE IF NOT EXISTS latchwork_count(app text COLLATE \"C\" NOT NULL, name text COLLATE "
    "\"C\" NOT NULL, part integer NOT NULL,"
    " n bigint NOT NULL, PRIMARY KEY (app, name, part)) WITH (fillfactor = 50);";

/* Serializes workers that create the tables at the same time: CREATE TABLE IF NOT EXISTS alone can
 * fail when two sessions create the same table. */
static const char one_by_one[] = "SELECT pg_advisory_xact_lock(7522544739041832);";

void lw_pg_quote(struct lw_buf *sql, const char *name) {
    lw_buf_add(sql, "\"", 1);
    for (const char *p = name; *p; p++) lw_buf_add(sql, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
    lw_buf_add(sql, "\"", 1);
}

/* Returns the quoted name of the table. The name sales.orders means the table orders in the schema
 * sales. */
static char *table_name(const char *table) {
    struct lw_buf name = {0};
    const char *dot = strchr(table, '.');
    if (dot) {
        char *schema = lw_memdup(table, (size_t)(dot - table));
        lw_pg_quote(&name, schema);
        lw_buf_add(&name, ".", 1);
        free(schema);
    }
    lw_pg_quote(&name, dot ? dot + 1 : table);
    char *text = lw_memdup(name.p, name.n);
    lw_buf_free(&name);
    return text;
}

static struct lw_pg_wait setup_wait(void) {
    return (struct lw_pg_wait){.until_ms = lw_boot_ms() + LW_PG_SETUP_MS};
}

/* Sets *err to an error of the server, and returns -1. Marks *err as permanent if a restart of the
 * worker cannot remove the cause. */
static int fail(const struct lw_pg *pg, const char *what, const struct lw_pg_error *error,
                struct lw_err *err) {
    char name[256];
    lw_pg_name(pg->in->address, name, sizeof name);
    bool permanent = strncmp(error->state, "42", 2) == 0 || strncmp(error->state, "22", 2) == 0 ||
                     strncmp(error->state, "3F", 2) == 0;
    if (permanent) return lw_refuse(err, "insert: %s: %s: %s", name, what, error->text);
    return lw_fail(err, "insert: %s: %s: %s", name, what, error->text);
}

/* --- making tables ---------------------------------------------------------------------------- */

static void add_create(struct lw_buf *sql, const struct lw_insert *in, const char *name) {
    lw_buf_addf(sql, "CREATE TABLE IF NOT EXISTS %s (", name);
    for (size_t i = 0; i < in->n_columns; i++) {
        lw_pg_quote(sql, in->columns[i].name);
        lw_buf_addf(sql, " text, ");
    }
    lw_buf_addf(sql, "PRIMARY KEY (");
    const char *comma = "";
    for (size_t i = 0; i < in->n_columns; i++) {
        if (!in->columns[i].primary) continue;
        lw_buf_addf(sql, "%s", comma);
        lw_pg_quote(sql, in->columns[i].name);
        comma = ", ";
    }
    lw_buf_addf(sql, "));");
}

static bool is_true(const PGresult *result, int row, int column) {
    return PQgetvalue(result, row, column)[0] == 't';
}

/* Creates the missing tables. If all tables exist, the role needs no right to create any. */
static int make_tables(const struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err) {
    struct lw_pg_error error;
    struct lw_pg_wait wait = setup_wait();
    const char *values[] = {t->name};
    static const char missing[] =
        "SELECT to_regclass('latchwork_seen') IS NULL OR "
        "to_regclass('latchwork_fences') IS NULL OR "
        "to_regclass('latchwork_count') IS NULL, to_regclass($1) IS NULL, "
        "EXISTS (SELECT FROM pg_attribute WHERE attrelid = "
        "to_regclass('latchwork_fences') AND attname = 'key')";
    PGresult *result = lw_pg_query(pg, missing, 1, values, &wait, &error);
    if (!result) return fail(pg, "cannot look for the tables", &error, err);
    bool own = is_true(result, 0, 0), user = is_true(result, 0, 1), old = is_true(result, 0, 2);
    PQclear(result);
    if (old)
        return lw_refuse(err, "insert: the tables were made by an older version, whose "
                              "latchwork_fences has another form; stop all workers for longer than "
                              "lock.ttl_ms, then drop latchwork_fences");
    if (user && !pg->in->create)
        return lw_refuse(
            err, "insert: there is no table %s; create it, or set handler.create to true", t->name);
    if (!own && !user) return 0;
    struct lw_buf sql = {0};
    lw_buf_addf(&sql, "%s%s", one_by_one, own ? own_tables : "");
    if (user) add_create(&sql, pg->in, t->name);
    int r = lw_pg_script(pg, sql.p, &wait, &error);
    lw_buf_free(&sql);
    return r ? fail(pg, "cannot create the tables", &error, err) : 0;
}

/* --- looking at the table --------------------------------------------------------------------- */

static int find_column(const struct lw_insert *in, const PGresult *result, size_t column) {
    for (int row = 0; row < PQntuples(result); row++)
        if (strcmp(PQgetvalue(result, row, 0), in->columns[column].name) == 0) return row;
    return -1;
}

/* Determines in which form the values of each configured column are sent. */
static int read_columns(struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err) {
    static const char sql[] =
        "SELECT a.attname, format_type(a.atttypid, -1), b.typcategory = 'A' OR b.typarray = 0,"
        " a.atttypid IN ('json'::regtype, 'jsonb'::regtype), b.typcategory = 'A', b.typelem IN "
        "('json'::regtype, 'jsonb'::regtype), a.attnotnull AND NOT a.atthasdef AND a.attidentity = "
        "'', format_type(a.atttypid, a.atttypmod)"
        " FROM pg_attribute AS a JOIN pg_type AS b ON b.oid = a.atttypid"
        " WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
    const struct lw_insert *in = pg->in;
    struct lw_pg_error error;
    struct lw_pg_wait wait = setup_wait();
    const char *values[] = {t->name};
    PGresult *result = lw_pg_query(pg, sql, 1, values, &wait, &error);
    if (!result) return fail(pg, "cannot read the table's columns", &error, err);
    int r = 0;
    for (size_t i = 0; i < in->n_columns && !r; i++) {
        int row = find_column(in, result, i);
        if (row < 0) {
            r = lw_refuse(err,
                          "insert: table %s does not fit handler.columns: it has no column \"%s\"",
                          t->name, in->columns[i].name);
            continue;
        }
        t->columns[i].type = lw_strdup(PQgetvalue(result, row, 1));
        t->columns[i].full_type = lw_strdup(PQgetvalue(result, row, 7));
        t->columns[i].required = is_true(result, row, 6);
        t->columns[i].form = is_true(result, row, 5)   ? LW_PG_ARRAY_OF_JSON
                             : is_true(result, row, 4) ? LW_PG_ARRAY
                             : is_true(result, row, 2) ? LW_PG_TEXT
                             : is_true(result, row, 3) ? LW_PG_JSON
                                                       : LW_PG_VALUE;
    }
    PQclear(result);
    return r;
}

/* Checks that a unique index has exactly the columns of handler.primary_key. Without such an index,
 * duplicates would not be detected. */
static int check_key(const struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err) {
    static const char sql[] =
        "SELECT 1 FROM pg_index AS i WHERE i.indrelid = to_regclass($1) AND i.indisunique AND "
        "i.indimmediate AND i.indisvalid"
        " AND i.indpred IS NULL AND i.indexprs IS NULL"
        " AND ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = i.indrelid"
        " AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]) ORDER BY a.attname::text "
        "COLLATE \"C\")"
        " = ARRAY(SELECT c FROM unnest($2::text[]) AS c ORDER BY c COLLATE \"C\") LIMIT 1";
    const struct lw_insert *in = pg->in;
    struct lw_buf names = {0};
    lw_array_begin(&names);
    for (size_t i = 0; i < in->n_columns; i++)
        if (in->columns[i].primary) lw_array_text(&names, lw_bytes_of(in->columns[i].name));
    lw_array_end(&names);
    struct lw_pg_error error;
    struct lw_pg_wait wait = setup_wait();
    const char *values[] = {t->name, names.p};
    PGresult *result = lw_pg_query(pg, sql, 2, values, &wait, &error);
    int r = 0;
    if (!result)
        r = fail(pg, "cannot read the table's primary key", &error, err);
    else if (PQntuples(result) == 0)
        r = lw_refuse(err,
                      "insert: table %s has no primary key and no unique index on just the columns "
                      "%s of handler.primary_key",
                      t->name, names.p);
    PQclear(result);
    lw_buf_free(&names);
    return r;
}

/* Runs the statement with no messages, so that PostgreSQL checks all names and rights. */
static int try_statement(const struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err) {
    size_t n = LW_PG_P_COLUMNS + pg->in->n_columns;
    const char **values = lw_alloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = "{}";
    values[LW_PG_P_APP] = pg->in->app;
    values[LW_PG_P_LOCK_MS] = "1000";
    values[LW_PG_P_PART] = "0";
    struct lw_pg_error error;
    struct lw_pg_wait wait = setup_wait();
    PGresult *result = lw_pg_query(pg, t->sql, (int)n, values, &wait, &error);
    free(values);
    PQclear(result);
    return result ? 0 : fail(pg, "cannot write to the tables", &error, err);
}

int lw_pg_table_open(struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err) {
    struct lw_pg_error error;
    struct lw_pg_wait wait = {.until_ms = lw_boot_ms() + LW_PG_CONNECT_MS};
    *t = (struct lw_pg_table){.name = table_name(pg->in->table),
                              .columns = lw_alloc(pg->in->n_columns * sizeof *t->columns)};
    if (lw_pg_connect(pg, &wait, &error)) {
        char name[256];
        lw_pg_name(pg->in->address, name, sizeof name);
        return lw_fail(err, "insert: %s: %s", name, error.text);
    }
    if (make_tables(t, pg, err) || read_columns(t, pg, err) || check_key(t, pg, err)) return -1;
    t->sql = lw_pg_statement(pg->in, t, &(struct lw_column_set){0});
    return try_statement(t, pg, err);
}

void lw_pg_table_close(struct lw_pg_table *t, size_t n_columns) {
    for (size_t i = 0; t->columns && i < n_columns; i++) {
        free(t->columns[i].type);
        free(t->columns[i].full_type);
    }
    free(t->columns);
    free(t->name);
    free(t->sql);
    *t = (struct lw_pg_table){0};
}
