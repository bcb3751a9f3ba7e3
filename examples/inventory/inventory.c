/* SPDX-License-Identifier: Apache-2.0 */
/* The inventory example: 1,000 customers want one of 100 items each, all at once. With the lock,
 * exactly 100 customers get an item.
 *
 *     make && ./inventory redis://127.0.0.1:6379/0      # sold 100 of 100, 0 left
 *     ./inventory --no-lock redis://127.0.0.1:6379/0    # sold more than 100: the stock is negative
 *
 * Each customer takes two steps. The first step reads the stock. If an item is left, the second
 * step pays and takes it. Without a lock, other customers read the stock between the two steps of a
 * customer, so several customers act on the same number.
 * The lock makes the two steps atomic, across threads, processes and machines. Each customer calls
 * latchwork_lock_acquire() before the first step and latchwork_hold_release() after the second one.
 * The lock has the name of the item. (For a number in Redis, DECR alone would do. The stock in this
 * example stands for a row in a database, a file, or a supplier's web service, which have no DECR.)
 *
 * The customers are threads in 8 processes, and each process has one pool of connections for all
 * its locks. When a customer releases the lock, the next customer is woken, so no customer polls
 * Redis. The program uses the keys inventory:stock and lwl:{inventory}:…. It sets inventory:stock
 * at the start and deletes it at the end.
 *
 * Options: --no-lock, --clients N, --stock N, --processes N.
 * Exit status: 0 if no more items were sold than existed, 1 if more were sold, 2 after any
 * error. */
#include <latchwork/lock.h>

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MAX = 8, CLIENTS_MAX = 4000, PAY_MS = 2, WAIT_MS = 60000 };

struct figures { /* the figures of one run, in memory that all processes share */
    atomic_int sold, refused, failed, lowest;
};

struct shop { /* the state that the threads of one process share */
    const char *url;
    struct figures *figures;
    struct latchwork_client *client;
    struct latchwork_lock *lock; /* the lock of the item; NULL with --no-lock */
    /* connection to the stock; `store_mutex` guards it, because connections of hiredis are not
     * thread-safe */
    redisContext *store;
    pthread_mutex_t store_mutex;
};

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static bool run(redisContext *store, pthread_mutex_t *mutex, const char *command, long long *out) {
    if (mutex) pthread_mutex_lock(mutex);
    redisReply *r = redisCommand(store, command);
    if (mutex) pthread_mutex_unlock(mutex);
    bool good = r && r->type != REDIS_REPLY_ERROR;
    if (good && out) *out = r->type == REDIS_REPLY_STRING ? atoll(r->str) : r->integer;
    if (r) freeReplyObject(r);
    return good;
}

/* --- the purchase: only one customer at a time may be here ------------------------------------ */

static bool buy(struct shop *s) {
    long long stock = 0;
    if (!run(s->store, &s->store_mutex, "GET inventory:stock", &stock)) return false;
    if (stock <= 0) {
        atomic_fetch_add(&s->figures->refused, 1);
        return true;
    }
    pause_ms(PAY_MS);
    if (!run(s->store, &s->store_mutex, "DECR inventory:stock", &stock)) return false;
    atomic_fetch_add(&s->figures->sold, 1);
    int lowest = atomic_load(&s->figures->lowest);
    while (stock < lowest &&
           !atomic_compare_exchange_weak(&s->figures->lowest, &lowest, (int)stock))
        continue;
    return true;
}

static void *customer(void *ctx) {
    struct shop *s = ctx;
    struct latchwork_error error = {0};
    struct latchwork_hold *hold = NULL;
    bool good =
        !s->lock || latchwork_lock_acquire(s->lock, WAIT_MS, &hold, &error) == LATCHWORK_LOCK_OK;
    good = good && buy(s);
    if (hold && latchwork_hold_release(hold, &error) != LATCHWORK_LOCK_OK) good = false;
    if (!good && atomic_fetch_add(&s->figures->failed, 1) == 0)
        fprintf(stderr, "inventory: %s\n", error.text[0] ? error.text : "Redis failed");
    return NULL;
}

/* --- the run: processes, threads, connections ------------------------------------------------- */

static redisContext *connect_to(const char *url) {
    char host[256] = "127.0.0.1";
    int port = 6379, db = 0;
    redisContext *c;
    if (!strncmp(url, "unix://", 7))
        c = redisConnectUnix(url + 7);
    else if (sscanf(url, "redis://%255[^:/]:%d/%d", host, &port, &db) >= 1)
        c = redisConnect(host, port);
    else
        return NULL;
    if (!c || c->err) return NULL;
    redisReply *r = redisCommand(c, "SELECT %d", db);
    if (r) freeReplyObject(r);
    return c;
}

static int open_shop(struct shop *s, int customers, bool locked) {
    struct latchwork_error error;
    pthread_t thread[CLIENTS_MAX];
    pthread_attr_t small;
    int n = 0;
    s->store = connect_to(s->url);
    s->client = latchwork_client_open(s->url, NULL, &error);
    if (locked && s->client) s->lock = latchwork_lock_open(s->client, "inventory", NULL, &error);
    if (!s->store || !s->client || (locked && !s->lock)) {
        fprintf(stderr, "inventory: %s\n", s->store ? error.text : "no connection to Redis");
        return 2;
    }
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    while (n < customers && pthread_create(&thread[n], &small, customer, s) == 0) n++;
    atomic_fetch_add(&s->figures->failed, customers - n);
    while (n > 0) pthread_join(thread[--n], NULL);
    latchwork_lock_close(s->lock);
    latchwork_client_close(s->client);
    redisFree(s->store);
    return 0;
}

static int tell(const struct figures *f, int clients, int stock, long long left) {
    printf("%d clients: sold %d of %d, %d went away; %lld left, at the lowest %d\n", clients,
           f->sold, stock, f->refused, left, f->lowest);
    if (f->failed) {
        printf("%d failed\n", f->failed);
        return 2;
    }
    if (f->sold <= stock && left >= 0) return 0;
    printf("oversold by %d\n", f->sold - stock);
    return 1;
}

int main(int argc, char **argv) {
    const char *url = NULL;
    int clients = 1000, stock = 100, processes = PROCESSES_MAX;
    bool locked = true, wrong = false;
    for (int i = 1; i < argc; i++) {
        int *number = !strcmp(argv[i], "--clients") ? &clients
                      : !strcmp(argv[i], "--stock") ? &stock
                                                    : NULL;
        if (!strcmp(argv[i], "--processes")) number = &processes;
        if (!strcmp(argv[i], "--no-lock"))
            locked = false;
        else if (number && i + 1 < argc)
            *number = atoi(argv[++i]);
        else if (argv[i][0] != '-' && !url)
            url = argv[i];
        else
            wrong = true;
    }
    if (wrong || !url || processes < 1 || processes > PROCESSES_MAX || clients < processes ||
        clients > CLIENTS_MAX || stock < 0) {
        fprintf(stderr,
                "usage: inventory [--no-lock] [--clients N] [--stock N] [--processes 1-%d] "
                "redis://HOST:PORT/DB | unix:///PATH\n",
                (int)PROCESSES_MAX);
        return 2;
    }
    struct figures *f =
        mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    redisContext *store = connect_to(url);
    char set[64];
    snprintf(set, sizeof set, "SET inventory:stock %d", stock);
    if (f == MAP_FAILED || !store || !run(store, NULL, set, NULL)) {
        fprintf(stderr, "inventory: no connection to %s\n", url);
        return 2;
    }
    f->lowest = stock;
    for (int p = 0; p < processes; p++) {
        struct shop s = {.url = url, .figures = f, .store_mutex = PTHREAD_MUTEX_INITIALIZER};
        int customers = clients / processes + (p < clients % processes);
        if (fork() == 0) _exit(open_shop(&s, customers, locked));
    }
    int status;
    while (wait(&status) > 0)
        if (status) f->failed++;
    long long left = 0;
    run(store, NULL, "GET inventory:stock", &left);
    run(store, NULL, "DEL inventory:stock", NULL);
    redisFree(store);
    return tell(f, clients, stock, left);
}
