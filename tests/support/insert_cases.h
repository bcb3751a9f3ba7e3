/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the handler type insert that must pass with every kind of store. A test program includes
 * this file once, and then defines, for its store, the functions and texts that are declared below.
 * The program's list of tests begins with SHARED_CASES. */
#ifndef LW_TESTS_SUPPORT_INSERT_CASES_H
#define LW_TESTS_SUPPORT_INSERT_CASES_H

#include "tests/support/handler_fixture.h"

#include "base/log.h"
#include "handlers/insert/insert.h"

#include <signal.h>
#include <sys/wait.h>

struct fx {
    char *folder;
    char store[512]; /* the value of the configuration key handler.store */
    struct lw_config *c;
    struct lw_handler *h;
    struct lw_slot *s;
};

/* --- what the program defines ----------------------------------------------------------------- */

/* Texts that differ between the stores. A reason is what the handler reports when the store refuses
 * a row. `strict` is a table whose columns have constraints. */
struct words {
    /* a text that the reason contains if a table refuses the id 99999999999999999999 */
    const char *too_big;
    /* a text that the reason contains if the table `strict` refuses a row without an amount */
    const char *not_null;
    /* a text that the reason contains if the table `strict` refuses a negative amount */
    const char *failed_check;
    /* SQL that makes the table `strict`, whose amount must be a positive integer */
    const char *strict;
    /* number of offsets that add_seen() adds, which must be more than the cleaner deletes in one
     * transaction */
    int64_t many;
    /* SQL expression for a hash of 16 bytes, which differs for each number i from 1 to 1500 */
    const char *hash_of_i;
    /* SQL that gives latchwork_fences the form that it had before */
    const char *old_fences;
    const char *true_value; /* how the store shows a condition that holds */
    /* SQL query that returns the numbers of all recorded replays as one text, separated by
     * commas */
    const char *replays;
};
static const struct words words;

/* Makes an empty database and stores its address in x->store. */
static void new_database(struct fx *x);
/* Makes the table `orders` in the new database if the tests of this store need typed columns.
 * Otherwise does nothing. */
static void make_orders(struct fx *x);
static void drop_database(struct fx *x);
/* Runs the query and returns the first column of its first row as text, or "" if the query finds no
 * row. The text is valid until the next call. */
static const char *ask(const struct fx *x, const char *sql);
static void run_sql(const struct fx *x, const char *sql);
/* Returns a text with the number of identities in the table latchwork_seen and their first four
 * offsets, for example "2: 0 7". `where` is an SQL clause that limits the rows, or "". */
static const char *seen(const struct fx *x, const char *where);
/* Adds the offsets from 0 to words.many - 1 to the table latchwork_seen three times: for partitions
 * 0 and 1 of topic t of the application "app", and for partition 0 of the application "other". */
static void add_seen(const struct fx *x);
/* Records two replays of message t/0/3: replay 1 with the present time, and replay 2 with a time
 * that is old enough for the cleaner to delete the replay. */
static void add_replays(const struct fx *x);
/* Fails the test unless the database and Latchwork's tables in it are consistent. */
static void expect_sound(const struct fx *x);

/* --- a handler -------------------------------------------------------------------------------- */

/* The tests use fences of the present minute. A fence is a time in µs. The cleaner deletes only
 * fences that are more than a day old, so it never deletes the fences of a test. */
static uint64_t first_fence;
static uint64_t recent(uint64_t n) { return first_fence + n; }
static struct lw_job *live_job(struct fx_job *j, int64_t offset, const char *key,
                               const char *payload) {
    struct lw_job *job = fx_job(j, offset, key, payload);
    job->fence = recent(job->fence);
    return job;
}

static void live_jobs(struct lw_job **jobs, struct fx_job *j, int n, const char *const *keys,
                      const char *const *payloads) {
    for (int i = 0; i < n; i++) jobs[i] = live_job(&j[i], i, keys[i], payloads[i]);
}

static const char columns[] = "\"columns\":{\"id\":\"/id\",\"amount\":\"/amount\",\"extra\":\"/"
                              "a~1b/1\"},\"primary_key\":[\"id\"]";

/* The value of http.mask for the handlers that are opened; NULL: nothing is masked. */
static const char *masked;

static void open_with(struct fx *x, const char *columns_of, const char *more) {
    x->c = fx_config(
        "{\"type\":\"insert\",\"store\":\"%s\",\"table\":\"orders\",%s,\"create\":true%s}",
        x->store, columns_of, more);
    char *mask[] = {(char *)(uintptr_t)masked};
    if (masked) {
        x->c->http.payloads = LW_PAYLOADS_MASK;
        x->c->http.mask = mask;
        x->c->http.n_mask = 1;
    }
    struct lw_err err = {0};
    x->h = lw_handler_insert.open(x->c, 0, &err);
    if (!x->h) fail_msg("%s", err.text);
    x->s = lw_handler_insert.slot_open(x->h, 0, &err);
    if (!x->s) fail_msg("%s", err.text);
    x->c->http.mask = NULL;
    x->c->http.n_mask = 0;
}

static void open_at(struct fx *x, const char *more) { open_with(x, columns, more); }

static void open_fx(struct fx *x, const char *more) {
    new_database(x);
    make_orders(x);
    open_at(x, more);
}

static void close_handler(struct fx *x) {
    lw_handler_insert.slot_close(x->h, x->s);
    lw_handler_insert.close(x->h);
    fx_config_free(x->c);
}

/* Opens a handler on a table of these columns. */
static void open_table(struct fx *x, const char *columns_of, const char *more) {
    char sql[300];
    open_fx(x, "");
    close_handler(x);
    snprintf(sql, sizeof sql, "DROP TABLE orders; CREATE TABLE orders(%s)", columns_of);
    run_sql(x, sql);
    open_at(x, more);
}

static void close_fx(struct fx *x) {
    close_handler(x);
    drop_database(x);
}

static enum lw_outcome put(struct fx *x, struct fx_job *j, int64_t offset, const char *key,
                           const char *payload) {
    return fx_run(&lw_handler_insert, x->h, x->s, live_job(j, offset, key, payload));
}

/* --- rows ------------------------------------------------------------------------------------- */

static void test_bad_rows_are_dead_alone(void **state) {
    (void)state;
    struct fx x;
    open_table(&x, "id bigint PRIMARY KEY, amount numeric, extra text",
               ",\"on_conflict\":\"dead\"");
    static const char *const payloads[] = {
        "{\"id\":1}",    "{\"id\":",   "{\"amount\":1}",
        "{\"id\":null}", "{\"id\":1}", NULL,
        "\xff",          "{\"id\":2}", "{\"id\":99999999999999999999}"};
    const char *const reasons[] = {"",
                                   "malformed JSON at byte 6",
                                   "primary key column \"id\": nothing at /id",
                                   "null at /id",
                                   "duplicate primary key",
                                   "no payload",
                                   "malformed JSON at byte",
                                   "",
                                   words.too_big};
    enum { N = sizeof payloads / sizeof *payloads };
    struct fx_job j[N];
    struct lw_job *jobs[N];
    for (int i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        jobs[i] = live_job(&j[i], i, key, payloads[i]);
    }
    lw_handler_insert.run(x.h, x.s, jobs, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(jobs[i]->outcome, reasons[i][0] ? LW_DEAD : LW_DONE);
        if (reasons[i][0])
            assert_contains(jobs[i]->reason, reasons[i]);
        else
            assert_string_equal(jobs[i]->reason, "");
    }
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "1,2");
    assert_string_equal(seen(&x, ""), "2: 0 7");
    close_fx(&x);
}

static void test_user_constraint_is_dead_alone(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    close_handler(&x);
    run_sql(&x, words.strict);
    open_at(&x, "");
    struct fx_job j;
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DEAD);
    assert_contains(j.job.reason, words.not_null);
    assert_contains(j.job.reason, "row: column \"amount\" gets nothing from /amount: ");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":1,\"amount\":-1}"), LW_DEAD);
    assert_contains(j.job.reason, words.failed_check);
    assert_contains(j.job.reason, "row: column \"amount\" gets -1 from /amount: ");
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":1,\"amount\":1}"), LW_DONE);
    close_fx(&x);
}

static void test_conflicts(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"amount\":1}"), LW_DONE);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":1,\"amount\":2}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "1");
    assert_string_equal(ask(&x, "SELECT n FROM latchwork_count WHERE name = 'ignored'"), "1");
    close_handler(&x);
    open_at(&x, ",\"on_conflict\":\"update\"");
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":1,\"amount\":3}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "3");
    close_fx(&x);
}

static void test_reasons_hide_masked_values(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    masked = "/amount";
    open_table(&x, "id bigint PRIMARY KEY, amount integer UNIQUE CHECK(amount > 0), extra integer",
               ",\"on_conflict\":\"dead\"");
    masked = NULL;
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"amount\":-73731}"), LW_DEAD);
    assert_contains(j.job.reason, "column \"amount\" gets ••• from /amount: ");
    assert_null(strstr(j.job.reason, "73731"));
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":1,\"amount\":73731}"), LW_DONE);
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":2,\"amount\":73731}"), LW_DEAD);
    assert_contains(j.job.reason, "amount");
    assert_null(strstr(j.job.reason, "73731"));
    assert_int_equal(put(&x, &j, 4, "a", "{\"id\":1}"), LW_DEAD);
    assert_contains(j.job.reason, "duplicate primary key: column \"id\" gets 1 from /id");
    close_fx(&x);
}

/* A row that refers to another table. `waits` is what a missing parent row makes of a message. */
static void check_parents(const char *more, const char *deferred, enum lw_outcome waits) {
    struct fx x;
    struct fx_job j[3];
    struct lw_job *jobs[3];
    char sql[200];
    open_fx(&x, "");
    close_handler(&x);
    run_sql(&x, "DROP TABLE orders; CREATE TABLE customers(id integer PRIMARY KEY)");
    snprintf(sql, sizeof sql,
             "CREATE TABLE orders(id bigint PRIMARY KEY, amount integer REFERENCES customers %s, "
             "extra text)",
             deferred);
    run_sql(&x, sql);
    open_at(&x, more);
    static const char *const keys[] = {"a", "b", "c"};
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":2,\"amount\":42}", "{\"id\":3}"};
    live_jobs(jobs, j, 3, keys, payloads);
    lw_handler_insert.run(x.h, x.s, jobs, 3);
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    assert_int_equal(jobs[1]->outcome, waits);
    assert_int_equal(jobs[2]->outcome, LW_DONE);
    assert_contains(jobs[1]->reason, "the table refuses the row: ");
    assert_contains(jobs[1]->reason, "amount");
    assert_contains(jobs[1]->reason, "42");
    assert_contains(jobs[1]->reason, "table \"customers\"");
    run_sql(&x, "INSERT INTO customers VALUES (42)");
    struct lw_job *again = live_job(&j[1], 1, "b", payloads[1]);
    again->fence = recent(7000);
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, again), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders WHERE id = 2"), "42");
    /* a bad row of another kind never waits */
    assert_int_equal(put(&x, &j[0], 9, "a", "{\"id\":null}"), LW_DEAD);
    close_fx(&x);
}

static void test_missing_parent_is_dead(void **state) {
    (void)state;
    check_parents("", "", LW_DEAD);
    check_parents("", "DEFERRABLE INITIALLY DEFERRED", LW_DEAD);
}

static void test_missing_parent_may_be_waited_for(void **state) {
    (void)state;
    check_parents(",\"retry_on\":[\"foreign_key\"]", "", LW_RETRY);
    check_parents(",\"retry_on\":[\"foreign_key\"]", "DEFERRABLE INITIALLY DEFERRED", LW_RETRY);
}

static const char defaults[] =
    "id bigint PRIMARY KEY, amount integer NOT NULL DEFAULT 7, extra text DEFAULT 'none'";
static const char row_1[] =
    "SELECT amount || ',' || coalesce(CAST(extra AS text), 'NULL') FROM orders WHERE id = 1";

static void test_missing_fields_keep_what_is_there(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_table(&x, defaults, ",\"on_conflict\":\"update\"");
    static const char *const puts[][2] = {
        {"{\"id\":1}", "7,none"},
        {"{\"id\":1,\"amount\":3}", "3,none"},
        {"{\"id\":1,\"a/b\":[0,\"x\"]}", "3,x"},
        {"{\"id\":1}", "3,x"},
        {"{\"id\":1,\"a/b\":[0,null]}", "3,NULL"},
        {"{\"id\":1,\"amount\":4,\"a/b\":[0,\"y\"]}", "4,y"},
    };
    int64_t offset = 0;
    for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
        assert_int_equal(put(&x, &j, offset++, "a", puts[i][0]), LW_DONE);
        assert_string_equal(ask(&x, row_1), puts[i][1]);
    }
    assert_int_equal(put(&x, &j, offset++, "a", "{\"id\":1,\"amount\":null}"), LW_DEAD);
    close_handler(&x);
    /* A new row needs a column that is NOT NULL without a default, and an update does not. */
    run_sql(&x, words.strict);
    open_at(&x, ",\"on_conflict\":\"update\",\"missing\":\"keep\"");
    assert_int_equal(put(&x, &j, offset++, "a", "{\"id\":1}"), LW_DEAD);
    assert_contains(j.job.reason, words.not_null);
    assert_int_equal(put(&x, &j, offset++, "a", "{\"id\":1,\"amount\":2}"), LW_DONE);
    assert_int_equal(put(&x, &j, offset++, "a", "{\"id\":1,\"a/b\":[0,5]}"), LW_DONE);
    assert_string_equal(ask(&x, row_1), "2,5");
    close_fx(&x);
}

static void test_missing_fields_become_default_or_null(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_table(&x, defaults, ",\"on_conflict\":\"update\",\"missing\":\"default\"");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"amount\":3,\"a/b\":[0,\"x\"]}"), LW_DONE);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":1,\"amount\":4}"), LW_DONE);
    assert_string_equal(ask(&x, row_1), "4,none");
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":1}"), LW_DONE);
    assert_string_equal(ask(&x, row_1), "7,none");
    close_handler(&x);
    open_at(&x, ",\"on_conflict\":\"update\",\"missing\":\"null\"");
    assert_int_equal(put(&x, &j, 4, "a", "{\"id\":1,\"amount\":5}"), LW_DONE);
    assert_string_equal(ask(&x, row_1), "5,NULL");
    assert_int_equal(put(&x, &j, 5, "a", "{\"id\":1}"), LW_DEAD);
    close_handler(&x);
    open_at(&x, ""); /* on_conflict "ignore": a new row gets the defaults, too */
    assert_int_equal(put(&x, &j, 6, "b", "{\"id\":2}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount || extra FROM orders WHERE id = 2"), "7none");
    close_fx(&x);
}

/* Rows that lack different fields, in one batch: each key's messages stay in order. */
static void test_missing_fields_in_a_batch(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j[5];
    struct lw_job *jobs[5];
    static const char *const keys[] = {"a", "b", "a", "b", "a"};
    static const char *const payloads[] = {
        "{\"id\":1,\"amount\":1}", "{\"id\":2,\"a/b\":[0,\"x\"]}", "{\"id\":1,\"a/b\":[0,\"y\"]}",
        "{\"id\":2,\"amount\":2}", "{\"id\":1,\"amount\":3}"};
    open_table(&x, defaults, ",\"on_conflict\":\"update\"");
    live_jobs(jobs, j, 5, keys, payloads);
    lw_handler_insert.run(x.h, x.s, jobs, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_string_equal(ask(&x, "SELECT group_concat(id || '=' || amount || extra) FROM (SELECT * "
                                "FROM orders ORDER BY id) AS o"),
                        "1=3y,2=2x");
    close_fx(&x);
}

/* --- values: the same with every store -------------------------------------------------------- */

static void test_large_numbers_keep_their_digits_or_are_refused(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_table(&x, "id bigint PRIMARY KEY, amount integer, extra text", "");
    /* what no column takes does not matter */
    assert_int_equal(put(&x, &j, 1, "a",
                         "{\"id\":1,\"n\":[99999999999999999999,1e999],"
                         "\"a/b\":[0,99999999999999999999]}"),
                     LW_DONE);
    assert_string_equal(ask(&x, "SELECT extra FROM orders"), "99999999999999999999");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2,\"a/b\":[0,1e999]}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT extra FROM orders WHERE id = 2"), "1e999");
    assert_int_equal(put(&x, &j, 3, "a", "{\"id\":3,\"amount\":99999999999999999999}"), LW_DEAD);
    assert_contains(j.job.reason, "out of range");
    assert_int_equal(put(&x, &j, 4, "a", "{\"id\":99999999999999999999}"), LW_DEAD);
    close_handler(&x);
    run_sql(&x, "DROP TABLE orders; CREATE TABLE orders(id bigint PRIMARY KEY, amount double "
                "precision, extra text)");
    open_at(&x, "");
    assert_int_equal(put(&x, &j, 5, "a", "{\"id\":5,\"amount\":100000000000000000000}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount = 1e20 FROM orders"), words.true_value);
    assert_int_equal(put(&x, &j, 6, "a", "{\"id\":6,\"amount\":1e999}"), LW_DEAD);
    assert_contains(j.job.reason, "out of range");
    close_fx(&x);
}

static void test_arrays_are_written_as_they_are(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_table(&x, "id bigint PRIMARY KEY, amount numeric, extra text", "");
    assert_int_equal(put(&x, &j, 1, "a",
                         "{\"id\":1,\"a/b\":[0,[ 2.50, {\"k\":1,\"k\":2},\"\\u0061\", "
                         "99999999999999999999 ]]}"),
                     LW_DONE);
    assert_string_equal(ask(&x, "SELECT extra FROM orders"),
                        "[ 2.50, {\"k\":1,\"k\":2},\"\\u0061\", 99999999999999999999 ]");
    close_fx(&x);
}

static void test_epoch_times(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    static const char times[] =
        "\"columns\":{\"id\":\"/id\",\"amount\":{\"from\":\"/s\",\"as\":\"epoch_s\"},"
        "\"extra\":{\"from\":\"/ms\",\"as\":\"epoch_ms\"}},\"primary_key\":[\"id\"]";
    open_table(&x, "id bigint PRIMARY KEY, amount text, extra text", "");
    close_handler(&x);
    open_with(&x, times, "");
    static const char *const good[][2] = {
        {"\"s\":0,\"ms\":1763671234567", "1970-01-01T00:00:00.000000Z 2025-11-20T20:40:34.567000Z"},
        {"\"s\":1.25e0,\"ms\":-1", "1970-01-01T00:00:01.250000Z 1969-12-31T23:59:59.999000Z"},
        {"\"s\":253402300799,\"ms\":-62135596800000",
         "9999-12-31T23:59:59.000000Z 0001-01-01T00:00:00.000000Z"},
        {"\"s\":null", "null null"},
    };
    static const char *const bad[][2] = {
        {"\"s\":253402300800", "column \"amount\": no time in s since 1970 at /s"},
        {"\"ms\":-62135596800001", "column \"extra\": no time in ms since 1970 at /ms"},
        {"\"ms\":99999999999999999999", "column \"extra\": no time"},
        {"\"s\":-1e300", "column \"amount\": no time"},
        {"\"s\":\"0\"", "it must be a number"},
    };
    char payload[200], sql[200];
    for (int i = 0; i < 4; i++) {
        snprintf(payload, sizeof payload, "{\"id\":%d,%s}", i, good[i][0]);
        assert_int_equal(put(&x, &j, i, "a", payload), LW_DONE);
        snprintf(sql, sizeof sql,
                 "SELECT coalesce(amount, 'null') || ' ' || coalesce(extra, 'null') FROM orders "
                 "WHERE id = %d",
                 i);
        assert_string_equal(ask(&x, sql), good[i][1]);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(payload, sizeof payload, "{\"id\":9,%s}", bad[i][0]);
        assert_int_equal(put(&x, &j, 10 + i, "a", payload), LW_DEAD);
        assert_contains(j.job.reason, bad[i][1]);
    }
    close_fx(&x);
}

/* --- identity and fence ----------------------------------------------------------------------- */

static void test_known_identity_comes_first(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"amount\":1}"), LW_DONE);
    assert_int_equal(put(&x, &j, 9, "a", "{\"id\":1,\"amount\":9}"), LW_DONE);
    /* A message that is already done must get the outcome done again, despite an outdated fence. */
    struct lw_job *job = live_job(&j, 1, "a", "{\"id\":1,\"amount\":1}");
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_DONE);
    job->payload = lw_bytes_of("not JSON any more");
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "9");
    /* A replay of a message has another identity, so it is handled again. */
    snprintf(job->identity, sizeof job->identity, "t/0/1#1");
    job->payload = lw_bytes_of("{\"id\":1,\"amount\":11}");
    job->fence = recent(5000);
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "11");
    close_fx(&x);
}

static void test_stale_fence_writes_nothing(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    assert_int_equal(put(&x, &j, 5, "a", "{\"id\":1,\"amount\":5}"), LW_DONE);
    assert_int_equal(put(&x, &j, 4, "a", "{\"id\":1,\"amount\":4}"), LW_BACK);
    assert_string_equal(j.job.reason, "");
    /* A message with an outdated fence must be given back even if its payload is bad. */
    assert_int_equal(put(&x, &j, 3, "a", "broken"), LW_BACK);
    /* A fence of the key "a" must not matter for another key. */
    assert_int_equal(put(&x, &j, 4, "b", "{\"id\":2,\"amount\":4}"), LW_DONE);
    assert_int_equal(put(&x, &j, 6, "", "{\"id\":3,\"amount\":4}"), LW_DONE);
    assert_int_equal(put(&x, &j, 2, "", "{\"id\":3,\"amount\":4}"), LW_BACK);
    assert_string_equal(ask(&x, "SELECT group_concat(id || '=' || amount) FROM orders"),
                        "1=5,2=4,3=4");
    close_fx(&x);
}

/* The two keys have the same FNV-1a hash with "app", which identified keys before: whoever wrote
 * one of them held the other one back. */
static void test_keys_cannot_be_made_to_collide(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    /* the end of an application's name is not the beginning of a key */
    assert_false(lw_fence_key_same(lw_fence_key("a", lw_bytes_of("bc")),
                                   lw_fence_key("ab", lw_bytes_of("c"))));
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 5, "evil-joB72cQ9rNvtdIoAERkvbkUK", "{\"id\":1}"), LW_DONE);
    assert_int_equal(put(&x, &j, 4, "victim", "{\"id\":2}"), LW_DONE);
    close_handler(&x);
    struct lw_config *c = fx_config("{\"store\":\"%s\",\"table\":\"orders\",%s}", x.store, columns);
    open_at(&x, "");
    assert_int_equal(put(&x, &j, 3, "victim", "{\"id\":3}"), LW_BACK);
    close_handler(&x);
    run_sql(&x, words.old_fences);
    struct lw_err err = {0};
    assert_null(lw_handler_insert.open(c, 0, &err));
    assert_contains(err.text, "older version");
    assert_contains(err.text, "then drop latchwork_fences");
    fx_config_free(c);
    drop_database(&x);
}

static void test_ended_leases_are_left_out(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    struct fx_job j[3];
    struct lw_job *jobs[3];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":2}", "{\"id\":3}"},
                             *const keys[] = {"a", "b", "c"};
    live_jobs(jobs, j, 3, keys, payloads);
    jobs[0]->lease->cancelled = true;
    jobs[2]->lease->deadline_ms = lw_boot_ms() - 1;
    lw_handler_insert.run(x.h, x.s, jobs, 3);
    assert_int_equal(jobs[0]->outcome, LW_BACK);
    assert_int_equal(jobs[1]->outcome, LW_DONE);
    assert_int_equal(jobs[2]->outcome, LW_BACK);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "2");
    close_fx(&x);
}

/* Two workers write messages with the same seven keys: 90 messages in a row by one worker, the next
 * 90 by the other, and so on. Each worker must notice the fences that the other worker has written.
 * SQLite stores new fences in the table latchwork_recent, and after 64 transactions moves them into
 * latchwork_fences. 400 messages are enough for several such moves. */
static void test_fences_of_others_are_seen(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    struct fx y = x;
    open_at(&y, ",\"on_conflict\":\"update\"");
    struct fx *of[] = {&x, &y};
    struct fx_job j;
    char key[16];
    int64_t offset = 0;
    for (int i = 0; i < 400; i++) {
        /* SQLite's store moves the fences from latchwork_recent to latchwork_fences in every 64th
         * transaction. So while one worker writes 90 messages in a row, fences leave
         * latchwork_recent before the other worker has read them there. The other worker must
         * notice that fences are missing. */
        struct fx *here = of[i / 90 % 2], *there = of[!(i / 90 % 2)];
        snprintf(key, sizeof key, "k%d", i % 7);
        struct lw_job *job = live_job(&j, offset++, key, "{\"id\":1,\"amount\":1}");
        job->fence = recent((uint64_t)(1000 + i));
        assert_int_equal(fx_run(&lw_handler_insert, here->h, here->s, job), LW_DONE);
        if (i % 45 != 44) continue;
        job = live_job(&j, offset++, key, "{\"id\":1,\"amount\":0}");
        job->fence = recent((uint64_t)(999 + i));
        assert_int_equal(fx_run(&lw_handler_insert, there->h, there->s, job), LW_BACK);
        for (int k = 0; k < 7; k++) {
            /* A lower fence must be refused for every key, whether the table latchwork_recent or
             * latchwork_fences has the higher fence. */
            snprintf(key, sizeof key, "k%d", k);
            job = live_job(&j, offset++, key, "{\"id\":1,\"amount\":0}");
            job->fence = recent((uint64_t)(1000 + i - 7));
            assert_int_equal(fx_run(&lw_handler_insert, of[k % 2]->h, of[k % 2]->s, job), LW_BACK);
        }
    }
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "1");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_fences"), "7");
    expect_sound(&x);
    close_handler(&y);
    close_handler(&x);
    open_at(&x, "");
    /* A handler that is opened again must know the fences that the database has. */
    struct lw_job *job = live_job(&j, offset++, "k3", "{\"id\":1,\"amount\":0}");
    job->fence = recent(1390);
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_BACK);
    close_fx(&x);
}

/* A worker knows a key's fence. Then another worker writes the key, and so many others that the new
 * fence leaves latchwork_recent. Nothing in latchwork_recent names the key any more, but the first
 * worker must not believe what it knew. */
static void test_a_merged_fence_is_seen(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    struct fx y = x;
    open_at(&y, ",\"on_conflict\":\"update\"");
    struct fx_job j;
    char key[16];
    int64_t offset = 0;
    assert_int_equal(put(&x, &j, offset++, "a", "{\"id\":1,\"amount\":1}"), LW_DONE);
    struct lw_job *job = live_job(&j, offset++, "a", "{\"id\":1,\"amount\":2}");
    job->fence = recent(9000);
    assert_int_equal(fx_run(&lw_handler_insert, y.h, y.s, job), LW_DONE);
    for (int i = 0; i < 66; i++) {
        snprintf(key, sizeof key, "b%d", i);
        assert_int_equal(put(&y, &j, offset++, key, "{\"id\":2,\"amount\":0}"), LW_DONE);
    }
    job = live_job(&j, offset++, "a", "{\"id\":1,\"amount\":1}");
    job->fence = recent(8000);
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_BACK);
    assert_string_equal(ask(&x, "SELECT amount FROM orders WHERE id = 1"), "2");
    close_handler(&y);
    close_fx(&x);
}

/* --- processes -------------------------------------------------------------------------------- */

enum { ROWS = 2000, BATCH = 50 };

/* Inserts a fixed sequence of ROWS messages in batches. Every process inserts the same sequence. */
static void insert_all(struct fx *x, uint64_t fence) {
    open_at(x, "");
    static struct fx_job j[BATCH];
    static char payloads[BATCH][64];
    struct lw_job *jobs[BATCH];
    for (int from = 0; from < ROWS; from += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", from + i);
            snprintf(payloads[i], sizeof payloads[i], "{\"id\":%d,\"amount\":1}", (from + i) / 2);
            jobs[i] = live_job(&j[i], from + i, key, payloads[i]);
            jobs[i]->fence = recent(fence);
        }
        lw_handler_insert.run(x->h, x->s, jobs, BATCH);
        for (int i = 0; i < BATCH; i++)
            if (jobs[i]->outcome != LW_DONE) _exit(2);
    }
    close_handler(x);
}

static pid_t insert_in_child(struct fx *x) {
    pid_t pid = fork();
    if (pid == 0) {
        insert_all(x, 7);
        _exit(0);
    }
    return pid;
}

static void expect_exact(const struct fx *x) {
    assert_string_equal(ask(x, "SELECT count(*) || ' ' || min(id) || ' ' || max(id) FROM orders"),
                        "1000 0 999");
    assert_string_equal(seen(x, ""), "2000: 0 1 2 3");
    assert_string_equal(ask(x, "SELECT group_concat(name || '=' || n) FROM (SELECT name, sum(n) AS "
                               "n FROM latchwork_count GROUP BY name ORDER BY name) AS c"),
                        "ignored=1000,inserted=1000");
    expect_sound(x);
}

static void test_two_processes_one_database(void **state) {
    (void)state;
    struct fx x;
    /* Both processes must be able to create the tables at the same time. */
    new_database(&x);
    pid_t a = insert_in_child(&x), b = insert_in_child(&x);
    int status;
    waitpid(a, &status, 0);
    assert_int_equal(status, 0);
    waitpid(b, &status, 0);
    assert_int_equal(status, 0);
    expect_exact(&x);
    drop_database(&x);
}

static void test_kill_9_in_the_middle(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    close_handler(&x);
    for (int i = 0; i < 12; i++) {
        pid_t pid = insert_in_child(&x);
        lw_sleep_ms(3 + i * 4);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    pid_t pid = insert_in_child(&x);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    expect_exact(&x);
    drop_database(&x);
}

/* --- clean-up and configuration --------------------------------------------------------------- */

/* When everything in a partition is done and committed, `insert` deletes the identities of the
 * partition's messages. If the topic is then recreated, its new messages are not mistaken for
 * duplicates. */
static void test_passed_to_the_end_leaves_nothing(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    for (int i = 0; i < 5; i++) assert_int_equal(put(&x, &j, i, "a", "{\"id\":1}"), LW_DONE);
    assert_string_equal(seen(&x, ""), "5: 0 1 2 3");
    lw_handler_insert.passed(x.h, "t", 0, 5);
    close_handler(&x);
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_seen"), "0");
    drop_database(&x);
}

/* Writes the text that seen() must return for n consecutive offsets, of which the first is
 * `first`. */
static void seen_from(char out[100], int64_t n, int64_t first) {
    snprintf(out, 100, "%lld: %lld %lld %lld %lld", (long long)n, (long long)first,
             (long long)first + 1, (long long)first + 2, (long long)first + 3);
}

static void test_passed_identities_are_cleaned(void **state) {
    (void)state;
    struct fx x;
    char want[100];
    int64_t left = 2035, first = words.many - left;
    open_fx(&x, "");
    close_handler(&x);
    add_seen(&x);
    open_at(&x, "");
    add_replays(&x);
    lw_handler_insert.passed(x.h, "t", 0, first);
    /* A watermark below the previous one must change nothing. */
    lw_handler_insert.passed(x.h, "t", 0, first - left);
    seen_from(want, left, first);
    wait_for(strcmp(seen(&x, "WHERE app = 'app' AND partition = 0"), want) == 0);
    seen_from(want, 2 * words.many, 0);
    assert_string_equal(seen(&x, "WHERE partition = 1 OR app = 'other'"), want);
    /* The cleaner must delete the old replay, number 2, and keep replay 1. */
    wait_for(strcmp(ask(&x, words.replays), "1") == 0);
    lw_handler_insert.passed(x.h, "t", 0, words.many);
    lw_handler_insert.passed(x.h, "t", 1, 1);
    /* Closing the handler must delete the identities below the last watermark of each partition. */
    close_handler(&x);
    assert_string_equal(seen(&x, "WHERE app = 'app' AND partition = 0"), "0:");
    seen_from(want, words.many - 1, 1);
    assert_string_equal(seen(&x, "WHERE app = 'app' AND partition = 1"), want);
    drop_database(&x);
}

static void test_old_fences_are_cleaned(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    char sql[300];
    long long now = (long long)lw_wall_ms() * 1000, hour = 3600LL * 1000000;
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)"
             "INSERT INTO latchwork_fences SELECT %s, %lld - (i %% 2) * %lld FROM n",
             words.hash_of_i, now - 23 * hour, 2 * hour);
    run_sql(&x, sql);
    wait_for(strcmp(ask(&x, "SELECT count(*) FROM latchwork_fences"), "750") == 0);
    close_fx(&x);
}

static UNUSED void expect_opens(const char *section) {
    struct lw_config *c = fx_config("%s", section);
    struct lw_err err = {0};
    struct lw_handler *h = lw_handler_insert.open(c, 0, &err);
    if (!h) fail_msg("%s", err.text);
    lw_handler_insert.close(h);
    fx_config_free(c);
}

static void expect_open_fails(const char *section, const char *why) {
    struct lw_config *c = fx_config("%s", section);
    struct lw_err err = {0};
    assert_null(lw_handler_insert.open(c, 0, &err));
    assert_contains(err.text, why);
    fx_config_free(c);
}

#define SHARED_CASES                                                                            \
    cmocka_unit_test(test_bad_rows_are_dead_alone),                                             \
        cmocka_unit_test(test_user_constraint_is_dead_alone), cmocka_unit_test(test_conflicts), \
        cmocka_unit_test(test_missing_fields_keep_what_is_there),                               \
        cmocka_unit_test(test_missing_fields_become_default_or_null),                           \
        cmocka_unit_test(test_missing_fields_in_a_batch),                                       \
        cmocka_unit_test(test_large_numbers_keep_their_digits_or_are_refused),                  \
        cmocka_unit_test(test_arrays_are_written_as_they_are),                                  \
        cmocka_unit_test(test_reasons_hide_masked_values),                                      \
        cmocka_unit_test(test_missing_parent_is_dead),                                          \
        cmocka_unit_test(test_missing_parent_may_be_waited_for),                                \
        cmocka_unit_test(test_epoch_times), cmocka_unit_test(test_known_identity_comes_first),  \
        cmocka_unit_test(test_stale_fence_writes_nothing),                                      \
        cmocka_unit_test(test_keys_cannot_be_made_to_collide),                                  \
        cmocka_unit_test(test_ended_leases_are_left_out),                                       \
        cmocka_unit_test(test_fences_of_others_are_seen),                                       \
        cmocka_unit_test(test_a_merged_fence_is_seen),                                          \
        cmocka_unit_test(test_two_processes_one_database),                                      \
        cmocka_unit_test(test_kill_9_in_the_middle),                                            \
        cmocka_unit_test(test_passed_to_the_end_leaves_nothing),                                \
        cmocka_unit_test(test_passed_identities_are_cleaned),                                   \
        cmocka_unit_test(test_old_fences_are_cleaned)

static UNUSED void begin_insert_cases(void) {
    first_fence = (uint64_t)lw_wall_ms() * 1000;
    lw_log_setup(LW_LOG_ERROR, false, "test");
}

#endif
