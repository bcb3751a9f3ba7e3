/* SPDX-License-Identifier: Apache-2.0 */
/* The kind of store for PostgreSQL. */
#include "handlers/insert/postgres/postgres.h"

#include <stdlib.h>

static void check(const char *url, const char *table, struct lw_problems *problems) {
    lw_pg_check_url(url, problems);
    const char *dot = table ? strchr(table, '.') : NULL;
    if (dot && (dot == table || !dot[1] || strchr(dot + 1, '.')))
        lw_problem(problems, "handler.table: must be TABLE or SCHEMA.TABLE");
    else if (dot && strncmp(dot + 1, "latchwork_", 10) == 0)
        lw_problem(problems, "handler.table: names beginning with latchwork_ are taken");
}

static void close_store(struct lw_store *store) {
    lw_pg_table_close(&store->table, store->in->n_columns);
    lw_outage_free(&store->outage);
    free(store);
}

static struct lw_store *open_store(const struct lw_insert *in, struct lw_err *err) {
    struct lw_store *store = lw_alloc(sizeof *store);
    store->in = in;
    lw_pg_name(in->address, store->name, sizeof store->name);
    lw_outage_init(&store->outage, store->name);
    struct lw_pg pg = {.in = in};
    int r = lw_pg_table_open(&store->table, &pg, err);
    lw_pg_close(&pg);
    if (!r) return store;
    close_store(store);
    return NULL;
}

static enum lw_health health(struct lw_store *store, char *why, size_t size) {
    return lw_outage_health(&store->outage, why, size);
}

static const char *const schemes[] = {"postgres://", "postgresql://", NULL};

const struct lw_store_kind lw_store_postgres = {
    .schemes = schemes,
    .check = check,
    .open = open_store,
    .close = close_store,
    .writer_open = lw_pg_writer_open,
    .writer_close = lw_pg_writer_close,
    .write = lw_pg_write,
    .health = health,
    .sweeper_open = lw_pg_sweeper_open,
    .sweeper_close = lw_pg_sweeper_close,
    .sweep_seen = lw_pg_sweep_seen,
    .sweep_old = lw_pg_sweep_old,
};
