/* SPDX-License-Identifier: Apache-2.0 */
/* The cleaner's work in SQLite, on its own connection. The cleaner reads before it writes, and
 * shares a mutex with the slots of its process, because waiting for SQLite's lock means polling,
 * which costs CPU. */
#include "handlers/insert/sqlite/sqlite.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>

enum {
    SLICE = 1000, /* maximum number of rows per transaction */
    /* BUSY_MS is the maximum wait for writers in other processes. It is short, because the slots
     * of this process cannot write while the cleaner waits. */
    BUSY_MS = 250,
    CLOSING_BUSY_MS = 1000, /* replaces BUSY_MS in the last round, before the worker ends */
    REPLAY_ROUNDS = 60, /* number of rounds between two searches for old identities of replays */
};

struct lw_sweeper {
    const struct lw_insert *in;
    pthread_mutex_t *writer; /* the store's mutex, which is held during each transaction */
    struct lw_sqlite db;
    sqlite3_stmt *bound, *remove, *partial, *trim, *old_fences, *remove_fences, *remove_replays;
    struct lw_fence_key fence_at; /* the next slice of fences is behind this key; 0: the first */
    int64_t busy_ms;
};

static int prepare(struct lw_sweeper *c, sqlite3_stmt **st, const char *sql) {
    return sqlite3_prepare_v3(c->db.db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL) == SQLITE_OK
               ? 0
               : -1;
}

static int open_db(struct lw_sweeper *c, struct lw_err *err) {
    if (lw_sqlite_connect(&c->db, c->in->address, err)) return -1;
    /* synchronous=NORMAL is enough for the cleaner: if a power cut undoes a deletion, the cleaner
     * deletes the rows again */
    sqlite3_exec(c->db.db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    if (prepare(c, &c->bound,
                "SELECT segment FROM latchwork_seen WHERE app = ?1 AND topic = ?2 AND partition = "
                "?3 AND segment < ?4"
                " ORDER BY segment LIMIT 1 OFFSET ?5") ||
        prepare(c, &c->remove,
                "DELETE FROM latchwork_seen WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND "
                "segment < ?4") ||
        prepare(c, &c->partial,
                "SELECT bits FROM latchwork_seen WHERE app = ?1 AND topic = ?2 AND partition = ?3 "
                "AND segment = ?4") ||
        prepare(c, &c->trim,
                "UPDATE latchwork_seen SET bits = ?5 WHERE app = ?1 AND topic = ?2 AND partition = "
                "?3 AND segment = ?4") ||
        prepare(c, &c->old_fences,
                "SELECT count(*) FILTER (WHERE fence < ?2), max(hash), count(*) FROM (SELECT hash, "
                "fence FROM latchwork_fences"
                " WHERE hash > ?1 ORDER BY hash LIMIT ?3)") ||
        prepare(c, &c->remove_fences,
                "DELETE FROM latchwork_fences WHERE hash > ?1 AND hash <= ?2 AND fence < ?3") ||
        prepare(c, &c->remove_replays,
                "DELETE FROM latchwork_replayed WHERE app = ?1 AND fence < ?2"))
        return lw_fail(err, "insert: %s: cannot prepare the clean-up: %s", c->in->address,
                       sqlite3_errmsg(c->db.db));
    return 0;
}

static void close_db(struct lw_sweeper *c) {
    sqlite3_stmt **all[] = {&c->bound,      &c->remove,        &c->partial,       &c->trim,
                            &c->old_fences, &c->remove_fences, &c->remove_replays};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_finalize(*all[i]);
        *all[i] = NULL;
    }
    lw_sqlite_close(&c->db);
}

/* Runs a statement that changes rows, within the time limit for SQLite's lock. Returns false if the
 * statement must be repeated later. */
static bool step(struct lw_sweeper *c, sqlite3_stmt *st) {
    c->db.busy_until_ms = lw_boot_ms() + c->busy_ms;
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    if (r == SQLITE_DONE) return true;
    lw_debug("insert: %s: clean-up failed: %s; retrying later", c->in->address,
             sqlite3_errmsg(c->db.db));
    return false;
}

/* Runs a statement that changes rows. The statement is a transaction of its own, and runs under the
 * mutex that the slots also use. */
static bool change(struct lw_sweeper *c, sqlite3_stmt *st) {
    pthread_mutex_lock(c->writer);
    bool ok = step(c, st);
    pthread_mutex_unlock(c->writer);
    return ok;
}

static void bind_partition(struct lw_sweeper *c, sqlite3_stmt *st, const char *topic,
                           int32_t partition) {
    sqlite3_bind_text(st, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, topic, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(st, 3, partition);
}

/* Returns the number of the (skip + 1)-th highest segment below `end`, or -1 if there are fewer
 * segments. */
static int64_t segment_below(struct lw_sweeper *c, const char *topic, int32_t partition,
                             int64_t end, int skip) {
    bind_partition(c, c->bound, topic, partition);
    sqlite3_bind_int64(c->bound, 4, end);
    sqlite3_bind_int(c->bound, 5, skip);
    int64_t number = sqlite3_step(c->bound) == SQLITE_ROW ? sqlite3_column_int64(c->bound, 0) : -1;
    sqlite3_reset(c->bound);
    return number;
}

/* Deletes one slice of the segments that are entirely below the watermark. Returns true if no other
 * slice remains. Sets *ok to false if the slice was not deleted. Then the caller must try again
 * later. */
static bool clean_slice(struct lw_sweeper *c, const char *topic, int32_t partition,
                        int64_t watermark, bool *ok) {
    int64_t end = watermark / LW_SEEN_OFFSETS;
    /* If there is nothing to delete, do not wait for the mutex. */
    if (segment_below(c, topic, partition, end, 0) < 0) return true;
    int64_t below = segment_below(c, topic, partition, end, SLICE);
    bind_partition(c, c->remove, topic, partition);
    sqlite3_bind_int64(c->remove, 4, below < 0 ? end : below);
    *ok = change(c, c->remove);
    return below < 0;
}

static bool exec(struct lw_sweeper *c, const char *sql) {
    c->db.busy_until_ms = lw_boot_ms() + c->busy_ms;
    return sqlite3_exec(c->db.db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* Reads the bits of the segment that contains the watermark, and clears in `bits` all bits below
 * the watermark. Returns false if none of these bits was set, or if there is no such segment. */
static bool trimmed(struct lw_sweeper *c, const char *topic, int32_t partition, int64_t watermark,
                    unsigned char *bits, size_t size) {
    bind_partition(c, c->partial, topic, partition);
    sqlite3_bind_int64(c->partial, 4, watermark / LW_SEEN_OFFSETS);
    bool there =
        sqlite3_step(c->partial) == SQLITE_ROW && sqlite3_column_bytes(c->partial, 0) == (int)size;
    if (there) memcpy(bits, sqlite3_column_blob(c->partial, 0), size);
    sqlite3_reset(c->partial);
    if (!there) return false;
    size_t below = (size_t)(watermark % LW_SEEN_OFFSETS);
    unsigned char any = 0, kept = (unsigned char)(0xff << below % 8);
    for (size_t i = 0; i < below / 8; i++) any |= bits[i];
    any |= (unsigned char)(bits[below / 8] & ~kept);
    memset(bits, 0, below / 8);
    bits[below / 8] &= kept;
    return any != 0;
}

/* Clears the bits below the watermark in the watermark's segment. They must not remain, because the
 * offsets of a topic that is deleted and recreated begin at 0 again. */
static bool trim_segment(struct lw_sweeper *c, const char *topic, int32_t partition,
                         int64_t watermark) {
    unsigned char bits[LW_SEEN_OFFSETS / 8], any = 0;
    if (!trimmed(c, topic, partition, watermark, bits, sizeof bits)) return true;
    for (size_t i = 0; i < sizeof bits; i++) any |= bits[i];
    bind_partition(c, c->trim, topic, partition);
    sqlite3_bind_int64(c->trim, 4, watermark / LW_SEEN_OFFSETS);
    sqlite3_bind_blob(c->trim, 5, bits, sizeof bits, SQLITE_TRANSIENT);
    if (any) return step(c, c->trim);
    bind_partition(c, c->remove, topic, partition); /* no bit is left, so delete the row */
    sqlite3_bind_int64(c->remove, 4, watermark / LW_SEEN_OFFSETS + 1);
    return step(c, c->remove);
}

/* Clears the bits below the watermark in a separate transaction, so that a bit set by another
 * process at the same time is not lost. */
static bool trim(struct lw_sweeper *c, const char *topic, int32_t partition, int64_t watermark) {
    unsigned char bits[LW_SEEN_OFFSETS / 8];
    if (!trimmed(c, topic, partition, watermark, bits, sizeof bits)) return true;
    pthread_mutex_lock(c->writer);
    bool ok = exec(c, "BEGIN IMMEDIATE");
    if (ok) {
        ok = trim_segment(c, topic, partition, watermark) && exec(c, "COMMIT");
        if (!ok) exec(c, "ROLLBACK");
    }
    pthread_mutex_unlock(c->writer);
    return ok;
}

/* Deletes the old fences in the next slice of the table. Searches first, because usually no fence
 * is old and then no lock is needed. */
static void sweep_fences(struct lw_sweeper *c) {
    int64_t before = lw_insert_fence_before(LW_FENCE_AGE_S);
    struct lw_fence_key last = {0};
    sqlite3_stmt *st = c->old_fences;
    sqlite3_bind_blob(st, 1, &c->fence_at, sizeof c->fence_at, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, before);
    sqlite3_bind_int(st, 3, SLICE);
    int old = 0, n = 0;
    if (sqlite3_step(st) == SQLITE_ROW) {
        old = sqlite3_column_int(st, 0);
        if (sqlite3_column_bytes(st, 1) == sizeof last)
            memcpy(&last, sqlite3_column_blob(st, 1), sizeof last);
        n = sqlite3_column_int(st, 2);
    }
    sqlite3_reset(st);
    if (old) {
        st = c->remove_fences;
        sqlite3_bind_blob(st, 1, &c->fence_at, sizeof c->fence_at, SQLITE_STATIC);
        sqlite3_bind_blob(st, 2, &last, sizeof last, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, before);
        change(c, st);
        sqlite3_clear_bindings(st);
    }
    /* after the last key, the next slice starts at the first key */
    if (n < SLICE) memset(&last, 0, sizeof last);
    c->fence_at = last;
}

static void sweep_replays(struct lw_sweeper *c) {
    sqlite3_bind_text(c->remove_replays, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_int64(c->remove_replays, 2, lw_insert_fence_before(LW_REPLAY_AGE_S));
    change(c, c->remove_replays);
}

enum lw_swept lw_sqlite_sweep_seen(struct lw_sweeper *c, const struct lw_sweep *what) {
    bool ok = true;
    c->busy_ms = what->closing ? CLOSING_BUSY_MS : BUSY_MS;
    if (!clean_slice(c, what->topic, what->partition, what->watermark, &ok))
        return ok ? LW_SWEPT_SLICE : LW_SWEPT_LATER;
    return ok && trim(c, what->topic, what->partition, what->watermark) ? LW_SWEPT_ALL
                                                                        : LW_SWEPT_LATER;
}

void lw_sqlite_sweep_old(struct lw_sweeper *c, unsigned round) {
    sweep_fences(c);
    if (round % REPLAY_ROUNDS == 0) sweep_replays(c);
}

struct lw_sweeper *lw_sqlite_sweeper_open(const struct lw_insert *in, pthread_mutex_t *writer,
                                          struct lw_err *err) {
    struct lw_sweeper *c = lw_alloc(sizeof *c);
    *c = (struct lw_sweeper){.in = in, .writer = writer, .busy_ms = BUSY_MS};
    if (open_db(c, err) == 0) return c;
    lw_sqlite_sweeper_close(c);
    return NULL;
}

void lw_sqlite_sweeper_close(struct lw_sweeper *c) {
    close_db(c);
    free(c);
}
