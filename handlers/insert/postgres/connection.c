/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to the server, and runs a statement within a time limit. libpq is used without its
 * blocking functions: this file waits for the socket in short slices, and closes the connection
 * when the time is over. */
#include "handlers/insert/postgres/postgres.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { VERSION_MIN = 120000 };

/* --- errors ----------------------------------------------------------------------------------- */

/* Copies the first line of a text, without trailing spaces. What has no room ends with "…". */
static void copy_line(char *out, size_t size, const char *text) {
    size_t n = text ? strcspn(text, "\n") : 0, most = size - sizeof "…";
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\r')) n--;
    if (n < size)
        snprintf(out, size, "%.*s", (int)n, text ? text : "");
    else
        snprintf(out, size, "%.*s…", (int)lw_bytes_fit(lw_bytes(text, n), most), text);
}

static void fail_away(struct lw_pg *pg, struct lw_pg_error *error, const char *what) {
    char line[300];
    copy_line(line, sizeof line, pg->conn ? PQerrorMessage(pg->conn) : "out of memory");
    *error = (struct lw_pg_error){.class = LW_PG_AWAY};
    snprintf(error->text, sizeof error->text, "%s: %s", what,
             line[0] ? line : "closed by the server");
    lw_pg_close(pg);
}

static void fail_late(struct lw_pg *pg, struct lw_pg_error *error, bool over, const char *what) {
    *error = (struct lw_pg_error){.class = over ? LW_PG_OVER : LW_PG_AWAY};
    snprintf(error->text, sizeof error->text, "%s: no answer in time", what);
    lw_pg_close(pg);
}

static void fail_result(struct lw_pg *pg, const PGresult *result, struct lw_pg_error *error) {
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE),
               *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *context = PQresultErrorField(result, PG_DIAG_CONTEXT);
    /* the function of the server that executes RAISE of PL/pgSQL */
    const char *source = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    bool raised = source && strcmp(source, "exec_stmt_raise") == 0;
    if (!state) { /* an error of libpq, not of the server */
        fail_away(pg, error, "connection lost");
        return;
    }
    char line[360];
    copy_line(line, sizeof line, message ? message : "no message");
    const char *parameter = context ? strstr(context, "parameter $") : NULL;
    *error = (struct lw_pg_error){
        .parameter = parameter ? atoi(parameter + strlen("parameter $")) : -1,
        .class = lw_pg_class_of(state, context && strstr(context, "function"), raised)};
    /* pg_cancel_backend() has the SQLSTATE of a statement timeout, but is no message's fault */
    if (strcmp(state, "57014") == 0 && !raised && strstr(line, "user request"))
        error->class = LW_PG_BUSY;
    snprintf(error->state, sizeof error->state, "%.5s", state);
    snprintf(error->text, sizeof error->text, "%s (SQLSTATE %s)", line, error->state);
    copy_line(error->column, sizeof error->column, PQresultErrorField(result, PG_DIAG_COLUMN_NAME));
    copy_line(error->constraint, sizeof error->constraint,
              PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME));
    copy_line(error->detail, sizeof error->detail,
              PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Waits for events of the socket. Returns false with *error if the time is over, the answer is no
 * longer needed, or poll() fails. */
static bool wait_socket(struct lw_pg *pg, short events, const struct lw_pg_wait *wait,
                        struct lw_pg_error *error, const char *what) {
    for (;;) {
        bool over = wait->over && wait->over(wait->ctx);
        int64_t left = wait->until_ms - lw_boot_ms();
        if (over || left <= 0) {
            fail_late(pg, error, over, what);
            return false;
        }
        struct pollfd p = {PQsocket(pg->conn), events, 0};
        int n = poll(&p, 1, (int)(left < LW_PG_LOOK_MS ? left : LW_PG_LOOK_MS));
        if (n > 0) return true;
        if (n == 0 || errno == EINTR) continue;
        fail_away(pg, error, "poll");
        return false;
    }
}

/* --- connecting ------------------------------------------------------------------------------- */

static PGconn *begin(const char *url) {
    /* A keyword listed after dbname overrides the same keyword in the URL. */
    static const char *const names[] = {"fallback_application_name", "dbname", "client_encoding",
                                        NULL};
    const char *values[] = {"latchwork", url, "UTF8", NULL};
    return PQconnectStartParams(names, values, 1);
}

/* Logs a notice of the server, for example that a table already exists. libpq would otherwise write
 * it to stderr. */
static void on_notice(void *ctx, const PGresult *result) {
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const struct lw_pg *pg = ctx;
    lw_debug("insert: table %s: the server says: %s", pg->in->table, message ? message : "");
}

static int check_version(struct lw_pg *pg, struct lw_pg_error *error) {
    int version = PQserverVersion(pg->conn);
    if (version >= VERSION_MIN) return 0;
    *error = (struct lw_pg_error){.class = LW_PG_AWAY};
    snprintf(error->text, sizeof error->text, "the server is PostgreSQL %d; 12 or later is needed",
             version / 10000);
    lw_pg_close(pg);
    return -1;
}

int lw_pg_connect(struct lw_pg *pg, const struct lw_pg_wait *wait, struct lw_pg_error *error) {
    if (pg->conn && PQstatus(pg->conn) == CONNECTION_OK) return 0;
    lw_pg_close(pg);
    pg->conn = begin(pg->in->address);
    if (!pg->conn || PQstatus(pg->conn) == CONNECTION_BAD) {
        fail_away(pg, error, "cannot connect");
        return -1;
    }
    PQsetNoticeReceiver(pg->conn, on_notice, pg);
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next != PGRES_POLLING_OK) {
        if (!wait_socket(pg, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, wait, error,
                         "cannot connect"))
            return -1;
        next = PQconnectPoll(pg->conn);
        if (next == PGRES_POLLING_FAILED) {
            fail_away(pg, error, "cannot connect");
            return -1;
        }
    }
    PQsetnonblocking(pg->conn, 1);
    return check_version(pg, error);
}

void lw_pg_close(struct lw_pg *pg) {
    PQfinish(pg->conn);
    pg->conn = NULL;
}

/* --- statements ------------------------------------------------------------------------------- */

/* Sends the bytes that libpq has not sent yet. Also reads, because a server whose answers are not
 * read may itself stop reading. */
static bool flush(struct lw_pg *pg, const struct lw_pg_wait *wait, struct lw_pg_error *error) {
    int left;
    while ((left = PQflush(pg->conn)) > 0) {
        if (!wait_socket(pg, POLLIN | POLLOUT, wait, error, "sending a statement")) return false;
        if (!PQconsumeInput(pg->conn)) break;
    }
    if (left == 0) return true;
    fail_away(pg, error, "connection lost");
    return false;
}

/* Waits for all results of the statement. Returns the first result that is an error, or else the
 * last result. If the wait has failed, returns NULL with *error. If there was no result, returns
 * NULL and does not set *error. */
static PGresult *collect(struct lw_pg *pg, const struct lw_pg_wait *wait,
                         struct lw_pg_error *error) {
    PGresult *kept = NULL;
    for (;;) {
        while (PQisBusy(pg->conn)) {
            if (wait_socket(pg, POLLIN, wait, error, "running a statement") &&
                PQconsumeInput(pg->conn))
                continue;
            if (pg->conn) fail_away(pg, error, "connection lost");
            PQclear(kept);
            return NULL;
        }
        PGresult *result = PQgetResult(pg->conn);
        if (!result) return kept;
        if (kept && PQresultStatus(kept) != PGRES_TUPLES_OK &&
            PQresultStatus(kept) != PGRES_COMMAND_OK) {
            PQclear(result);
            continue;
        }
        PQclear(kept);
        kept = result;
    }
}

/* Sends the rest of a statement and waits for its result. Returns the result, or NULL with *error.
 * `sent` is 0 if libpq did not accept the statement. */
static PGresult *finish(struct lw_pg *pg, int sent, const struct lw_pg_wait *wait,
                        struct lw_pg_error *error) {
    if (!sent) {
        fail_away(pg, error, "connection lost");
        return NULL;
    }
    if (!flush(pg, wait, error)) return NULL;
    PGresult *result = collect(pg, wait, error);
    if (!result) {
        if (pg->conn) fail_away(pg, error, "connection lost");
        return NULL;
    }
    if (PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK) {
        *error = (struct lw_pg_error){.class = LW_PG_OK};
        return result;
    }
    fail_result(pg, result, error);
    PQclear(result);
    if (pg->conn && (PQstatus(pg->conn) != CONNECTION_OK || error->class == LW_PG_AWAY))
        lw_pg_close(pg);
    return NULL;
}

PGresult *lw_pg_query(struct lw_pg *pg, const char *sql, int n, const char *const *values,
                      const struct lw_pg_wait *wait, struct lw_pg_error *error) {
    return finish(pg, PQsendQueryParams(pg->conn, sql, n, NULL, values, NULL, NULL, 0), wait,
                  error);
}

int lw_pg_script(struct lw_pg *pg, const char *sql, const struct lw_pg_wait *wait,
                 struct lw_pg_error *error) {
    PGresult *result = finish(pg, PQsendQuery(pg->conn, sql), wait, error);
    PQclear(result);
    return result ? 0 : -1;
}

/* --- the URL ---------------------------------------------------------------------------------- */

static const char *option(const PQconninfoOption *all, const char *name) {
    for (const PQconninfoOption *o = all; o && o->keyword; o++)
        if (strcmp(o->keyword, name) == 0) return o->val;
    return NULL;
}

/* Reports options that the URL must not contain. */
static void check_options(const char *url, struct lw_problems *problems) {
    static const char *const secrets[] = {
        "?password=", "&password=", "?sslpassword=", "&sslpassword="};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        if (strstr(url, secrets[i]))
            lw_problem(problems,
                       "handler.store: write the password as postgres://USER:${file:PATH}@HOST/…, "
                       "or put it into PGPASSFILE; as "
                       "an option of the URL it would be shown");
    if (strstr(url, "?options=") || strstr(url, "&options="))
        lw_problem(problems, "handler.store: options= sets up a session, which a transaction "
                             "pooler gives to others; use ALTER ROLE … SET");
}

void lw_pg_check_url(const char *url, struct lw_problems *problems) {
    static const char form[] =
        "postgres://[USER[:PASSWORD]@][HOST][:PORT][/DATABASE][?sslmode=verify-full&…]";
    /* libpq's reason is shown only if it names an option, because other reasons may quote the
     * password */
    char *why = NULL;
    PQconninfoOption *all = PQconninfoParse(url, &why);
    if (!all && why && strstr(why, "URI query parameter"))
        lw_problem(problems, "handler.store: %.*s", (int)strcspn(why, "\n"), why);
    else if (!all)
        lw_problem(problems,
                   "handler.store: not a URL of PostgreSQL (not shown: it may hold a password): "
                   "must be %s",
                   form);
    else
        check_options(url, problems);
    PQfreemem(why);
    PQconninfoFree(all);
}

void lw_pg_name(const char *url, char *out, size_t size) {
    PQconninfoOption *all = PQconninfoParse(url, NULL);
    const char *user = option(all, "user"), *host = option(all, "host"),
               *port = option(all, "port"), *database = option(all, "dbname");
    snprintf(out, size, "%s%s%s%s%s/%s", user ? user : "", user ? "@" : "", host ? host : "local",
             port ? ":" : "", port ? port : "",
             database ? database
             : user   ? user
                      : "");
    PQconninfoFree(all);
}
