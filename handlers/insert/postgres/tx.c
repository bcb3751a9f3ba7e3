/* SPDX-License-Identifier: Apache-2.0 */
/* The transaction: many jobs, one statement.
 *
 *     1. read the rows
 *     2. choose jobs of different keys, up to a number of bytes; put their values into arrays
 *     3. run the statement; if a row causes an error, run the statement for each half of the jobs
 *     4. set the outcomes of the jobs according to the result of the statement
 *     5. repeat from 2 with the remaining jobs */
#include "handlers/insert/postgres/postgres.h"

#include "base/clock.h"
#include "base/log.h"
#include "handlers/reason.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    /* SET_BYTES is the maximum total size in bytes of the payloads of a statement; a larger
     * message runs alone */
    SET_BYTES = 8 << 20,
    /* AGAIN_TIMES is the maximum number of repetitions after a deadlock or a serialization
     * failure */
    AGAIN_TIMES = 10,
    /* The pause before the n-th repetition of a statement is n times AGAIN_MS. */
    AGAIN_MS = 5,
    REASON_MS = 1000, /* maximum time for a question about a constraint */
    PARTS = 64,       /* number of parts into which latchwork_count is divided */
};

struct item {
    struct lw_job *job;
    /* `twin` is an earlier job of the batch for the same message, whose outcome this job shares;
     * NULL: none */
    const struct item *twin;
    const struct lw_json_value *row; /* the row: an array of n_columns values */
    struct lw_column_set absent;
    char *bad; /* why the payload makes no valid row; owned; NULL: it makes one */
    struct lw_fence_key key;
    int64_t replay;
    bool settled, chosen;
    /* its statement runs without its row, and it is tried again if it is neither known nor stale:
     * to find out whether the row is at fault, or because its parent row may still come */
    bool probed;
};

struct lw_writer {
    struct lw_store *store;
    struct lw_pg pg;
    struct lw_reader reader;
    struct item *items; /* jobs of the current batch, with room for LW_INSERT_BATCH */
    struct item **set;  /* jobs of one statement */
    struct lw_json_value *values;
    struct lw_column_set absent; /* the columns that `sql` leaves out */
    char *sql;                   /* the last statement that was made; owned; NULL: none */
    struct lw_buf *arrays;       /* texts of the arrays, one per parameter from LW_PG_P_KEYS on */
    const char **params;
    char lock_ms[16], part[16];
};

struct lw_writer *lw_pg_writer_open(struct lw_store *store, struct lw_err *err) {
    (void)err; /* the first transaction makes the connection */
    const struct lw_insert *in = store->in;
    struct lw_writer *w = lw_alloc(sizeof *w);
    w->store = store;
    w->pg.in = in;
    lw_reader_init(&w->reader, in);
    w->items = lw_alloc(LW_INSERT_BATCH * sizeof *w->items);
    w->set = lw_alloc(LW_INSERT_BATCH * sizeof(struct item *));
    w->values = lw_alloc(LW_INSERT_BATCH * in->n_columns * sizeof *w->values);
    w->arrays = lw_alloc((LW_PG_P_COLUMNS + in->n_columns) * sizeof *w->arrays);
    w->params = lw_alloc((LW_PG_P_COLUMNS + in->n_columns) * sizeof(char *));
    unsigned number = atomic_fetch_add(&store->writers, 1);
    snprintf(w->part, sizeof w->part, "%u", ((unsigned)getpid() + number) % PARTS);
    return w;
}

void lw_pg_writer_close(struct lw_writer *w) {
    lw_pg_close(&w->pg);
    lw_reader_free(&w->reader);
    for (size_t i = 0; i < LW_PG_P_COLUMNS + w->store->in->n_columns; i++)
        lw_buf_free(&w->arrays[i]);
    free(w->arrays);
    free(w->params);
    free(w->sql);
    free(w->items);
    free(w->set);
    free(w->values);
    free(w);
}

static void settle(struct item *it, enum lw_outcome outcome, const char *reason) {
    it->settled = true;
    lw_job_answer(it->job, outcome, reason);
}

static void give_back(struct item **set, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!set[i]->settled) settle(set[i], LW_BACK, "");
}

/* --- reading ---------------------------------------------------------------------------------- */

static void set_bad(struct item *it, const char *why) {
    free(it->bad);
    it->bad = lw_strdup(why);
}

/* Refuses a row with a NUL character in a text, which PostgreSQL cannot store. In a JSON column,
 * the server refuses the NUL itself. */
static void check_texts(struct lw_writer *w, struct item *it) {
    const struct lw_insert *in = w->store->in;
    for (size_t i = 0; i < in->n_columns; i++) {
        const struct lw_json_value *v = &it->row[i];
        char why[LW_REASON_MAX];
        if (!lw_array_has_nul(w->store->table.columns[i].form, v, &w->reader.scratch)) continue;
        snprintf(
            why, sizeof why,
            "column \"%s\": the text contains a NUL (\\u0000), which PostgreSQL does not store",
            in->columns[i].name);
        set_bad(it, why);
        return;
    }
}

static void read_item(struct lw_writer *w, struct item *it, struct lw_job *job,
                      struct lw_json_value *row) {
    struct lw_err bad = {.text = ""};
    *it = (struct item){.job = job,
                        .row = row,
                        .replay = lw_insert_replay(job->identity),
                        .key = lw_fence_key(w->store->in->app, job->key)};
    if (lw_row_read(w->store->in, &w->reader, job, row, &it->absent, &bad))
        set_bad(it, bad.text);
    else
        check_texts(w, it);
    for (const struct item *o = w->items; o < it && !it->twin; o++)
        if (lw_fence_key_same(o->key, it->key) && !o->twin &&
            strcmp(o->job->identity, job->identity) == 0)
            it->twin = o;
}

/* --- the set of one statement ----------------------------------------------------------------- */

/* Returns true if an earlier job of the same key is not settled. */
static bool waits(const struct lw_writer *w, const struct item *it) {
    for (const struct item *o = w->items; o < it; o++)
        if (!o->settled && !o->twin && lw_fence_key_same(o->key, it->key)) return true;
    return false;
}

/* Chooses jobs of different keys for one statement: the first unsettled job of each key, if it has
 * the same absent columns as the first chosen job. Stops before the payloads of the chosen jobs
 * exceed SET_BYTES in all; the first chosen job may be larger. Returns the number of chosen
 * jobs. */
static size_t choose(struct lw_writer *w, size_t n) {
    size_t chosen = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        struct item *it = &w->items[i];
        if (it->settled || it->twin || waits(w, it)) continue;
        if (chosen && !lw_same_set(&w->set[0]->absent, &it->absent)) continue;
        if (chosen && bytes + it->job->payload.n > SET_BYTES) break;
        bytes += it->job->payload.n;
        w->set[chosen++] = it;
    }
    return chosen;
}

static void begin_arrays(struct lw_writer *w) {
    for (size_t i = LW_PG_P_KEYS; i < LW_PG_P_COLUMNS + w->store->in->n_columns; i++)
        lw_array_begin(&w->arrays[i]);
}

static void add_row(struct lw_writer *w, const struct item *it) {
    for (size_t i = 0; i < w->store->in->n_columns; i++) {
        struct lw_buf *a = &w->arrays[LW_PG_P_COLUMNS + i];
        if (it->bad) {
            lw_array_null(a);
        } else {
            char time[LW_TIME_TEXT];
            struct lw_json_value v = lw_row_value(&w->store->in->columns[i], &it->row[i], time);
            lw_array_value(a, w->store->table.columns[i].form, &v, &w->reader.scratch);
        }
    }
}

static void add_item(struct lw_writer *w, const struct item *it) {
    struct lw_buf *a = w->arrays;
    lw_array_bytes(&a[LW_PG_P_KEYS], &it->key, sizeof it->key);
    lw_array_integer(&a[LW_PG_P_FENCES], (int64_t)it->job->fence);
    lw_array_text(&a[LW_PG_P_TOPICS], lw_bytes_of(it->job->topic));
    lw_array_integer(&a[LW_PG_P_PARTITIONS], it->job->partition);
    lw_array_integer(&a[LW_PG_P_OFFSETS], it->job->offset);
    lw_array_integer(&a[LW_PG_P_REPLAYS], it->replay);
    lw_array_bool(&a[LW_PG_P_BAD], it->bad != NULL);
    add_row(w, it);
}

/* Returns the size of the parameters in bytes. */
static size_t fill_params(struct lw_writer *w, struct item **set, size_t n, int64_t patience_ms) {
    size_t size = 0;
    begin_arrays(w);
    for (size_t i = 0; i < n; i++) add_item(w, set[i]);
    for (size_t i = LW_PG_P_KEYS; i < LW_PG_P_COLUMNS + w->store->in->n_columns; i++) {
        lw_array_end(&w->arrays[i]);
        w->params[i] = w->arrays[i].p;
        size += w->arrays[i].n;
    }
    /* The server's lock timeout is shorter than the worker's wait, so that the server can still
     * report that the lock was the problem. */
    snprintf(w->lock_ms, sizeof w->lock_ms, "%d", (int)(patience_ms * 4 / 5) + 1);
    w->params[LW_PG_P_APP] = w->store->in->app;
    w->params[LW_PG_P_LOCK_MS] = w->lock_ms;
    w->params[LW_PG_P_PART] = w->part;
    return size;
}

/* --- one statement ---------------------------------------------------------------------------- */

struct set {
    struct item **items;
    size_t n;
};

/* Returns true if for every job of the set, the lease has ended or the timeout has passed. Then
 * nobody needs the server's answer to the statement any more. */
static bool all_ended(void *ctx) {
    const struct set *set = ctx;
    int64_t now = lw_boot_ms();
    for (size_t i = 0; i < set->n; i++)
        if (!lw_job_over(set->items[i]->job, now)) return false;
    return true;
}

/* Gives back the jobs whose lease or timeout has ended. Returns the number of remaining jobs, which
 * keep their order. Sets *patience_ms to the time that the statement may wait for locks. */
static size_t drop_ended(struct item **set, size_t n, int64_t *patience_ms) {
    int64_t now = lw_boot_ms();
    size_t left = 0;
    *patience_ms = 0;
    for (size_t i = 0; i < n; i++) {
        struct item *it = set[i];
        if (lw_job_over(it->job, now)) {
            settle(it, LW_BACK, "");
            continue;
        }
        int64_t end = lw_job_end_ms(it->job) - now;
        if (end > *patience_ms) *patience_ms = end < LW_INSERT_BUSY_MS ? end : LW_INSERT_BUSY_MS;
        set[left++] = it;
    }
    return left;
}

static void apply_fate(struct lw_writer *w, struct item *it, enum lw_pg_fate fate) {
    char why[LW_REASON_MAX];
    struct lw_column_set key;
    switch (fate) {
    case LW_PG_WRITTEN:
    case LW_PG_KNOWN: settle(it, LW_DONE, ""); break;
    case LW_PG_STALE: settle(it, LW_BACK, ""); break;
    case LW_PG_BAD: settle(it, it->probed ? LW_RETRY : LW_DEAD, it->bad ? it->bad : ""); break;
    case LW_PG_DUPLICATE:
        key = lw_row_key(w->store->in);
        lw_row_blame(w->store->in, it->row, &key, "duplicate primary key", "", why);
        settle(it, LW_DEAD, why);
        break;
    }
}

/* Sets the outcomes of the jobs according to the result. Returns false if the result does not have
 * one letter per job. */
static bool apply(struct lw_writer *w, struct item **set, size_t n, const PGresult *result) {
    if (PQntuples(result) != 1 || PQnfields(result) != 2 || (size_t)PQgetlength(result, 0, 0) != n)
        return false;
    const char *fates = PQgetvalue(result, 0, 0);
    for (size_t i = 0; i < n; i++) {
        apply_fate(w, set[i], (enum lw_pg_fate)fates[i]);
        lw_outage_answered(&w->store->outage, set[i]->job->identity);
    }
    return true;
}

/* Returns the text of the statement for rows without the absent columns. */
static const char *statement(struct lw_writer *w, const struct lw_column_set *absent) {
    static const struct lw_column_set none;
    if (lw_same_set(absent, &none)) return w->store->table.sql;
    if (w->sql && lw_same_set(absent, &w->absent)) return w->sql;
    free(w->sql);
    w->absent = *absent;
    w->sql = lw_pg_statement(w->store->in, &w->store->table, absent);
    return w->sql;
}

/* Connects if necessary, and runs the statement for a set of jobs. */
static void run_once(struct lw_writer *w, struct item **set, size_t n, int64_t patience_ms,
                     struct lw_pg_error *error) {
    struct set ctx = {set, n};
    struct lw_pg_wait wait = {lw_boot_ms() + LW_INSERT_BUSY_MS, all_ended, &ctx};
    if (lw_pg_connect(&w->pg, &wait, error)) return;
    /* A statement gets 1 ms more for each KB, because a server or a network that is merely slow
     * would otherwise never take a large row. What ends with its lease ends by all_ended(). */
    size_t size = fill_params(w, set, n, patience_ms);
    wait.until_ms = lw_boot_ms() + LW_INSERT_BUSY_MS + (int64_t)size / 1000;
    PGresult *result =
        lw_pg_query(&w->pg, statement(w, &set[0]->absent),
                    (int)(LW_PG_P_COLUMNS + w->store->in->n_columns), w->params, &wait, error);
    if (result && !apply(w, set, n, result)) {
        *error = (struct lw_pg_error){.class = LW_PG_UNKNOWN};
        snprintf(error->text, sizeof error->text,
                 "the statement did not return one letter per message");
    }
    PQclear(result);
}

/* --- errors ----------------------------------------------------------------------------------- */

static void run_set(struct lw_writer *w, struct item **set, size_t n);

static void run_halves(struct lw_writer *w, struct item **set, size_t n) {
    run_set(w, set, n / 2);
    run_set(w, set + n / 2, n - n / 2);
}

/* Handles an error that a row has caused. A set of several jobs is run in halves. A single job is
 * repeated without its row. The statement then only reports whether the message is known or stale,
 * in which case the bad row does not matter. Returns true if the set must run again. */
static bool blame_row(struct lw_writer *w, struct item **set, size_t n,
                      const struct lw_pg_error *error) {
    if (n > 1) {
        run_halves(w, set, n);
        return false;
    }
    char why[LW_REASON_MAX];
    if (set[0]->bad) { /* the statement failed without the row, so the row was not the cause */
        snprintf(why, sizeof why, "PostgreSQL: %s", error->text);
        settle(set[0], LW_RETRY, why);
        return false;
    }
    struct lw_pg_wait wait = {lw_boot_ms() + REASON_MS, NULL, NULL};
    lw_pg_reason(&w->pg, &w->store->table, set[0]->row, error, &wait, why);
    set_bad(set[0], why);
    set[0]->probed =
        w->store->in->waits_for_parents && strcmp(error->state, "23503") == 0; /* a retry */
    return true;
}

/* Runs the statement of a message without its row. If it succeeds, the table and the server work,
 * and it was the row: the message counts an attempt, unless it is known or stale. Returns false if
 * the statement fails without the row, too. */
static bool probe(struct lw_writer *w, struct item *it, const char *why) {
    int64_t patience_ms;
    struct lw_pg_error error;
    struct item *set[] = {it};
    if (!drop_ended(set, 1, &patience_ms)) return true;
    set_bad(it, why);
    it->probed = true;
    run_once(w, set, 1, patience_ms, &error);
    if (it->settled) return true;
    it->probed = false;
    free(it->bad);
    it->bad = NULL;
    return false;
}

/* Handles an error that does not say whether the row or the table is at fault. A set is run in
 * halves, until one message is alone. If its statement fails without its row, too, the store counts
 * as away, and the other halves are given back with it. */
static void blame_unknown(struct lw_writer *w, struct item **set, size_t n,
                          const struct lw_pg_error *error) {
    if (n > 1) {
        run_halves(w, set, n);
        return;
    }
    char why[LW_REASON_MAX];
    int64_t rest_ms;
    struct item *it = set[0];
    if (it->bad)
        snprintf(why, sizeof why, "PostgreSQL: %s", error->text);
    else
        lw_row_blame(w->store->in, it->row, &(struct lw_column_set){0}, "PostgreSQL", error->text,
                     why);
    if (!it->bad && probe(w, it, why)) {
        lw_warn_some(20, "insert: %s: %s; message %s counts an attempt", w->store->name,
                     error->text, it->job->identity);
        return;
    }
    if (lw_outage_failed(&w->store->outage, it->job->identity, error->text, &rest_ms)) {
        settle(it, LW_RETRY, why);
        return;
    }
    give_back(set, n);
    it->job->wait_ms = rest_ms;
}

/* Gives back messages that wait for others: for a lock, or after repeated deadlocks or
 * serialization failures. The server's text says which. */
static void give_back_busy(struct lw_writer *w, struct item **set, size_t n,
                           const struct lw_pg_error *error) {
    lw_warn_some(6, "insert: %s: gave %zu messages back without an attempt: %s", w->store->name, n,
                 error->text);
    give_back(set, n);
}

static void give_back_away(struct lw_writer *w, struct item **set, size_t n,
                           const struct lw_pg_error *error) {
    lw_outage_begin(&w->store->outage, error->text);
    give_back(set, n);
}

/* Runs the statement for a set of jobs until all of them are settled. */
static void run_set(struct lw_writer *w, struct item **set, size_t n) {
    bool reconnected = false;
    int again = 0;
    for (;;) {
        int64_t patience_ms;
        struct lw_pg_error error;
        n = drop_ended(set, n, &patience_ms);
        if (!n) return;
        bool connected = w->pg.conn != NULL;
        if (lw_outage_pauses(&w->store->outage, lw_boot_ms())) return give_back(set, n);
        run_once(w, set, n, patience_ms, &error);
        if (error.class != LW_PG_AWAY && error.class != LW_PG_OVER && error.class != LW_PG_UNKNOWN)
            lw_outage_end(&w->store->outage);
        switch (error.class) {
        case LW_PG_OK: return;
        case LW_PG_OVER: return give_back(set, n);
        case LW_PG_BUSY: return give_back_busy(w, set, n, &error);
        case LW_PG_UNKNOWN: return blame_unknown(w, set, n, &error);
        case LW_PG_ROW:
            if (!blame_row(w, set, n, &error)) return;
            break;
        case LW_PG_AGAIN:
            if (++again > AGAIN_TIMES && n > 1) return run_halves(w, set, n);
            if (again > AGAIN_TIMES) return give_back_busy(w, set, n, &error);
            lw_sleep_ms(again * AGAIN_MS);
            break;
        /* A connection may break while the server works, so try once more with a new connection. */
        case LW_PG_AWAY:
            if (!connected || reconnected || w->pg.conn) return give_back_away(w, set, n, &error);
            lw_info("insert: %s: %s; reconnecting", w->store->name, error.text);
            reconnected = true;
            break;
        }
    }
}

/* --- the batch -------------------------------------------------------------------------------- */

static void answer_twins(struct lw_writer *w, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (w->items[i].twin)
            settle(&w->items[i], w->items[i].twin->job->outcome, w->items[i].twin->job->reason);
}

void lw_pg_write(struct lw_writer *w, struct lw_job **jobs, size_t n) {
    for (size_t i = 0; i < n; i++)
        read_item(w, &w->items[i], jobs[i], w->values + i * w->store->in->n_columns);
    /* the loop ends, because run_set() settles every job of a set */
    for (size_t chosen; (chosen = choose(w, n));) run_set(w, w->set, chosen);
    answer_twins(w, n);
    for (size_t i = 0; i < n; i++) free(w->items[i].bad);
}
