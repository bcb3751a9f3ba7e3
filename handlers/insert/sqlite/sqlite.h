/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store for SQLite: one file, which all workers of a machine share.
 *
 *     latchwork_seen      (app, topic, partition, segment): one bit per offset; 1 if the message is
 *                         done, so that a second delivery writes nothing
 *     latchwork_replayed  (app, topic, partition, offset, replay): one row per replay that is done;
 *                         replays are few
 *     latchwork_recent    (id): one row per recent transaction, with the fences that it wrote
 *     latchwork_fences    (hash of app and key): the largest fence of earlier transactions; a
 *                         message with a smaller fence is stale
 *     latchwork_count     (app, name): numbers of rows inserted and updated and of duplicates
 *                         ignored; exact, because each transaction updates them
 *
 * If the database fails (disk full, busy, I/O), the transaction is rolled back. The messages that
 * it did not settle are retried, or given back if their lease or timeout has ended.
 *
 * The files in handlers/insert/sqlite/:
 *
 *     sqlite.c    the functions of struct lw_store_kind
 *     database.c  opens the database, creates the tables and prepares the statements
 *     bind.c      binds the values of a row to the parameters of a statement
 *     reason.c    why the database has refused a row
 *     seen.c      identities
 *     fence.c     fences
 *     tx.c        the transaction
 *     sweep.c     the cleaner's work */
#ifndef LW_HANDLERS_INSERT_SQLITE_SQLITE_H
#define LW_HANDLERS_INSERT_SQLITE_SQLITE_H

#include "handlers/insert/insert.h"

#include <pthread.h>
#include <sqlite3.h>

enum {
    LW_SEEN_OFFSETS = 1024, /* number of offsets per row of latchwork_seen */
    LW_SQLITE_FILES = 3,
    LW_SQLITE_ROWS = 16, /* number of statements for rows that are kept */
};

/* Binds one value to the parameter `at`. Returns SQLite's result code. */
int lw_sqlite_bind_value(const struct lw_column *c, const struct lw_json_value *value,
                         struct lw_buf *scratch, sqlite3_stmt *st, int at);
/* Binds the values to the parameters 1 to n_columns of a statement, except those of absent columns.
 * The payload must stay valid until the statement has run. Returns SQLite's result code. */
int lw_sqlite_bind(const struct lw_insert *in, struct lw_reader *reader,
                   const struct lw_json_value *values, const struct lw_column_set *absent,
                   sqlite3_stmt *st);

/* --- the database ----------------------------------------------------------------------------- */

enum lw_statement {
    LW_ST_BEGIN,
    LW_ST_COMMIT,
    LW_ST_ROLLBACK,
    LW_ST_SEEN,
    LW_ST_SET_SEEN,
    LW_ST_REPLAYED,
    LW_ST_SET_REPLAYED,
    LW_ST_RECENT,
    LW_ST_ADD_RECENT,
    LW_ST_MERGED,
    LW_ST_FENCE,
    LW_ST_SET_FENCE,
    LW_ST_COUNT,
    LW_ST_N
};

/* The rows of latchwork_seen that the current transaction has read, kept so that no row is read
 * twice. */
struct lw_seen {
    struct lw_segment *segments; /* one element per row; room for LW_INSERT_BATCH */
    size_t n;
};

struct lw_fence {
    struct lw_fence_key key;
    uint64_t fence;
};

/* The fences known in memory, and the fences of the current transaction. */
struct lw_fences {
    /* `slots` is a hash table with open addressing. A slot with key 0 is empty. A slot with a key
     * and fence 0 says that the database has no fence of this key. */
    struct lw_fence *slots;
    size_t n, size;
    int64_t seen; /* id of the last row read from latchwork_recent */
    /* `written` is the content of the row that the current transaction will append to
     * latchwork_recent */
    struct lw_buf written;
};

/* What the database says of a configured column. */
struct lw_sqlite_column {
    enum lw_sqlite_holds {
        LW_HOLDS_ANYTHING,
        LW_HOLDS_NUMBERS, /* turns a text into an integer or a double, if it can */
        LW_HOLDS_DOUBLES, /* turns a number into a double */
    } holds;
    bool required; /* the column is NOT NULL and has no default */
};

struct lw_sqlite {
    const struct lw_insert *in;
    sqlite3 *db;
    sqlite3_stmt *st[LW_ST_N];
    /* statements that write a row, each for rows that lack certain columns; `next_row` is where the
     * next one goes */
    struct lw_sqlite_row {
        struct lw_column_set absent;
        sqlite3_stmt *st; /* NULL: not used yet */
    } rows[LW_SQLITE_ROWS];
    unsigned next_row;
    struct lw_sqlite_column *columns; /* one element per configured column */
    struct lw_seen seen;
    struct lw_fences fences;
    struct lw_reader reader;
    /* `items` holds the jobs of the current transaction, with room for LW_INSERT_BATCH */
    struct lw_item *items;
    struct lw_json_value *values; /* values of the rows of these jobs */
    /* `places` are the files that were opened: the database, PATH-wal and PATH-shm; other ones at
     * their paths mean that they were removed or replaced. SQLite keeps the two while a connection
     * is open. */
    struct lw_sqlite_place {
        dev_t dev;
        ino_t ino; /* 0: not known */
    } places[LW_SQLITE_FILES];
    int64_t looked_ms;     /* when PATH-wal and PATH-shm were looked at last; boot clock */
    int64_t busy_until_ms; /* end of a statement's wait for other writers; boot clock */
};

/* Opens the file in WAL mode, and creates Latchwork's tables. Also creates the user's table if it
 * is missing and handler.create is true. Then prepares the statements. */
int lw_sqlite_open(struct lw_sqlite *s, const struct lw_insert *in, struct lw_err *err);
/* Opens a connection for the cleaner, with the busy handler but without prepared statements. */
int lw_sqlite_connect(struct lw_sqlite *s, const char *path, struct lw_err *err);
void lw_sqlite_close(struct lw_sqlite *s);
/* Returns false if the file at the path is no longer the one that was opened. What is written then
 * would be lost, although SQLite reports no error. Looks at PATH-wal and PATH-shm four times a
 * second only. */
bool lw_sqlite_in_place(struct lw_sqlite *s);
/* Returns the statement that writes a row without the absent columns, or NULL with an error of the
 * database. */
sqlite3_stmt *lw_sqlite_row_statement(struct lw_sqlite *s, const struct lw_column_set *absent);
/* Runs a statement whose rows are not needed, and resets it. Returns SQLite's result code. */
int lw_sqlite_step(sqlite3_stmt *st);

/* Writes the reason for which the database has refused a row with the error `code`. May use the
 * connection. */
void lw_sqlite_reason(struct lw_sqlite *s, const struct lw_json_value *row, int code,
                      char reason[LW_REASON_MAX]);

/* --- identities and fences -------------------------------------------------------------------- */

/* The functions for identities and fences that return int are called inside a transaction. They
 * return SQLITE_DONE or the error that ends the transaction. */

/* Says whether a message is done already. */
enum lw_known {
    LW_UNKNOWN,
    LW_KNOWN, /* an earlier transaction has done the message */
    /* LW_KNOWN_HERE: an earlier job of this transaction has the same message, which is done if the
     * transaction commits */
    LW_KNOWN_HERE,
};
int lw_seen_get(struct lw_sqlite *s, const struct lw_job *job, enum lw_known *known);
int lw_seen_set(struct lw_sqlite *s, const struct lw_job *job);
/* Writes the changed rows of latchwork_seen. Must be called at the end of a transaction. */
int lw_seen_write(struct lw_sqlite *s);
/* Forgets the rows that were read. Must be called before the next transaction. */
void lw_seen_forget(struct lw_seen *seen);
void lw_seen_free(struct lw_seen *seen);

/* Reads the fences that other connections have written. Must be called at the beginning of a
 * transaction. */
int lw_fences_catch_up(struct lw_sqlite *s);
/* Sets *fence to the largest known fence of the key, or to 0 if no fence is known. */
int lw_fences_get(struct lw_sqlite *s, struct lw_fence_key key, uint64_t *fence);
void lw_fences_set(struct lw_sqlite *s, struct lw_fence_key key, uint64_t fence);
/* Writes the fences of this transaction. Must be called at the end of the transaction. */
int lw_fences_write(struct lw_sqlite *s);
/* Empties the table of fences in memory. Must be called after a rollback, because the table then
 * includes fences that were not written. */
void lw_fences_forget(struct lw_fences *f);
void lw_fences_free(struct lw_fences *f);

/* --- the transaction -------------------------------------------------------------------------- */

/* Runs at most LW_INSERT_BATCH jobs in one transaction, and sets the outcome of each job. Holds the
 * mutex `writer` during the transaction. If it fails because of the database, the jobs are given
 * back, and the outage begins; if only one message fails while others are written, it counts an
 * attempt. */
void lw_sqlite_run(const struct lw_insert *in, struct lw_sqlite *s, pthread_mutex_t *writer,
                   struct lw_outage *outage, struct lw_job **jobs, size_t n);
/* --- the cleaner ------------------------------------------------------------------------------ */

/* The sweeper holds the mutex `writer` during its transactions, as the handler slots do during
 * theirs. The mutex must outlive the sweeper. */
struct lw_sweeper *lw_sqlite_sweeper_open(const struct lw_insert *in, pthread_mutex_t *writer,
                                          struct lw_err *err);
void lw_sqlite_sweeper_close(struct lw_sweeper *c);
enum lw_swept lw_sqlite_sweep_seen(struct lw_sweeper *c, const struct lw_sweep *what);
void lw_sqlite_sweep_old(struct lw_sweeper *c, unsigned round);

#endif
