/* SPDX-License-Identifier: Apache-2.0 */
/* Tests insert with real SQLite files: one writer, several processes, kill -9 in the middle, a full disk. */
#include "tests/support/handler_fixture.h"

#include "handlers/insert/insert.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct fx {
    char *folder;
    char db[256];
    struct lw_config *c;
    struct lw_handler *h;
    struct lw_slot *s;
};

/* Every second the cleaner deletes fences that are more than a day old. A fence is the time in µs, so the tests use fences of this
 * minute, which stay however long a test takes. */
static uint64_t first_fence;
static uint64_t recent(uint64_t n) { return first_fence + n; }
static struct lw_job *live_job(struct fx_job *j, int64_t offset, const char *key, const char *payload) {
    struct lw_job *job = fx_job(j, offset, key, payload);
    job->fence = recent(job->fence);
    return job;
}

static const char columns[] = "\"columns\":{\"id\":\"/id\",\"amount\":\"/amount\",\"extra\":\"/a~1b/1\"},\"primary_key\":[\"id\"]";

static void open_at(struct fx *x, const char *more) {
    x->c = fx_config("{\"type\":\"insert\",\"store\":\"sqlite:%s\",\"table\":\"orders\",%s,\"create\":true%s}", x->db, columns, more);
    struct lw_err err = {0};
    x->h = lw_handler_insert.open(x->c, 0, &err);
    if (!x->h) fail_msg("%s", err.text);
    x->s = lw_handler_insert.slot_open(x->h, 0, &err);
    if (!x->s) fail_msg("%s", err.text);
}

static void open_fx(struct fx *x, const char *more) {
    x->folder = fx_folder();
    snprintf(x->db, sizeof x->db, "%s/orders.db", x->folder);
    open_at(x, more);
}

static void close_handler(struct fx *x) {
    lw_handler_insert.slot_close(x->h, x->s);
    lw_handler_insert.close(x->h);
    fx_config_free(x->c);
}

static void close_fx(struct fx *x) {
    close_handler(x);
    fx_remove(x->folder);
}

static enum lw_outcome put(struct fx *x, struct fx_job *j, int64_t offset, const char *key, const char *payload) {
    return fx_run(&lw_handler_insert, x->h, x->s, live_job(j, offset, key, payload));
}

/* Returns the first column of the first row as text, or "" if there is no row. The text is valid until the next call. */
static const char *ask(const struct fx *x, const char *sql) {
    static char out[256];
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(x->db, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
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
    assert_int_equal(sqlite3_open(x->db, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* Returns the number of identities in latchwork_seen and the offsets of the first few, as "2: 0 7". `where` limits the rows. */
static const char *seen(const struct fx *x, const char *where) {
    static char out[256];
    struct lw_buf sql = {0};
    sqlite3 *db;
    sqlite3_stmt *st;
    lw_buf_addf(&sql, "SELECT segment, bits FROM latchwork_seen %s ORDER BY app, topic, partition, segment", where);
    assert_int_equal(sqlite3_open(x->db, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    assert_int_equal(sqlite3_prepare_v2(db, sql.p, (int)sql.n, &st, NULL), SQLITE_OK);
    char list[100] = "";
    int n = 0, at = 0;
    while (sqlite3_step(st) == SQLITE_ROW) {
        const unsigned char *bits = sqlite3_column_blob(st, 1);
        for (int i = 0; i < sqlite3_column_bytes(st, 1) * 8; i++) {
            if (!(bits[i / 8] >> i % 8 & 1)) continue;
            if (n++ < 4) at += snprintf(list + at, sizeof list - (size_t)at, " %d", sqlite3_column_int(st, 0) * LW_SEEN_OFFSETS + i);
        }
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    lw_buf_free(&sql);
    snprintf(out, sizeof out, "%d:%s", n, list);
    return out;
}

/* --- rows ----------------------------------------------------------------------------------------------------------------------- */

static void test_values(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    struct fx_job j;
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":9223372036854775807,\"amount\":1.5,\"a/b\":[0,{\"x\":[1]}]}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT id || '|' || typeof(id) || '|' || typeof(amount) || '|' || extra FROM orders"),
                        "9223372036854775807|integer|real|{\"x\":[1]}");
    assert_int_equal(put(&x, &j, 2, "b", "{\"id\":\"b\\u0000c\",\"amount\":true,\"a/b\":7}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT hex(id) || '|' || amount || '|' || ifnull(extra, 'null') FROM orders WHERE typeof(id) = 'text'"),
                        "620063|1|null");
    assert_int_equal(put(&x, &j, 3, "c", "{\"id\":\"1\"}"), LW_DONE);
    assert_int_equal(put(&x, &j, 4, "d", "{\"id\":1}"), LW_DONE); /* not the text "1" of the row before: columns have no type */
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "4");
    const char *escaped = "{ \"id\" : \"\\u00e4b\", \"amount\":\"c\\n\\/\", \"a\\/b\":[0, {\"k\" : 1, \"k\" : [ 2.50, \"\\u0061\" ]}] }";
    assert_int_equal(put(&x, &j, 5, "e", escaped), LW_DONE); /* escapes in names and in values */
    assert_string_equal(ask(&x, "SELECT id || '|' || amount || '|' || extra FROM orders WHERE id = 'äb'"), "äb|c\n/|{\"k\":[2.5,\"a\"]}");
    assert_int_equal(put(&x, &j, 6, "f", "{\"id\":-9223372036854775808,\"amount\":1e-3,\"a/b\":[0,false]}"), LW_DONE);
    assert_string_equal(ask(&x, "SELECT id || '|' || amount || '|' || extra FROM orders WHERE id < 0"), "-9223372036854775808|0.001|0");
    close_fx(&x);
}

static void test_bad_rows_are_dead_alone(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"dead\"");
    static const char *const payloads[] = {"{\"id\":1}",    "{\"id\":",   "{\"amount\":1}",
                                           "{\"id\":null}", "{\"id\":1}", NULL,
                                           "\xff",          "{\"id\":2}", "{\"id\":99999999999999999999}"};
    static const char *const reasons[] = {"",
                                          "malformed JSON at byte 6",
                                          "primary key column \"id\": nothing at /id",
                                          "null at /id",
                                          "duplicate primary key",
                                          "no payload",
                                          "malformed JSON at byte",
                                          "",
                                          "too big integer"};
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
    run_sql(&x, "DROP TABLE orders; CREATE TABLE orders(id PRIMARY KEY, amount INTEGER NOT NULL CHECK(amount > 0), extra)");
    open_at(&x, "");
    struct fx_job j;
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1}"), LW_DEAD);
    assert_contains(j.job.reason, "NOT NULL constraint failed: orders.amount");
    assert_int_equal(put(&x, &j, 2, "a", "{\"id\":1,\"amount\":-1}"), LW_DEAD);
    assert_contains(j.job.reason, "CHECK constraint failed");
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

/* --- identity and fence --------------------------------------------------------------------------------------------------------- */

static void test_known_identity_comes_first(void **state) {
    (void)state;
    struct fx x;
    struct fx_job j;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    assert_int_equal(put(&x, &j, 1, "a", "{\"id\":1,\"amount\":1}"), LW_DONE);
    assert_int_equal(put(&x, &j, 9, "a", "{\"id\":1,\"amount\":9}"), LW_DONE);
    struct lw_job *job = live_job(&j, 1, "a", "{\"id\":1,\"amount\":1}"); /* the same message under a stale fence is still done */
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_DONE);
    job->payload = lw_bytes_of("not JSON any more");
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_DONE);
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "9");
    snprintf(job->identity, sizeof job->identity, "t/0/1#1"); /* a replay is another message */
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
    assert_int_equal(put(&x, &j, 3, "a", "broken"), LW_BACK);                  /* only the lane's holder may judge the payload */
    assert_int_equal(put(&x, &j, 4, "b", "{\"id\":2,\"amount\":4}"), LW_DONE); /* fences are by key */
    assert_int_equal(put(&x, &j, 6, "", "{\"id\":3,\"amount\":4}"), LW_DONE);
    assert_int_equal(put(&x, &j, 2, "", "{\"id\":3,\"amount\":4}"), LW_BACK);
    assert_string_equal(ask(&x, "SELECT group_concat(id || '=' || amount) FROM orders"), "1=5,2=4,3=4");
    close_fx(&x);
}

static void test_ended_leases_are_left_out(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    struct fx_job j[3];
    struct lw_job *jobs[3];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":2}", "{\"id\":3}"}, *const keys[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) jobs[i] = live_job(&j[i], i, keys[i], payloads[i]);
    jobs[0]->lease->cancelled = true;
    jobs[2]->lease->deadline_ms = lw_boot_ms() - 1;
    lw_handler_insert.run(x.h, x.s, jobs, 3);
    assert_int_equal(jobs[0]->outcome, LW_BACK);
    assert_int_equal(jobs[1]->outcome, LW_DONE);
    assert_int_equal(jobs[2]->outcome, LW_BACK);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "2");
    close_fx(&x);
}

static void test_duplicates_in_one_batch_share_a_fate(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    run_sql(&x, "CREATE TRIGGER full BEFORE INSERT ON orders WHEN NEW.id = 9 BEGIN SELECT RAISE(ROLLBACK, 'stop'); END");
    struct fx_job j[5];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":1}", "{\"id\":2}", "{\"id\":2}", "{\"id\":9}"};
    static const char *const identities[] = {"t/0/1", "t/0/1", "t/0/1#3", "t/0/1#3", "t/0/2"};
    struct lw_job *jobs[5];
    for (int i = 0; i < 5; i++) {
        jobs[i] = live_job(&j[i], i == 4 ? 2 : 1, i < 4 ? "a" : "b", payloads[i]);
        strcpy(jobs[i]->identity, identities[i]);
    }
    lw_handler_insert.run(x.h, x.s, jobs, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(jobs[i]->outcome, LW_RETRY); /* the batch was rolled back, so no message is done */
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "0");
    lw_handler_insert.run(x.h, x.s, jobs, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i]->outcome, LW_DONE);
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "2");
    assert_string_equal(ask(&x, "SELECT sum(n) FROM latchwork_count"), "2");
    close_fx(&x);
}

/* Two workers take turns over the same keys, far enough to merge fences many times: each knows what the other wrote. */
static void test_fences_of_others_are_seen(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, ",\"on_conflict\":\"update\"");
    struct fx y = {.folder = x.folder};
    memcpy(y.db, x.db, sizeof y.db);
    open_at(&y, ",\"on_conflict\":\"update\"");
    struct fx *of[] = {&x, &y};
    struct fx_job j;
    char key[16];
    int64_t offset = 0;
    for (int i = 0; i < 400; i++) {
        struct fx *here = of[i / 90 % 2], *there = of[!(i / 90 % 2)]; /* in a turn of 90, rows are merged that the other has not read */
        snprintf(key, sizeof key, "k%d", i % 7);
        struct lw_job *job = live_job(&j, offset++, key, "{\"id\":1,\"amount\":1}");
        job->fence = recent((uint64_t)(1000 + i));
        assert_int_equal(fx_run(&lw_handler_insert, here->h, here->s, job), LW_DONE);
        if (i % 45 != 44) continue;
        job = live_job(&j, offset++, key, "{\"id\":1,\"amount\":0}");
        job->fence = recent((uint64_t)(999 + i));
        assert_int_equal(fx_run(&lw_handler_insert, there->h, there->s, job), LW_BACK);
        for (int k = 0; k < 7; k++) { /* older fences are refused for every key, whether merged or not */
            snprintf(key, sizeof key, "k%d", k);
            job = live_job(&j, offset++, key, "{\"id\":1,\"amount\":0}");
            job->fence = recent((uint64_t)(1000 + i - 7));
            assert_int_equal(fx_run(&lw_handler_insert, of[k % 2]->h, of[k % 2]->s, job), LW_BACK);
        }
    }
    assert_string_equal(ask(&x, "SELECT amount FROM orders"), "1");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_fences"), "7");
    assert_string_equal(ask(&x, "SELECT count(*) <= 64 FROM latchwork_recent"), "1");
    close_handler(&y);
    close_handler(&x);
    open_at(&x, "");
    struct lw_job *job = live_job(&j, offset++, "k3", "{\"id\":1,\"amount\":0}"); /* a new process reads the fences of all keys */
    job->fence = recent(1390);
    assert_int_equal(fx_run(&lw_handler_insert, x.h, x.s, job), LW_BACK);
    close_fx(&x);
}

/* A fence of a transaction that was rolled back is not taken for written. */
static void test_fence_of_a_rolled_back_row_is_forgotten(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    run_sql(&x, "CREATE TRIGGER full BEFORE INSERT ON orders WHEN NEW.id = 9 BEGIN SELECT RAISE(ROLLBACK, 'stop'); END");
    struct fx_job j[2];
    struct lw_job *jobs[2] = {live_job(&j[0], 1, "a", "{\"id\":1}"), live_job(&j[1], 2, "b", "{\"id\":9}")};
    jobs[0]->fence = recent(2000);
    lw_handler_insert.run(x.h, x.s, jobs, 2);
    assert_int_equal(jobs[0]->outcome, LW_RETRY);
    jobs[0]->fence = recent(1500);
    lw_handler_insert.run(x.h, x.s, jobs, 1);
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    close_fx(&x);
}

/* The lease ends between the first row and the commit, because a trigger's function cancels it. */
static struct lw_job_lease *to_cancel;
static void cancel_it(sqlite3_context *ctx, int n, sqlite3_value **v) {
    (void)n, (void)v;
    if (to_cancel) atomic_store(&to_cancel->cancelled, true);
    sqlite3_result_null(ctx);
}

static void test_lease_that_ends_inside_is_rolled_back(void **state) {
    (void)state;
    struct fx x = {0};
    open_fx(&x, "");
    struct lw_insert in = {.app = "app", .path = x.db, .table = "orders", .n_columns = 1};
    struct lw_column column = {.name = "id", .pointer = "/id", .primary = true};
    in.columns = &column;
    struct lw_store s;
    assert_int_equal(lw_store_open(&s, &in, NULL), 0);
    sqlite3_create_function(s.db, "cancel_it", 0, SQLITE_UTF8, NULL, cancel_it, NULL, NULL);
    static const char trigger[] = "CREATE TRIGGER t AFTER INSERT ON orders WHEN NEW.id = 2 BEGIN SELECT cancel_it(); END";
    assert_int_equal(sqlite3_exec(s.db, trigger, NULL, NULL, NULL), SQLITE_OK);
    struct fx_job j[3];
    struct lw_job *jobs[3];
    static const char *const payloads[] = {"{\"id\":1}", "{\"id\":2}", "{\"id\":3}"}, *const keys[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) jobs[i] = live_job(&j[i], i, keys[i], payloads[i]);
    to_cancel = jobs[0]->lease;
    pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;
    lw_insert_run(&in, &s, &writer, jobs, 3);
    assert_int_equal(jobs[0]->outcome, LW_BACK);
    assert_int_equal(jobs[1]->outcome, LW_DONE);
    assert_int_equal(jobs[2]->outcome, LW_DONE);
    lw_store_close(&s);
    assert_string_equal(ask(&x, "SELECT group_concat(id) FROM orders"), "2,3");
    assert_string_equal(ask(&x, "SELECT n FROM latchwork_count WHERE name = 'inserted'"), "2");
    close_fx(&x);
}

/* --- failures ------------------------------------------------------------------------------------------------------------------- */

static void test_full_disk_has_no_partial_effect(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    char *big = lw_alloc(200000);
    int n = snprintf(big, 100, "{\"id\":2,\"amount\":\"");
    memset(big + n, 'x', 150000);
    snprintf(big + n + 150000, 10, "\"}");
    struct rlimit old, small = {.rlim_cur = 120000};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    struct fx_job j[2];
    struct lw_job *jobs[2] = {live_job(&j[0], 1, "a", "{\"id\":1}"), live_job(&j[1], 2, "b", big)};
    lw_handler_insert.run(x.h, x.s, jobs, 2);
    setrlimit(RLIMIT_FSIZE, &old);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(jobs[i]->outcome, LW_RETRY);
        assert_contains(jobs[i]->reason, "SQLite: ");
    }
    assert_string_equal(ask(&x, "SELECT count(*) FROM orders"), "0");
    assert_string_equal(seen(&x, ""), "0:");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_recent"), "0");
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_fences"), "0");
    lw_handler_insert.run(x.h, x.s, jobs, 2); /* the disk has room again */
    assert_int_equal(jobs[0]->outcome, LW_DONE);
    assert_int_equal(jobs[1]->outcome, LW_DONE);
    free(big);
    close_fx(&x);
}

static void test_busy_is_bounded_by_the_leases(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    sqlite3 *other;
    assert_int_equal(sqlite3_open(x.db, &other), SQLITE_OK);
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

/* --- processes ------------------------------------------------------------------------------------------------------------------ */

enum { ROWS = 2000, BATCH = 50 };

/* Inserts the same ROWS messages as every other process does, in batches. */
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
    assert_string_equal(ask(x, "SELECT count(*) || ' ' || min(id) || ' ' || max(id) FROM orders"), "1000 0 999");
    assert_string_equal(seen(x, ""), "2000: 0 1 2 3");
    assert_string_equal(ask(x, "SELECT group_concat(name || '=' || n) FROM (SELECT * FROM latchwork_count ORDER BY name)"),
                        "ignored=1000,inserted=1000");
    assert_string_equal(ask(x, "PRAGMA integrity_check"), "ok");
}

static void test_two_processes_one_file(void **state) {
    (void)state;
    struct fx x = {.folder = fx_folder()};
    snprintf(x.db, sizeof x.db, "%s/orders.db", x.folder); /* both processes also create the database */
    pid_t a = insert_in_child(&x), b = insert_in_child(&x);
    int status;
    waitpid(a, &status, 0);
    assert_int_equal(status, 0);
    waitpid(b, &status, 0);
    assert_int_equal(status, 0);
    expect_exact(&x);
    fx_remove(x.folder);
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
    fx_remove(x.folder);
}

/* --- clean-up ------------------------------------------------------------------------------------------------------------------- */

static void test_passed_identities_are_cleaned(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    close_handler(&x);
    char ones[LW_SEEN_OFFSETS / 4 + 1] = "", fill[600];
    memset(ones, 'f', sizeof ones - 1);
    snprintf(fill, sizeof fill, "CREATE TABLE ones(bits); INSERT INTO ones VALUES (x'%s')", ones);
    run_sql(&x, fill);
    run_sql(&x, "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2999)"
                "INSERT INTO latchwork_seen SELECT 'app', 't', 0, i, bits FROM n, ones UNION ALL SELECT 'app', 't', 1, i, bits FROM n, ones"
                " UNION ALL SELECT 'other', 't', 0, i, bits FROM n, ones");
    open_at(&x, "");
    char sql[200];
    snprintf(sql, sizeof sql, "INSERT INTO latchwork_replayed VALUES ('app', 't', 0, 3, 1, %lld), ('app', 't', 0, 3, 2, 1)",
             (long long)lw_wall_ms() * 1000);
    run_sql(&x, sql);
    lw_handler_insert.passed(x.h, "t", 0, 2998 * LW_SEEN_OFFSETS + 13);
    lw_handler_insert.passed(x.h, "t", 0, 2998 * LW_SEEN_OFFSETS - 1); /* a lower watermark changes nothing */
    wait_for(strcmp(seen(&x, "WHERE app = 'app' AND partition = 0"), "2035: 3069965 3069966 3069967 3069968") == 0);
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_seen WHERE partition = 1 OR app = 'other'"), "6000");
    wait_for(strcmp(ask(&x, "SELECT group_concat(replay) FROM latchwork_replayed"), "1") == 0); /* the old replay was deleted */
    lw_handler_insert.passed(x.h, "t", 0, 3000 * LW_SEEN_OFFSETS);
    lw_handler_insert.passed(x.h, "t", 1, 1);
    close_handler(&x); /* closing cleans up to the last watermarks that passed() was given */
    assert_string_equal(ask(&x, "SELECT count(*) FROM latchwork_seen WHERE app = 'app' AND partition = 0"), "0");
    assert_string_equal(seen(&x, "WHERE app = 'app' AND segment = 0"), "1023: 1 2 3 4");
    fx_remove(x.folder);
}

/* All that was done and committed is deleted here, so a topic that is created again is read from its beginning. */
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
    fx_remove(x.folder);
}

static void test_old_fences_are_cleaned(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    char sql[300];
    long long now = (long long)lw_wall_ms() * 1000, hour = 3600LL * 1000000;
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)"
             "INSERT INTO latchwork_fences SELECT (i - 750) * 12345678901, %lld - (i %% 2) * %lld FROM n",
             now - 23 * hour, 2 * hour);
    run_sql(&x, sql);
    wait_for(strcmp(ask(&x, "SELECT count(*) FROM latchwork_fences"), "750") == 0);
    close_fx(&x);
}

/* --- configuration -------------------------------------------------------------------------------------------------------------- */

static void test_check(void **state) {
    (void)state;
    char *text = fx_check(&lw_handler_insert, "{\"colums\":1}");
    assert_contains(text, "handler.colums: unknown key; did you mean columns?");
    assert_contains(text, "handler.store: required");
    assert_contains(text, "handler.table: required");
    assert_contains(text, "handler.columns: required");
    assert_contains(text, "handler.primary_key: required");
    free(text);
    text = fx_check(&lw_handler_insert,
                    "{\"store\":\"postgres://x\",\"table\":\"latchwork_done\",\"columns\":{\"a\":\"b\",\"c\":\"/~2\",\"d\":1},"
                    "\"primary_key\":[\"x\"],\"on_conflict\":\"updat\",\"create\":1}");
    assert_contains(text, "postgres:// is not in this version");
    assert_contains(text, "handler.table: names beginning");
    assert_contains(text, "handler.columns.a: must be a JSON pointer");
    assert_contains(text, "handler.columns.c: must be a JSON pointer");
    assert_contains(text, "handler.columns.d: must be a JSON pointer");
    assert_contains(text, "handler.primary_key[0]: \"x\" is not among");
    assert_contains(text, "did you mean update?");
    assert_contains(text, "handler.create: must be");
    free(text);
    text =
        fx_check(&lw_handler_insert, "{\"type\":\"insert\",\"store\":\"sqlite:x.db\",\"table\":\"t\",\"columns\":{\"a\":\"\"},"
                                     "\"primary_key\":[\"a\"],\"on_conflict\":\"dead\",\"create\":false,\"threads\":2,\"timeout_ms\":0}");
    assert_string_equal(text, "");
    free(text);
}

static void expect_open_fails(const char *section, const char *why) {
    struct lw_config *c = fx_config("%s", section);
    struct lw_err err = {0};
    assert_null(lw_handler_insert.open(c, 0, &err));
    assert_contains(err.text, why);
    fx_config_free(c);
}

static void test_open_errors(void **state) {
    (void)state;
    struct fx x;
    open_fx(&x, "");
    char section[600];
    snprintf(section, sizeof section, "{\"store\":\"sqlite:%s\",\"table\":\"nope\",%s}", x.db, columns);
    expect_open_fails(section, "there is no table \"nope\"");
    snprintf(section, sizeof section, "{\"store\":\"sqlite:%s\",\"table\":\"orders\",\"columns\":{\"zz\":\"/z\"},\"primary_key\":[\"zz\"]}",
             x.db);
    expect_open_fails(section, "does not fit handler.columns: table orders has no column named zz");
    snprintf(section, sizeof section,
             "{\"store\":\"sqlite:%s\",\"table\":\"orders\",\"columns\":{\"amount\":\"/"
             "z\"},\"primary_key\":[\"amount\"],\"on_conflict\":\"update\"}",
             x.db);
    expect_open_fails(section, "ON CONFLICT clause does not match");
    run_sql(&x, "CREATE TABLE latchwork_done(app)");
    snprintf(section, sizeof section, "{\"store\":\"sqlite:%s\",\"table\":\"orders\",%s}", x.db, columns);
    expect_open_fails(section, "made by an older version");
    snprintf(section, sizeof section, "{\"store\":\"sqlite:%s/no/such/x.db\",\"table\":\"orders\",%s}", x.folder, columns);
    expect_open_fails(section, "cannot open: unable to open database file");
    close_fx(&x);
}

int main(void) {
    first_fence = (uint64_t)lw_wall_ms() * 1000;
    lw_log_setup(LW_LOG_ERROR, false, "test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bad_rows_are_dead_alone),
        cmocka_unit_test(test_user_constraint_is_dead_alone),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_known_identity_comes_first),
        cmocka_unit_test(test_stale_fence_writes_nothing),
        cmocka_unit_test(test_ended_leases_are_left_out),
        cmocka_unit_test(test_duplicates_in_one_batch_share_a_fate),
        cmocka_unit_test(test_fences_of_others_are_seen),
        cmocka_unit_test(test_fence_of_a_rolled_back_row_is_forgotten),
        cmocka_unit_test(test_lease_that_ends_inside_is_rolled_back),
        cmocka_unit_test(test_full_disk_has_no_partial_effect),
        cmocka_unit_test(test_busy_is_bounded_by_the_leases),
        cmocka_unit_test(test_two_processes_one_file),
        cmocka_unit_test(test_kill_9_in_the_middle),
        cmocka_unit_test(test_passed_identities_are_cleaned),
        cmocka_unit_test(test_passed_to_the_end_leaves_nothing),
        cmocka_unit_test(test_old_fences_are_cleaned),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_open_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
