/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the upper limit of an insert that ignores duplicates: one thread writes rows in
 * transactions into a database that is opened in the same way as by the insert handler. */
#include "bench/limits/tool.h"

#include "base/bytes.h"
#include "handlers/insert/sqlite/sqlite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char about[] = "usage: sqlite --store FILE [--rows FILE | --messages N] [options]\n"
                            "Writes rows (id primary key, amount) into a new database; rows whose "
                            "id is there are ignored. Prints {\"messages\", \"rows\" "
                            "(without\n"
                            "duplicates), \"first_us\", \"last_us\" (before the first transaction, "
                            "after the last commit), \"own_cpu_us\" a message}.\n\n";

enum { ID_MAX = 64 };

struct row {
    char id[ID_MAX];
    int64_t amount;
};

struct rows {
    struct row *row;
    int64_t n, cap;
};

static struct row *add(struct rows *rows) {
    if (rows->n == rows->cap) {
        rows->cap = rows->cap ? 2 * rows->cap : 65536;
        rows->row = lw_realloc(rows->row, (size_t)rows->cap * sizeof *rows->row);
    }
    return &rows->row[rows->n++];
}

/* Generates rows. A duplicate repeats the id of an earlier row, chosen uniformly. */
static void generate(struct rows *rows, int64_t messages, int64_t duplicates, uint64_t random) {
    for (int64_t i = 0, fresh = 0; i < messages; i++) {
        bool again = fresh && tool_draw(&random) % 100 < (uint64_t)duplicates;
        int64_t id = again ? (int64_t)(tool_draw(&random) % (uint64_t)fresh) : fresh++;
        struct row *r = add(rows);
        snprintf(r->id, sizeof r->id, "o-%" PRId64, id);
        r->amount = (int64_t)(tool_draw(&random) % 10000);
    }
}

static void read_rows(struct rows *rows, const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) tool_die("%s: %s", path, strerror(errno));
    char line[ID_MAX + 32];
    while (fgets(line, sizeof line, f)) {
        struct row *r = add(rows);
        if (sscanf(line, "%63s %" SCNd64, r->id, &r->amount) != 2)
            tool_die("%s: line %" PRId64 " is not \"ID AMOUNT\"", path, rows->n);
    }
    fclose(f);
    if (!rows->n) tool_die("%s: no rows", path);
}

static void run(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        tool_die("%s: %s", sql, sqlite3_errmsg(db));
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql) {
    sqlite3_stmt *st;
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL) != SQLITE_OK)
        tool_die("%s: %s", sql, sqlite3_errmsg(db));
    return st;
}

static void step(sqlite3 *db, sqlite3_stmt *st) {
    sqlite3_step(st);
    if (sqlite3_reset(st) != SQLITE_OK) tool_die("%s: %s", sqlite3_sql(st), sqlite3_errmsg(db));
}

static void write_all(sqlite3 *db, const struct rows *rows, int64_t batch) {
    sqlite3_stmt *begin = prepare(db, "BEGIN IMMEDIATE"), *commit = prepare(db, "COMMIT");
    sqlite3_stmt *insert = prepare(db, "INSERT OR IGNORE INTO orders(id, amount) VALUES (?, ?)");
    for (int64_t i = 0; i < rows->n; i++) {
        if (i % batch == 0) step(db, begin);
        sqlite3_bind_text(insert, 1, rows->row[i].id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 2, rows->row[i].amount);
        step(db, insert);
        if (i % batch == batch - 1 || i == rows->n - 1) step(db, commit);
    }
    sqlite3_finalize(begin);
    sqlite3_finalize(commit);
    sqlite3_finalize(insert);
}

static int64_t count(sqlite3 *db) {
    sqlite3_stmt *st = prepare(db, "SELECT count(*) FROM orders");
    if (sqlite3_step(st) != SQLITE_ROW) tool_die("count: %s", sqlite3_errmsg(db));
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct row *)a)->id, ((const struct row *)b)->id);
}

/* Sorts the rows by id and returns the number of different ids. */
static int64_t count_ids(struct rows *rows) {
    if (!rows->n) return 0;
    qsort(rows->row, (size_t)rows->n, sizeof *rows->row, by_id);
    int64_t n = 0;
    for (int64_t i = 0; i < rows->n; i++)
        n += !i || strcmp(rows->row[i - 1].id, rows->row[i].id) != 0;
    return n;
}

int main(int argc, char **argv) {
    const char *path = NULL, *from = "";
    int64_t messages = 0, batch = LW_INSERT_BATCH, duplicates = 10, seed = 1;
    const struct tool_option options[] = {
        {"store", "the database, a file that does not exist yet", &path, NULL, 0, 0},
        {"rows", "lines \"ID AMOUNT\" to write, read before the clock starts", &from, NULL, 0, 0},
        {"messages", "or so many made here", NULL, &messages, 0, 100000000},
        {"duplicates", "percent of them", NULL, &duplicates, 0, 99},
        {"seed", "of what is made", NULL, &seed, 0, INT64_MAX},
        {"batch", "rows a transaction", NULL, &batch, 1, 1000000},
    };
    tool_options(argc, argv, about, options, sizeof options / sizeof *options);
    if (!*from == !messages) tool_die("give either --rows or --messages");
    struct rows rows = {0};
    if (*from)
        read_rows(&rows, from);
    else
        generate(&rows, messages, duplicates, (uint64_t)seed);
    if (access(path, F_OK) == 0)
        tool_die("%s is there already; a limit is measured from an empty table", path);
    struct lw_sqlite store;
    struct lw_err err = {0};
    if (lw_sqlite_connect(&store, path, &err)) tool_die("%s", err.text);
    /* The table is the same as the table that handler.create makes. */
    run(store.db, "CREATE TABLE orders(id NOT NULL, amount, PRIMARY KEY(id))");
    int64_t cpu_us = tool_own_cpu_us(), first_us = tool_now_us();
    write_all(store.db, &rows, batch);
    int64_t last_us = tool_now_us();
    cpu_us = tool_own_cpu_us() - cpu_us;
    int64_t there = count(store.db), ids = count_ids(&rows);
    lw_sqlite_close(&store);
    if (there != ids) tool_die("%s holds %" PRId64 " rows, not %" PRId64, path, there, ids);
    printf("{\"messages\":%" PRId64 ",\"rows\":%" PRId64 ",\"first_us\":%" PRId64
           ",\"last_us\":%" PRId64 ",\"own_cpu_us\":%.3f}\n",
           rows.n, there, first_us, last_us, (double)cpu_us / (double)rows.n);
    free(rows.row);
    return 0;
}
