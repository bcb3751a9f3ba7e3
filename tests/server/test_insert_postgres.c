/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the insert handler with a real PostgreSQL: runs the tests that are common to all kinds of
 * stores, and tests for PostgreSQL alone. */
#include "tests/support/insert_cases.h"

#include "handlers/insert/postgres/postgres.h"
#include "tests/support/pg_server.h"

#include <pthread.h>

static const struct words words = {
    .true_value = "t",
    .too_big = "value \"99999999999999999999\" is out of range for type bigint",
    .not_null =
        "null value in column \"amount\" of relation \"orders\" violates not-null constraint",
    .failed_check = "violates check constraint \"orders_amount_check\"",
    .strict = "DROP TABLE orders; CREATE TABLE orders(id bigint PRIMARY KEY, amount integer NOT "
              "NULL CHECK(amount > 0), extra jsonb)",
    .many = 12000,
    .hash_of_i = "decode(lpad(i::text, 32, '0'), 'hex')",
    .old_fences = "DROP TABLE latchwork_fences; CREATE TABLE latchwork_fences(key bigint PRIMARY "
                  "KEY, fence bigint NOT NULL)",
    .replays = "SELECT group_concat(replay) FROM latchwork_seen WHERE replay > 0",
};

/* --- the database: a server for all tests, emptied for each ----------------------------------- */

static struct lw_test_pg *server;
static bool through_bouncer;

static PGconn *connect_to(void) {
    PGconn *conn = PQconnectdb(lw_test_pg_url(server, false));
    if (PQstatus(conn) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(conn));
    return conn;
}

static void execute(PGconn *conn, const char *sql) {
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(conn));
    PQclear(r);
}

static void run_sql(const struct fx *x, const char *sql) {
    (void)x;
    PGconn *conn = connect_to();
    execute(conn, sql);
    PQfinish(conn);
}

static const char *ask(const struct fx *x, const char *sql) {
    (void)x;
    static char out[256];
    PGconn *conn = connect_to();
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK) fail_msg("%s: %s", sql, PQerrorMessage(conn));
    snprintf(out, sizeof out, "%s", PQntuples(r) ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    PQfinish(conn);
    return out;
}

static const char *seen(const struct fx *x, const char *where) {
    char sql[600];
    snprintf(sql, sizeof sql,
             "WITH s AS (SELECT \"offset\" AS o, row_number() OVER (ORDER BY app, topic, "
             "partition, \"offset\") AS n"
             " FROM (SELECT * FROM latchwork_seen WHERE replay = 0) AS first %s) SELECT count(*) "
             "|| ':' || coalesce(string_agg(CASE WHEN n "
             "<= 4 THEN ' ' || o END, '' ORDER BY n), '') FROM s",
             where);
    return ask(x, sql);
}

static void add_seen(const struct fx *x) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "INSERT INTO latchwork_seen SELECT app, 't', p, i, 0, %lld FROM generate_series(0, "
             "%lld) AS i,"
             " (VALUES ('app', 0), ('app', 1), ('other', 0)) AS a(app, p)",
             (long long)lw_wall_ms() * 1000, (long long)words.many - 1);
    run_sql(x, sql);
}

static void add_replays(const struct fx *x) {
    char sql[200];
    snprintf(
        sql, sizeof sql,
        "INSERT INTO latchwork_seen VALUES ('app', 't', 0, 3, 1, %lld), ('app', 't', 0, 3, 2, 1)",
        (long long)lw_wall_ms() * 1000);
    run_sql(x, sql);
}

static void expect_sound(const struct fx *x) {
    assert_string_equal(ask(x, "SELECT count(*) FROM latchwork_seen WHERE fence = 0"), "0");
    assert_string_equal(ask(x, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

static void new_database(struct fx *x) {
    *x = (struct fx){.folder = NULL};
    snprintf(x->store, sizeof x->store, "%s", lw_test_pg_url(server, through_bouncer));
    /* Define group_concat, because the tests that run with every store use this name. PostgreSQL
     * has the same function under the name string_agg. */
    run_sql(x, "SET client_min_messages = error; DROP SCHEMA public CASCADE; CREATE SCHEMA public;"
               "CREATE FUNCTION join_step(text, anyelement) RETURNS text IMMUTABLE LANGUAGE sql AS"
               " 'SELECT CASE WHEN $1 IS NULL THEN $2::text ELSE $1 || '','' || $2::text END';"
               "CREATE AGGREGATE group_concat(anyelement)(sfunc = join_step, stype = text);");
}

static void drop_database(struct fx *x) { (void)x; }

static void make_orders(struct fx *x) {
    run_sql(x, "CREATE TABLE orders(id bigint PRIMARY KEY, amount numeric, extra jsonb)");
}

/* --- the table -------------------------------------------------------------------------------- */

static void open_columns(struct fx *x, const char *table, const char *columns_of) {
    new_database(x);
    run_sql(x, table);
    x->c = fx_config("{\"type\":\"insert\",\"store\":\"%s\",\"table\":\"things\",\"columns\":{%s},"
                     "\"primary_key\":[\"id\"]}",
                     x->store, columns_of);
    struct lw_err err = {0};
    x->h = lw_handler_insert.open(x->c, 0, &err);
    if (!x->h) fail_msg("%s", err.text);
    x->s = lw_handler_insert.slot_open(x->h, 0, &err);
    assert_non_null(x->s);
}

static void test_values_get_the_types_of_columns(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_columns(&x,
                 "CREATE TABLE things(id uuid PRIMARY KEY, n numeric, b boolean, t text, v "
                 "varchar(5), at timestamptz, doc jsonb, tags text[])",
                 "\"id\":\"/id\",\"n\":\"/n\",\"b\":\"/b\",\"t\":\"/t\",\"v\":\"/v\",\"at\":\"/"
                 "at\",\"doc\":\"/doc\",\"tags\":\"/tags\"");
    assert_int_equal(put(&x, &j, 1, "a",
                         "{\"id\":\"00000000-0000-0000-0000-000000000001\",\"n\":"
                         "123456789012345678901234567890.125,\"b\":true,"
                         "\"t\":\"a\\\"b\\\\c{},\\u00e4\\n\",\"v\":\"12345\",\"at\":\"2026-01-"
                         "02T03:04:05Z\",\"doc\":{\"k\":[1,\"\\u0061\"]},"
                         "\"tags\":\"{x,y}\"}"),
                     LW_DONE);
    assert_string_equal(ask(&x, "SELECT n || '|' || b || '|' || t || '|' || v || '|' || (at AT "
                                "TIME ZONE 'UTC') || '|' || doc || '|' || tags[2]"
                                " FROM things"),
                        "123456789012345678901234567890.125|true|a\"b\\c{},ä\n|12345|2026-01-02 "
                        "03:04:05|{\"k\": [1, \"a\"]}|y");
    assert_int_equal(put(&x, &j, 2, "b",
                         "{\"id\":\"00000000-0000-0000-0000-000000000002\",\"t\":\"\",\"doc\":"
                         "\"s\\u0022\",\"v\":null}"),
                     LW_DONE);
    assert_string_equal(
        ask(&x, "SELECT (n IS NULL) || '|' || (t = '') || '|' || doc FROM things WHERE t = ''"),
        "true|true|\"s\\\"\"");
    static const char *const bad[][2] = {
        {"\"v\":\"123456\"", "value too long for type character varying(5)"},
        {"\"n\":\"x\"", "invalid input syntax for type numeric: \"x\""},
        {"\"b\":7", "invalid input syntax for type boolean"},
        {"\"t\":\"a\\u0000b\"", "column \"t\": the text contains a NUL"},
        {"\"doc\":\"\\u0000\"", "unsupported Unicode escape sequence"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char payload[200];
        snprintf(payload, sizeof payload, "{\"id\":\"00000000-0000-0000-0000-000000000003\",%s}",
                 bad[i][0]);
        assert_int_equal(put(&x, &j, 10 + (int64_t)i, "c", payload), LW_DEAD);
        assert_contains(j.job.reason, bad[i][1]);
    }
    assert_string_equal(ask(&x, "SELECT count(*) FROM things"), "2");
    close_fx(&x);
}

#define LONG_PIN "a pin of 600 digits"

static void test_reasons_name_the_column(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    static const struct {
        const char *payload, *reason, *not_in_it;
    } cases[] = {
        {"\"n\":\"word\"", "column \"n\" gets \"word\" from /n: invalid input syntax", NULL},
        {"\"v\":\"123456\",\"w\":\"12345\"", "column \"v\" gets \"123456\" from /v: value too long",
         NULL},
        {"\"money\":1000,\"rate\":999.99", "column \"money\" gets 1000 from /money: numeric field",
         NULL},
        {"\"tags\":\"{\"", "column \"tags\" gets \"{\" from /tags: malformed array", NULL},
        {"\"day\":\"2026-02-30\"", "column \"day\" gets \"2026-02-30\" from /day: date/time", NULL},
        {"\"pin\":\"secret-1\"",
         "column \"pin\" gets ••• from /pin: invalid input syntax for type "
         "integer: \"•••\" (SQLSTATE",
         "secret"},
        {LONG_PIN, "column \"pin\" gets ••• from /pin: value \"•••… (SQLSTATE 22003)", "000"},
        {"\"pin\":5", "Key (pin)=(•••) is not present in table \"pins\".", "5)"},
    };
    masked = "/pin";
    open_fx(&x, "");
    close_handler(&x);
    run_sql(&x, "DROP TABLE orders; CREATE TABLE pins(id integer PRIMARY KEY); CREATE TABLE "
                "orders(id bigint PRIMARY KEY, n numeric, v varchar(5), w varchar(5), money "
                "numeric(5,2), rate numeric(5,2), tags text[], day date, pin integer REFERENCES "
                "pins)");
    open_with(&x,
              "\"columns\":{\"id\":\"/id\",\"n\":\"/n\",\"v\":\"/v\",\"w\":\"/w\",\"money\":"
              "\"/money\",\"rate\":\"/rate\",\"tags\":\"/tags\",\"day\":\"/day\",\"pin\":\"/pin\"},"
              "\"primary_key\":[\"id\"]",
              "");
    masked = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char fields[700], payload[800];
        if (strcmp(cases[i].payload, LONG_PIN) == 0)
            snprintf(fields, sizeof fields, "\"pin\":\"9%0600d\"", 7);
        else
            snprintf(fields, sizeof fields, "%s", cases[i].payload);
        snprintf(payload, sizeof payload, "{\"id\":1,%s}", fields);
        assert_int_equal(put(&x, &j, (int64_t)i, "a", payload), LW_DEAD);
        assert_contains(j.job.reason, cases[i].reason);
        if (cases[i].not_in_it) assert_null(strstr(j.job.reason, cases[i].not_in_it));
    }
    close_fx(&x);
}

static void test_reasons_hide_elements_of_arrays(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    masked = "/codes";
    open_fx(&x, "");
    close_handler(&x);
    run_sql(&x, "DROP TABLE orders; CREATE TABLE orders(id bigint PRIMARY KEY, n integer[], codes "
                "integer[])");
    open_with(&x,
              "\"columns\":{\"id\":\"/id\",\"n\":\"/n\",\"codes\":\"/codes\"},"
              "\"primary_key\":[\"id\"]",
              "");
    masked = NULL;
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"n\":[1,\"word\"]}"), LW_DEAD);
    assert_contains(j.job.reason, "column \"n\" gets [1,\"word\"] from /n: invalid input syntax");
    assert_contains(j.job.reason, "integer: \"word\"");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":1,\"codes\":[1,\"secret-1\"]}"), LW_DEAD);
    assert_contains(j.job.reason, "column \"codes\" gets ••• from /codes: invalid input syntax for "
                                  "type integer: \"•••\"");
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":1,\"codes\":[\"secret\\\"-\\u00e41\"]}"),
                     LW_DEAD);
    assert_contains(j.job.reason, "\"•••\"");
    assert_null(strstr(j.job.reason, "secret"));
    close_fx(&x);
}

static void test_arrays_and_times(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_columns(&x,
                 "CREATE TABLE things(id bigint PRIMARY KEY, t text[], n numeric[], d jsonb[], at "
                 "timestamptz, day date, doc jsonb)",
                 "\"id\":\"/id\",\"t\":\"/t\",\"n\":\"/n\",\"d\":\"/d\",\"at\":{\"from\":\"/at\","
                 "\"as\":\"epoch_us\"},\"day\":{\"from\":\"/at\",\"as\":\"epoch_us\"},\"doc\":"
                 "{\"from\":\"/at\",\"as\":\"epoch_us\"}");
    assert_int_equal(
        put(&x, &j, 1, "a",
            "{\"id\":1,\"t\":[ \"a\\\"\\\\,{}\", null ,\"null\", true,\"\\u00e4\", {\"k\":[1,\"]\"]}],"
            "\"n\":[[1, 99999999999999999999.5],[3,4]],\"d\":[\"s\",[1,2],null,{\"k\":null}],\"at\":"
            "1763671234567890}"),
        LW_DONE);
    assert_string_equal(ask(&x, "SELECT array_to_string(t, '|', 'NULL') FROM things"),
                        "a\"\\,{}|NULL|null|true|ä|{\"k\":[1,\"]\"]}");
    assert_string_equal(
        ask(&x, "SELECT n[1][2] || ' ' || n[2][2] || ' ' || array_length(d, 1) || d[1]::text || "
                "d[2]::text || (d[3] IS NULL) || d[4]::text FROM things"),
        "99999999999999999999.5 4 4\"s\"[1, 2]true{\"k\": null}");
    assert_string_equal(ask(&x, "SELECT (at AT TIME ZONE 'UTC') || ' ' || day || ' ' || doc FROM "
                                "things"),
                        "2025-11-20 20:40:34.56789 2025-11-20 \"2025-11-20T20:40:34.567890Z\"");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2,\"t\":[],\"n\":\"{1,2}\",\"at\":0}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT (t = '{}') || ' ' || n[2] FROM things WHERE id = 2"),
                        "true 2");
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":3,\"t\":[\"a\\u0000\"]}"), LW_DEAD);
    assert_contains(j.job.reason, "column \"t\": the text contains a NUL");
    assert_int_equal(put(&x, &j, 4, "a", "{\"id\":4,\"n\":[[1],[2,3]]}"), LW_DEAD);
    assert_contains(j.job.reason, "array");
    close_fx(&x);
}

static void test_created_table_has_texts(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    new_database(&x);
    open_at(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":7,\"amount\":1.50,\"a/b\":[0,{\"x\":[1]}]}"),
                     LW_DONE);
    assert_string_equal(ask(&x, "SELECT id || '|' || amount || '|' || extra FROM orders"),
                        "7|1.50|{\"x\":[1]}");
    close_fx(&x);
}

static void test_bad_rows_of_a_large_batch(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    static struct fx_job j[LW_INSERT_BATCH];
    static char payloads[LW_INSERT_BATCH][64];
    struct lw_job *jobs[LW_INSERT_BATCH];
    for (int i = 0; i < LW_INSERT_BATCH; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        snprintf(payloads[i], sizeof payloads[i],
                 i % 100 == 50 ? "{\"id\":%d,\"amount\":\"x\"}" : "{\"id\":%d,\"amount\":1}", i);
        jobs[i] = live_job(&j[i], i, key, payloads[i]);
    }
    lw_handler_insert.run(x.h, x.s, jobs, LW_INSERT_BATCH);
    for (int i = 0; i < LW_INSERT_BATCH; i++)
        assert_int_equal(jobs[i]->outcome, i % 100 == 50 ? LW_DEAD : LW_DONE);
    assert_contains(
        jobs[50]->reason,
        "the table refuses the row: column \"amount\" gets \"x\" from /amount: invalid input syntax "
        "for type numeric: \"x\" (SQLSTATE 22P02)");
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "253");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_seen"), "253");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_fences"), "253");
    assert_string_equal(ask(&x, "SELECT sum(n) FROM latchwork_count WHERE name = 'inserted'"),
                        "253");
    close_fx(&x);
}

/* Sends payloads that PostgreSQL cannot read as a row. A message that is already done must stay
 * done, and a message with an outdated fence must be given back. */
static void test_bad_row_of_a_known_or_stale_message(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 5, "a", "{\"id\":1,\"amount\":1}"), LW_DONE);
    assert_int_equal(put(&x, &j, 5, "a", "{\"id\":1,\"amount\":\"x\"}"), LW_DONE);
    assert_int_equal(put(&x, &j, 4, "a", "{\"id\":1,\"amount\":\"x\"}"), LW_BACK);
    close_fx(&x);
}

static void test_one_row_by_several_messages(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    struct fx_job j[4];
    static const char *const payloads[] = {"{\"id\":1,\"amount\":1}", "{\"id\":2,\"amount\":2}",
                                           "{\"id\":1,\"amount\":3}", "{\"id\":1,\"amount\":4}"},
                             *const keys[] = {"a", "b", "c", "d"};
    struct lw_job *jobs[4];
    for (int i = 0; i < 4; i++) jobs[i] = live_job(&j[i], i, keys[i], payloads[i]);
    lw_handler_insert.run(x.h, x.s, jobs, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_string_equal(ask(&x, "SELECT group_concat(id || '=' || amount) FROM (SELECT * FROM "
                                "orders ORDER BY id) AS o"),
                        "1=4,2=2");
    assert_string_equal(ask(&x, "SELECT sum(n) FROM latchwork_count WHERE name = 'updated'"), "4");
    close_handler(&x);
    open_at(&x, ",\"on_conflict\":\"dead\"");
    static const char *const more[] = {"{\"id\":3}", "{\"id\":1}", "{\"id\":3}", "{\"id\":4}"};
    for (int i = 0; i < 4; i++) jobs[i] = live_job(&j[i], 10 + i, keys[i], more[i]);
    lw_handler_insert.run(x.h, x.s, jobs, 4);
    static const enum lw_outcome want[] = {LW_DONE, LW_DEAD, LW_DEAD, LW_DONE};
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i]->outcome, want[i]);
    assert_string_equal(jobs[2]->reason, "duplicate primary key: column \"id\" gets 3 from /id");
    close_fx(&x);
}

/* Jobs with the same key are put into different statements, in their order. Jobs of the same
 * message get the same outcome. */
static void test_one_key_several_times(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    struct fx_job j[4];
    struct lw_job *jobs[4];
    static const char *const payloads[] = {"{\"id\":1,\"amount\":1}", "{\"id\":1,\"amount\":2}",
                                           "{\"id\":1,\"amount\":2}", "{\"id\":1,\"amount\":3}"};
    static const int offsets[] = {1, 2, 2, 3};
    for (int i = 0; i < 4; i++) jobs[i] = live_job(&j[i], offsets[i], "a", payloads[i]);
    lw_handler_insert.run(x.h, x.s, jobs, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "3");
    assert_string_equal(seen(&x, ""), "3: 1 2 3");
    assert_string_equal(ask(&x, "SELECT sum(n) FROM latchwork_count"), "3");
    close_fx(&x);
}

/* Sends payloads that need more than one statement, and that are larger than the buffer of the
 * socket. A server that takes its time for them is not left as one that does not answer. */
static void test_large_rows(void **state) {
    (void)state;
    struct fx x;
    enum { N = 4, SIZE = 3 << 20 };
    open_columns(&x, "CREATE TABLE things(id bigint PRIMARY KEY, t text)",
                 "\"id\":\"/id\",\"t\":\"/t\"");
    run_sql(&x, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_sleep(5.5); RETURN NEW; END';"
                "CREATE TRIGGER slow BEFORE INSERT ON things FOR EACH ROW WHEN (NEW.id = 0) "
                "EXECUTE FUNCTION slow()");
    struct fx_job j[N];
    struct lw_job *jobs[N];
    char *payloads[N];
    for (int i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        payloads[i] = lw_alloc(SIZE + 100);
        int n = sprintf(payloads[i], "{\"id\":%d,\"t\":\"", i);
        memset(payloads[i] + n, 'a' + i, SIZE);
        strcpy(payloads[i] + n + SIZE, "\"}");
        jobs[i] = live_job(&j[i], i, key, payloads[i]);
    }
    lw_handler_insert.run(x.h, x.s, jobs, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(jobs[i]->outcome, LW_DONE);
        free(payloads[i]);
    }
    assert_string_equal(ask(&x, "SELECT count(*) || ' ' || min(length(t)) || ' ' || count(DISTINCT "
                                "left(t, 1)) FROM things"),
                        "4 3145728 4");
    /* The rows come from two transactions, because the batch needed two statements, and each
     * statement is one transaction. */
    assert_string_equal(ask(&x, "SELECT count(DISTINCT xmin::text) FROM things"), "2");
    close_fx(&x);
}

/* --- others at the same time ------------------------------------------------------------------ */

struct racer {
    struct fx *x;
    struct lw_job **jobs;
    size_t n;
    pthread_t thread;
};

static void *race(void *arg) {
    struct racer *r = arg;
    lw_handler_insert.run(r->x->h, r->x->s, r->jobs, r->n);
    return NULL;
}

/* Waits until n backends of PostgreSQL are blocked by locks. */
static void wait_blocked(const struct fx *x, int n) {
    char want[8];
    snprintf(want, sizeof want, "%d", n);
    wait_for(strcmp(ask(x, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"),
                    want) == 0);
}

/* The same message is delivered twice at the same time. The second transaction waits for the first
 * at the row with the fence of the key. Then the second transaction must find the recorded
 * identity, although its snapshot does not contain it. A third delivery has an older fence, and
 * must be given back. */
static void test_two_deliveries_at_the_same_time(void **state) {
    (void)state;
    static const char *const modes[] = {"", ",\"on_conflict\":\"update\"",
                                        ",\"on_conflict\":\"dead\""};
    for (int m = 0; m < 3; m++) {
        struct fx x, y[2];
        open_fx(&x, modes[m]);
        for (int i = 0; i < 2; i++) {
            y[i] = x;
            open_at(&y[i], modes[m]);
        }
        struct fx_job j[3];
        /* The first message creates the row with the fence of key a. */
        assert_int_equal(put(&x, &j[0], 1, "a", "{\"id\":7,\"amount\":1}"), LW_DONE);
        PGconn *other = connect_to();
        /* Insert row 1 in an open transaction, which blocks the handler's insert of the same
         * row. */
        execute(other, "BEGIN; INSERT INTO orders VALUES (1, 0, NULL)");
        struct lw_job *jobs[3] = {live_job(&j[0], 5, "a", "{\"id\":1,\"amount\":5}"),
                                  live_job(&j[1], 5, "a", "{\"id\":1,\"amount\":5}"),
                                  live_job(&j[2], 4, "a", "{\"id\":2,\"amount\":4}")};
        struct racer r[3] = {
            {.x = &x, &jobs[0], 1}, {.x = &y[0], &jobs[1], 1}, {.x = &y[1], &jobs[2], 1}};
        jobs[1]->fence = recent(6000);
        for (int i = 0; i < 3; i++) {
            pthread_create(&r[i].thread, NULL, race, &r[i]);
            wait_blocked(&x, i + 1);
        }
        execute(other, "ROLLBACK");
        PQfinish(other);
        for (int i = 0; i < 3; i++) pthread_join(r[i].thread, NULL);
        assert_int_equal(jobs[0]->outcome, LW_DONE);
        assert_int_equal(jobs[1]->outcome, LW_DONE);
        assert_int_equal(jobs[2]->outcome, LW_BACK);
        assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "7,1");
        assert_string_equal(ask(&x, "SELECT sum(n) FROM latchwork_count"), "2");
        for (int i = 0; i < 2; i++) close_handler(&y[i]);
        close_fx(&x);
    }
}

/* Another client locks two rows in the opposite order. PostgreSQL aborts the handler's transaction
 * because of the deadlock, and the handler repeats the transaction. */
static void test_deadlock_is_repeated(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    run_sql(&x, "INSERT INTO orders VALUES (1, 0, NULL), (2, 0, NULL)");
    PGconn *other = connect_to();
    execute(
        other,
        "BEGIN; SET LOCAL deadlock_timeout = '20s'; UPDATE orders SET amount = -1 WHERE id = 2");
    struct fx_job j[2];
    struct lw_job *jobs[2] = {live_job(&j[0], 1, "a", "{\"id\":1,\"amount\":5}"),
                              live_job(&j[1], 2, "b", "{\"id\":2,\"amount\":6}")};
    struct racer r = {.x = &x, .jobs = jobs, .n = 2};
    pthread_create(&r.thread, NULL, race, &r);
    wait_blocked(&x, 1);
    /* The other client's update returns only when PostgreSQL has aborted the handler's
     * transaction. */
    execute(other, "UPDATE orders SET amount = -1 WHERE id = 1");
    execute(other, "COMMIT");
    PQfinish(other);
    pthread_join(r.thread, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_string_equal(
        ask(&x, "SELECT group_concat(amount) FROM (SELECT amount FROM orders ORDER BY id) AS o"),
        "5,6");
    wait_for(strcmp(ask(&x, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"),
                    "1") == 0);
    close_fx(&x);
}

/* --- failures --------------------------------------------------------------------------------- */

static void test_killed_backend_is_replaced(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    run_sql(&x, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND backend_type = 'client backend'");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_DONE);
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    close_fx(&x);
}

static void test_outage_gives_back(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    char why[600];
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    lw_test_pg_kill(server);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_BACK);
    assert_string_equal(j.job.reason, "");
    assert_int_equal(lw_handler_insert.health(x.h, why, sizeof why), LW_UNABLE);
    assert_contains(why, "cannot connect: ");
    assert_int_equal(put(&x, &j, 3, "b", "{\"id\":3}"), LW_BACK);
    assert_true(lw_test_pg_launch(server));
    wait_for(lw_handler_insert.health(x.h, why, sizeof why) == LW_ON_TRIAL);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_DONE);
    assert_int_equal(lw_handler_insert.health(x.h, why, sizeof why), LW_WELL);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "1,2");
    close_fx(&x);
}

/* A server that became a standby refuses every write. No message is at fault. */
static void test_read_only_server_is_an_outage(void **state) {
    (void)state;
    static const char end[] = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                              "pg_backend_pid() AND backend_type = 'client backend'";
    struct fx x;
    struct fx_job j;
    char why[600];
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    run_sql(&x, "ALTER ROLE CURRENT_USER SET default_transaction_read_only = on");
    run_sql(&x, end);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_BACK);
    assert_int_equal(lw_handler_insert.health(x.h, why, sizeof why), LW_UNABLE);
    assert_contains(why, "read-only");
    PGconn *other = connect_to();
    execute(other, "SET default_transaction_read_only = off");
    execute(other, "ALTER ROLE CURRENT_USER RESET default_transaction_read_only");
    PQfinish(other);
    run_sql(&x, end);
    wait_for(put(&x, &j, 2, "a", "{\"id\":2}") == LW_DONE);
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    close_fx(&x);
}

/* Another session locks the table of fences, so that PostgreSQL does not answer the handler. The
 * handler must wait until the lease ends, but no longer. */
static void test_silence_is_bounded_by_the_lease(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    PGconn *other = connect_to();
    execute(other, "BEGIN; LOCK TABLE latchwork_fences");
    struct lw_job *job = live_job(&j, 2, "a", "{\"id\":2}");
    int64_t begun = lw_boot_ms();
    job->lease->deadline_ms = begun + 400;
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_BACK);
    assert_true(lw_boot_ms() - begun < 3000);
    job = live_job(&j, 2, "a", "{\"id\":2}");
    job->lease->cancelled = true;
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_BACK);
    execute(other, "ROLLBACK");
    PQfinish(other);
    /* The handler still reports that it is healthy, because waiting for a lock is not an outage. */
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_DONE);
    close_fx(&x);
}

/* Sends a signal to each process in `pids`, a list of process ids separated by commas. Returns the
 * number of processes. */
static int signal_all(const char *pids, int sig) {
    int n = 0;
    for (const char *p = pids; *p; p += strcspn(p, ","), p += *p == ',', n++)
        assert_int_equal(kill((pid_t)atoi(p), sig), 0);
    return n;
}

/* The whole PostgreSQL server is stopped by a signal, so it answers nothing. The handler must give
 * the message back when the lease ends. */
static void test_silent_server_is_left(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    /* Process ids of the backends that serve the handler: one for its slot, and perhaps one for the
     * cleaner. */
    char backends[256];
    snprintf(
        backends, sizeof backends, "%s",
        ask(&x,
            "SELECT group_concat(pid) FROM pg_stat_activity WHERE application_name = 'latchwork'"));
    kill(lw_test_pg_pid(server), SIGSTOP);
    assert_true(signal_all(backends, SIGSTOP) > 0);
    struct lw_job *job = live_job(&j, 2, "a", "{\"id\":2}");
    int64_t begun = lw_boot_ms();
    job->lease->deadline_ms = begun + 500;
    enum lw_outcome outcome = fx_run(&lw_handler_insert, x.h, x.s, job);
    signal_all(backends, SIGCONT);
    kill(lw_test_pg_pid(server), SIGCONT);
    assert_int_equal(outcome, LW_BACK);
    assert_true(lw_boot_ms() - begun < 3000);
    /* The message becomes done, no matter whether the stopped server writes the row later or this
     * second delivery does. */
    wait_for(put(&x, &j, 2, "a", "{\"id\":2}") == LW_DONE);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "1,2");
    close_fx(&x);
}

static void test_lost_table_is_an_outage(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    char why[600];
    open_fx(&x, "");
    run_sql(&x, "ALTER TABLE orders RENAME TO orders_2");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_BACK);
    assert_int_equal(lw_handler_insert.health(x.h, why, sizeof why), LW_UNABLE);
    assert_contains(why, "relation \"orders\" does not exist (SQLSTATE 42P01)");
    close_fx(&x);
}

/* The server refuses one row with an SQLSTATE that says nothing, or that usually means an outage.
 * The same statement succeeds without the row, so the message counts an attempt, and others go
 * on. */
static void test_one_refused_row_is_no_outage(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    run_sql(&x, "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 9 "
                "THEN RAISE 'odd' USING ERRCODE = 'XX123'; END IF; RETURN NEW; END $$;"
                "CREATE TRIGGER odd BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION odd()");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    assert_int_equal(put(&x, &j, 9, "bad", "{\"id\":9}"), LW_RETRY);
    assert_contains(j.job.reason, "odd");
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_DONE);
    static const char *const states[] = {"28000", "3F000", "55P03", "57014", "57P01", "40001",
                                         "40P01", "53100", "25006", "08006", "42501"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        char sql[400];
        snprintf(sql, sizeof sql,
                 "CREATE OR REPLACE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF "
                 "NEW.id = 9 THEN RAISE 'odd' USING ERRCODE = '%s'; END IF; RETURN NEW; END $$",
                 states[i]);
        run_sql(&x, sql);
        enum lw_outcome outcome = put(&x, &j, 9, "bad", "{\"id\":9}");
        if (outcome != LW_RETRY && outcome != LW_DEAD) fail_msg("%s: %c", states[i], outcome);
        assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    }
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "1,2");
    run_sql(&x, "DROP TRIGGER odd ON orders; DROP FUNCTION odd()");
    close_fx(&x);
}

static void test_trigger_may_refuse(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    run_sql(&x, "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 9 "
                "THEN RAISE 'no nines'; ELSIF NEW.id = 8"
                " THEN PERFORM * FROM no_such_table; END IF; RETURN NEW; END $$;"
                "CREATE TRIGGER stop BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION stop()");
    struct fx_job j[3];
    static const char *const payloads[] = {"{\"id\":9}", "{\"id\":8}", "{\"id\":1}"},
                             *const keys[] = {"a", "b", "c"};
    struct lw_job *jobs[3];
    live_jobs(jobs, j, 3, keys, payloads);
    lw_handler_insert.run(x.h, x.s, jobs, 3);
    assert_int_equal(jobs[0]->outcome, LW_DEAD);
    assert_contains(jobs[0]->reason, "the table refuses the row: no nines (SQLSTATE P0001)");
    assert_int_equal(jobs[1]->outcome, LW_DEAD);
    assert_int_equal(jobs[2]->outcome, LW_DONE);
    close_fx(&x);
}

/* --- configuration ---------------------------------------------------------------------------- */

static void test_urls(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"postgres://u:p%40ss@h:5432/db?sslmode=verify-full", ""},
        {"postgresql://h/db", ""},
        {"postgres://u:geheim%zz@h/db", "not a URL of PostgreSQL (not shown"},
        {"postgres://h/db?sslmod=x", "invalid URI query parameter: \"sslmod\""},
        {"postgres://h/db?password=geheim", "write the password as"},
        {"postgres://h/db?options=-csearch_path%3Dx", "options= sets up a session"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char section[400];
        snprintf(section, sizeof section,
                 "{\"type\":\"insert\",\"store\":\"%s\",\"table\":\"t\",\"columns\":{\"a\":\"\"},"
                 "\"primary_key\":[\"a\"]}",
                 cases[i][0]);
        char *text = fx_check(&lw_handler_insert, section);
        if (cases[i][1][0])
            assert_contains(text, cases[i][1]);
        else
            assert_string_equal(text, "");
        assert_null(strstr(text, "geheim"));
        free(text);
    }
    char name[100];
    lw_pg_name("postgres://u:geheim@h:5433/db?sslmode=disable", name, sizeof name);
    assert_string_equal(name, "u@h:5433/db");
}

static void test_open_errors(void **state) {
    (void)state;
    struct fx x;
    new_database(&x);
    char section[600];
    run_sql(&x, "CREATE TABLE orders(id bigint PRIMARY KEY, amount numeric, gone bigint GENERATED "
                "ALWAYS AS (id) STORED);"
                "CREATE TABLE nokey(id bigint, amount numeric); CREATE INDEX ON nokey(id); CREATE "
                "SCHEMA s; CREATE TABLE "
                "s.\"Or\"\"ders\"(id bigint PRIMARY KEY)");
    static const char *const cases[][3] = {
        {"nope", "\"id\":\"/id\"",
         "there is no table \"nope\"; create it, or set handler.create to true"},
        {"orders", "\"id\":\"/id\",\"zz\":\"/zz\"",
         "does not fit handler.columns: it has no column \"zz\""},
        {"orders", "\"id\":\"/id\",\"gone\":\"/zz\"",
         "cannot insert a non-DEFAULT value into column \"gone\""},
        {"nokey", "\"id\":\"/id\"",
         "has no primary key and no unique index on just the columns {\"id\"}"},
        {"s.nope", "\"id\":\"/id\"", "there is no table \"s\".\"nope\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(section, sizeof section,
                 "{\"store\":\"%s\",\"table\":\"%s\",\"columns\":{%s},\"primary_key\":[\"id\"]}",
                 x.store, cases[i][0], cases[i][1]);
        expect_open_fails(section, cases[i][2]);
    }
    snprintf(section, sizeof section,
             "{\"store\":\"postgres://nobody@/postgres?host=/no/"
             "such\",\"table\":\"orders\",\"columns\":{\"id\":\"/"
             "id\"},\"primary_key\":[\"id\"]}");
    expect_open_fails(section, "cannot connect: ");
    snprintf(section, sizeof section,
             "{\"store\":\"%s\",\"table\":\"s.Or\\\"ders\",\"columns\":{\"id\":\"/"
             "id\"},\"primary_key\":[\"id\"]}",
             x.store);
    expect_opens(section);
    run_sql(&x, "DROP SCHEMA s CASCADE");
}

static void test_rights(void **state) {
    (void)state;
    struct fx x;
    new_database(&x);
    run_sql(&x,
            "SET client_min_messages = error; DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN;"
            "CREATE TABLE orders(id bigint PRIMARY KEY, amount numeric, extra text); GRANT USAGE "
            "ON SCHEMA public TO clerk");
    char section[600], url[300];
    const char *host = strstr(lw_test_pg_url(server, false), "@");
    snprintf(url, sizeof url, "postgres://clerk%s", host);
    snprintf(section, sizeof section,
             "{\"store\":\"%s\",\"table\":\"orders\",\"columns\":{\"id\":\"/"
             "id\"},\"primary_key\":[\"id\"]}",
             url);
    expect_open_fails(section, "cannot create the tables: permission denied for schema public");
    /* The database owner opens the handler once, which creates the handler's tables. */
    open_at(&x, "");
    close_handler(&x);
    run_sql(&x, "GRANT SELECT, INSERT, UPDATE, DELETE ON latchwork_seen, latchwork_fences, "
                "latchwork_count TO clerk");
    expect_open_fails(section, "cannot write to the tables: permission denied for table orders");
    run_sql(&x, "GRANT INSERT ON orders TO clerk");
    expect_opens(section);
}

/* --- all of them ------------------------------------------------------------------------------ */

static int start_server(void **state) {
    (void)state;
    server = lw_test_pg_start();
    return server && lw_test_pg_bouncer(server) ? 0 : -1;
}

static int stop_server(void **state) {
    (void)state;
    lw_test_pg_stop(server);
    return 0;
}

static int use_bouncer(void **state) {
    (void)state;
    through_bouncer = true;
    return 0;
}

int main(void) {
    begin_insert_cases();
    const struct CMUnitTest tests[] = {
        SHARED_CASES,
        cmocka_unit_test(test_values_get_the_types_of_columns),
        cmocka_unit_test(test_reasons_name_the_column),
        cmocka_unit_test(test_reasons_hide_elements_of_arrays),
        cmocka_unit_test(test_arrays_and_times),
        cmocka_unit_test(test_created_table_has_texts),
        cmocka_unit_test(test_bad_rows_of_a_large_batch),
        cmocka_unit_test(test_bad_row_of_a_known_or_stale_message),
        cmocka_unit_test(test_one_row_by_several_messages),
        cmocka_unit_test(test_one_key_several_times),
        cmocka_unit_test(test_large_rows),
        cmocka_unit_test(test_two_deliveries_at_the_same_time),
        cmocka_unit_test(test_deadlock_is_repeated),
        cmocka_unit_test(test_killed_backend_is_replaced),
        cmocka_unit_test(test_outage_gives_back),
        cmocka_unit_test(test_read_only_server_is_an_outage),
        cmocka_unit_test(test_silence_is_bounded_by_the_lease),
        cmocka_unit_test(test_silent_server_is_left),
        cmocka_unit_test(test_lost_table_is_an_outage),
        cmocka_unit_test(test_one_refused_row_is_no_outage),
        cmocka_unit_test(test_trigger_may_refuse),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_rights),
    };
    int failed = cmocka_run_group_tests_name("PostgreSQL", tests, start_server, NULL);
    const struct CMUnitTest again[] = {SHARED_CASES,
                                       cmocka_unit_test(test_values_get_the_types_of_columns),
                                       cmocka_unit_test(test_bad_rows_of_a_large_batch),
                                       cmocka_unit_test(test_killed_backend_is_replaced)};
    if (!failed)
        failed =
            cmocka_run_group_tests_name("PgBouncer in transaction mode", again, use_bouncer, NULL);
    stop_server(NULL);
    return failed;
}
