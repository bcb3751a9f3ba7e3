/* SPDX-License-Identifier: Apache-2.0 */
/* The transaction: many jobs, one commit.
 *
 *     1. read the rows, without a lock
 *     2. BEGIN IMMEDIATE
 *     3. for each job: is it known, stale or bad? if not, write its row
 *     4. write identities and fences
 *     5. if the lease or timeout of a job ended during steps 2 to 4: ROLLBACK, and repeat from 2
 *        without this job
 *     6. COMMIT, and set the outcomes of the jobs */
#include "handlers/insert/sqlite/sqlite.h"

#include "handlers/reason.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* No result code of SQLite is negative. MOVED: the file is no longer at its path. HALF_DONE: a
 * trigger refused a row by RAISE(FAIL), which keeps what it has written so far; only a rollback of
 * the transaction undoes it. */
enum { LEASES_ENDED = -1, MOVED = -2, HALF_DONE = -3 };

/* State of a job inside the transaction. */
enum stand {
    OPEN,    /* the transaction has not processed the job yet */
    WRITTEN, /* the job is done if the commit succeeds */
    /* SETTLED: the job has its outcome (done earlier, dead or given back), which the commit cannot
     * change */
    SETTLED,
};

struct lw_item {
    struct lw_job *job;
    const struct lw_json_value *row; /* the row: an array of n_columns values */
    struct lw_column_set absent;
    struct lw_err *bad; /* why the payload makes no row; NULL: it makes one */
    int64_t replay;
    enum stand stand;
};

struct tx {
    const struct lw_insert *in;
    struct lw_sqlite *s;
    struct lw_outage *outage;
    struct lw_item *items;
    size_t n;
    /* rows of the present attempt, which it adds to the table latchwork_count */
    struct {
        uint64_t inserted, updated, ignored;
    } n_of;
};

static void settle(struct lw_item *it, enum lw_outcome outcome, const char *reason) {
    it->stand = SETTLED;
    lw_job_answer(it->job, outcome, reason);
}

/* --- replays: few, a row each ----------------------------------------------------------------- */

static void bind_replay(const struct tx *t, sqlite3_stmt *st, const struct lw_item *it) {
    sqlite3_bind_text(st, 1, t->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, it->job->topic, -1, SQLITE_STATIC);
    sqlite3_bind_int(st, 3, it->job->partition);
    sqlite3_bind_int64(st, 4, it->job->offset);
    sqlite3_bind_int64(st, 5, it->replay);
}

static bool written_here(const struct tx *t, const struct lw_item *it) {
    for (const struct lw_item *o = t->items; o < it; o++)
        if (o->stand == WRITTEN && strcmp(o->job->identity, it->job->identity) == 0) return true;
    return false;
}

static int replay_known(const struct tx *t, const struct lw_item *it, enum lw_known *known) {
    bind_replay(t, t->s->st[LW_ST_REPLAYED], it);
    int r = lw_sqlite_step(t->s->st[LW_ST_REPLAYED]);
    if (r != SQLITE_ROW && r != SQLITE_DONE) return r;
    *known = r == SQLITE_DONE ? LW_UNKNOWN : written_here(t, it) ? LW_KNOWN_HERE : LW_KNOWN;
    return SQLITE_DONE;
}

static int set_replayed(const struct tx *t, const struct lw_item *it) {
    bind_replay(t, t->s->st[LW_ST_SET_REPLAYED], it);
    sqlite3_bind_int64(t->s->st[LW_ST_SET_REPLAYED], 6, (int64_t)it->job->fence);
    return lw_sqlite_step(t->s->st[LW_ST_SET_REPLAYED]);
}

/* --- one job ---------------------------------------------------------------------------------- */

/* Returns true if the row itself causes the error. */
static bool row_fault(int r) {
    int primary = r & 0xff;
    return primary == SQLITE_CONSTRAINT || primary == SQLITE_MISMATCH || primary == SQLITE_TOOBIG;
}

/* Settles a job whose row is refused: as dead, or as a retry if its parent row may still come. */
static void refuse(struct tx *t, struct lw_item *it, int r, const char *reason) {
    bool waits = r == SQLITE_CONSTRAINT_FOREIGNKEY && t->in->waits_for_parents;
    settle(it, waits ? LW_RETRY : LW_DEAD, reason);
}

static int write_row(struct tx *t, struct lw_item *it) {
    sqlite3_stmt *st = lw_sqlite_row_statement(t->s, &it->absent);
    if (!st) return sqlite3_extended_errcode(t->s->db);
    int64_t last = sqlite3_total_changes64(t->s->db);
    int r = lw_sqlite_bind(t->in, &t->s->reader, it->row, &it->absent, st);
    if (r == SQLITE_OK) r = lw_sqlite_step(st);
    if (row_fault(r) && !sqlite3_get_autocommit(t->s->db)) {
        if (sqlite3_total_changes64(t->s->db) != last) return HALF_DONE;
        char reason[LW_REASON_MAX];
        lw_sqlite_reason(t->s, it->row, r, reason);
        refuse(t, it, r, reason);
        r = SQLITE_DONE;
    } else if (r == SQLITE_DONE) {
        if (sqlite3_total_changes64(t->s->db) == last)
            t->n_of.ignored++;
        else if (t->in->on_conflict == LW_CONFLICT_UPDATE)
            t->n_of.updated++;
        else
            t->n_of.inserted++;
    }
    return r;
}

/* Processes one job. Returns SQLITE_DONE, or the error that ends the transaction. */
static int apply(struct tx *t, struct lw_item *it, int64_t now) {
    if (lw_job_over(it->job, now)) return settle(it, LW_BACK, ""), SQLITE_DONE;
    enum lw_known known = LW_UNKNOWN;
    int r = it->replay ? replay_known(t, it, &known) : lw_seen_get(t->s, it->job, &known);
    if (r != SQLITE_DONE) return r;
    if (known == LW_KNOWN) return settle(it, LW_DONE, ""), SQLITE_DONE;
    /* an earlier job of this transaction has the same message, so both get the same outcome */
    if (known == LW_KNOWN_HERE) return it->stand = WRITTEN, SQLITE_DONE;
    struct lw_fence_key key = lw_fence_key(t->in->app, it->job->key);
    uint64_t fence;
    if ((r = lw_fences_get(t->s, key, &fence)) != SQLITE_DONE) return r;
    if (fence > it->job->fence) return settle(it, LW_BACK, ""), SQLITE_DONE;
    if (it->bad) return settle(it, LW_DEAD, it->bad->text), SQLITE_DONE;
    r = write_row(t, it);
    if (r != SQLITE_DONE || it->stand == SETTLED) return r;
    it->stand = WRITTEN;
    lw_fences_set(t->s, key, it->job->fence);
    return it->replay ? set_replayed(t, it) : lw_seen_set(t->s, it->job);
}

static int add_count(struct tx *t, const char *name, uint64_t n) {
    if (!n) return SQLITE_DONE;
    sqlite3_stmt *st = t->s->st[LW_ST_COUNT];
    sqlite3_bind_text(st, 1, t->in->app, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, (int64_t)n);
    return lw_sqlite_step(st);
}

static int add_counts(struct tx *t) {
    int r = add_count(t, "inserted", t->n_of.inserted);
    if (r == SQLITE_DONE) r = add_count(t, "updated", t->n_of.updated);
    if (r == SQLITE_DONE) r = add_count(t, "ignored", t->n_of.ignored);
    return r;
}

/* Gives back the jobs whose lease or timeout ended during the transaction, because the rows of
 * these jobs must not be committed. Returns true if there are such jobs. */
static bool lost_any(struct tx *t) {
    int64_t now = lw_boot_ms();
    bool any = false;
    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].stand != WRITTEN || !lw_job_over(t->items[i].job, now)) continue;
        settle(&t->items[i], LW_BACK, "");
        any = true;
    }
    return any;
}

static void roll_back(struct tx *t) {
    if (!sqlite3_get_autocommit(t->s->db)) lw_sqlite_step(t->s->st[LW_ST_ROLLBACK]);
    lw_fences_forget(&t->s->fences);
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].stand == WRITTEN) t->items[i].stand = OPEN;
}

/* Returns the time until which to wait for other writers. This is LW_INSERT_BUSY_MS from now, or
 * the time at which the last unsettled job reaches the end of its lease or its timeout, if that is
 * earlier. */
static int64_t patience(const struct tx *t, int64_t now) {
    int64_t last = now;
    for (size_t i = 0; i < t->n; i++) {
        int64_t until = lw_job_end_ms(t->items[i].job);
        if (t->items[i].stand == OPEN && until > last) last = until;
    }
    return last < now + LW_INSERT_BUSY_MS ? last : now + LW_INSERT_BUSY_MS;
}

/* Tries the whole transaction once. Returns SQLITE_DONE if it was committed. Returns LEASES_ENDED
 * if it must be rolled back because the lease or timeout of some jobs ended. The caller can then
 * try the transaction again with the other jobs. */
static int attempt(struct tx *t) {
    int64_t now = lw_boot_ms();
    t->n_of.inserted = t->n_of.updated = t->n_of.ignored = 0;
    if (!lw_sqlite_in_place(t->s)) return MOVED;
    t->s->busy_until_ms = patience(t, now);
    int r = lw_sqlite_step(t->s->st[LW_ST_BEGIN]);
    lw_seen_forget(&t->s->seen);
    if (r == SQLITE_DONE) r = lw_fences_catch_up(t->s);
    now = lw_boot_ms();
    for (size_t i = 0; i < t->n && r == SQLITE_DONE; i++)
        if (t->items[i].stand == OPEN) r = apply(t, &t->items[i], now);
    if (r == SQLITE_DONE) r = lw_seen_write(t->s);
    if (r == SQLITE_DONE) r = lw_fences_write(t->s);
    if (r == SQLITE_DONE) r = add_counts(t);
    if (r == SQLITE_DONE && lost_any(t)) r = LEASES_ENDED;
    if (r == SQLITE_DONE) r = lw_sqlite_step(t->s->st[LW_ST_COMMIT]);
    /* SQLite would go on writing into a file that has been removed. */
    if (r == SQLITE_DONE && !lw_sqlite_in_place(t->s)) r = MOVED;
    return r;
}

/* Gives back all unsettled jobs after the database has failed and no row was written. */
static void give_back(struct tx *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].stand == OPEN) settle(&t->items[i], LW_BACK, "");
}

/* Commits what can be committed of the jobs. Returns SQLITE_DONE, or the error because of which
 * nothing was written; then `why` says what it is, and the unsettled jobs are still OPEN. */
static int commit(struct tx *t, char why[LW_REASON_MAX]) {
    const size_t size = LW_REASON_MAX;
    int r;
    /* the loop ends, because each repetition has at least one job fewer */
    while ((r = attempt(t)) == LEASES_ENDED) roll_back(t);
    if (r == SQLITE_DONE) {
        for (size_t i = 0; i < t->n; i++) {
            if (t->items[i].stand == WRITTEN) settle(&t->items[i], LW_DONE, "");
            lw_outage_answered(t->outage, t->items[i].job->identity);
        }
        return r;
    }
    if (r == MOVED)
        snprintf(why, size,
                 "the database file was removed or replaced; put it back, or restart "
                 "the workers to go on with the file that is there now");
    else if (t->n == 1 && !t->items[0].bad && (row_fault(r) || r == HALF_DONE))
        lw_sqlite_reason(t->s, t->items[0].row, r == HALF_DONE ? SQLITE_CONSTRAINT_TRIGGER : r,
                         why);
    else if (r == HALF_DONE)
        snprintf(why, size, "SQLite: %s", sqlite3_errmsg(t->s->db));
    else
        snprintf(why, size, "SQLite: %s (%s)", sqlite3_errmsg(t->s->db), sqlite3_errstr(r));
    roll_back(t);
    return r;
}

/* Returns true if the error may be due to one of the rows, so that each should be tried by itself.
 * The others concern the whole database. */
static bool may_be_a_row(int r) {
    int primary = r & 0xff;
    if (r == HALF_DONE) return true;
    return r > 0 && primary != SQLITE_BUSY && primary != SQLITE_LOCKED && primary != SQLITE_FULL &&
           primary != SQLITE_IOERR && primary != SQLITE_CANTOPEN && primary != SQLITE_READONLY &&
           primary != SQLITE_CORRUPT && primary != SQLITE_NOTADB;
}

/* Takes note that the database failed, and not because of a row. Waiting for the lock of another
 * program is no outage: each transaction waits for it anyway. */
static void away(struct tx *t, int r, const char *why) {
    int primary = r & 0xff;
    if (r > 0 && (primary == SQLITE_BUSY || primary == SQLITE_LOCKED))
        lw_warn_some(1, "insert: %s: %s; giving its messages back without an attempt",
                     t->in->address, why);
    else
        lw_outage_begin(t->outage, why);
}

/* Runs one job by itself. Returns false if the database seems to be away. */
static bool transact_one(struct tx *t) {
    char why[LW_REASON_MAX];
    int64_t rest_ms;
    int r = commit(t, why);
    struct lw_item *it = &t->items[0];
    if (r == SQLITE_DONE || it->stand != OPEN) return true;
    if (row_fault(r) || r == HALF_DONE) {
        refuse(t, it, r, why);
        return true;
    }
    if (!may_be_a_row(r)) {
        away(t, r, why);
    } else if (lw_outage_failed(t->outage, it->job->identity, why, &rest_ms)) {
        lw_warn_some(20, "insert: %s: %s; message %s counts an attempt", t->in->address, why,
                     it->job->identity);
        settle(it, LW_RETRY, why);
        return true;
    } else {
        it->job->wait_ms = rest_ms;
    }
    return false;
}

static void transact(struct tx *t) {
    char why[LW_REASON_MAX];
    if (lw_outage_pauses(t->outage, lw_boot_ms())) {
        give_back(t);
        return;
    }
    bool single = t->n == 1;
    int r = single ? SQLITE_ERROR : commit(t, why);
    if (r == SQLITE_DONE) return;
    if (!single && !may_be_a_row(r)) {
        away(t, r, why);
        give_back(t);
        return;
    }
    bool works = true;
    for (size_t i = 0; i < t->n && works; i++) {
        struct tx one = *t;
        one.items += i;
        one.n = 1;
        if (one.items->stand == OPEN) works = transact_one(&one);
    }
    give_back(t);
}

/* Refuses a number that a column for numbers would change: SQLite has integers of 64 bits. */
static int check_numbers(const struct lw_sqlite *s, const struct lw_insert *in,
                         const struct lw_json_value *row, struct lw_err *err) {
    int64_t integer;
    double real;
    for (size_t i = 0; i < in->n_columns; i++) {
        const struct lw_column *c = &in->columns[i];
        enum lw_sqlite_holds holds = s->columns[i].holds;
        if (holds == LW_HOLDS_ANYTHING || c->as != LW_AS_IS) continue;
        if ((row[i].kind == LW_JSON_INTEGER && holds == LW_HOLDS_NUMBERS &&
             !lw_json_integer(row[i].raw, &integer)) ||
            (row[i].kind == LW_JSON_REAL && !lw_json_real(row[i].raw, &real)))
            return lw_fail(err,
                           "column \"%s\": the number at %s is out of range; SQLite has integers "
                           "of 64 bits and doubles, and a column of type TEXT keeps all digits",
                           c->name, c->pointer);
    }
    return 0;
}

static void read_row(struct lw_item *it, struct lw_sqlite *s, const struct lw_insert *in,
                     struct lw_json_value *row) {
    struct lw_err bad;
    bad.text[0] = '\0';
    it->row = row;
    it->replay = lw_insert_replay(it->job->identity);
    if (lw_row_read(in, &s->reader, it->job, row, &it->absent, &bad) == 0 &&
        check_numbers(s, in, row, &bad) == 0)
        return;
    it->bad = lw_alloc(sizeof bad);
    memcpy(it->bad->text, bad.text, strlen(bad.text) + 1);
}

/* Allocates the memory that all transactions of this slot reuse. */
static void make_room(struct lw_sqlite *s, const struct lw_insert *in) {
    if (s->items) return;
    s->items = lw_alloc(LW_INSERT_BATCH * sizeof *s->items);
    s->values = lw_alloc(LW_INSERT_BATCH * in->n_columns * sizeof *s->values);
}

void lw_sqlite_run(const struct lw_insert *in, struct lw_sqlite *s, pthread_mutex_t *writer,
                   struct lw_outage *outage, struct lw_job **jobs, size_t n) {
    make_room(s, in);
    struct tx t = {.in = in, .s = s, .outage = outage, .n = n, .items = s->items};
    for (size_t i = 0; i < n; i++) {
        t.items[i] = (struct lw_item){.job = jobs[i]};
        read_row(&t.items[i], s, in, s->values + i * in->n_columns);
    }
    pthread_mutex_lock(writer); /* held for one transaction, whose duration is limited */
    transact(&t);
    pthread_mutex_unlock(writer);
    /* Clear the bound values, because they point into payloads that may be freed after this
     * function returns. */
    for (int i = 0; i < LW_SQLITE_ROWS && s->rows[i].st; i++) sqlite3_clear_bindings(s->rows[i].st);
    for (size_t i = 0; i < n; i++) free(t.items[i].bad);
}
