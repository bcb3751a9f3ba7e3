/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the handler type insert with real SQLite files: values, duplicates in a batch, rolled-back
 * transactions, a full disk, a locked database, and errors when the handler is opened. */
#include "tests/support/insert_cases.h"

#include "handlers/insert/sqlite/sqlite.h"

#include <pthread.h>
#include <sys/resource.h>

static const struct words words = {
    .true_value = "1",
    .too_big = "column \"id\": the number at /id is out of range",
    .not_null = "NOT NULL constraint failed: orders.amount",
    .failed_check = "CHECK constraint failed",
    .strict = "DROP TABLE orders; CREATE TABLE orders(id PRIMARY KEY, amount INTEGER NOT NULL "
              "CHECK(amount > 0), extra)",
    .many = 3000 * LW_SEEN_OFFSETS,
    .hash_of_i = "CAST(printf('%016d', i) AS BLOB)",
    .old_fences = "DROP TABLE latchwork_fences; CREATE TABLE latchwork_fences(key INTEGER PRIMARY "
                  "KEY, fence INTEGER NOT NULL)",
    .replays = "SELECT group_concat(replay) FROM latchwork_replayed",
};

static const char *path_of(const struct fx *x) { return x->store + strlen("sqlite:"); }

static void new_database(struct fx *x) {
    *x = (struct fx){.folder = fx_folder()};
    snprintf(x->store, sizeof x->store, "sqlite:%s/orders.db", x->folder);
}

static void make_orders(struct fx *x) { (void)x; }

static void drop_database(struct fx *x) { fx_remove(x->folder); }

static const char *ask(const struct fx *x, const char *sql) {
    static char out[256];
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(path_of(x), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    out[0] = '\0';
    if (sqlite3_step(st) == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(st, 0);
        snprintf(out, sizeof out, "%s", text ? (const char *)text : "NULL");
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    return out;
}

static void run_sql(const struct fx *x, const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path_of(x), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static const char *seen(const struct fx *x, const char *where) {
    static char out[256];
    struct lw_buf sql = {0};
    sqlite3 *db;
    sqlite3_stmt *st;
    lw_buf_addf(
        &sql, "SELECT segment, bits FROM latchwork_seen %s ORDER BY app, topic, partition, segment",
        where);
    assert_int_equal(sqlite3_open(path_of(x), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    assert_int_equal(sqlite3_prepare_v2(db, sql.p, (int)sql.n, &st, NULL), SQLITE_OK);
    char list[100] = "";
    int n = 0, at = 0;
    while (sqlite3_step(st) == SQLITE_ROW) {
        const unsigned char *bits = sqlite3_column_blob(st, 1);
        for (int i = 0; i < sqlite3_column_bytes(st, 1) * 8; i++) {
            if (!(bits[i / 8] >> i % 8 & 1)) continue;
            if (n++ < 4)
                at += snprintf(list + at, sizeof list - (size_t)at, " %d",
                               sqlite3_column_int(st, 0) * LW_SEEN_OFFSETS + i);
        }
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    lw_buf_free(&sql);
    snprintf(out, sizeof out, "%d:%s", n, list);
    return out;
}

static void add_seen(const struct fx *x) {
    char ones[LW_SEEN_OFFSETS / 4 + 1] = "", sql[LW_SEEN_OFFSETS / 4 + 400];
    memset(ones, 'f', sizeof ones - 1);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %lld), "
             "a(app, p) AS (VALUES ('app', 0), ('app', 1),"
             " ('other', 0)) INSERT INTO latchwork_seen SELECT app, 't', p, i, x'%s' FROM n, a",
             (long long)words.many / LW_SEEN_OFFSETS - 1, ones);
    run_sql(x, sql);
}

static void add_replays(const struct fx *x) {
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO latchwork_replayed VALUES ('app', 't', 0, 3, 1, %lld), ('app', 't', 0, "
             "3, 2, 1)",
             (long long)lw_wall_ms() * 1000);
    run_sql(x, sql);
}

static void expect_sound(const struct fx *x) {
    assert_string_equal(ask(x, "PRAGMA integrity_check"), "ok");
    assert_string_equal(ask(x, "SELECT count(*) <= 64 FROM latchwork_recent"), "1");
}

/* --- rows ------------------------------------------------------------------------------------- */

static void test_values(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    struct fx_job j;
    assert_int_equal(
        put(&x, &j, 1, "a", "{\"id\":9223372036854775807,\"amount\":1.5,\"a/b\":[0,{\"x\":[1]}]}"),
        LW_DONE);
    assert_string_equal(
        ask(&x,
            "SELECT id || '|' || typeof(id) || '|' || typeof(amount) || '|' || extra FROM orders"),
        "9223372036854775807|integer|real|{\"x\":[1]}");
    assert_int_equal(put(&x, &j, 2, "b", "{\"id\":\"b\\u0000c\",\"amount\":true,\"a/b\":7}"),
                     LW_DONE);
    assert_string_equal(ask(&x, "SELECT hex(id) || '|' || amount || '|' || ifnull(extra, 'null') "
                                "FROM orders WHERE typeof(id) = 'text'"),
                        "620063|1|null");
    assert_int_equal(put(&x, &j, 3, "c", "{\"id\":\"1\"}"), LW_DONE);
    /* the number 1 and the text "1" are different values, because the columns have no type */
    assert_int_equal(put(&x, &j, 4, "d", "{\"id\":1}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "4");
    const char *escaped = "{ \"id\" : \"\\u00e4b\", \"amount\":\"c\\n\\/\", \"a\\/b\":[0, {\"k\" : "
                          "1, \"k\" : [ 2.50, \"\\u0061\" ]}] }";
    /* the names and the values of this document contain escapes */
    assert_int_equal(put(&x, &j, 5, "e", escaped), LW_DONE);
    assert_string_equal(
        ask(&x, "SELECT id || '|' || amount || '|' || extra FROM orders WHERE id = 'äb'"),
        "äb|c\n/|{\"k\" : 1, \"k\" : [ 2.50, \"\\u0061\" ]}");
    assert_int_equal(
        put(&x, &j, 6, "f", "{\"id\":-9223372036854775808,\"amount\":1e-3,\"a/b\":[0,false]}"),
        LW_DONE);
    assert_string_equal(
        ask(&x, "SELECT id || '|' || amount || '|' || extra FROM orders WHERE id < 0"),
        "-9223372036854775808|0.001|0");
    close_fx(&x);
}

static void test_reason_of_a_strict_table(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    close_handler(&x);
    run_sql(&x, "DROP TABLE orders; CREATE TABLE orders(id INTEGER PRIMARY KEY, amount INTEGER, "
                "extra TEXT) STRICT");
    open_at(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"amount\":\"x\"}"), LW_DEAD);
    assert_contains(j.job.reason, "column \"amount\" gets \"x\" from /amount: cannot store TEXT");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":\"y\"}"), LW_DEAD);
    assert_contains(j.job.reason, "column \"id\" gets \"y\" from /id: ");
    close_fx(&x);
}

/* More sets of missing fields than there are statements kept for them. */
static void test_many_sets_of_missing_fields(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    enum { FIELDS = 6, SETS = 1 << FIELDS };
    open_fx(&x, "");
    close_handler(&x);
    run_sql(&x, "DROP TABLE orders; CREATE TABLE orders(id INTEGER PRIMARY KEY, c0 DEFAULT '-', c1 "
                "DEFAULT '-', c2 DEFAULT '-', c3 DEFAULT '-', c4 DEFAULT '-', c5 DEFAULT '-')");
    open_with(&x,
              "\"columns\":{\"id\":\"/id\",\"c0\":\"/c0\",\"c1\":\"/c1\",\"c2\":\"/c2\",\"c3\":"
              "\"/c3\",\"c4\":\"/c4\",\"c5\":\"/c5\"},\"primary_key\":[\"id\"]",
              "");
    for (int i = 0; i < 2 * SETS; i++) {
        char payload[200], want[FIELDS + 1] = "", sql[200];
        int at = snprintf(payload, sizeof payload, "{\"id\":%d", i);
        for (int c = 0; c < FIELDS; c++) {
            bool there = i >> c & 1;
            want[c] = there ? 'x' : '-';
            if (there)
                at += snprintf(payload + at, sizeof payload - (size_t)at, ",\"c%d\":\"x\"", c);
        }
        snprintf(payload + at, sizeof payload - (size_t)at, "}");
        assert_int_equal(put(&x, &j, i, "a", payload), LW_DONE);
        snprintf(sql, sizeof sql, "SELECT c0||c1||c2||c3||c4||c5 FROM orders WHERE id = %d", i);
        assert_string_equal(ask(&x, sql), want);
    }
    close_fx(&x);
}

/* --- identity and fence ----------------------------------------------------------------------- */

static void test_duplicates_in_one_batch_share_a_fate(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    run_sql(&x, "CREATE TRIGGER full BEFORE INSERT ON orders WHEN NEW.id = 9 BEGIN SELECT "
                "RAISE(ROLLBACK, 'stop'); END");
    struct fx_job j[5];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":1}", "{\"id\":2}", "{\"id\":2}",
                                           "{\"id\":9}"};
    static const char *const identities[] = {"t/0/1", "t/0/1", "t/0/1#3", "t/0/1#3", "t/0/2"};
    struct lw_job *jobs[5];
    for (int i = 0; i < 5; i++) {
        jobs[i] = live_job(&j[i], i == 4 ? 2 : 1, i < 4 ? "a" : "b", payloads[i]);
        strcpy(jobs[i]->identity, identities[i]);
    }
    lw_handler_insert.run(x.h, x.s, jobs, 5);
    /* the batch was rolled back, and each message ran by itself */
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_int_equal(jobs[4]->outcome, LW_DEAD);
    assert_contains(jobs[4]->reason, "the table refuses the row: stop");
    lw_handler_insert.run(x.h, x.s, jobs, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "2");
    assert_string_equal(ask(&x, "SELECT sum(n) FROM latchwork_count"), "2");
    close_fx(&x);
}

/* Makes the disk seem full, until the caller restores the limit in *old. Returns a payload that no
 * longer fits, with the id 2. */
static char *fill_disk(struct rlimit *old) {
    char *big = lw_alloc(200000);
    int n = snprintf(big, 100, "{\"id\":2,\"amount\":\"");
    memset(big + n, 'x', 150000);
    snprintf(big + n + 150000, 10, "\"}");
    getrlimit(RLIMIT_FSIZE, old);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 120000, .rlim_max = old->rlim_max});
    return big;
}

/* After a transaction was rolled back, the fence that the transaction wrote must not count as
 * written. */
static void test_fence_of_a_rolled_back_row_is_forgotten(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    struct rlimit old;
    char *big = fill_disk(&old);
    struct fx_job j[2];
    struct lw_job *jobs[2] = {live_job(&j[0], 1, "a", "{\"id\":1}"), live_job(&j[1], 2, "b", big)};
    jobs[0]->fence = recent(2000);
    lw_handler_insert.run(x.h, x.s, jobs, 2);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(jobs[0]->outcome, LW_BACK);
    jobs[0]->fence = recent(1500);
    wait_for(lw_handler_insert.health(x.h, NULL, 0) != LW_UNABLE);
    lw_handler_insert.run(x.h, x.s, jobs, 1);
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    free(big);
    close_fx(&x);
}

/* A trigger may end the whole transaction, or leave half of its work. The message is at fault
 * alone, and nothing of it stays. */
static void test_triggers_that_break_the_transaction(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    run_sql(&x,
            "CREATE TABLE log(id); CREATE TRIGGER a AFTER INSERT ON orders WHEN NEW.id = 8 BEGIN "
            "INSERT INTO log VALUES (NEW.id); SELECT RAISE(FAIL, 'no eights'); END;"
            "CREATE TRIGGER b BEFORE INSERT ON orders WHEN NEW.id = 9 BEGIN SELECT "
            "RAISE(ROLLBACK, 'no nines'); END");
    struct fx_job j[4];
    struct lw_job *jobs[4];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":8}", "{\"id\":9}", "{\"id\":2}"},
                             *const keys[] = {"a", "b", "c", "d"};
    live_jobs(jobs, j, 4, keys, payloads);
    lw_handler_insert.run(x.h, x.s, jobs, 4);
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    assert_int_equal(jobs[1]->outcome, LW_DEAD);
    assert_contains(jobs[1]->reason, "no eights");
    assert_int_equal(jobs[2]->outcome, LW_DEAD);
    assert_contains(jobs[2]->reason, "no nines");
    assert_int_equal(jobs[3]->outcome, LW_DONE);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "1,2");
    assert_string_equal(ask(&x, "SELECT count(*) FROM log"), "0");
    close_fx(&x);
}

static struct lw_job_lease *to_cancel;
/* A trigger calls this function when the second row is inserted. So the lease of the first message
 * ends after the first row was inserted and before the commit. */
static void cancel_it(sqlite3_context *ctx, int n, sqlite3_value **v) {
    (void)n, (void)v;
    if (to_cancel) atomic_store(&to_cancel->cancelled, true);
    sqlite3_result_null(ctx);
}

static void test_lease_that_ends_inside_is_rolled_back(void **state) {
    (void)state;
    struct fx x = {0};
    open_fx(&x, "");
    struct lw_insert in = {.app = "app", .address = path_of(&x), .table = "orders", .n_columns = 1};
    struct lw_column column = {.name = "id", .pointer = "/id", .primary = true};
    in.columns = &column;
    struct lw_sqlite s;
    assert_int_equal(lw_sqlite_open(&s, &in, NULL), 0);
    sqlite3_create_function(s.db, "cancel_it", 0, SQLITE_UTF8, NULL, cancel_it, NULL, NULL);
    static const char trigger[] =
        "CREATE TRIGGER t AFTER INSERT ON orders WHEN NEW.id = 2 BEGIN SELECT cancel_it(); END";
    assert_int_equal(sqlite3_exec(s.db, trigger, NULL, NULL, NULL), SQLITE_OK);
    struct fx_job j[3];
    struct lw_job *jobs[3];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":2}", "{\"id\":3}"},
                             *const keys[] = {"a", "b", "c"};
    live_jobs(jobs, j, 3, keys, payloads);
    to_cancel = jobs[0]->lease;
    pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;
    struct lw_outage outage;
    lw_outage_init(&outage, "orders.db");
    lw_sqlite_run(&in, &s, &writer, &outage, jobs, 3);
    lw_outage_free(&outage);
    assert_int_equal(jobs[0]->outcome, LW_BACK);
    assert_int_equal(jobs[1]->outcome, LW_DONE);
    assert_int_equal(jobs[2]->outcome, LW_DONE);
    lw_sqlite_close(&s);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "2,3");
    assert_string_equal(ask(&x, "SELECT n FROM latchwork_count WHERE name = 'inserted'"), "2");
    close_fx(&x);
}

/* --- failures --------------------------------------------------------------------------------- */

static void test_full_disk_has_no_partial_effect(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    struct rlimit old;
    char why[600], *big = fill_disk(&old);
    struct fx_job j[2];
    struct lw_job *jobs[2] = {live_job(&j[0], 1, "a", "{\"id\":1}"), live_job(&j[1], 2, "b", big)};
    /* alone, and with others */
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, jobs[1]), LW_BACK);
    wait_for(lw_handler_insert.health(x.h, NULL, 0) != LW_UNABLE);
    lw_handler_insert.run(x.h, x.s, jobs, 2);
    setrlimit(RLIMIT_FSIZE, &old);
    for (int i = 0; i < 2; i++) assert_int_equal(jobs[i]->outcome, LW_BACK);
    assert_int_equal(lw_handler_insert.health(x.h, why, sizeof why), LW_UNABLE);
    assert_contains(why, "SQLite: ");
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "0");
    assert_string_equal(seen(&x, ""), "0:");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_recent"), "0");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_fences"), "0");
    wait_for(lw_handler_insert.health(x.h, NULL, 0) != LW_UNABLE);
    lw_handler_insert.run(x.h, x.s, jobs, 2); /* the disk has free space again */
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    assert_int_equal(jobs[1]->outcome, LW_DONE);
    free(big);
    close_fx(&x);
}

/* A table that is gone concerns all messages: none counts an attempt, and the handler goes on when
 * the table is back. */
static void test_lost_table_is_an_outage(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    run_sql(&x, "ALTER TABLE orders RENAME TO elsewhere");
    for (int i = 2; i < 8; i++) assert_int_equal(put(&x, &j, i, "b", "{\"id\":2}"), LW_BACK);
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_UNABLE);
    run_sql(&x, "ALTER TABLE elsewhere RENAME TO orders");
    wait_for(put(&x, &j, 2, "b", "{\"id\":2}") == LW_DONE);
    assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_WELL);
    close_fx(&x);
}

/* A row into a file that was removed is lost, although SQLite reports no error. */
static void test_removed_file_is_noticed(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    char away[300], why[600];
    open_fx(&x, "");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    snprintf(away, sizeof away, "%s.away", path_of(&x));
    assert_int_equal(rename(path_of(&x), away), 0);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_BACK);
    assert_int_equal(lw_handler_insert.health(x.h, why, sizeof why), LW_UNABLE);
    assert_contains(why, "the database file was removed or replaced");
    fx_write(path_of(&x), "");
    wait_for(lw_handler_insert.health(x.h, NULL, 0) != LW_UNABLE);
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_BACK);
    assert_int_equal(rename(away, path_of(&x)), 0);
    wait_for(put(&x, &j, 3, "a", "{\"id\":3}") == LW_DONE);
    close_fx(&x);
}

/* Other processes would no longer see what is written to the log of a transaction. */
static void test_removed_log_is_noticed(void **state) {
    (void)state;
    static const char *const suffixes[] = {"-wal", "-shm"};
    for (int i = 0; i < 2; i++) {
        struct fx x;
        struct fx_job j;
        char here[300], away[320];
        open_fx(&x, "");
        assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
        snprintf(here, sizeof here, "%s%s", path_of(&x), suffixes[i]);
        snprintf(away, sizeof away, "%s.away", here);
        assert_int_equal(rename(here, away), 0);
        lw_sleep_ms(300); /* the log is looked at four times a second */
        assert_int_equal(put(&x, &j, 2, "a", "{\"id\":2}"), LW_BACK);
        assert_int_equal(lw_handler_insert.health(x.h, NULL, 0), LW_UNABLE);
        assert_int_equal(rename(away, here), 0);
        wait_for(put(&x, &j, 2, "a", "{\"id\":2}") == LW_DONE);
        close_fx(&x);
    }
}

static void test_busy_is_bounded_by_the_leases(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    sqlite3 *other;
    assert_int_equal(sqlite3_open(path_of(&x), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    struct fx_job j;
    struct lw_job *job = live_job(&j, 1, "a", "{\"id\":1}");
    job->lease->deadline_ms = lw_boot_ms() + 200;
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_BACK);
    sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(other);
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DONE);
    close_fx(&x);
}

/* --- configuration ---------------------------------------------------------------------------- */

static void test_check(void **state) {
    (void)state;
    char *text = fx_check(&lw_handler_insert, "{\"colums\":1}");
    assert_contains(text, "handler.colums: unknown key; did you mean columns?");
    assert_contains(text, "handler.store: required");
    assert_contains(text, "handler.table: required");
    assert_contains(text, "handler.columns: required");
    assert_contains(text, "handler.primary_key: required");
    free(text);
    text = fx_check(
        &lw_handler_insert,
        "{\"store\":\"mysql://"
        "x\",\"table\":\"latchwork_done\",\"columns\":{\"a\":\"b\",\"c\":\"/~2\",\"d\":1,"
        "\"e\":{\"from\":\"/e\",\"as\":\"epoch\"}},"
        "\"primary_key\":[\"x\"],\"on_conflict\":\"updat\",\"missing\":\"kepe\",\"retry_on\":[\"unique\"],"
        "\"create\":1}");
    assert_contains(text, "handler.store: must be sqlite:PATH or postgres://");
    assert_contains(text, "handler.table: names beginning");
    assert_contains(text, "handler.columns.a: must be a JSON pointer");
    assert_contains(text, "handler.columns.c: must be a JSON pointer");
    assert_contains(text, "handler.columns.d: must be a JSON pointer");
    assert_contains(text, "handler.primary_key[0]: \"x\" is not among");
    assert_contains(text, "handler.columns.e: must have \"from\", and \"as\": epoch_s");
    assert_contains(text, "handler.retry_on[0]: must be \"foreign_key\"");
    assert_contains(text, "did you mean update?");
    assert_contains(text, "handler.missing: must be keep, null or default; did you mean keep?");
    assert_contains(text, "handler.create: must be");
    free(text);
    text = fx_check(&lw_handler_insert, "{\"type\":\"insert\",\"store\":\"sqlite:path_of(&x)\","
                                        "\"table\":\"t\",\"columns\":{\"a\":\"\"},"
                                        "\"primary_key\":[\"a\"],\"on_conflict\":\"dead\","
                                        "\"create\":false,\"threads\":2,\"timeout_ms\":0}");
    assert_string_equal(text, "");
    free(text);
}

static void test_open_errors(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    char section[600];
    snprintf(section, sizeof section, "{\"store\":\"sqlite:%s\",\"table\":\"nope\",%s}",
             path_of(&x), columns);
    expect_open_fails(section, "there is no table \"nope\"");
    snprintf(section, sizeof section,
             "{\"store\":\"sqlite:%s\",\"table\":\"orders\",\"columns\":{\"zz\":\"/"
             "z\"},\"primary_key\":[\"zz\"]}",
             path_of(&x));
    expect_open_fails(section, "does not fit handler.columns: table orders has no column named zz");
    snprintf(section, sizeof section,
             "{\"store\":\"sqlite:%s\",\"table\":\"orders\",\"columns\":{\"amount\":\"/"
             "z\"},\"primary_key\":[\"amount\"],\"on_conflict\":\"update\"}",
             path_of(&x));
    expect_open_fails(section, "ON CONFLICT clause does not match");
    run_sql(&x, "CREATE TABLE latchwork_done(app)");
    snprintf(section, sizeof section, "{\"store\":\"sqlite:%s\",\"table\":\"orders\",%s}",
             path_of(&x), columns);
    expect_open_fails(section, "made by an older version");
    snprintf(section, sizeof section,
             "{\"store\":\"sqlite:%s/no/such/path_of(&x)\",\"table\":\"orders\",%s}", x.folder,
             columns);
    expect_open_fails(section, "cannot open: unable to open database file");
    close_fx(&x);
}

int main(void) {
    begin_insert_cases();
    const struct CMUnitTest tests[] = {
        SHARED_CASES,
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_reason_of_a_strict_table),
        cmocka_unit_test(test_many_sets_of_missing_fields),
        cmocka_unit_test(test_duplicates_in_one_batch_share_a_fate),
        cmocka_unit_test(test_fence_of_a_rolled_back_row_is_forgotten),
        cmocka_unit_test(test_lease_that_ends_inside_is_rolled_back),
        cmocka_unit_test(test_full_disk_has_no_partial_effect),
        cmocka_unit_test(test_lost_table_is_an_outage),
        cmocka_unit_test(test_removed_file_is_noticed),
        cmocka_unit_test(test_removed_log_is_noticed),
        cmocka_unit_test(test_triggers_that_break_the_transaction),
        cmocka_unit_test(test_busy_is_bounded_by_the_leases),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_open_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
