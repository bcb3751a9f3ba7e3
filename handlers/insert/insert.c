/* SPDX-License-Identifier: Apache-2.0 */
/* The handler type insert: its configuration, and slots that write in turn. */
#include "handlers/insert/insert.h"

#include "handlers/section.h"

#include <stdio.h>
#include <stdlib.h>

struct lw_handler {
    struct lw_insert in;
    struct lw_cleaner *cleaner;
    pthread_mutex_t writer; /* SQLite has one writer at a time, so slots and cleaner wait here instead of polling for its lock */
};

struct lw_slot {
    struct lw_store store;
};

/* --- configuration -------------------------------------------------------------------------------------------------------------- */

static bool starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

static void check_store(const json_t *section, struct lw_problems *problems) {
    const char *store = lw_section_string(section, "store", true, problems);
    if (!store) return;
    if (starts(store, "postgres://") || starts(store, "postgresql://"))
        lw_problem(problems, "handler.store: postgres:// is not in this version; there is sqlite:PATH");
    else if (!starts(store, "sqlite:"))
        lw_problem(problems, "handler.store: must be sqlite:PATH");
    else if (!store[7])
        lw_problem(problems, "handler.store: sqlite: needs a path, as sqlite:orders.db");
    else if (strcmp(store + 7, ":memory:") == 0)
        lw_problem(problems, "handler.store: workers cannot share a database in memory; give a path");
}

static void check_table(const json_t *section, struct lw_problems *problems) {
    const char *table = lw_section_string(section, "table", true, problems);
    if (table && (starts(table, "latchwork_") || starts(table, "sqlite_")))
        lw_problem(problems, "handler.table: names beginning with latchwork_ or sqlite_ are taken");
}

static void check_columns(const json_t *section, struct lw_problems *problems) {
    json_t *columns = json_object_get(section, "columns");
    if (!json_is_object(columns) || !json_object_size(columns)) {
        lw_problem(problems, "handler.columns: %s: {\"column\": \"/json/pointer\", …}",
                   columns ? "must be an object, not empty" : "required");
        return;
    }
    if (json_object_size(columns) > LW_INSERT_COLUMNS) lw_problem(problems, "handler.columns: more than %d columns", LW_INSERT_COLUMNS);
    const char *name;
    json_t *v;
    json_object_foreach(columns, name, v) {
        const char *pointer = json_string_value(v);
        if (!name[0]) lw_problem(problems, "handler.columns: a column without a name");
        if (!pointer || !lw_json_pointer_ok(pointer))
            lw_problem(problems, "handler.columns.%s: must be a JSON pointer, as \"/id\" (\"\" for the whole payload)", name);
    }
}

static void check_primary(const json_t *section, struct lw_problems *problems) {
    const json_t *primary = json_object_get(section, "primary_key"), *columns = json_object_get(section, "columns"), *v;
    if (!json_is_array(primary) || !json_array_size(primary)) {
        lw_problem(problems, "handler.primary_key: %s: a non-empty array of columns, as [\"id\"]", primary ? "must be" : "required");
        return;
    }
    size_t i, j;
    json_array_foreach(primary, i, v) {
        if (!json_is_string(v))
            lw_problem(problems, "handler.primary_key[%zu]: must be a string", i);
        else if (json_is_object(columns) && !json_object_get(columns, json_string_value(v)))
            lw_problem(problems, "handler.primary_key[%zu]: \"%s\" is not among handler.columns", i, json_string_value(v));
        for (j = 0; j < i; j++)
            if (json_equal(v, json_array_get(primary, j))) lw_problem(problems, "handler.primary_key[%zu]: given twice", i);
    }
}

static const char *const conflicts[] = {"ignore", "update", "dead", NULL};

static int conflict_of(const char *word) {
    for (int i = 0; conflicts[i]; i++)
        if (strcmp(conflicts[i], word) == 0) return i;
    return -1;
}

static void check(const struct lw_config *c, struct lw_problems *problems) {
    static const char *const known[] = {"type",        "store",  "table",   "columns",    "primary_key",
                                        "on_conflict", "create", "threads", "timeout_ms", NULL};
    json_t *section = c->handler.json;
    lw_section_known(section, known, problems);
    check_store(section, problems);
    check_table(section, problems);
    check_columns(section, problems);
    check_primary(section, problems);
    const char *word = lw_section_string(section, "on_conflict", false, problems);
    if (word && conflict_of(word) < 0) {
        const char *near = lw_section_nearest(word, conflicts);
        lw_problem(problems, "handler.on_conflict: must be ignore, update or dead%s%s%s", near ? "; did you mean " : "", near ? near : "",
                   near ? "?" : "");
    }
    const json_t *create = json_object_get(section, "create");
    if (create && !json_is_boolean(create)) lw_problem(problems, "handler.create: must be true or false");
}

static bool is_primary(json_t *primary, const char *name) {
    size_t i;
    json_t *v;
    json_array_foreach(primary, i, v)
        if (strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static int read_section(struct lw_insert *in, const struct lw_config *c, struct lw_err *err) {
    json_t *section = c->handler.json, *columns = json_object_get(section, "columns");
    in->app = c->name;
    in->path = json_string_value(json_object_get(section, "store")) + strlen("sqlite:");
    in->table = json_string_value(json_object_get(section, "table"));
    in->create = json_is_true(json_object_get(section, "create"));
    const json_t *word = json_object_get(section, "on_conflict");
    in->on_conflict = word ? (enum lw_on_conflict)conflict_of(json_string_value(word)) : LW_CONFLICT_IGNORE;
    in->columns = lw_alloc(json_object_size(columns) * sizeof *in->columns);
    const char *name;
    json_t *v;
    json_object_foreach(columns, name, v) {
        struct lw_column *col = &in->columns[in->n_columns];
        *col = (struct lw_column){.name = name, .pointer = json_string_value(v)};
        if (!lw_json_pointer_ok(col->pointer)) return lw_fail(err, "handler.columns.%s: not a JSON pointer", name);
        col->primary = is_primary(json_object_get(section, "primary_key"), name);
        in->n_columns++;
    }
    return 0;
}

/* --- the type ------------------------------------------------------------------------------------------------------------------- */

static void close_handler(struct lw_handler *h) {
    if (h->cleaner) lw_cleaner_close(h->cleaner);
    free(h->in.columns);
    pthread_mutex_destroy(&h->writer);
    free(h);
}

static struct lw_handler *open_handler(const struct lw_config *c, int worker, struct lw_err *err) {
    (void)worker;
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* SQLite's memory statistics are not needed, and cost a global lock per allocation */
    struct lw_handler *h = lw_alloc(sizeof *h);
    pthread_mutex_init(&h->writer, NULL);
    struct lw_store first = {0};
    int r = read_section(&h->in, c, err);
    if (!r) r = lw_store_open(&first, &h->in, err); /* makes the tables, and finds errors of the configuration before any message comes */
    if (!r) lw_store_close(&first);
    if (!r && (h->cleaner = lw_cleaner_open(&h->in, &h->writer, err))) return h;
    close_handler(h);
    return NULL;
}

static struct lw_slot *open_slot(struct lw_handler *h, int slot, struct lw_err *err) {
    (void)slot;
    struct lw_slot *s = lw_alloc(sizeof *s);
    if (lw_store_open(&s->store, &h->in, err) == 0) return s;
    free(s);
    return NULL;
}

static void close_slot(struct lw_handler *h, struct lw_slot *s) {
    (void)h;
    lw_store_close(&s->store);
    free(s);
}

static size_t batch_max(const struct lw_handler *h) {
    (void)h;
    return LW_INSERT_BATCH;
}

static void run(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n) {
    lw_insert_run(&h->in, &s->store, &h->writer, jobs, n);
}

static void passed(struct lw_handler *h, const char *topic, int32_t partition, int64_t watermark) {
    lw_cleaner_passed(h->cleaner, topic, partition, watermark);
}

const struct lw_handler_type lw_handler_insert = {
    .name = "insert",
    .check = check,
    .open = open_handler,
    .slot_open = open_slot,
    .batch_max = batch_max,
    .run = run,
    .passed = passed,
    .slot_close = close_slot,
    .close = close_handler,
};
