/* SPDX-License-Identifier: Apache-2.0 */
/* A naive loop that locks one message at a time. The benchmark compares Latchwork with this loop.
 * For a fair comparison, the loop uses the same librdkafka and hiredis as Latchwork, has one
 * consumer and one Redis connection per thread, and allocates no memory of its own for a message
 * that it runs at once.
 *
 *     poll one ── SET lock TOKEN NX PX ── yes ── handle ── EVALSHA compare-and-delete ── commit
 *              │                        └─ no ── LPUSH waiting (the offset may be committed)
 *              └─ after every --drain-every messages, and whenever poll returns none:
 *                 RPOPLPUSH waiting taken, then SET as above; yes: handle, release, LREM taken;
 *                 no: LPUSH waiting, LREM taken
 *
 * Latchwork also keeps the order, renews leases, counts fences, recognizes messages that are
 * already done, and survives crashes. The naive loop does none of these.
 *
 * The handler sleeps for --work-us. With --journal DIR each thread records the messages that it
 * handles (bench/journal.h). The program ends when --messages messages are handled, and prints one
 * line of JSON: messages, first_us and last_us (CLOCK_MONOTONIC: first start and last end of a
 * handler), and its counts. The exit status is 1 if no message was handled for 30 s. */
#include "bench/journal.h"
#include "bench/scripts.h"

#include <errno.h>
#include <getopt.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    THREADS_MAX = 64,
    POLL_MS = 20,
    STALL_S = 30,
    ANSWER_S = 10,
    KEY_MAX = 512,
    LOCK_MAX = KEY_MAX + 8
};

static struct {
    const char *brokers, *topic, *group, *redis, *journal;
    int64_t messages, work_us, drain_every;
    int threads;
    char ttl_ms[16];
} opt = {.drain_every = 1, .threads = 1, .ttl_ms = "10000"};

static _Atomic int64_t parked, commands, deleted;
static struct bench_journal journal;

struct thread {
    pthread_t id;
    int index;
    rd_kafka_t *kafka;
    redisContext *redis;
    char sha[41], taken[32];
    uint64_t random; /* state of the generator of tokens, seeded by the kernel */
};

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void die(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("naive: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* --- Redis: one command, one answer ----------------------------------------------------------- */

static redisReply *ask(struct thread *t, int argc, const char **argv, const size_t *len) {
    redisReply *r = redisCommandArgv(t->redis, argc, argv, len);
    if (!r) die("Redis: %s", t->redis->errstr);
    if (r->type == REDIS_REPLY_ERROR) die("Redis: %s: %s", argv[0], r->str);
    atomic_fetch_add_explicit(&commands, 1, memory_order_relaxed);
    return r;
}

static void make_token(struct thread *t, char out[33]) {
    uint64_t half[2];
    /* The two halves of a token come from the generator splitmix64. */
    for (int i = 0; i < 2; i++) {
        uint64_t z = t->random += 0x9e3779b97f4a7c15ULL;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
        half[i] = z ^ z >> 31;
    }
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, half[0], half[1]);
}

static bool lock(struct thread *t, const char *name, size_t n, const char *token) {
    const char *argv[] = {"SET", name, token, "NX", "PX", opt.ttl_ms};
    size_t len[] = {3, n, 32, 2, 2, strlen(opt.ttl_ms)};
    redisReply *r = ask(t, 6, argv, len);
    bool yes = r->type == REDIS_REPLY_STATUS;
    freeReplyObject(r);
    return yes;
}

static void release(struct thread *t, const char *name, size_t n, const char *token) {
    const char *argv[] = {"EVALSHA", t->sha, "1", name, token};
    size_t len[] = {7, 40, 1, n, 32};
    redisReply *r = ask(t, 5, argv, len);
    if (r->type == REDIS_REPLY_INTEGER)
        atomic_fetch_add_explicit(&deleted, r->integer, memory_order_relaxed);
    freeReplyObject(r);
}

static void push(struct thread *t, const char *list, const char *p, size_t n) {
    const char *argv[] = {"LPUSH", list, p};
    size_t len[] = {5, strlen(list), n};
    freeReplyObject(ask(t, 3, argv, len));
}

/* A message from Kafka or from the list "waiting". In the list, the text of a message is
 * "KEYLENGTH PARTITION OFFSET KEY PAYLOAD". */
struct item {
    const char *key;
    size_t n_key;
    int32_t partition;
    int64_t offset;
};

/* Runs the message under the lock of its key. Returns false if another thread holds the lock. */
static bool guarded(struct thread *t, const struct item *m) {
    char name[LOCK_MAX], token[33];
    if (m->n_key > KEY_MAX) die("a key of %zu bytes", m->n_key);
    memcpy(name, "lock:", 5);
    memcpy(name + 5, m->key, m->n_key);
    make_token(t, token);
    if (!lock(t, name, m->n_key + 5, token)) return false;
    bench_handle(&journal, opt.work_us, m->key, m->n_key, m->partition, m->offset);
    release(t, name, m->n_key + 5, token);
    return true;
}

static struct item read_item(const char *text, size_t n) {
    char *at;
    struct item m = {.n_key = strtoul(text, &at, 10)};
    m.partition = (int32_t)strtol(at, &at, 10);
    m.offset = strtoll(at, &at, 10);
    m.key = at + 1;
    if (*at != ' ' || m.n_key > n - (size_t)(m.key - text))
        die("not one of ours in the waiting list");
    return m;
}

static void drain_one(struct thread *t) {
    const char *argv[] = {"RPOPLPUSH", "waiting", t->taken};
    size_t len[] = {9, 7, strlen(t->taken)};
    redisReply *r = ask(t, 3, argv, len);
    if (r->type == REDIS_REPLY_STRING) {
        struct item m = read_item(r->str, r->len);
        if (!guarded(t, &m)) push(t, "waiting", r->str, r->len);
        const char *rem[] = {"LREM", t->taken, "1", r->str};
        size_t rem_len[] = {4, strlen(t->taken), 1, r->len};
        freeReplyObject(ask(t, 4, rem, rem_len));
    }
    freeReplyObject(r);
}

static void park(struct thread *t, const rd_kafka_message_t *m) {
    size_t size = m->key_len + m->len + 64;
    char *text = malloc(size);
    if (!text) die("out of memory");
    size_t n = (size_t)snprintf(text, size, "%zu %d %" PRId64 " ", m->key_len, (int)m->partition,
                                m->offset);
    memcpy(text + n, m->key, m->key_len);
    text[n += m->key_len] = ' ';
    if (m->len) memcpy(text + ++n, m->payload, m->len);
    push(t, "waiting", text, n + m->len);
    free(text);
    atomic_fetch_add_explicit(&parked, 1, memory_order_relaxed);
}

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
    set(conf, "enable.auto.offset.store", "false");
    set(conf, "auto.commit.interval.ms", "200"); /* Latchwork commits at the same interval */
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

static void consume(struct thread *t, rd_kafka_message_t *m) {
    if (!m->err) {
        struct item i = {
            .key = m->key, .n_key = m->key_len, .partition = m->partition, .offset = m->offset};
        if (!guarded(t, &i)) park(t, m);
        rd_kafka_offset_store(m->rkt, m->partition, m->offset);
    } else if (m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        fprintf(stderr, "naive: Kafka: %s\n", rd_kafka_message_errstr(m));
    }
    rd_kafka_message_destroy(m);
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *loop(void *arg) {
    struct thread *t = arg;
    int64_t since_drain = 0;
    while (atomic_load_explicit(&journal.progress->handled, memory_order_relaxed) < opt.messages) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(t->kafka, POLL_MS);
        if (m) consume(t, m);
        if (!m || ++since_drain >= opt.drain_every) {
            drain_one(t);
            since_drain = 0;
        }
    }
    return NULL;
}

static void open_thread(struct thread *t, int index) {
    t->index = index;
    snprintf(t->taken, sizeof t->taken, "taken:%d", index);
    if (getrandom(&t->random, sizeof t->random, 0) != sizeof t->random) die("no random numbers");
    t->redis = redisConnectUnix(opt.redis);
    if (!t->redis || t->redis->err) die("Redis: %s", t->redis ? t->redis->errstr : "out of memory");
    redisSetTimeout(t->redis, (struct timeval){.tv_sec = ANSWER_S});
    const char *argv[] = {"SCRIPT", "LOAD", bench_script_naive_release.text};
    size_t len[] = {6, 4, strlen(bench_script_naive_release.text)};
    redisReply *r = ask(t, 3, argv, len);
    snprintf(t->sha, sizeof t->sha, "%s", r->str);
    freeReplyObject(r);
    t->kafka = join();
}

static void close_thread(struct thread *t) {
    rd_kafka_consumer_close(t->kafka);
    rd_kafka_destroy(t->kafka);
    redisFree(t->redis);
}

static void watch(void) {
    int64_t last = -1;
    for (int still = 0; atomic_load(&journal.progress->handled) < opt.messages; usleep(20000)) {
        int64_t now = atomic_load(&journal.progress->handled);
        still = now == last ? still + 1 : 0;
        if (still > STALL_S * 50)
            die("nothing moves at %" PRId64 " of %" PRId64, now, opt.messages);
        last = now;
    }
}

static int64_t number(const char *text, int64_t min, int64_t max) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < min || n > max)
        die("not a number from %" PRId64 " to %" PRId64 ": %s", min, max, text);
    return n;
}

static void options(int argc, char **argv) {
    static const struct option known[] = {{"brokers", 1, 0, 'b'},
                                          {"topic", 1, 0, 't'},
                                          {"group", 1, 0, 'g'},
                                          {"redis", 1, 0, 's'},
                                          {"work-us", 1, 0, 'w'},
                                          {"journal", 1, 0, 'j'},
                                          {"messages", 1, 0, 'm'},
                                          {"threads", 1, 0, 'n'},
                                          {"ttl-ms", 1, 0, 'l'},
                                          {"drain-every", 1, 0, 'd'},
                                          {0}};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (c) {
        case 'b': opt.brokers = optarg; break;
        case 't': opt.topic = optarg; break;
        case 'g': opt.group = optarg; break;
        case 's': opt.redis = optarg; break;
        case 'w': opt.work_us = number(optarg, 0, 60000000); break;
        case 'j': opt.journal = optarg; break;
        case 'm': opt.messages = number(optarg, 1, INT64_MAX); break;
        case 'n': opt.threads = (int)number(optarg, 1, THREADS_MAX); break;
        case 'l':
            snprintf(opt.ttl_ms, sizeof opt.ttl_ms, "%" PRId64, number(optarg, 1, 86400000));
            break;
        case 'd': opt.drain_every = number(optarg, 1, INT64_MAX); break;
        default: exit(2);
        }
    if (!opt.brokers || !opt.topic || !opt.group || !opt.redis || !opt.messages || optind < argc) {
        fputs("usage: naive --brokers B --topic T --group G --redis SOCKET --messages N [--threads "
              "N] [--work-us N] [--journal DIR]\n"
              "             [--ttl-ms N] [--drain-every N]\n",
              stderr);
        exit(2);
    }
}

int main(int argc, char **argv) {
    static struct thread threads[THREADS_MAX];
    options(argc, argv);
    bench_journal_open(&journal, opt.journal, true);
    for (int i = 0; i < opt.threads; i++) open_thread(&threads[i], i);
    for (int i = 0; i < opt.threads; i++)
        if (pthread_create(&threads[i].id, NULL, loop, &threads[i])) die("no thread");
    watch();
    for (int i = 0; i < opt.threads; i++) pthread_join(threads[i].id, NULL);
    for (int i = 0; i < opt.threads; i++) close_thread(&threads[i]);
    const struct bench_progress *p = journal.progress;
    printf("{\"messages\":%" PRId64 ",\"first_us\":%" PRId64 ",\"last_us\":%" PRId64
           ",\"parked\":%" PRId64 ",\"commands\":%" PRId64 ",\"released\":%" PRId64 "}\n",
           p->handled, p->first_us, p->last_us, parked, commands, deleted);
    bench_journal_close(&journal);
    return 0;
}
