/* The transaction: many jobs, one commit.
 *
 *     read the rows (no lock held) → BEGIN IMMEDIATE → each: known? stale? bad? write → still ours? → COMMIT → answers
 *                                         ^                                                |
 *                                         +------- ROLLBACK, without those whose lease ended
 */
#include "handlers/insert.h"

#include "handlers/reason.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEASES_ENDED = -1 }; /* beside SQLite's codes, which are not negative */

/* How a job stands inside the transaction. */
enum stand {
    OPEN,    /* to be looked at */
    WRITTEN, /* done once the commit succeeds */
    SETTLED, /* answered whatever the commit does: known, stale, dead, given back */
};

struct item {
    struct lw_job *job;
    struct lw_row row;
    struct lw_err bad; /* why there is no row; "" where there is one */
    enum stand stand;
};

struct tx {
    const struct lw_insert *in;
    struct lw_store *s;
    struct item *items;
    size_t n;
    uint64_t inserted, updated, ignored, known, stale, dead;
};

static struct { _Atomic uint64_t inserted, updated, ignored, known, stale, dead; } counted;

void lw_insert_counts(struct lw_insert_counts *out) {
    *out = (struct lw_insert_counts){
        .inserted = atomic_load(&counted.inserted),
        .updated = atomic_load(&counted.updated),
        .ignored = atomic_load(&counted.ignored),
        .known = atomic_load(&counted.known),
        .stale = atomic_load(&counted.stale),
        .dead = atomic_load(&counted.dead),
    };
}

int64_t lw_insert_replay(const char *identity) {
    const char *mark = strrchr(identity, '#'); /* Kafka allows no '#' in a topic's name */
    return mark ? strtoll(mark + 1, NULL, 10) : 0;
}

static void settle(struct item *it, enum lw_outcome outcome, const char *reason) {
    it->stand = SETTLED;
    lw_job_answer(it->job, outcome, reason);
}

static bool ended(const struct lw_job *job, int64_t now) {
    return atomic_load(&job->lease->cancelled) || now >= atomic_load(&job->lease->deadline_ms) || now >= job->give_up_ms;
}

/* Runs a statement that returns at most one row; resets it. `value` (may be NULL) takes the first column. */
static int step(sqlite3_stmt *st, int64_t *value) {
    int r = sqlite3_step(st);
    if (r == SQLITE_ROW && value) *value = sqlite3_column_int64(st, 0);
    int e = sqlite3_reset(st);
    return e != SQLITE_OK ? e : r;
}

static void bind_identity(const struct tx *t, sqlite3_stmt *st, const struct lw_job *job) {
    sqlite3_bind_text(st, 1, t->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, job->topic, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 3, job->partition);
    sqlite3_bind_int64(st, 4, lw_insert_replay(job->identity));
    sqlite3_bind_int64(st, 5, job->offset);
}

static void bind_key(const struct tx *t, sqlite3_stmt *st, const struct lw_job *job) {
    sqlite3_bind_text(st, 1, t->in->app, -1, SQLITE_STATIC);
    /* a NULL pointer would bind NULL, and an empty key is a key */
    sqlite3_bind_blob64(st, 2, job->key.n ? job->key.p : "", job->key.n, SQLITE_STATIC);
}

/* Errors that are this row's own fault. */
static bool row_fault(int r) {
    int primary = r & 0xff;
    return primary == SQLITE_CONSTRAINT || primary == SQLITE_MISMATCH || primary == SQLITE_TOOBIG;
}

static void refuse(struct tx *t, struct item *it, int r) {
    char why[LW_REASON_MAX];
    bool duplicate = r == SQLITE_CONSTRAINT_PRIMARYKEY || r == SQLITE_CONSTRAINT_UNIQUE || r == SQLITE_CONSTRAINT_ROWID;
    snprintf(why, sizeof why, "%s: %s", duplicate ? "duplicate primary key" : "the table refuses the row", sqlite3_errmsg(t->s->db));
    settle(it, LW_DEAD, why);
    t->dead++;
}

static int write_row(struct tx *t, struct item *it) {
    sqlite3_stmt *st = t->s->st[LW_ST_ROW];
    int64_t last = sqlite3_total_changes64(t->s->db);
    int r = lw_row_bind(t->in, &it->row, st);
    if (r == SQLITE_OK) r = step(st, NULL);
    if (row_fault(r) && !sqlite3_get_autocommit(t->s->db)) {
        refuse(t, it, r);
        r = SQLITE_DONE;
    } else if (r == SQLITE_DONE) {
        if (sqlite3_total_changes64(t->s->db) == last)
            t->ignored++;
        else if (t->in->on_conflict == LW_CONFLICT_UPDATE)
            t->updated++;
        else
            t->inserted++;
    }
    sqlite3_clear_bindings(st); /* they point into the document */
    return r;
}

static int record(struct tx *t, const struct lw_job *job) {
    sqlite3_stmt *st = t->s->st[LW_ST_DONE];
    bind_identity(t, st, job);
    sqlite3_bind_int64(st, 6, (int64_t)job->fence);
    int r = step(st, NULL);
    if (r != SQLITE_DONE) return r;
    st = t->s->st[LW_ST_SET_FENCE];
    bind_key(t, st, job);
    sqlite3_bind_int64(st, 3, (int64_t)job->fence);
    return step(st, NULL);
}

/* One job inside the transaction. Returns SQLITE_DONE, or the error that ends the whole of it. */
static int apply(struct tx *t, struct item *it, int64_t now) {
    if (ended(it->job, now)) return settle(it, LW_BACK, ""), SQLITE_DONE;
    bind_identity(t, t->s->st[LW_ST_KNOWN], it->job);
    int r = step(t->s->st[LW_ST_KNOWN], NULL);
    if (r == SQLITE_ROW) return settle(it, LW_DONE, ""), t->known++, SQLITE_DONE;
    if (r != SQLITE_DONE) return r;
    int64_t fence = 0;
    bind_key(t, t->s->st[LW_ST_FENCE], it->job);
    r = step(t->s->st[LW_ST_FENCE], &fence);
    if (r != SQLITE_ROW && r != SQLITE_DONE) return r;
    if (r == SQLITE_ROW && fence > (int64_t)it->job->fence) return settle(it, LW_BACK, ""), t->stale++, SQLITE_DONE;
    if (it->bad.text[0]) return settle(it, LW_DEAD, it->bad.text), t->dead++, SQLITE_DONE;
    r = write_row(t, it);
    if (r != SQLITE_DONE || it->stand == SETTLED) return r;
    it->stand = WRITTEN;
    return record(t, it->job);
}

static int add_count(struct tx *t, const char *name, uint64_t n) {
    if (!n) return SQLITE_DONE;
    sqlite3_stmt *st = t->s->st[LW_ST_COUNT];
    sqlite3_bind_text(st, 1, t->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, (int64_t)n);
    return step(st, NULL);
}

static int add_counts(struct tx *t) {
    int r = add_count(t, "inserted", t->inserted);
    if (r == SQLITE_DONE) r = add_count(t, "updated", t->updated);
    if (r == SQLITE_DONE) r = add_count(t, "ignored", t->ignored);
    return r;
}

/* Leases that ended while we wrote: their writes must not be committed. True where there are any; they are given back. */
static bool lost_any(struct tx *t) {
    int64_t now = lw_boot_ms();
    bool any = false;
    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].stand != WRITTEN || !ended(t->items[i].job, now)) continue;
        settle(&t->items[i], LW_BACK, "");
        any = true;
    }
    return any;
}

static void roll_back(struct tx *t) {
    if (!sqlite3_get_autocommit(t->s->db)) step(t->s->st[LW_ST_ROLLBACK], NULL);
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].stand == WRITTEN) t->items[i].stand = OPEN;
}

/* Who is still to be written waits for other writers, but not past the last of the leases. */
static int64_t patience(const struct tx *t, int64_t now) {
    int64_t last = now;
    for (size_t i = 0; i < t->n; i++) {
        const struct lw_job *job = t->items[i].job;
        int64_t deadline = atomic_load(&job->lease->deadline_ms);
        int64_t until = deadline < job->give_up_ms ? deadline : job->give_up_ms;
        if (t->items[i].stand == OPEN && until > last) last = until;
    }
    return last < now + LW_INSERT_BUSY_MS ? last : now + LW_INSERT_BUSY_MS;
}

/* One try of the whole transaction. SQLITE_DONE: committed. LEASES_ENDED: rolled back because leases ended; the rest may try again. */
static int attempt(struct tx *t) {
    int64_t now = lw_boot_ms();
    t->inserted = t->updated = t->ignored = 0; /* the others count what is settled, and stays so */
    t->s->busy_until_ms = patience(t, now);
    int r = step(t->s->st[LW_ST_BEGIN], NULL);
    now = lw_boot_ms();
    for (size_t i = 0; i < t->n && r == SQLITE_DONE; i++)
        if (t->items[i].stand == OPEN) r = apply(t, &t->items[i], now);
    if (r == SQLITE_DONE) r = add_counts(t);
    if (r == SQLITE_DONE && lost_any(t)) r = LEASES_ENDED;
    if (r == SQLITE_DONE) r = step(t->s->st[LW_ST_COMMIT], NULL);
    return r;
}

static void add_up(const struct tx *t) {
    atomic_fetch_add(&counted.inserted, t->inserted);
    atomic_fetch_add(&counted.updated, t->updated);
    atomic_fetch_add(&counted.ignored, t->ignored);
    atomic_fetch_add(&counted.known, t->known);
    atomic_fetch_add(&counted.stale, t->stale);
    atomic_fetch_add(&counted.dead, t->dead);
}

/* The database failed: what was not settled yet is tried again, with nothing of it written. */
static void fail_all(struct tx *t, const char *why) {
    char reason[LW_REASON_MAX];
    snprintf(reason, sizeof reason, "SQLite: %s", why);
    lw_warn("insert: %s: %s", t->in->path, reason);
    int64_t now = lw_boot_ms();
    for (size_t i = 0; i < t->n; i++) {
        struct item *it = &t->items[i];
        if (it->stand == OPEN) settle(it, ended(it->job, now) ? LW_BACK : LW_RETRY, ended(it->job, now) ? "" : reason);
    }
}

static void transact(struct tx *t) {
    int r;
    while ((r = attempt(t)) == LEASES_ENDED) roll_back(t); /* each round has at least one job less */
    if (r == SQLITE_DONE) {
        for (size_t i = 0; i < t->n; i++)
            if (t->items[i].stand == WRITTEN) settle(&t->items[i], LW_DONE, "");
        add_up(t);
        return;
    }
    char why[256];
    snprintf(why, sizeof why, "%s (%s)", sqlite3_errmsg(t->s->db), sqlite3_errstr(r));
    roll_back(t);
    add_up(&(struct tx){.known = t->known, .stale = t->stale, .dead = t->dead});
    fail_all(t, why);
}

void lw_insert_run(const struct lw_insert *in, struct lw_store *s, pthread_mutex_t *writer, struct lw_job **jobs, size_t n) {
    struct tx t = {.in = in, .s = s, .n = n, .items = lw_alloc(n * sizeof *t.items)};
    for (size_t i = 0; i < n; i++) {
        t.items[i].job = jobs[i];
        if (lw_row_read(in, jobs[i], &t.items[i].row, &t.items[i].bad) && !t.items[i].bad.text[0]) lw_fail(&t.items[i].bad, "no row");
    }
    pthread_mutex_lock(writer); /* held for one transaction, which bounds itself */
    transact(&t);
    pthread_mutex_unlock(writer);
    for (size_t i = 0; i < n; i++) lw_row_clear(&t.items[i].row);
    free(t.items);
}
