/* SPDX-License-Identifier: Apache-2.0 */
/* The bare writer, which shows how fast the store is without a queue. One thread reads a topic and
 * inserts its rows, in transactions as large as Latchwork's (256 messages). Duplicates are ignored
 * because of the primary key. There are no locks, and no protection against crashes. If the store
 * is SQLite, the writer inserts only the rows. If the store is PostgreSQL, the writer sends the
 * same statement as Latchwork, including fences and identities, although it does not need them.
 *
 *     writer --brokers H:P --topic T --group G --messages N --store FILE|postgres://… [--batch N]
 *
 * Prints one line of JSON: messages, first_us, last_us (CLOCK_MONOTONIC: before the first row,
 * after the last commit), rows. */
#include "bench/writer.h"

#include "bench/journal.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 4096, POLL_MS = 20, STALL_MS = 30000 };

static struct {
    const char *brokers, *topic, *group, *store;
    int64_t messages, batch;
} opt = {.batch = 256};

_Noreturn void die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("writer: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* --- SQLite: opened as the insert handler opens it -------------------------------------------- */

static sqlite3 *db;
static sqlite3_stmt *insert;

static void run(const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL)) die("%s: %s", sql, sqlite3_errmsg(db));
}

static void open_sqlite(const char *file) {
    if (sqlite3_open(file, &db)) die("%s: %s", file, sqlite3_errmsg(db));
    run("PRAGMA journal_mode=WAL");
    run("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000");
    run("CREATE TABLE IF NOT EXISTS events (seq PRIMARY KEY, id, amount)");
    if (sqlite3_prepare_v3(db, "INSERT OR IGNORE INTO events (seq, id, amount) VALUES (?1, ?2, ?3)",
                           -1, SQLITE_PREPARE_PERSISTENT, &insert, NULL))
        die("%s", sqlite3_errmsg(db));
}

static void add_sqlite(const rd_kafka_message_t *m) {
    json_error_t why;
    json_t *row = json_loadb(m->payload, m->len, 0, &why);
    if (!row) die("a payload is no JSON: %s", why.text);
    sqlite3_bind_int64(insert, 1, json_integer_value(json_object_get(row, "seq")));
    sqlite3_bind_text(insert, 2, json_string_value(json_object_get(row, "id")), -1,
                      SQLITE_TRANSIENT);
    sqlite3_bind_int64(insert, 3, json_integer_value(json_object_get(row, "amount")));
    json_decref(row);
    if (sqlite3_step(insert) != SQLITE_DONE) die("insert: %s", sqlite3_errmsg(db));
    sqlite3_reset(insert);
}

static void begin_sqlite(void) { run("BEGIN IMMEDIATE"); }
static void commit_sqlite(void) { run("COMMIT"); }

static int64_t count_sqlite(void) {
    sqlite3_stmt *count;
    if (sqlite3_prepare_v2(db, "SELECT count(*) FROM events", -1, &count, NULL) ||
        sqlite3_step(count) != SQLITE_ROW)
        die("%s", sqlite3_errmsg(db));
    int64_t n = sqlite3_column_int64(count, 0);
    sqlite3_finalize(count);
    return n;
}

static void close_sqlite(void) {
    sqlite3_finalize(insert);
    sqlite3_close(db);
}

static const struct writer_store sqlite = {open_sqlite,   begin_sqlite, add_sqlite,
                                           commit_sqlite, count_sqlite, close_sqlite};

/* --- Kafka ------------------------------------------------------------------------------------ */

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) die("%s", why);
}

static rd_kafka_t *join(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", opt.brokers);
    set(conf, "group.id", opt.group);
    set(conf, "auto.offset.reset", "earliest");
    set(conf, "auto.commit.interval.ms", "200");
    char why[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!rk) die("%s", why);
    rd_kafka_poll_set_consumer(rk);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, opt.topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(rk, list);
    if (code) die("subscribe: %s", rd_kafka_err2str(code));
    rd_kafka_topic_partition_list_destroy(list);
    return rk;
}

static void drain(rd_kafka_t *rk, const struct writer_store *store) {
    static rd_kafka_message_t *batch[BATCH_MAX];
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    int64_t written = 0, first = 0, last = 0, moved = bench_us();
    while (written < opt.messages) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, POLL_MS, batch, (size_t)opt.batch);
        if (n < 0) die("Kafka: %s", rd_kafka_err2str(rd_kafka_last_error()));
        if (bench_us() - moved > (int64_t)STALL_MS * 1000)
            die("nothing moves at %" PRId64, written);
        if (!n) continue;
        if (!first) first = bench_us();
        store->begin();
        for (ssize_t i = 0; i < n; i++) {
            if (!batch[i]->err) store->add(batch[i]), written++;
        }
        store->commit();
        for (ssize_t i = 0; i < n; i++) rd_kafka_message_destroy(batch[i]);
        last = moved = bench_us();
    }
    rd_kafka_queue_destroy(queue);
    printf("{\"messages\":%" PRId64 ",\"first_us\":%" PRId64 ",\"last_us\":%" PRId64
           ",\"rows\":%" PRId64 "}\n",
           written, first, last, store->count());
}

int main(int argc, char **argv) {
    static const struct option known[] = {{"brokers", 1, 0, 'b'},
                                          {"topic", 1, 0, 't'},
                                          {"group", 1, 0, 'g'},
                                          {"messages", 1, 0, 'm'},
                                          {"store", 1, 0, 's'},
                                          {"batch", 1, 0, 'n'},
                                          {0}};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (c) {
        case 'b': opt.brokers = optarg; break;
        case 't': opt.topic = optarg; break;
        case 'g': opt.group = optarg; break;
        case 'm': opt.messages = atoll(optarg); break;
        case 's': opt.store = optarg; break;
        case 'n': opt.batch = atoll(optarg); break;
        default: return 2;
        }
    if (!opt.brokers || !opt.topic || !opt.group || !opt.store || opt.messages < 1 ||
        opt.batch < 1 || opt.batch > BATCH_MAX) {
        fputs("usage: writer --brokers B --topic T --group G --messages N --store FILE|URL "
              "[--batch N]\n",
              stderr);
        return 2;
    }
    const struct writer_store *store =
        strncmp(opt.store, "postgres", strlen("postgres")) == 0 ? &writer_postgres : &sqlite;
    store->open(opt.store);
    rd_kafka_t *rk = join();
    drain(rk, store);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    store->close();
    return 0;
}
