/* SPDX-License-Identifier: Apache-2.0 */
/* insert: writes rows from messages, each exactly once, into a SQLite file that all workers share.
 *
 * One transaction writes many rows, and for each of them what makes a second delivery harmless:
 *
 *     latchwork_seen      (app, topic, partition, segment) → one bit per offset: done, so a second delivery writes nothing
 *     latchwork_replayed  (app, topic, partition, offset, replay) → the same for the few replayed messages, one row each
 *     latchwork_recent    (id) → the fences that one transaction wrote
 *     latchwork_fences    (hash of app and key) → the largest fence of earlier transactions; a message with a smaller one is stale
 *     latchwork_count     (app, name) → number of rows inserted and updated and of duplicates ignored; exact, as part of the transaction
 *
 * Three questions come in a fixed order: is the message known, is it stale, is its row valid? Only then is the row written. A bad row
 * becomes a dead letter and affects no other. If the database fails (disk full, busy, I/O), the transaction is rolled back, and all its
 * messages are tried again.
 *
 * The cleaner (handlers/insert/clean.c) deletes identities below the committed watermark, and fences a day after they were granted, long
 * after any lease that they could belong to.
 *
 *     handlers/insert/insert.c the type: configuration, slots
 *     handlers/insert/row.c    a payload → the values of a row
 *     handlers/insert/store.c  the database: opening it, its tables and statements
 *     handlers/insert/seen.c   identities
 *     handlers/insert/fence.c  fences
 *     handlers/insert/tx.c     the transaction
 *     handlers/insert/clean.c  the cleaner's thread */
#ifndef LW_HANDLERS_INSERT_INSERT_H
#define LW_HANDLERS_INSERT_INSERT_H

#include "base/json_scan.h"
#include "handlers/handler.h"

#include <pthread.h>
#include <sqlite3.h>

enum { LW_INSERT_BATCH = 256, LW_INSERT_COLUMNS = 256, LW_INSERT_BUSY_MS = 5000, LW_SEEN_OFFSETS = 1024 };

enum lw_on_conflict { LW_CONFLICT_IGNORE, LW_CONFLICT_UPDATE, LW_CONFLICT_DEAD };

struct lw_column {
    const char *name, *pointer; /* borrowed from the configuration; lw_json_pointer_ok() accepts the pointer */
    bool primary;
};

/* The configuration of the handler; constant after open. */
struct lw_insert {
    const char *app, *path, *table;
    struct lw_column *columns;
    size_t n_columns;
    enum lw_on_conflict on_conflict;
    bool create;
};

/* --- rows ----------------------------------------------------------------------------------------------------------------------- */

/* What a slot needs for reading and binding rows. */
struct lw_reader {
    struct lw_json_path *paths; /* paths into the payload, one per column */
    struct lw_buf scratch;
};
void lw_reader_init(struct lw_reader *r, const struct lw_insert *in);
void lw_reader_free(struct lw_reader *r);

/* Fills in n_columns values, which are slices of the payload; a pointer that leads nowhere gives LW_JSON_NOTHING.
 * Returns -1 with a reason (position and cause) if the payload makes no row. */
int lw_row_read(const struct lw_insert *in, struct lw_reader *reader, const struct lw_job *job, struct lw_json_value *values,
                struct lw_err *err);
/* Binds the values to parameters 1…n_columns of a statement. The payload must stay valid until the statement
 * has run. Returns SQLite's code. */
int lw_row_bind(const struct lw_insert *in, struct lw_reader *reader, const struct lw_json_value *values, sqlite3_stmt *st);

/* --- the database --------------------------------------------------------------------------------------------------------------- */

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

/* Segments of identities that the running transaction has read. */
struct lw_seen {
    struct lw_segment *segments; /* room for LW_INSERT_BATCH segments */
    size_t n;
};

struct lw_fence {
    uint64_t key, fence;
};

/* Fences known in memory, and those of the running transaction. */
struct lw_fences {
    struct lw_fence *slots; /* hash table with open addressing; key 0: empty slot; fence 0: no fence is known for the key */
    size_t n, size;
    int64_t seen;          /* id of the last row of latchwork_recent that was read */
    struct lw_buf written; /* content of the row of latchwork_recent that the running transaction will append */
};

struct lw_store {
    const struct lw_insert *in;
    sqlite3 *db;
    sqlite3_stmt *st[LW_ST_N];
    struct lw_seen seen;
    struct lw_fences fences;
    struct lw_reader reader;
    struct lw_item *items;        /* jobs of the running transaction, with room for LW_INSERT_BATCH */
    struct lw_json_value *values; /* values of the rows of these jobs */
    int64_t busy_until_ms;        /* boot clock; until then a statement waits for other writers */
};

/* Opens the file in WAL mode, makes Latchwork's tables and, if configured, the user's table if it is missing, and
 * prepares the statements. */
int lw_store_open(struct lw_store *s, const struct lw_insert *in, struct lw_err *err);
/* Opens a connection for the cleaner, which has the busy handler and nothing else. */
int lw_store_connect(struct lw_store *s, const char *path, struct lw_err *err);
void lw_store_close(struct lw_store *s);
/* Runs a statement whose rows are not needed, and resets it. Returns SQLite's code. */
int lw_store_step(sqlite3_stmt *st);

/* --- identities and fences; all but the last two of each inside a transaction, returning SQLITE_DONE or the error that ends it ------ */

enum lw_known {
    LW_UNKNOWN,
    LW_KNOWN,      /* an earlier transaction has done the message */
    LW_KNOWN_HERE, /* an earlier job of this transaction is the same message: done if it commits */
};
int lw_seen_get(struct lw_store *s, const struct lw_job *job, enum lw_known *known);
int lw_seen_set(struct lw_store *s, const struct lw_job *job);
int lw_seen_write(struct lw_store *s);     /* must be called at the end of a transaction */
void lw_seen_forget(struct lw_seen *seen); /* must be called before the next transaction */
void lw_seen_free(struct lw_seen *seen);

uint64_t lw_fence_key(const char *app, struct lw_bytes key);
int lw_fences_catch_up(struct lw_store *s);                           /* must be called at the beginning of a transaction */
int lw_fences_get(struct lw_store *s, uint64_t key, uint64_t *fence); /* sets *fence, to 0 if none is known */
void lw_fences_set(struct lw_store *s, uint64_t key, uint64_t fence);
int lw_fences_write(struct lw_store *s);    /* must be called at the end of a transaction */
void lw_fences_forget(struct lw_fences *f); /* call it after a rollback: memory then has fences that were not written */
void lw_fences_free(struct lw_fences *f);

/* --- the transaction ------------------------------------------------------------------------------------------------------------ */

/* Runs at most LW_INSERT_BATCH jobs in one transaction while it holds `writer`, and answers each. */
void lw_insert_run(const struct lw_insert *in, struct lw_store *s, pthread_mutex_t *writer, struct lw_job **jobs, size_t n);
/* Returns the replay number of an identity: 0 for "t/0/1", 2 for "t/0/1#2". */
int64_t lw_insert_replay(const char *identity);

/* Counts since the start of this process. latchwork_count has the same figures for all processes, exact
 * even after crashes. */
struct lw_insert_counts {
    uint64_t inserted, updated, ignored, known, stale, dead;
};
void lw_insert_counts(struct lw_insert_counts *out);

/* --- the cleaner ---------------------------------------------------------------------------------------------------------------- */

struct lw_cleaner;
/* Starts the cleaner. Its transactions hold `writer`, like those of the slots; the mutex must outlive the cleaner. */
struct lw_cleaner *lw_cleaner_open(const struct lw_insert *in, pthread_mutex_t *writer, struct lw_err *err);
/* Notes a committed watermark. Does no I/O and never blocks for long. */
void lw_cleaner_passed(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark);
void lw_cleaner_close(struct lw_cleaner *c); /* runs one more round for the watermarks noted last, and ends the thread */

#endif
