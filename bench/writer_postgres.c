/* SPDX-License-Identifier: Apache-2.0 */
/* The bare writer's store PostgreSQL. It sends the same statement as the insert handler, on one
 * connection. */
#include "bench/writer.h"

#include "base/clock.h"
#include "handlers/insert/postgres/postgres.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAIT_MS = 60000, PARAMS = LW_PG_P_COLUMNS + 3 };

static struct lw_column columns[] = {
    {"seq", "/seq", true}, {"id", "/id", false}, {"amount", "/amount", false}};
static struct lw_insert in = {
    .app = "writer", .table = "events", .columns = columns, .n_columns = 3, .create = true};
static struct lw_pg pg = {.in = &in};
static struct lw_pg_table table;
static struct lw_buf arrays[PARAMS];
static int64_t fence;
static struct lw_fence_key keys[4096]; /* hashes of the keys in the current transaction */
static size_t n_keys;

static void open_postgres(const char *url) {
    struct lw_err err = {.text = ""};
    in.address = url;
    if (lw_pg_table_open(&table, &pg, &err)) die("%s", err.text);
}

static void begin_postgres(void) {
    for (int i = LW_PG_P_KEYS; i < PARAMS; i++) lw_array_begin(&arrays[i]);
    n_keys = 0;
}

/* Returns the hash of the message's key. If an earlier message of the transaction has the same
 * hash, returns a larger number, because a statement must not contain a hash twice. */
static struct lw_fence_key new_key(const rd_kafka_message_t *m) {
    struct lw_fence_key key = lw_fence_key("writer", lw_bytes(m->key, m->key_len));
    size_t i = 0;
    while (i < n_keys)
        if (lw_fence_key_same(keys[i], key))
            key.a++, i = 0;
        else
            i++;
    return keys[n_keys++] = key;
}

static void add_number(struct lw_buf *a, const json_t *v) {
    char text[32];
    int n = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    lw_array_text(a, lw_bytes(text, (size_t)n));
}

static void add_postgres(const rd_kafka_message_t *m) {
    json_error_t why;
    json_t *row = json_loadb(m->payload, m->len, 0, &why);
    if (!row) die("a payload is no JSON: %s", why.text);
    struct lw_fence_key key = new_key(m);
    lw_array_bytes(&arrays[LW_PG_P_KEYS], &key, sizeof key);
    lw_array_integer(&arrays[LW_PG_P_FENCES], fence++);
    lw_array_text(&arrays[LW_PG_P_TOPICS], lw_bytes_of(rd_kafka_topic_name(m->rkt)));
    lw_array_integer(&arrays[LW_PG_P_PARTITIONS], m->partition);
    lw_array_integer(&arrays[LW_PG_P_OFFSETS], m->offset);
    lw_array_integer(&arrays[LW_PG_P_REPLAYS], 0);
    lw_array_bool(&arrays[LW_PG_P_BAD], false);
    add_number(&arrays[LW_PG_P_COLUMNS], json_object_get(row, "seq"));
    lw_array_text(&arrays[LW_PG_P_COLUMNS + 1],
                  lw_bytes_of(json_string_value(json_object_get(row, "id"))));
    add_number(&arrays[LW_PG_P_COLUMNS + 2], json_object_get(row, "amount"));
    json_decref(row);
}

static PGresult *ask(const char *sql, int n, const char *const *values) {
    struct lw_pg_error error;
    struct lw_pg_wait wait = {.until_ms = lw_boot_ms() + WAIT_MS};
    PGresult *result = lw_pg_query(&pg, sql, n, values, &wait, &error);
    if (!result) die("%s", error.text);
    return result;
}

static void commit_postgres(void) {
    const char *values[PARAMS] = {
        [LW_PG_P_APP] = "writer", [LW_PG_P_LOCK_MS] = "4000", [LW_PG_P_PART] = "0"};
    for (int i = LW_PG_P_KEYS; i < PARAMS; i++) {
        lw_array_end(&arrays[i]);
        values[i] = arrays[i].p;
    }
    PQclear(ask(table.sql, PARAMS, values));
}

static int64_t count_postgres(void) {
    PGresult *result = ask("SELECT count(*) FROM events", 0, NULL);
    int64_t n = atoll(PQgetvalue(result, 0, 0));
    PQclear(result);
    return n;
}

static void close_postgres(void) {
    lw_pg_close(&pg);
    lw_pg_table_close(&table, in.n_columns);
    for (int i = 0; i < PARAMS; i++) lw_buf_free(&arrays[i]);
}

const struct writer_store writer_postgres = {open_postgres,   begin_postgres, add_postgres,
                                             commit_postgres, count_postgres, close_postgres};
