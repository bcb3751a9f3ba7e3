/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store for SQLite. Its slots write one after the other. */
#include "handlers/insert/sqlite/sqlite.h"

#include <stdlib.h>

struct lw_store {
    const struct lw_insert *in;
    /* SQLite allows one writer at a time. Slots and cleaner wait for this mutex, because waiting
     * for SQLite's lock would mean polling. */
    pthread_mutex_t writer;
    struct lw_outage outage;
};

struct lw_writer {
    struct lw_store *store;
    struct lw_sqlite db;
};

static void check(const char *path, const char *table, struct lw_problems *problems) {
    if (!path[0])
        lw_problem(problems, "handler.store: sqlite: needs a path, as sqlite:orders.db");
    else if (strcmp(path, ":memory:") == 0)
        lw_problem(problems,
                   "handler.store: workers cannot share a database in memory; give a path");
    if (table && strncmp(table, "sqlite_", 7) == 0)
        lw_problem(problems, "handler.table: names beginning with sqlite_ are taken");
}

static void close_store(struct lw_store *store) {
    pthread_mutex_destroy(&store->writer);
    lw_outage_free(&store->outage);
    free(store);
}

static struct lw_store *open_store(const struct lw_insert *in, struct lw_err *err) {
    /* turn off SQLite's memory statistics, which lock a global mutex at each allocation */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    struct lw_store *store = lw_alloc(sizeof *store);
    store->in = in;
    pthread_mutex_init(&store->writer, NULL);
    lw_outage_init(&store->outage, in->address);
    struct lw_sqlite first = {0};
    if (lw_sqlite_open(&first, in, err) == 0) {
        /* This connection only creates the tables and detects configuration errors at startup. */
        lw_sqlite_close(&first);
        return store;
    }
    close_store(store);
    return NULL;
}

static struct lw_writer *open_writer(struct lw_store *store, struct lw_err *err) {
    struct lw_writer *w = lw_alloc(sizeof *w);
    w->store = store;
    if (lw_sqlite_open(&w->db, store->in, err) == 0) return w;
    free(w);
    return NULL;
}

static void close_writer(struct lw_writer *w) {
    lw_sqlite_close(&w->db);
    free(w);
}

static void write_jobs(struct lw_writer *w, struct lw_job **jobs, size_t n) {
    lw_sqlite_run(w->store->in, &w->db, &w->store->writer, &w->store->outage, jobs, n);
}

static enum lw_health health(struct lw_store *store, char *why, size_t size) {
    return lw_outage_health(&store->outage, why, size);
}

static struct lw_sweeper *open_sweeper(struct lw_store *store, struct lw_err *err) {
    return lw_sqlite_sweeper_open(store->in, &store->writer, err);
}

static const char *const schemes[] = {"sqlite:", NULL};

const struct lw_store_kind lw_store_sqlite = {
    .schemes = schemes,
    .prefix = true,
    .check = check,
    .open = open_store,
    .close = close_store,
    .writer_open = open_writer,
    .writer_close = close_writer,
    .write = write_jobs,
    .health = health,
    .sweeper_open = open_sweeper,
    .sweeper_close = lw_sqlite_sweeper_close,
    .sweep_seen = lw_sqlite_sweep_seen,
    .sweep_old = lw_sqlite_sweep_old,
};
