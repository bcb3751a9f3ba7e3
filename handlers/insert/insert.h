/* SPDX-License-Identifier: Apache-2.0 */
/* insert: writes rows from messages, each exactly once, into a database that all workers share.
 *
 * One transaction writes many rows. With each row it also records the message's identity, so that a
 * second delivery writes nothing, and the fence of the message's key, so that a holder whose lease
 * has ended writes nothing.
 *
 * For each message the transaction asks three questions in a fixed order: Is the message known? Is
 * it stale? Is its row valid? The row is written only if the message is neither known nor stale and
 * the row is valid. A message with a bad row becomes a dead letter and affects no other message.
 *
 * A kind of store (struct lw_store_kind) does this for one database. The cleaner deletes identities
 * below the committed watermark. It deletes fences that were granted more than a day ago, because
 * every lease that they belonged to has long ended.
 *
 *     handlers/insert/insert.c   the handler type: configuration, slots
 *     handlers/insert/blame.c    what a reason says of a row that the database refuses
 *     handlers/insert/row.c      turns a payload into the values of a row
 *     handlers/insert/key.c      keys, identities and counts, for all kinds of store
 *     handlers/insert/clean.c    the cleaner's thread
 *     handlers/insert/sqlite/    the kind for SQLite, described in sqlite.h
 *     handlers/insert/postgres/  the kind for PostgreSQL, described in postgres.h */
#ifndef LW_HANDLERS_INSERT_INSERT_H
#define LW_HANDLERS_INSERT_INSERT_H

#include "base/json_scan.h"
#include "handlers/handler.h"
#include "handlers/trial.h"

#include <pthread.h>

enum {
    LW_INSERT_BATCH = 256, /* maximum number of messages per transaction */
    LW_INSERT_COLUMNS = 256,
    LW_INSERT_BUSY_MS = 5000, /* maximum time that a transaction waits for other writers */
};

enum lw_on_conflict { LW_CONFLICT_IGNORE, LW_CONFLICT_UPDATE, LW_CONFLICT_DEAD };

/* What a column gets whose field the payload lacks. A field that is null always becomes NULL. */
enum lw_missing {
    LW_MISSING_KEEP, /* a new row gets the column's default, and an updated row keeps its value */
    LW_MISSING_NULL,
    LW_MISSING_DEFAULT, /* new and updated rows get the column's default */
};

/* What a number stands for. A time is written as text, 2026-01-02T03:04:05.000000Z, which
 * PostgreSQL's types of dates and times and SQLite's functions understand. */
enum lw_as { LW_AS_IS, LW_AS_EPOCH_S, LW_AS_EPOCH_MS, LW_AS_EPOCH_US };

struct lw_column {
    /* `name` and `pointer` are borrowed from the configuration. lw_json_pointer_ok() has accepted
     * `pointer`. */
    const char *name, *pointer;
    enum lw_as as;
    bool primary;
    bool masked; /* no reason may show the column's value (http.payloads, http.mask) */
};

/* A set of columns: a bit per column. */
struct lw_column_set {
    uint64_t bits[LW_INSERT_COLUMNS / 64];
};
static inline bool lw_in_set(const struct lw_column_set *s, size_t column) {
    return s->bits[column / 64] >> column % 64 & 1;
}
static inline void lw_set_add(struct lw_column_set *s, size_t column) {
    s->bits[column / 64] |= (uint64_t)1 << column % 64;
}
static inline bool lw_same_set(const struct lw_column_set *x, const struct lw_column_set *y) {
    return memcmp(x, y, sizeof *x) == 0;
}

/* The configuration of the handler; constant after open. */
struct lw_insert {
    const char *app;
    /* SQLite: the path of the file; PostgreSQL: the whole URL, which may contain a password */
    const char *address;
    const char *table;
    struct lw_column *columns;
    size_t n_columns;
    enum lw_on_conflict on_conflict;
    enum lw_missing missing;
    bool create;
    bool waits_for_parents; /* retry_on has "foreign_key" */
};

/* --- kinds of store --------------------------------------------------------------------------- */

/* Each kind of store defines struct lw_store, struct lw_writer and struct lw_sweeper for itself. */
struct lw_store;   /* the state that all slots and the cleaner of a worker share */
struct lw_writer;  /* the state of one slot, such as its connection */
struct lw_sweeper; /* the state of the cleaner */

/* An order to delete identities of one partition. */
struct lw_sweep {
    const char *topic;
    int64_t cleaned;   /* all identities below this offset are already deleted; -1: unknown */
    int64_t watermark; /* identities below this offset are to be deleted */
    int32_t partition;
    bool closing; /* this is the cleaner's last round */
};

enum lw_swept {
    LW_SWEPT_SLICE, /* a slice was deleted, and more identities are left */
    LW_SWEPT_ALL,   /* nothing below the watermark is left to delete */
    LW_SWEPT_LATER, /* the database is busy or unreachable; try again in a later round */
};

struct lw_store_kind {
    const char *const *schemes; /* prefixes of handler.store, with NULL after the last */
    /* If `prefix` is true, the functions of this struct get the text after the scheme as `address`.
     * Otherwise they get the whole text of handler.store. */
    bool prefix;
    /* Reports what is wrong with handler.store and with the name of the table. Contacts no server.
     * `table` may be NULL. */
    void (*check)(const char *address, const char *table, struct lw_problems *problems);
    /* Connects, creates Latchwork's tables and, if configured, the user's table, and reports errors
     * of the configuration that only the database can show. `in` must outlive the store. The main
     * thread calls `open`, `close`, `writer_open` and `writer_close`. */
    struct lw_store *(*open)(const struct lw_insert *in, struct lw_err *err);
    void (*close)(struct lw_store *store);
    struct lw_writer *(*writer_open)(struct lw_store *store, struct lw_err *err);
    void (*writer_close)(struct lw_writer *w);
    /* Runs at most LW_INSERT_BATCH jobs and sets the outcome of each. Called on the slot's thread.
     * Must end in time without outside help, as `run` of struct lw_handler_type must. */
    void (*write)(struct lw_writer *w, struct lw_job **jobs, size_t n);
    /* Returns whether the store can work, as `health` of struct lw_handler_type does for a handler.
     * NULL: the store can always work. */
    enum lw_health (*health)(struct lw_store *store, char *why, size_t size);
    struct lw_sweeper *(*sweeper_open)(struct lw_store *store, struct lw_err *err);
    void (*sweeper_close)(struct lw_sweeper *w);
    /* Deletes one slice of identities in one short transaction. The cleaner's thread calls
     * `sweep_seen` and `sweep_old`. */
    enum lw_swept (*sweep_seen)(struct lw_sweeper *w, const struct lw_sweep *what);
    /* Called at the end of each round that has cleaned all partitions, except the last round. In
     * the rounds that the kind of store chooses, deletes one slice of old fences, or old identities
     * of replays, or both. Rounds are numbered from 0. */
    void (*sweep_old)(struct lw_sweeper *w, unsigned round);
};

extern const struct lw_store_kind lw_store_sqlite, lw_store_postgres;

/* --- outages (handlers/insert/outage.c) --------------------------------------------------------
 *
 * Remembers whether the store works. If it does not, the handler gets no messages for a pause that
 * doubles. After the pause it gets a few, until one is written. All functions are thread-safe. */
struct lw_outage {
    const char *name; /* name of the store, for the log */
    atomic_bool away; /* all changes of `away` and of the fields below it need the mutex */
    _Atomic int64_t until_ms;
    int64_t since_ms, pause_ms;
    pthread_mutex_t lock;
    struct lw_trial trial; /* the messages that failed (handlers/trial.h) */
    char why[LW_REASON_MAX];
};

void lw_outage_init(struct lw_outage *o, const char *name);
void lw_outage_free(struct lw_outage *o);
/* Takes note that the store does not work, and starts a pause. A pause that is under way is not
 * extended. */
void lw_outage_begin(struct lw_outage *o, const char *why);
/* Takes note that this message alone could not be written. Returns true if it is at fault itself,
 * because it failed before, and others were written since. Otherwise the store counts as away, and
 * the message must be given back; *rest_ms is how long it should rest, so that others come
 * first. */
bool lw_outage_failed(struct lw_outage *o, const char *identity, const char *why, int64_t *rest_ms);
/* Takes note that the store has answered, and ends the outage. */
void lw_outage_end(struct lw_outage *o);
/* Takes note that the store has answered for this message: it works. */
void lw_outage_answered(struct lw_outage *o, const char *identity);
bool lw_outage_pauses(struct lw_outage *o, int64_t now_ms);
enum lw_health lw_outage_health(struct lw_outage *o, char *why, size_t size);

/* --- rows ------------------------------------------------------------------------------------- */

/* What a slot needs to read rows from payloads. */
struct lw_reader {
    struct lw_json_path *paths; /* paths into the payload, one per column */
    struct lw_buf scratch;
};
void lw_reader_init(struct lw_reader *r, const struct lw_insert *in);
void lw_reader_free(struct lw_reader *r);

/* Fills in n_columns values, which are slices of the payload. A column whose pointer finds nothing
 * becomes LW_JSON_NOTHING, and is noted in *absent unless it is to become NULL. Returns -1 with a
 * reason (position and cause) if the payload makes no row. */
int lw_row_read(const struct lw_insert *in, struct lw_reader *reader, const struct lw_job *job,
                struct lw_json_value *values, struct lw_column_set *absent, struct lw_err *err);

/* Returns the value to be written for a column: *v, or the time that it stands for, whose text is
 * in `text`. lw_row_read() has accepted *v. */
enum { LW_TIME_TEXT = 32 };
struct lw_json_value lw_row_value(const struct lw_column *c, const struct lw_json_value *v,
                                  char text[LW_TIME_TEXT]);

/* --- reasons (handlers/insert/blame.c) -------------------------------------------------------- */

/* Writes the reason for which a row is refused: `what` happened, the columns of the set with their
 * values, and `why` as the database says it, which may be "". A text of the database that was cut
 * ends with "…" where it was cut. Values that http.mask hides are replaced in all of it. */
void lw_row_blame(const struct lw_insert *in, const struct lw_json_value *row,
                  const struct lw_column_set *columns, const char *what, const char *why,
                  char reason[LW_REASON_MAX]);
/* Returns true if a quoted piece of a text also stands in a value. Databases quote the element of
 * an array that they refuse. */
bool lw_row_quotes(struct lw_bytes text, const struct lw_json_value *v);
/* Adds to the set the columns whose names are words in a text. */
void lw_row_find_names(const struct lw_insert *in, const char *text, struct lw_column_set *columns);
/* Returns the columns of the primary key. */
struct lw_column_set lw_row_key(const struct lw_insert *in);

/* --- keys, identities, leases, counts --------------------------------------------------------- */

/* By what stores identify a key: the first 128 bits of the SHA-256 of application, NUL and key.
 * Strangers choose keys, but none of them can find a key that shares the fence of a given other one
 * and so holds its messages back. The hash is never 0. */
struct lw_fence_key {
    uint64_t a, b; /* the bytes of the hash, as they are in memory */
};
struct lw_fence_key lw_fence_key(const char *app, struct lw_bytes key);
static inline bool lw_fence_key_same(struct lw_fence_key x, struct lw_fence_key y) {
    return x.a == y.a && x.b == y.b;
}
/* Returns the replay number in an identity: 0 for "t/0/1", 2 for "t/0/1#2". */
int64_t lw_insert_replay(const char *identity);
/* Returns roughly the fence of a message granted age_s seconds ago, computed from this machine's
 * clock. That is possible because fences follow the time of Redis in µs. */
int64_t lw_insert_fence_before(int64_t age_s);

/* The cleaner deletes fences older than LW_FENCE_AGE_S, and identities of replays older than
 * LW_REPLAY_AGE_S. Both are in seconds. */
enum { LW_FENCE_AGE_S = 24 * 3600, LW_REPLAY_AGE_S = 7 * 24 * 3600 };

/* --- the cleaner ------------------------------------------------------------------------------ */

struct lw_cleaner;
/* Starts the cleaner. Takes ownership of the sweeper, even if the start fails. */
struct lw_cleaner *lw_cleaner_open(const struct lw_store_kind *kind, struct lw_sweeper *sweeper,
                                   struct lw_err *err);
/* Notes a committed watermark for the cleaner. Does no I/O and returns quickly. */
void lw_cleaner_passed(struct lw_cleaner *c, const char *topic, int32_t partition,
                       int64_t watermark);
/* Runs one more round for the latest watermarks, and ends the thread. */
void lw_cleaner_close(struct lw_cleaner *c);

#endif
