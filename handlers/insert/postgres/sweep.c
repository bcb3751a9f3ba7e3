/* SPDX-License-Identifier: Apache-2.0 */
/* The cleaner's work in PostgreSQL. The cleaner has its own connection, which it makes when there
 * is something to delete. When it deletes fences and the identities of records, it skips rows that
 * other sessions have locked, so it neither waits for these rows nor causes a deadlock. */
#include "handlers/insert/postgres/postgres.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SLICE = 5000, /* maximum number of identities per transaction */
    FENCE_SLICE = 1000,
    WAIT_MS = 5000,
    CLOSING_WAIT_MS = 1000, /* replaces WAIT_MS in the last round, before the worker ends */
    OLD_ROUNDS = 10,        /* number of rounds between two slices of old fences */
    REPLAY_ROUNDS = 60, /* number of rounds between two searches for old identities of replays */
};

struct lw_sweeper {
    struct lw_store *store;
    struct lw_pg pg;
    /* The partition whose identities are being deleted. All identities below `from` are already
     * deleted. If `from` is -1, no partition is being cleaned. */
    char topic[256];
    int32_t partition;
    int64_t from;
    /* `fence_at`: the next slice of fences is behind this hash, as text of a bytea */
    char fence_at[2 * sizeof(struct lw_fence_key) + 3];
};

struct lw_sweeper *lw_pg_sweeper_open(struct lw_store *store, struct lw_err *err) {
    (void)err;
    struct lw_sweeper *w = lw_alloc(sizeof *w);
    *w = (struct lw_sweeper){.store = store, .pg.in = store->in, .from = -1, .fence_at = "\\x"};
    return w;
}

void lw_pg_sweeper_close(struct lw_sweeper *w) {
    lw_pg_close(&w->pg);
    free(w);
}

/* Runs a statement. Returns NULL if the statement must be repeated later. */
static PGresult *ask(struct lw_sweeper *w, const char *sql, int n, const char *const *values,
                     int64_t wait_ms) {
    struct lw_pg_error error;
    struct lw_pg_wait wait = {.until_ms = lw_boot_ms() + wait_ms};
    /* The cleaner sends nothing during a pause. Its results neither begin nor end a pause, because
     * only the slots test whether the server works. */
    if (lw_outage_pauses(&w->store->outage, lw_boot_ms())) return NULL;
    PGresult *result = lw_pg_connect(&w->pg, &wait, &error)
                           ? NULL
                           : lw_pg_query(&w->pg, sql, n, values, &wait, &error);
    if (!result)
        lw_debug("insert: %s: clean-up failed: %s; retrying later", w->store->name, error.text);
    return result;
}

static int64_t number_at(const PGresult *result, int column) {
    return PQntuples(result) ? strtoll(PQgetvalue(result, 0, column), NULL, 10) : 0;
}

enum lw_swept lw_pg_sweep_seen(struct lw_sweeper *w, const struct lw_sweep *what) {
    static const char sql[] = "WITH old AS MATERIALIZED (SELECT ctid FROM latchwork_seen WHERE app "
                              "= $1 AND topic = $2 AND partition = $3"
                              " AND \"offset\" >= $4 AND \"offset\" < $5 AND replay = 0 ORDER BY "
                              "\"offset\" LIMIT $6 FOR UPDATE SKIP LOCKED),"
                              " gone AS (DELETE FROM latchwork_seen WHERE ctid = ANY(ARRAY(SELECT "
                              "ctid FROM old)) RETURNING \"offset\")"
                              " SELECT count(*), max(\"offset\") FROM gone";
    char partition[16], from[32], watermark[32], slice[16];
    bool goes_on =
        w->from >= 0 && w->partition == what->partition && strcmp(w->topic, what->topic) == 0;
    int64_t begin = goes_on ? w->from : what->cleaned < 0 ? 0 : what->cleaned;
    snprintf(partition, sizeof partition, "%d", (int)what->partition);
    snprintf(from, sizeof from, "%" PRId64, begin);
    snprintf(watermark, sizeof watermark, "%" PRId64, what->watermark);
    snprintf(slice, sizeof slice, "%d", SLICE);
    const char *values[] = {w->store->in->app, what->topic, partition, from, watermark, slice};
    PGresult *result = ask(w, sql, 6, values, what->closing ? CLOSING_WAIT_MS : WAIT_MS);
    bool more = result && number_at(result, 0) == SLICE;
    snprintf(w->topic, sizeof w->topic, "%s", what->topic);
    w->partition = what->partition;
    /* The next slice begins after the last deleted identity, so that it skips the index entries of
     * deleted rows. */
    w->from = more ? number_at(result, 1) + 1 : -1;
    PQclear(result);
    return more ? LW_SWEPT_SLICE : result ? LW_SWEPT_ALL : LW_SWEPT_LATER;
}

/* Deletes the old fences in the next slice of the table. After the last slice, the first slice is
 * next. */
static void sweep_fences(struct lw_sweeper *w) {
    static const char sql[] =
        "WITH slice AS MATERIALIZED (SELECT hash, fence FROM latchwork_fences "
        "WHERE hash > $1::bytea ORDER BY hash LIMIT $3),"
        " old AS MATERIALIZED (SELECT o.hash FROM latchwork_fences AS o JOIN "
        "slice USING (hash) WHERE o.fence < $2 ORDER BY o.hash"
        " FOR UPDATE OF o SKIP LOCKED),"
        " gone AS (DELETE FROM latchwork_fences WHERE hash = ANY(ARRAY(SELECT "
        "hash FROM old)) AND fence < $2)"
        " SELECT count(*), encode((SELECT hash FROM slice ORDER BY hash DESC "
        "LIMIT 1), 'hex') FROM slice";
    char before[32], slice[16];
    snprintf(before, sizeof before, "%" PRId64, lw_insert_fence_before(LW_FENCE_AGE_S));
    snprintf(slice, sizeof slice, "%d", FENCE_SLICE);
    const char *values[] = {w->fence_at, before, slice};
    PGresult *result = ask(w, sql, 3, values, WAIT_MS);
    if (!result) return;
    /* after the last key, start again at the first */
    snprintf(w->fence_at, sizeof w->fence_at, "\\x%s",
             number_at(result, 0) < FENCE_SLICE ? "" : PQgetvalue(result, 0, 1));
    PQclear(result);
}

static void sweep_replays(struct lw_sweeper *w) {
    static const char sql[] =
        "DELETE FROM latchwork_seen WHERE app = $1 AND fence < $2 AND replay > 0";
    char before[32];
    snprintf(before, sizeof before, "%" PRId64, lw_insert_fence_before(LW_REPLAY_AGE_S));
    const char *values[] = {w->store->in->app, before};
    PQclear(ask(w, sql, 2, values, WAIT_MS));
}

void lw_pg_sweep_old(struct lw_sweeper *w, unsigned round) {
    if (round % OLD_ROUNDS == 0) sweep_fences(w);
    if (round % REPLAY_ROUNDS == 0) sweep_replays(w);
}
