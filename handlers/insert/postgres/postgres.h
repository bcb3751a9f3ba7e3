/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store for PostgreSQL (12 or later), through libpq.
 *
 *     latchwork_seen    (app, topic, partition, offset, replay): the message is done, so a second
 *                       delivery writes nothing
 *     latchwork_fences  (hash of app and key): the largest fence with which the key was written; a
 *                       message with a smaller fence is stale
 *     latchwork_count   (app, name, part): numbers of rows inserted and updated and of duplicates
 *                       ignored; the sum over the parts is exact, because each transaction adds to
 *                       one part; the parts keep transactions from waiting for each other
 *
 * One statement is one transaction and one round trip, for any number of messages of different
 * keys. Its parameters are arrays with one element per message. The statement is a chain of
 * data-modifying WITH queries, which write
 *
 *     1. the fences of the keys, in order of the keys,
 *     2. the identities of the messages whose fence was accepted,
 *     3. the rows of the messages whose identity is new, in order of the primary key,
 *     4. the counts.
 *
 * Each query sorts the rows that the query before it returns, and so begins after that query has
 * ended. All transactions lock rows in this order, so they cannot deadlock among themselves.
 * The statement returns one letter per message, which says what became of the message (enum
 * lw_pg_fate).
 *
 * Two simultaneous deliveries of a message both write the fence of its key, so the second waits
 * until the first has committed. The second then finds the identity, because an INSERT with ON
 * CONFLICT also sees what was committed after its snapshot.
 *
 * The session has no state: no prepared statement, no SET, no temporary table. So the store works
 * with a pooler that gives each transaction another connection.
 *
 * A statement that fails because of a row (SQLSTATE classes 22 and 23, and others) is repeated with
 * halves of its messages, until the bad row is alone and its message becomes a dead letter. After a
 * deadlock or a serialization failure the same statement is repeated. If the server is down, the
 * messages are given back, which counts no attempt, and the handler takes no messages for a while
 * (handlers/insert/outage.c).
 *
 * The files in handlers/insert/postgres/:
 *
 *     postgres.c    the functions of struct lw_store_kind
 *     connection.c  connecting, and running a statement within a time limit
 *     sqlstate.c    what an error means for the messages
 *     table.c       Latchwork's tables, and the user's table: its columns, types and primary key
 *     statement.c   the text of the statement
 *     reason.c      why the server has refused a row
 *     array.c       formats values as the text of an array
 *     tx.c          the transaction
 *     sweep.c       the cleaner's work */
#ifndef LW_HANDLERS_INSERT_POSTGRES_POSTGRES_H
#define LW_HANDLERS_INSERT_POSTGRES_POSTGRES_H

#include "handlers/insert/insert.h"

#include <libpq-fe.h>
#include <pthread.h>

/* --- errors ----------------------------------------------------------------------------------- */

/* Says what an error means for the messages of the statement. */
enum lw_pg_class {
    LW_PG_OK,
    LW_PG_ROW,   /* a row is at fault: its message becomes a dead letter */
    LW_PG_AGAIN, /* deadlock or serialization failure: repeating the statement may help */
    LW_PG_BUSY,  /* others hold a lock, or somebody has cancelled the statement */
    /* LW_PG_AWAY: the server does not work (no connection, shutdown, out of resources, read-only,
     * or a missing table) */
    LW_PG_AWAY,
    /* LW_PG_UNKNOWN: the server works, and refuses the statement. Whether the row or the table is
     * at fault shows when the statement runs without the row */
    LW_PG_UNKNOWN,
    /* LW_PG_OVER is no error: the lease or timeout of each job has ended, so the answer is no
     * longer needed. The connection is closed. */
    LW_PG_OVER,
};

enum { LW_PG_NAME = 64 }; /* maximum size of a name in a server, with its NUL */

struct lw_pg_error {
    enum lw_pg_class class;
    char state[6]; /* SQLSTATE; "" if the error is not from the server */
    /* the server's message and the SQLSTATE, for logs and reasons; no password; with "…" where a
     * message was cut */
    char text[400];
    /* What the server says of the cause; "" or -1 if it says nothing: the column, the constraint,
     * which keys, and the number of the parameter. */
    char column[LW_PG_NAME], constraint[LW_PG_NAME], detail[300];
    int parameter;
};

/* Returns what an SQLSTATE means. `in_function` is true if the error came up inside a function or
 * trigger, `raised` if the function raised it itself by RAISE, which may use any SQLSTATE. */
enum lw_pg_class lw_pg_class_of(const char *state, bool in_function, bool raised);

/* --- connection ------------------------------------------------------------------------------- */

struct lw_pg {
    const struct lw_insert *in;
    PGconn *conn; /* connection to the server; NULL: not connected */
};

/* Says when to stop waiting for the server. */
struct lw_pg_wait {
    int64_t until_ms; /* end of the wait; boot clock */
    /* `over` is called every LW_PG_LOOK_MS and returns true if the answer is no longer needed.
     * NULL: the answer is always needed. */
    bool (*over)(void *ctx);
    void *ctx;
};
enum { LW_PG_LOOK_MS = 50, LW_PG_CONNECT_MS = 5000, LW_PG_SETUP_MS = 10000 };

/* Connects, unless already connected. Returns 0, or -1 with `error` (LW_PG_AWAY or LW_PG_OVER).
 * The time limit in `wait` does not apply to the name lookup of the C library. */
int lw_pg_connect(struct lw_pg *pg, const struct lw_pg_wait *wait, struct lw_pg_error *error);
/* Runs one statement with n text parameters; a NULL pointer is an SQL NULL. On success, returns the
 * result, which the caller must clear. Otherwise returns NULL with `error`, and closes the
 * connection if it is broken or in an unknown state. */
PGresult *lw_pg_query(struct lw_pg *pg, const char *sql, int n, const char *const *values,
                      const struct lw_pg_wait *wait, struct lw_pg_error *error);
/* Runs several statements, separated by semicolons, as one transaction, and ignores the rows that
 * they return. Returns 0, or -1 with an error. */
int lw_pg_script(struct lw_pg *pg, const char *sql, const struct lw_pg_wait *wait,
                 struct lw_pg_error *error);
void lw_pg_close(struct lw_pg *pg);

/* Appends what is wrong with a URL to `problems`, without showing the URL. */
void lw_pg_check_url(const char *url, struct lw_problems *problems);
/* Writes user@host:port/database, as the log names the server. */
void lw_pg_name(const char *url, char *out, size_t size);

/* --- the table -------------------------------------------------------------------------------- */

enum lw_pg_form {
    LW_PG_VALUE, /* the value as text; the parameter is an array of the column's type */
    /* LW_PG_TEXT: the value as text; the parameter is an array of texts, which the statement casts
     * to the column's type. This form is for types that are arrays or have no array type. */
    LW_PG_TEXT,
    LW_PG_JSON, /* the value as JSON text */
    /* as LW_PG_TEXT, for types that are arrays: a JSON array becomes the text of an array of
     * texts, or of JSON values */
    LW_PG_ARRAY,
    LW_PG_ARRAY_OF_JSON,
};
static inline bool lw_pg_casts(enum lw_pg_form form) {
    return form == LW_PG_TEXT || form == LW_PG_ARRAY || form == LW_PG_ARRAY_OF_JSON;
}

struct lw_pg_column {
    enum lw_pg_form form;
    bool required;   /* the column is NOT NULL and has no default */
    char *full_type; /* SQL name of the type with its length, as errors show it; owned */
    char *type;      /* SQL name of the type, without a length; owned */
};

/* What the handler slots and the cleaner need to know of the user's table. It does not change after
 * lw_pg_table_open(). */
struct lw_pg_table {
    /* `name` is the quoted name of the table, with its schema if configured; owned */
    char *name;
    struct lw_pg_column *columns; /* one element per configured column; owned */
    char *sql;                    /* the text of the statement for rows with all columns; owned */
};

/* Creates Latchwork's tables if any is missing, and the user's table if it is missing and
 * handler.create is true. Reads the columns' types, and checks the primary key. Returns 0, or -1
 * with *err. */
int lw_pg_table_open(struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err);
void lw_pg_table_close(struct lw_pg_table *t, size_t n_columns);
/* Appends a name in double quotes, as an SQL identifier. */
void lw_pg_quote(struct lw_buf *sql, const char *name);

/* Writes the reason for which the server has refused a row. Asks the server about a check
 * constraint. */
void lw_pg_reason(struct lw_pg *pg, const struct lw_pg_table *t, const struct lw_json_value *row,
                  const struct lw_pg_error *error, const struct lw_pg_wait *wait,
                  char reason[LW_REASON_MAX]);

/* --- the statement ---------------------------------------------------------------------------- */

/* Parameters of the statement. From LW_PG_P_KEYS on they are arrays with one element per message.
 * The arrays of the columns come last. */
enum {
    LW_PG_P_APP,
    LW_PG_P_LOCK_MS, /* time limit of each wait for a lock, ms */
    LW_PG_P_PART,    /* column `part` of the rows of latchwork_count that receive the counts */
    LW_PG_P_KEYS,    /* hashes of the messages' keys, all different */
    LW_PG_P_FENCES,
    LW_PG_P_TOPICS,
    LW_PG_P_PARTITIONS,
    LW_PG_P_OFFSETS,
    LW_PG_P_REPLAYS,
    /* The element of LW_PG_P_BAD is 't' if the message has no valid row; the statement then only
     * reports whether the message is known or stale. */
    LW_PG_P_BAD,
    LW_PG_P_COLUMNS,
};

/* What became of a message. The statement returns one of these letters per message. */
enum lw_pg_fate {
    LW_PG_KNOWN = 'k', /* an earlier transaction has done the message */
    LW_PG_STALE = 's', /* the key was written with a larger fence */
    LW_PG_BAD = 'b',   /* the message is neither known nor stale, and has no valid row */
    /* LW_PG_DUPLICATE: the message is neither known nor stale, but another row already has the
     * primary key of the message's row (only with on_conflict "dead") */
    LW_PG_DUPLICATE = 'd',
    LW_PG_WRITTEN = 'w',
};

/* Returns the text of the statement for rows without the absent columns. It has the parameters of
 * all columns. The caller must free it. */
char *lw_pg_statement(const struct lw_insert *in, const struct lw_pg_table *t,
                      const struct lw_column_set *absent);

/* Functions that format an array: call lw_array_begin(), one function per element, then
 * lw_array_end(). */
void lw_array_begin(struct lw_buf *a);
void lw_array_end(struct lw_buf *a); /* ends the text with a NUL */
void lw_array_integer(struct lw_buf *a, int64_t v);
void lw_array_bool(struct lw_buf *a, bool v);
void lw_array_null(struct lw_buf *a);
void lw_array_text(struct lw_buf *a, struct lw_bytes text);
/* Appends bytes for an array of bytea. */
void lw_array_bytes(struct lw_buf *a, const void *bytes, size_t n);
/* Appends a value of a row to the array. */
void lw_array_value(struct lw_buf *a, enum lw_pg_form form, const struct lw_json_value *v,
                    struct lw_buf *scratch);
/* Returns true if a text of the value, as lw_array_value() would append it, contains a NUL. */
bool lw_array_has_nul(enum lw_pg_form form, const struct lw_json_value *v, struct lw_buf *scratch);

/* --- the kind --------------------------------------------------------------------------------- */

struct lw_store {
    const struct lw_insert *in;
    char name[256]; /* user@host:port/database, as the log names the server */
    struct lw_pg_table table;
    struct lw_outage outage;
    atomic_uint writers; /* number of writers opened so far */
};

struct lw_writer *lw_pg_writer_open(struct lw_store *store, struct lw_err *err);
void lw_pg_writer_close(struct lw_writer *w);
void lw_pg_write(struct lw_writer *w, struct lw_job **jobs, size_t n);

struct lw_sweeper *lw_pg_sweeper_open(struct lw_store *store, struct lw_err *err);
void lw_pg_sweeper_close(struct lw_sweeper *w);
enum lw_swept lw_pg_sweep_seen(struct lw_sweeper *w, const struct lw_sweep *what);
void lw_pg_sweep_old(struct lw_sweeper *w, unsigned round);

#endif
