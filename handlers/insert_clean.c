/* The cleaner: keeps Latchwork's own tables small, from a thread and a connection of its own, in short transactions. */
#include "handlers/insert.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

enum {
    ROUND_MS = 1000,
    SLICE = 1000,        /* rows a transaction */
    SLICES_A_ROUND = 50, /* then others write first */
    FENCE_AGE_S = 24 * 3600,
    REPLAY_AGE_S = 7 * 24 * 3600,
};

struct passed {
    UT_hash_handle hh;
    int64_t watermark, cleaned;
    int32_t partition;
    char name[]; /* "partition topic": the hash key */
};

struct lw_cleaner {
    const struct lw_insert *in;
    pthread_t thread;
    pthread_mutex_t lock; /* guards passed and stop */
    pthread_cond_t wake;
    struct passed *passed;
    bool stop;
    /* the thread's own */
    struct lw_store store;
    sqlite3_stmt *bound, *remove, *old_fences, *remove_fences, *remove_replays;
    struct lw_buf fence_at; /* where the sweep over fences stands: a key */
};

static int prepare(struct lw_cleaner *c, sqlite3_stmt **st, const char *sql) {
    return sqlite3_prepare_v3(c->store.db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL) == SQLITE_OK ? 0 : -1;
}

static int open_store(struct lw_cleaner *c, struct lw_err *err) {
    if (lw_store_connect(&c->store, c->in->path, err)) return -1;
    /* a deletion that a power cut undoes is done again */
    sqlite3_exec(c->store.db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    if (prepare(c, &c->bound,
                "SELECT offset FROM latchwork_done WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND replay = 0 AND offset < ?4"
                " ORDER BY offset LIMIT 1 OFFSET ?5") ||
        prepare(c, &c->remove,
                "DELETE FROM latchwork_done WHERE app = ?1 AND topic = ?2 AND partition = ?3 AND replay = 0 AND offset < ?4") ||
        prepare(c, &c->old_fences,
                "SELECT count(*) FILTER (WHERE fence < ?3), max(key) FROM (SELECT key, fence FROM latchwork_fence"
                " WHERE app = ?1 AND key > ?2 ORDER BY key LIMIT ?4)") ||
        prepare(c, &c->remove_fences, "DELETE FROM latchwork_fence WHERE app = ?1 AND key > ?2 AND key <= ?3 AND fence < ?4") ||
        prepare(c, &c->remove_replays, "DELETE FROM latchwork_done WHERE replay > 0 AND app = ?1 AND fence < ?2"))
        return lw_fail(err, "insert: %s: cannot prepare the clean-up: %s", c->in->path, sqlite3_errmsg(c->store.db));
    return 0;
}

static void close_store(struct lw_cleaner *c) {
    sqlite3_stmt **all[] = {&c->bound, &c->remove, &c->old_fences, &c->remove_fences, &c->remove_replays};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_finalize(*all[i]);
        *all[i] = NULL;
    }
    lw_store_close(&c->store);
}

/* Steps a statement that changes rows. Returns false where it has to be tried later. */
static bool change(struct lw_cleaner *c, sqlite3_stmt *st) {
    c->store.busy_until_ms = lw_boot_ms() + ROUND_MS;
    int r = sqlite3_step(st);
    sqlite3_reset(st);
    if (r == SQLITE_DONE) return true;
    lw_debug("insert: %s: clean-up comes later: %s", c->in->path, sqlite3_errmsg(c->store.db));
    return false;
}

static void bind_partition(struct lw_cleaner *c, sqlite3_stmt *st, const char *topic, int32_t partition) {
    sqlite3_bind_text(st, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, topic, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(st, 3, partition);
}

/* Deletes one slice of what lies below the watermark. True when it was the last. */
static bool clean_slice(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark, bool *ok) {
    bind_partition(c, c->bound, topic, partition);
    sqlite3_bind_int64(c->bound, 4, watermark);
    sqlite3_bind_int(c->bound, 5, SLICE);
    bool more = sqlite3_step(c->bound) == SQLITE_ROW;
    int64_t below = more ? sqlite3_column_int64(c->bound, 0) : watermark;
    sqlite3_reset(c->bound);
    bind_partition(c, c->remove, topic, partition);
    sqlite3_bind_int64(c->remove, 4, below);
    *ok = change(c, c->remove);
    return !more;
}

/* The next partition with something to clean; a copy, as the main thread may add to the table. */
static bool next_passed(struct lw_cleaner *c, struct passed **which, char *topic, size_t size, int64_t *watermark) {
    bool found = false;
    pthread_mutex_lock(&c->lock);
    for (struct passed *p = c->passed; p && !found; p = p->hh.next) {
        if (p->watermark <= p->cleaned) continue;
        found = true;
        *which = p; /* stays where it is until the cleaner closes */
        *watermark = p->watermark;
        snprintf(topic, size, "%s", strchr(p->name, ' ') + 1);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* False where the round's slices are used up, or the database is busy. */
static bool clean_partitions(struct lw_cleaner *c) {
    struct passed *p;
    char topic[256];
    int64_t watermark;
    int slices = 0;
    while (next_passed(c, &p, topic, sizeof topic, &watermark)) {
        bool ok = true, last = false;
        while (ok && !last && slices++ < SLICES_A_ROUND) last = clean_slice(c, topic, p->partition, watermark, &ok);
        if (!ok || !last) return false;
        pthread_mutex_lock(&c->lock);
        p->cleaned = watermark;
        pthread_mutex_unlock(&c->lock);
    }
    return true;
}

/* Fences are made of Redis's time in µs. */
static int64_t fence_before(int64_t age_s) { return (lw_wall_ms() - age_s * 1000) * 1000; }

/* One slice of a never-ending walk over the fences. Reads first: mostly there is nothing to delete, and no lock to take. */
static void sweep_fences(struct lw_cleaner *c) {
    int64_t before = fence_before(FENCE_AGE_S);
    sqlite3_stmt *st = c->old_fences;
    sqlite3_bind_text(st, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(st, 2, c->fence_at.p ? c->fence_at.p : "", c->fence_at.n, SQLITE_TRANSIENT);
    sqlite3_bind_int64(st, 3, before);
    sqlite3_bind_int(st, 4, SLICE);
    struct lw_buf end = {0};
    int old = 0;
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 1) == SQLITE_BLOB) {
        old = sqlite3_column_int(st, 0);
        lw_buf_add(&end, sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1));
    }
    sqlite3_reset(st);
    if (old) {
        st = c->remove_fences;
        sqlite3_bind_text(st, 1, c->in->app, -1, SQLITE_STATIC);
        sqlite3_bind_blob64(st, 2, c->fence_at.p ? c->fence_at.p : "", c->fence_at.n, SQLITE_TRANSIENT);
        sqlite3_bind_blob64(st, 3, end.p, end.n, SQLITE_TRANSIENT);
        sqlite3_bind_int64(st, 4, before);
        change(c, st);
    }
    lw_buf_free(&c->fence_at);
    c->fence_at = end; /* empty at the end: from the beginning again */
}

static void sweep_replays(struct lw_cleaner *c) {
    sqlite3_bind_text(c->remove_replays, 1, c->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_int64(c->remove_replays, 2, fence_before(REPLAY_AGE_S));
    change(c, c->remove_replays);
}

/* Waits a round's time. False once it is time to end. */
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
    lw_buf_free(&c->fence_at);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->wake);
    free(c);
}

struct lw_cleaner *lw_cleaner_open(const struct lw_insert *in, struct lw_err *err) {
    struct lw_cleaner *c = lw_alloc(sizeof *c);
    c->in = in;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int r = open_store(c, err);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
    if (!r && pthread_create(&c->thread, NULL, run, c)) r = lw_fail(err, "insert: cannot start the cleaner's thread");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!r) return c;
    free_all(c);
    return NULL;
}

void lw_cleaner_passed(struct lw_cleaner *c, const char *topic, int32_t partition, int64_t watermark) {
    char name[288];
    int n = snprintf(name, sizeof name, "%d %s", (int)partition, topic);
    if (n < 0 || (size_t)n >= sizeof name) return; /* longer than Kafka's names are */
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
