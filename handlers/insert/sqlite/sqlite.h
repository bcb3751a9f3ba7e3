/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store for SQLite: one file that the workers of a machine share.
 *
 *     latchwork_seen      (app, topic, partition, segment) → one bit per offset: done, so a second
 *                         delivery writes nothing
 *     latchwork_replayed  (app, topic, partition, offset, replay) → the same for the few replayed
 *                         messages, one row each
 *     latchwork_recent    (id) → the fences that one transaction wrote
 *     latchwork_fences    (hash of app and key) → the largest fence of earlier transactions; a
 *                         message with a smaller one is stale
 *     latchwork_count     (app, name) → number of rows inserted and updated and of duplicates
 *                         ignored; exact, as part of the transaction
 *
 * If the database fails (disk full, busy, I/O), the transaction is rolled back, and all its
 * messages are tried again.
 *
 *     handlers/insert/sqlite/sqlite.c    the kind: the functions that handlers/insert/insert.h asks
 *                                        for
 *     handlers/insert/sqlite/database.c  the database: opening it, its tables and statements
 *     handlers/insert/sqlite/bind.c      values of a row → parameters of a statement
 *     handlers/insert/sqlite/seen.c      identities
 *     handlers/insert/sqlite/fence.c     fences
 *     handlers/insert/sqlite/tx.c        the transaction
 *     handlers/insert/sqlite/sweep.c     what the cleaner does */
#ifndef LW_HANDLERS_INSERT_SQLITE_SQLITE_H
#define LW_HANDLERS_INSERT_SQLITE_SQLITE_H

#include "handlers/insert/insert.h"

#include <pthread.h>
#include <sqlite3.h>

enum { LW_SEEN_OFFSETS = 1024 }; /* offsets per row of latchwork_seen */

/* Binds the values to parameters 1…n_columns of a statement. The payload must stay valid until the
 * statement has run. Returns SQLite's code. */
int lw_sqlite_bind(const struct lw_insert *in, struct lw_reader *reader,
                   const struct lw_json_value *values, sqlite3_stmt *st);

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
    LW_ST_ROW,
    LW_ST_COUNT,
    LW_ST_N
};

/* The rows of latchwork_seen that the running transaction has read. They are kept so that it reads
 * no row twice. */
struct lw_seen {
    struct lw_segment *segments; /* one per row; room for LW_INSERT_BATCH */
    size_t n;
};

struct lw_fence {
    uint64_t key, fence;
};

/* Fences known in memory, and those of the running transaction. */
struct lw_fences {
    /* hash table with open addressing; key 0: empty slot; fence 0: no fence is known for the key */
    struct lw_fence *slots;
    size_t n, size;
    int64_t seen; /* id of the last row of latchwork_recent that was read */
    /* content of the row of latchwork_recent that the running transaction will append */
    struct lw_buf written;
};

struct lw_sqlite {
    const struct lw_insert *in;
    sqlite3 *db;
    sqlite3_stmt *st[LW_ST_N];
    struct lw_seen seen;
    struct lw_fences fences;
    struct lw_reader reader;
    /* jobs of the running transaction, with room for LW_INSERT_BATCH */
    struct lw_item *items;
    struct lw_json_value *values; /* values of the rows of these jobs */
    int64_t busy_until_ms;        /* boot clock; until then a statement waits for other writers */
};

/* Opens the file in WAL mode, makes Latchwork's tables and, if configured, the user's table if it
 * is missing, and prepares the statements. */
int lw_sqlite_open(struct lw_sqlite *s, const struct lw_insert *in, struct lw_err *err);
/* Opens a connection for the cleaner, which has the busy handler and nothing else. */
int lw_sqlite_connect(struct lw_sqlite *s, const char *path, struct lw_err *err);
void lw_sqlite_close(struct lw_sqlite *s);
/* Runs a statement whose rows are not needed, and resets it. Returns SQLite's code. */
int lw_sqlite_step(sqlite3_stmt *st);

/* --- identities and fences; all but the last two of each inside a transaction, returning
 * SQLITE_DONE or the error that ends it --- */

enum lw_known {
    LW_UNKNOWN,
    LW_KNOWN, /* an earlier transaction has done the message */
    /* an earlier job of this transaction is the same message, which is done if the transaction
     * commits */
    LW_KNOWN_HERE,
};
int lw_seen_get(struct lw_sqlite *s, const struct lw_job *job, enum lw_known *known);
int lw_seen_set(struct lw_sqlite *s, const struct lw_job *job);
int lw_seen_write(struct lw_sqlite *s);    /* must be called at the end of a transaction */
void lw_seen_forget(struct lw_seen *seen); /* must be called before the next transaction */
void lw_seen_free(struct lw_seen *seen);

/* must be called at the beginning of a transaction */
int lw_fences_catch_up(struct lw_sqlite *s);
/* sets *fence, to 0 if none is known */
int lw_fences_get(struct lw_sqlite *s, uint64_t key, uint64_t *fence);
void lw_fences_set(struct lw_sqlite *s, uint64_t key, uint64_t fence);
int lw_fences_write(struct lw_sqlite *s); /* must be called at the end of a transaction */
/* must be called after a rollback, because memory then has fences that were not written */
void lw_fences_forget(struct lw_fences *f);
void lw_fences_free(struct lw_fences *f);

/* --- the transaction -------------------------------------------------------------------------- */

/* Runs at most LW_INSERT_BATCH jobs in one transaction while it holds `writer`, and answers
 * each. */
void lw_sqlite_run(const struct lw_insert *in, struct lw_sqlite *s, pthread_mutex_t *writer,
                   struct lw_job **jobs, size_t n);
/* --- the cleaner ------------------------------------------------------------------------------ */

/* The sweeper's transactions hold the mutex `writer`, like those of the slots. The mutex must
 * outlive the sweeper. */
struct lw_sweeper *lw_sqlite_sweeper_open(const struct lw_insert *in, pthread_mutex_t *writer,
                                          struct lw_err *err);
void lw_sqlite_sweeper_close(struct lw_sweeper *c);
enum lw_swept lw_sqlite_sweep_seen(struct lw_sweeper *c, const struct lw_sweep *what);
void lw_sqlite_sweep_old(struct lw_sweeper *c, unsigned round);

#endif
