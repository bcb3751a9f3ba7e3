/* SPDX-License-Identifier: Apache-2.0 */
/* The cleaner keeps Latchwork's own tables small, by short transactions on a thread and a connection of its own. It reads before it writes,
 * and takes its turn among the slots of its process: a process that waits for SQLite's lock must poll for it, which costs CPU. */
#include "handlers/insert/insert.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

enum {
    ROUND_MS = 1000,
    SLICE = 1000,        /* maximum number of rows per transaction */
    SLICES_A_ROUND = 50, /* maximum number of slices per round, so that others can write in between */
    BUSY_MS = 250,       /* limit of the wait for writers in other processes; short, because the slots of this process wait meanwhile */
    FENCE_AGE_S = 24 * 3600,
    REPLAY_AGE_S = 7 * 24 * 3600,
};

struct passed {
    UT_hash_handle hh;
    int64_t watermark, cleaned;
    unsigned round; /* number of the last round that looked at this partition */
    int32_t partition;
    char name[]; /* "partition topic", the key of the hash table */
};

struct lw_cleaner {
    const struct lw_insert *in;
    pthread_mutex_t *writer; /* the handler's mutex, which is held during each transaction */
    pthread_t thread;
    pthread_mutex_t lock; /* guards `passed` and `stop` */
    pthread_cond_t wake;
    struct passed *passed;
    bool stop;
    /* The thread alone uses the fields below. */
    struct lw_store store;
    sqlite3_stmt *bound, *remove, *partial, *trim, *old_fences, *remove_fences, *remove_replays;
    int64_t fence_at; /* key at which the walk over the fences goes on */
    int64_t busy_ms;
    unsigned round;
};

static int prepare(struct lw_cleaner *c, sqlite3_stmt **st, const char *sql) {
    return sqlite3_prepare_v3(c->store.db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL) == SQLITE_OK ? 0 : -1;
}

static int open_store(struct lw_cleaner *c, struct lw_err *err) {
    if (lw_store_connect(&c->store, c->in->path, err)) return -1;
    /* NORMAL is enough: a deletion that a power cut undoes is made again */
    sqlite3_exec(c->store.db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    if (prepare(c, &c->bound,
                "SELECT segment FROM latchwork_seen WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND segment < ?4"
                " ORDER BY segment LIMIT 1 OFFSET ?5") ||
        prepare(c, &c->remove, "DELETE FROM latchwork_seen WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND segment < ?4") ||
        prepare(c, &c->partial, "SELECT bits FROM latchwork_seen WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND segment = ?4") ||
        prepare(c, &c->trim, "UPDATE latchwork_seen SET bits = ?5 WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND segment = ?4") ||
        prepare(c, &c->old_fences,
                "SELECT count(*) FILTER (WHERE fence < ?2), max(key), count(*) FROM (SELECT key, fence FROM latchwork_fences"
                " WHERE key >= ?1 ORDER BY key LIMIT ?3)") ||
        prepare(c, &c->remove_fences, "DELETE FROM latchwork_fences WHERE key BETWEEN ?1 AND ?2 AND fence < ?3") ||
        prepare(c, &c->remove_replays, "DELETE FROM latchwork_replayed WHERE app = ?1 AND fence < ?2"))
        return lw_fail(err, "insert: %s: cannot prepare the clean-up: %s", c->in->path, sqlite3_errmsg(c->store.db));
    return 0;
}

static void close_store(struct lw_cleaner *c) {
    sqlite3_stmt **all[] = {&c->bound, &c->remove, &c->partial, &c->trim, &c->old_fences, &c->remove_fences, &c->remove_replays};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_finalize(*all[i]);
        *all[i] = NULL;
    }
    lw_store_close(&c->store);
}

/* Runs a statement that changes rows, within the time limit for SQLite's lock. Returns false if it must be
 * tried again later. */
static bool step(struct lw_cleaner *c, sqlite3_stmt *st) {
    c->store.busy_until_ms = lw_boot_ms() + c->busy_ms;
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    if (r == SQLITE_DONE) return true;
    lw_debug("insert: %s: clean-up comes later: %s", c->in->path, sqlite3_errmsg(c->store.db));
    return false;
}

/* Runs a statement that changes rows as a transaction of its own, in its turn among the slots. */
static bool change(struct lw_cleaner *c, sqlite3_stmt *st) {
    pthread_mutex_lock(c->writer);
    bool ok = step(c, st);
    pthread_mutex_unlock(c->writer);
    return ok;
}

static void bind_partition(struct lw_cleaner *c, sqlite3_stmt *st, const char *topic, int32_t partition) {
    sqlite3_bind_text(st, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, topic, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(st, 3, partition);
}

/* Returns the number of the highest segment below `end`, after skipping `skip` of them, or -1 if there is
 * none. */
static int64_t segment_below(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t end, int skip) {
    bind_partition(c, c->bound, topic, partition);
    sqlite3_bind_int64(c->bound, 4, end);
    sqlite3_bind_int(c->bound, 5, skip);
    int64_t number = sqlite3_step(c->bound) == SQLITE_ROW ? sqlite3_column_int64(c->bound, 0) : -1;
    sqlite3_reset(c->bound);
    return number;
}

/* Deletes one slice of the segments that are entirely below the watermark. Returns true if it was
 * the last slice. */
static bool clean_slice(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark, bool *ok) {
    int64_t end = watermark / LW_SEEN_OFFSETS;
    if (segment_below(c, topic, partition, end, 0) < 0) return true; /* there is nothing to delete, so do not wait for a turn */
    int64_t below = segment_below(c, topic, partition, end, SLICE);
    bind_partition(c, c->remove, topic, partition);
    sqlite3_bind_int64(c->remove, 4, below < 0 ? end : below);
    *ok = change(c, c->remove);
    return below < 0;
}

static bool exec(struct lw_cleaner *c, const char *sql) {
    c->store.busy_until_ms = lw_boot_ms() + c->busy_ms;
    return sqlite3_exec(c->store.db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* Reads the bits of the segment that contains the watermark, and clears those below it in `bits`. Returns
 * false if none of them was set. */
static bool trimmed(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark, unsigned char *bits, size_t size) {
    bind_partition(c, c->partial, topic, partition);
    sqlite3_bind_int64(c->partial, 4, watermark / LW_SEEN_OFFSETS);
    bool there = sqlite3_step(c->partial) == SQLITE_ROW && sqlite3_column_bytes(c->partial, 0) == (int)size;
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

/* Clears the bits below the watermark in its segment, because the offsets of a topic that is deleted and recreated
 * begin at 0 again. */
static bool trim_segment(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark) {
    unsigned char bits[LW_SEEN_OFFSETS / 8], any = 0;
    if (!trimmed(c, topic, partition, watermark, bits, sizeof bits)) return true;
    for (size_t i = 0; i < sizeof bits; i++) any |= bits[i];
    bind_partition(c, c->trim, topic, partition);
    sqlite3_bind_int64(c->trim, 4, watermark / LW_SEEN_OFFSETS);
    sqlite3_bind_blob(c->trim, 5, bits, sizeof bits, SQLITE_TRANSIENT);
    if (any) return step(c, c->trim);
    bind_partition(c, c->remove, topic, partition); /* all bits are clear, so delete the row */
    sqlite3_bind_int64(c->remove, 4, watermark / LW_SEEN_OFFSETS + 1);
    return step(c, c->remove);
}

/* Clears the bits below the watermark in a transaction of its own, so that no bit is lost that others set meanwhile. */
static bool trim(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark) {
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

/* Finds a partition that has something to clean and that this round has not looked at.
 * Copies its topic and watermark, because the main thread may add to the table. */
static bool next_passed(struct lw_cleaner *c, struct passed **which, char *topic, size_t size, int64_t *watermark) {
    bool found = false;
    pthread_mutex_lock(&c->lock);
    for (struct passed *p = c->passed; p && !found; p = p->hh.next) {
        if (p->watermark <= p->cleaned || p->round == c->round) continue;
        found = true;
        p->round = c->round;
        *which = p; /* the pointer stays valid, because entries are freed only when the cleaner closes */
        *watermark = p->watermark;
        snprintf(topic, size, "%s", strchr(p->name, ' ') + 1);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Cleans all partitions. Returns false if the round has used up its slices, or the database is busy. */
static bool clean_partitions(struct lw_cleaner *c) {
    struct passed *p;
    char topic[256];
    int64_t watermark;
    int slices = 0;
    c->round++;
    while (next_passed(c, &p, topic, sizeof topic, &watermark)) {
        bool ok = true, last = false;
        while (ok && !last && slices++ < SLICES_A_ROUND) last = clean_slice(c, topic, p->partition, watermark, &ok);
        if (!ok || !last || !trim(c, topic, p->partition, watermark)) return false;
        pthread_mutex_lock(&c->lock);
        p->cleaned = watermark;
        pthread_mutex_unlock(&c->lock);
    }
    return true;
}

/* Returns the fence of a message that was granted age_s ago, because fences are Redis' time in µs. */
static int64_t fence_before(int64_t age_s) { return (lw_wall_ms() - age_s * 1000) * 1000; }

/* Cleans one slice of an endless walk over the fences. It reads first, because usually there is nothing
 * to delete, and then no lock is needed. */
static void sweep_fences(struct lw_cleaner *c) {
    int64_t before = fence_before(FENCE_AGE_S), last = 0;
    sqlite3_stmt *st = c->old_fences;
    sqlite3_bind_int64(st, 1, c->fence_at);
    sqlite3_bind_int64(st, 2, before);
    sqlite3_bind_int(st, 3, SLICE);
    int old = 0, n = 0;
    if (sqlite3_step(st) == SQLITE_ROW) {
        old = sqlite3_column_int(st, 0);
        last = sqlite3_column_int64(st, 1);
        n = sqlite3_column_int(st, 2);
    }
    sqlite3_reset(st);
    if (old) {
        st = c->remove_fences;
        sqlite3_bind_int64(st, 1, c->fence_at);
        sqlite3_bind_int64(st, 2, last);
        sqlite3_bind_int64(st, 3, before);
        change(c, st);
    }
    c->fence_at = n < SLICE || last == INT64_MAX ? INT64_MIN : last + 1; /* start again after the last key */
}

static void sweep_replays(struct lw_cleaner *c) {
    sqlite3_bind_text(c->remove_replays, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_int64(c->remove_replays, 2, fence_before(REPLAY_AGE_S));
    change(c, c->remove_replays);
}

/* Waits until the next round. Returns false if the thread must end. */
static bool wait_round(struct lw_cleaner *c) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ROUND_MS / 1000;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && pthread_cond_timedwait(&c->wake, &c->lock, &until) == 0) {}
    bool go_on = !c->stop;
    pthread_mutex_unlock(&c->lock);
    return go_on;
}

static void *run(void *arg) {
    struct lw_cleaner *c = arg;
    for (unsigned round = 0; wait_round(c); round++) {
        if (!clean_partitions(c)) continue;
        sweep_fences(c);
        if (round % 60 == 0) sweep_replays(c);
    }
    c->busy_ms = ROUND_MS;
    clean_partitions(c);
    return NULL;
}

static void free_all(struct lw_cleaner *c) {
    close_store(c);
    struct passed *p, *tmp;
    HASH_ITER(hh, c->passed, p, tmp) {
        HASH_DEL(c->passed, p);
        free(p);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->wake);
    free(c);
}

struct lw_cleaner *lw_cleaner_open(const struct lw_insert *in, pthread_mutex_t *writer, struct lw_err *err) {
    struct lw_cleaner *c = lw_alloc(sizeof *c);
    c->in = in;
    c->writer = writer;
    c->busy_ms = BUSY_MS;
    c->fence_at = INT64_MIN;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int r = open_store(c, err);
    if (!r && lw_thread_start(&c->thread, run, c)) r = lw_fail(err, "insert: cannot start the cleaner's thread");
    if (!r) return c;
    free_all(c);
    return NULL;
}

void lw_cleaner_passed(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark) {
    char name[288];
    int n = snprintf(name, sizeof name, "%d %s", (int)partition, topic);
    if (n < 0 || (size_t)n >= sizeof name) return; /* no topic of Kafka has so long a name */
    pthread_mutex_lock(&c->lock);
    struct passed *p;
    HASH_FIND(hh, c->passed, name, (size_t)n, p);
    if (!p) {
        p = lw_alloc(sizeof *p + (size_t)n + 1);
        memcpy(p->name, name, (size_t)n + 1);
        p->partition = partition;
        p->cleaned = -1;
        HASH_ADD(hh, c->passed, name, (size_t)n, p);
    }
    if (watermark > p->watermark) p->watermark = watermark;
    pthread_mutex_unlock(&c->lock);
}

void lw_cleaner_close(struct lw_cleaner *c) {
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    free_all(c);
}
