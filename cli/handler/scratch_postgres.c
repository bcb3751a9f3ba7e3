/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a schema for the test in PostgreSQL. During the test, PGOPTIONS in the environment sets
 * the search_path to that schema, so that the handler finds no other tables. */
#include "cli/handler/private.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

static int run(struct handler_scratch *s, const char *sql, struct lw_err *err) {
    PGresult *r = PQexec(s->conn, sql);
    ExecStatusType status = PQresultStatus(r);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    PQclear(r);
    const char *why = PQerrorMessage(s->conn);
    return good ? 0
                : lw_fail(err, "handler.store: cannot create a schema for the test: %.*s",
                          (int)strcspn(why, "\n"), why);
}

static PGconn *connection(const char *url) {
    static const char *const names[] = {"connect_timeout", "dbname", "application_name", NULL};
    return PQconnectdbParams(names, (const char *const[]){"10", url, "latchwork test", NULL}, 1);
}

static int connect_to(struct handler_scratch *s, const char *url, struct lw_err *err) {
    s->conn = connection(url);
    if (PQstatus(s->conn) == CONNECTION_OK)
        return run(s, "SET statement_timeout = 10000; SET client_min_messages = warning", err);
    const char *why = PQerrorMessage(s->conn);
    return lw_fail(err, "handler.store: %.*s", (int)strcspn(why, "\n"), why);
}

/* Appends a name, quoted as an SQL identifier. */
static void add_quoted(struct handler_scratch *s, struct lw_buf *out, const char *name, size_t n) {
    char *quoted = PQescapeIdentifier(s->conn, name, n);
    lw_buf_addf(out, "%s", quoted ? quoted : "\"\"");
    PQfreemem(quoted);
}

/* Creates the schema and, in it, a table with the columns of the configured table. If the
 * configured table does not exist yet, no table is created, and the handler creates it. */
static int make_tables(struct handler_scratch *s, const char *table, struct lw_err *err) {
    struct lw_buf sql = {0};
    const char *dot = strchr(table, '.'), *own = dot ? dot + 1 : table;
    lw_buf_addf(&sql, "CREATE SCHEMA %s; DO $do$ BEGIN IF to_regclass($name$", s->schema);
    size_t at = sql.n;
    if (dot) add_quoted(s, &sql, table, (size_t)(dot - table)), lw_buf_addf(&sql, ".");
    add_quoted(s, &sql, own, strlen(own));
    struct lw_bytes original = lw_bytes(lw_memdup(sql.p + at, sql.n - at), sql.n - at);
    lw_buf_addf(&sql, "$name$) IS NOT NULL THEN CREATE TABLE %s.", s->schema);
    add_quoted(s, &sql, own, strlen(own));
    lw_buf_addf(&sql, " (LIKE %.*s INCLUDING ALL); END IF; END $do$", (int)original.n, original.p);
    lw_buf_add(&sql, "", 1);
    int bad = strchr(table, '$')
                  ? lw_fail(err, "handler.table: the test cannot copy a table with a $ in its name")
                  : run(s, sql.p, err);
    free((char *)(uintptr_t)original.p);
    lw_buf_free(&sql);
    snprintf(s->table, sizeof s->table, "%s", own);
    return bad;
}

/* Checks that the search_path of a new connection is exactly the schema of the test. A connection
 * pooler may ignore PGOPTIONS, and the handler would then write to the real tables. */
static int check_path(const struct handler_scratch *s, const char *url, struct lw_err *err) {
    PGconn *conn = connection(url);
    PGresult *r = PQexec(conn, "SELECT current_setting('search_path')");
    bool good = PQntuples(r) == 1 && strcmp(PQgetvalue(r, 0, 0), s->schema) == 0;
    PQclear(r);
    PQfinish(conn);
    return good ? 0
                : lw_fail(err, "handler.store: a connection does not take its search_path from "
                               "PGOPTIONS, as behind a pooler; give the URL of "
                               "the server itself by --set handler.store=URL");
}

int handler_scratch_open_schema(struct handler_scratch *s, const struct lw_config *c,
                                const char *url, struct lw_err *err) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint64_t)getpid();
    snprintf(s->schema, sizeof s->schema, "latchwork_test_%016llx", (unsigned long long)random);
    if (connect_to(s, url, err)) return -1;
    if (make_tables(s, json_string_value(json_object_get(c->handler.json, "table")), err))
        return -1;
    char options[128]; /* value of PGOPTIONS, which libpq reads in the handler's process */
    snprintf(options, sizeof options, "-csearch_path=%s", s->schema);
    setenv("PGOPTIONS", options, 1);
    return check_path(s, url, err);
}

void handler_scratch_close_schema(struct handler_scratch *s) {
    if (!s->conn) return;
    char sql[128];
    struct lw_err err = {0};
    snprintf(sql, sizeof sql, "DROP SCHEMA IF EXISTS %s CASCADE", s->schema);
    if (PQstatus(s->conn) == CONNECTION_OK && run(s, sql, &err))
        fprintf(stderr, "latchwork handler test: the schema %s is left behind: %s\n", s->schema,
                err.text);
    PQfinish(s->conn);
    s->conn = NULL;
    unsetenv("PGOPTIONS");
}
