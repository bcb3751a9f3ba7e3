/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store for PostgreSQL (12 or later), through libpq.
 *
 *     latchwork_seen    (app, topic, partition, offset, replay) → the message is done, so a second
 *                       delivery writes nothing
 *     latchwork_fences  (hash of app and key) → the largest fence with which the key was written; a
 *                       message with a smaller one is stale
 *     latchwork_count   (app, name, part) → number of rows inserted and updated and of duplicates
 *                       ignored; the sum over the parts is exact, because each transaction adds to
 *                       one part; the parts keep transactions from waiting for each other
 *
 * One statement is one transaction and one round trip, for any number of messages of different
 * keys. Its parameters are arrays, one element per message. In a chain of data-modifying WITH
 * queries it writes the fences of the keys, in order of the keys; then the identities of those
 * messages whose fence was accepted; then the rows of those messages whose identity is new, in
 * order of the primary key; then the counts. Each link of the chain sorts what the link before it
 * returns, and so begins after that link has ended. All transactions lock in this one order, and
 * cannot deadlock among themselves. The statement returns one letter per message, which says what
 * became of it (enum lw_pg_fate).
 *
 * Two deliveries of a message at the same time meet at the fence of its key: the second one waits
 * there until the first one has committed, and then finds the identity, because an INSERT with ON
 * CONFLICT sees what was committed after its snapshot.
 *
 * There is no state in the session: no prepared statement, no SET, no temporary table. So a pooler
 * that gives each transaction another connection works.
 *
 * A statement that fails because of a row (SQLSTATE classes 22 and 23, and others) is repeated with
 * halves of its messages, until the bad row is alone: its message becomes a dead letter. Deadlocks
 * and serialization failures are repeated as they are. If the server is away, the messages are
 * given back, which costs no attempt, and the handler takes no messages for a while (outage.c).
 *
 *     handlers/insert/postgres/postgres.c    the kind: the functions that handlers/insert/insert.h
 *                                            asks for
 *     handlers/insert/postgres/connection.c  connecting, and running a statement within a time
 *                                            limit
 *     handlers/insert/postgres/sqlstate.c    what an error means for the messages
 *     handlers/insert/postgres/table.c       Latchwork's tables, and the user's table: its columns,
 *                                            its types, its primary key
 *     handlers/insert/postgres/statement.c   the text of the statement
 *     handlers/insert/postgres/array.c       values → the text of an array
 *     handlers/insert/postgres/tx.c          the transaction
 *     handlers/insert/postgres/outage.c      whether the server can be used
 *     handlers/insert/postgres/sweep.c       what the cleaner does */
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
    LW_PG_AGAIN, /* deadlock or serialization failure: the same statement may work now */
    LW_PG_BUSY,  /* a lock was not granted in time */
    /* the server cannot be used: no connection, shutting down, out of resources, read-only, or the
     * table is gone */
    LW_PG_AWAY,
    LW_PG_UNKNOWN, /* any other error: one more attempt may help */
    /* no error: the leases of the jobs have ended, so nobody waits any more; the connection is
     * closed */
    LW_PG_OVER,
};

struct lw_pg_error {
    enum lw_pg_class class;
    char state[6];  /* SQLSTATE; "" if the server has sent none */
    char text[400]; /* for people: the server's message and the SQLSTATE; never a password */
};

/* Returns what an SQLSTATE means. `in_function`: the error was raised inside a function or
 * trigger. */
enum lw_pg_class lw_pg_class_of(const char *state, bool in_function);

/* --- connection ------------------------------------------------------------------------------- */

struct lw_pg {
    const struct lw_insert *in;
    PGconn *conn; /* connection to the server; NULL: not connected */
};

/* Says when to stop waiting for the server. */
struct lw_pg_wait {
    int64_t until_ms; /* boot clock; end of the wait */
    /* called every LW_PG_LOOK_MS; true: nobody needs the answer any more. NULL: the answer is
     * always needed */
    bool (*over)(void *ctx);
    void *ctx;
};
enum { LW_PG_LOOK_MS = 50, LW_PG_CONNECT_MS = 5000, LW_PG_SETUP_MS = 10000 };

/* Connects if there is no connection. Returns 0, or -1 with `error` (LW_PG_AWAY or LW_PG_OVER).
 * `wait` does not limit the name lookup of the C library. */
int lw_pg_connect(struct lw_pg *pg, const struct lw_pg_wait *wait, struct lw_pg_error *error);
/* Runs one statement with n text parameters; a NULL pointer is an SQL NULL. On success returns the
 * result, which the caller clears. Otherwise returns NULL with `error`; the connection is then
 * closed if it is broken or in an unknown state. */
PGresult *lw_pg_query(struct lw_pg *pg, const char *sql, int n, const char *const *values,
                      const struct lw_pg_wait *wait, struct lw_pg_error *error);
/* Runs several statements, separated by semicolons, as one transaction, and ignores the rows that
 * they return. Returns 0 or -1. */
int lw_pg_script(struct lw_pg *pg, const char *sql, const struct lw_pg_wait *wait,
                 struct lw_pg_error *error);
void lw_pg_close(struct lw_pg *pg);

/* Reports what is wrong with a URL, without showing it. */
void lw_pg_check_url(const char *url, struct lw_problems *problems);
/* Writes user@host:port/database, for people. */
void lw_pg_name(const char *url, char *out, size_t size);

/* --- the table -------------------------------------------------------------------------------- */

enum lw_pg_form {
    LW_PG_VALUE, /* the value as text; PostgreSQL reads an array of the column's type */
    /* the value as text; PostgreSQL reads an array of texts, and casts each (for columns that are
     * arrays) */
    LW_PG_TEXT,
    LW_PG_JSON, /* the value as a text of JSON */
};

struct lw_pg_column {
    enum lw_pg_form form;
    char *type; /* name of the type in SQL, without a length; owned */
};

/* The table as slots and cleaner see it; constant after open. */
struct lw_pg_table {
    /* name of the table, quoted, with its schema if configured; owned */
    char *name;
    struct lw_pg_column *columns; /* array with an element per column of the configuration; owned */
    char *sql;                    /* the statement of a transaction; owned */
};

/* Makes Latchwork's tables if one is missing, and the user's table if it is missing and
 * handler.create is true. Reads the columns' types, and checks the primary key. */
int lw_pg_table_open(struct lw_pg_table *t, struct lw_pg *pg, struct lw_err *err);
void lw_pg_table_close(struct lw_pg_table *t, size_t n_columns);
/* Appends a name in double quotes. */
void lw_pg_quote(struct lw_buf *sql, const char *name);

/* --- the statement ---------------------------------------------------------------------------- */

/* Parameters of the statement; those from LW_PG_P_KEYS on are arrays with an element per message,
 * and the columns follow. */
enum {
    LW_PG_P_APP,
    LW_PG_P_LOCK_MS, /* limit of each wait for a lock, ms */
    LW_PG_P_PART,    /* part of latchwork_count to which the statement adds */
    LW_PG_P_KEYS,    /* hashes of keys, all different */
    LW_PG_P_FENCES,
    LW_PG_P_TOPICS,
    LW_PG_P_PARTITIONS,
    LW_PG_P_OFFSETS,
    LW_PG_P_REPLAYS,
    /* 't' for a message without a row, for which the statement only answers whether the message is
     * known or stale */
    LW_PG_P_BAD,
    LW_PG_P_COLUMNS,
};

/* Says what became of a message. The statement returns one of these letters per message. */
enum lw_pg_fate {
    LW_PG_KNOWN = 'k', /* an earlier transaction has done the message */
    LW_PG_STALE = 's', /* the key was written with a larger fence */
    LW_PG_BAD = 'b',   /* the message is neither known nor stale, but it has no row */
    /* neither known nor stale, but its primary key is there already (on_conflict "dead") */
    LW_PG_DUPLICATE = 'd',
    LW_PG_WRITTEN = 'w',
};

/* Returns the text of the statement, which the caller frees. */
char *lw_pg_statement(const struct lw_insert *in, const struct lw_pg_table *t);

/* Functions that write the text of an array: lw_array_begin(), one call per element,
 * lw_array_end(). */
void lw_array_begin(struct lw_buf *a);
void lw_array_end(struct lw_buf *a); /* ends the text with a NUL */
void lw_array_integer(struct lw_buf *a, int64_t v);
void lw_array_bool(struct lw_buf *a, bool v);
void lw_array_null(struct lw_buf *a);
void lw_array_text(struct lw_buf *a, struct lw_bytes text);
/* Appends a value of a row. */
void lw_array_value(struct lw_buf *a, enum lw_pg_form form, const struct lw_json_value *v,
                    struct lw_buf *scratch);

/* --- outages ---------------------------------------------------------------------------------- */

/* Remembers whether the server can be used. Any thread may call these functions. */
struct lw_outage {
    pthread_mutex_t lock; /* guards `pause_ms`, `since_ms`, `why` and changes of the others */
    atomic_bool away;
    _Atomic int64_t until_ms; /* boot clock: end of the present pause */
    int64_t pause_ms, since_ms;
    const char *name; /* name of the store in the log */
    char why[400];
};
void lw_outage_init(struct lw_outage *o, const char *name);
void lw_outage_free(struct lw_outage *o);
/* begins a pause, unless one is under way */
void lw_outage_begin(struct lw_outage *o, const char *why);
/* must be called when the server has answered */
void lw_outage_end(struct lw_outage *o);
bool lw_outage_pauses(struct lw_outage *o, int64_t now_ms);
enum lw_health lw_outage_health(struct lw_outage *o, char *why, size_t size);

/* --- the kind --------------------------------------------------------------------------------- */

struct lw_store {
    const struct lw_insert *in;
    char name[256]; /* name of the server for people: user@host:port/database */
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
