/* SPDX-License-Identifier: Apache-2.0 */
/* The handler type insert: its configuration, its slots, and the choice of the kind of store. */
#include "handlers/insert/insert.h"

#include "handlers/section.h"

#include <stdio.h>
#include <stdlib.h>

struct lw_handler {
    struct lw_insert in;
    const struct lw_store_kind *kind;
    struct lw_store *store;
    struct lw_cleaner *cleaner;
};

struct lw_slot {
    struct lw_writer *writer;
};

static const struct lw_store_kind *const kinds[] = {&lw_store_sqlite, &lw_store_postgres};

/* --- configuration ---------------------------------------------------------------------------- */

static bool starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* Returns the kind of store that handler.store names, or NULL if there is no such kind. *address
 * becomes the part of handler.store that is passed to the kind. */
static const struct lw_store_kind *find_kind(const char *store, const char **address) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (const char *const *scheme = kinds[i]->schemes; *scheme; scheme++) {
            if (!starts(store, *scheme)) continue;
            *address = kinds[i]->prefix ? store + strlen(*scheme) : store;
            return kinds[i];
        }
    return NULL;
}

static void check_store(const json_t *section, struct lw_problems *problems) {
    const char *store = lw_section_string(section, "store", true, problems), *address;
    const char *table = lw_section_string(section, "table", true, problems);
    if (table && starts(table, "latchwork_"))
        lw_problem(problems, "handler.table: names beginning with latchwork_ are taken");
    if (!store) return;
    const struct lw_store_kind *kind = find_kind(store, &address);
    if (kind)
        kind->check(address, table, problems);
    else
        lw_problem(problems, "handler.store: must be sqlite:PATH or "
                             "postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE");
}

/* The words of enum lw_as, lw_on_conflict and lw_missing, in their order */
static const char *const kinds_of_time[] = {"", "epoch_s", "epoch_ms", "epoch_us", NULL};
static const char *const conflicts[] = {"ignore", "update", "dead", NULL};
static const char *const missings[] = {"keep", "null", "default", NULL};

#define FOREIGN_KEY "foreign_key" /* the only word of handler.retry_on */

/* Returns the place of a word in a list, or -1. */
static int word_of(const char *const *words, const json_t *word) {
    for (int i = 0; json_is_string(word) && words[i]; i++)
        if (strcmp(words[i], json_string_value(word)) == 0) return i;
    return -1;
}

/* Returns the pointer of a column, or NULL if there is none. */
static const char *pointer_of(const json_t *column) {
    return json_string_value(json_is_object(column) ? json_object_get(column, "from") : column);
}

static void check_columns(const json_t *section, struct lw_problems *problems) {
    json_t *columns = json_object_get(section, "columns");
    if (!json_is_object(columns) || !json_object_size(columns)) {
        lw_problem(problems, "handler.columns: %s: {\"column\": \"/json/pointer\", …}",
                   columns ? "must be an object, not empty" : "required");
        return;
    }
    if (json_object_size(columns) > LW_INSERT_COLUMNS)
        lw_problem(problems, "handler.columns: more than %d columns", LW_INSERT_COLUMNS);
    const char *name;
    json_t *v;
    json_object_foreach(columns, name, v) {
        const char *pointer = pointer_of(v);
        if (!name[0]) lw_problem(problems, "handler.columns: a column without a name");
        if (!pointer || !lw_json_pointer_ok(pointer))
            lw_problem(problems,
                       "handler.columns.%s: must be a JSON pointer, as \"/id\" (\"\" for the whole "
                       "payload), or {\"from\": POINTER, \"as\": \"epoch_ms\"}",
                       name);
        else if (json_is_object(v) &&
                 (word_of(kinds_of_time, json_object_get(v, "as")) < 0 || json_object_size(v) != 2))
            lw_problem(problems,
                       "handler.columns.%s: must have \"from\", and \"as\": epoch_s, epoch_ms or "
                       "epoch_us",
                       name);
    }
}

static void check_primary(const json_t *section, struct lw_problems *problems) {
    const json_t *primary = json_object_get(section, "primary_key"),
                 *columns = json_object_get(section, "columns"), *v;
    if (!json_is_array(primary) || !json_array_size(primary)) {
        lw_problem(problems, "handler.primary_key: %s: a non-empty array of columns, as [\"id\"]",
                   primary ? "must be" : "required");
        return;
    }
    size_t i, j;
    json_array_foreach(primary, i, v) {
        if (!json_is_string(v))
            lw_problem(problems, "handler.primary_key[%zu]: must be a string", i);
        else if (json_is_object(columns) && !json_object_get(columns, json_string_value(v)))
            lw_problem(problems, "handler.primary_key[%zu]: \"%s\" is not among handler.columns", i,
                       json_string_value(v));
        for (j = 0; j < i; j++)
            if (json_equal(v, json_array_get(primary, j)))
                lw_problem(problems, "handler.primary_key[%zu]: given twice", i);
    }
}

static void check_word(const json_t *section, const char *key, const char *const *words,
                       struct lw_problems *problems) {
    const char *word = lw_section_string(section, key, false, problems);
    if (!word || word_of(words, json_object_get(section, key)) >= 0) return;
    const char *near = lw_section_nearest(word, words);
    lw_problem(problems, "handler.%s: must be %s, %s or %s%s%s%s", key, words[0], words[1],
               words[2], near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static void check_retry_on(const json_t *section, struct lw_problems *problems) {
    const json_t *list = json_object_get(section, "retry_on"), *v;
    size_t i;
    if (list && !json_is_array(list))
        lw_problem(problems, "handler.retry_on: must be an array, as [\"foreign_key\"]");
    json_array_foreach(list, i, v)
        if (!json_is_string(v) || strcmp(json_string_value(v), FOREIGN_KEY) != 0)
            lw_problem(problems, "handler.retry_on[%zu]: must be \"foreign_key\"", i);
}

static void check(const struct lw_config *c, struct lw_problems *problems) {
    static const char *const known[] = {"type",        "store",       "table",    "columns",
                                        "primary_key", "on_conflict", "missing",  "create",
                                        "threads",     "timeout_ms",  "retry_on", NULL};
    json_t *section = c->handler.json;
    lw_section_known(section, known, problems);
    check_store(section, problems);
    check_columns(section, problems);
    check_primary(section, problems);
    check_word(section, "on_conflict", conflicts, problems);
    check_word(section, "missing", missings, problems);
    check_retry_on(section, problems);
    const json_t *create = json_object_get(section, "create");
    if (create && !json_is_boolean(create))
        lw_problem(problems, "handler.create: must be true or false");
}

/* Returns true if `inner` is the pointer `outer`, or leads to a part of its value. */
static bool leads_into(const char *outer, const char *inner) {
    size_t n = strlen(outer);
    return strncmp(outer, inner, n) == 0 && (!inner[n] || inner[n] == '/');
}

/* Returns true if the value at a pointer is one that http.mask hides, or a part of it, or has it as
 * a part. */
static bool is_masked(const struct lw_config *c, const char *pointer) {
    if (c->http.payloads == LW_PAYLOADS_HIDE) return true;
    for (size_t i = 0; c->http.payloads == LW_PAYLOADS_MASK && i < c->http.n_mask; i++)
        if (leads_into(c->http.mask[i], pointer) || leads_into(pointer, c->http.mask[i]))
            return true;
    return false;
}

static bool is_primary(json_t *primary, const char *name) {
    size_t i;
    json_t *v;
    json_array_foreach(primary, i, v)
        if (strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

static int read_section(struct lw_handler *h, const struct lw_config *c, struct lw_err *err) {
    struct lw_insert *in = &h->in;
    json_t *section = c->handler.json, *columns = json_object_get(section, "columns");
    in->app = c->name;
    h->kind = find_kind(json_string_value(json_object_get(section, "store")), &in->address);
    if (!h->kind)
        return lw_fail(err, "handler.store: unknown store; use sqlite:PATH or postgres://…");
    in->table = json_string_value(json_object_get(section, "table"));
    in->create = json_is_true(json_object_get(section, "create"));
    int conflict = word_of(conflicts, json_object_get(section, "on_conflict")),
        missing = word_of(missings, json_object_get(section, "missing"));
    in->on_conflict = conflict >= 0 ? (enum lw_on_conflict)conflict : LW_CONFLICT_IGNORE;
    in->missing = missing >= 0 ? (enum lw_missing)missing : LW_MISSING_KEEP;
    in->waits_for_parents = json_array_size(json_object_get(section, "retry_on")) > 0;
    in->columns = lw_alloc(json_object_size(columns) * sizeof *in->columns);
    const char *name;
    json_t *v;
    json_object_foreach(columns, name, v) {
        struct lw_column *col = &in->columns[in->n_columns];
        int as = word_of(kinds_of_time, json_object_get(v, "as"));
        *col = (struct lw_column){.name = name, .pointer = pointer_of(v)};
        col->as = as > 0 ? (enum lw_as)as : LW_AS_IS;
        if (!col->pointer || !lw_json_pointer_ok(col->pointer))
            return lw_fail(err, "handler.columns.%s: not a JSON pointer", name);
        col->masked = is_masked(c, col->pointer);
        col->primary = is_primary(json_object_get(section, "primary_key"), name);
        in->n_columns++;
    }
    return 0;
}

/* --- the type --------------------------------------------------------------------------------- */

static void close_handler(struct lw_handler *h) {
    if (h->cleaner) lw_cleaner_close(h->cleaner);
    if (h->store) h->kind->close(h->store);
    free(h->in.columns);
    free(h);
}

static struct lw_handler *open_handler(const struct lw_config *c, int worker, struct lw_err *err) {
    (void)worker;
    struct lw_handler *h = lw_alloc(sizeof *h);
    struct lw_sweeper *sweeper = NULL;
    if (read_section(h, c, err) == 0) h->store = h->kind->open(&h->in, err);
    if (h->store) sweeper = h->kind->sweeper_open(h->store, err);
    if (sweeper && (h->cleaner = lw_cleaner_open(h->kind, sweeper, err))) return h;
    close_handler(h);
    return NULL;
}

static struct lw_slot *open_slot(struct lw_handler *h, int slot, struct lw_err *err) {
    (void)slot;
    struct lw_slot *s = lw_alloc(sizeof *s);
    s->writer = h->kind->writer_open(h->store, err);
    if (s->writer) return s;
    free(s);
    return NULL;
}

static void close_slot(struct lw_handler *h, struct lw_slot *s) {
    h->kind->writer_close(s->writer);
    free(s);
}

static size_t batch_max(const struct lw_handler *h) {
    (void)h;
    return LW_INSERT_BATCH;
}

static void run(struct lw_handler *h, struct lw_slot *s, struct lw_job **jobs, size_t n) {
    h->kind->write(s->writer, jobs, n);
}

static void passed(struct lw_handler *h, const char *topic, int32_t partition, int64_t watermark) {
    lw_cleaner_passed(h->cleaner, topic, partition, watermark);
}

static enum lw_health health(struct lw_handler *h, char *why, size_t size) {
    return h->kind->health ? h->kind->health(h->store, why, size) : LW_WELL;
}

const struct lw_handler_type lw_handler_insert = {
    .name = "insert",
    .check = check,
    .open = open_handler,
    .slot_open = open_slot,
    .batch_max = batch_max,
    .run = run,
    .passed = passed,
    .health = health,
    .slot_close = close_slot,
    .close = close_handler,
};
