/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what the lock library costs. PATH is the unix socket of a Redis.
 *
 * usage:
 *     locks pairs PATH PAIRS
 *         acquires and releases a lock for which nobody else waits, by the library and by a bare
 *         loop in turn. After each turn, prints the averages per pair of acquire and release, in
 *         ns: the elapsed time, the CPU time of this process, and the CPU time of Redis.
 *     locks handover PATH TIMES PAUSE_US
 *         releases a lock in one process while another process waits for it. For each release,
 *         prints in ns the time of one PING just before the release, and the time from the release
 *         until the other process has the lock.
 * Prints figures as lines of `NAME VALUE…`, for bench/locks/locks.py. */
#include "base/clock.h"
#include "bench/scripts.h"
#include "include/latchwork/lock.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 10, TTL_MS = 10000 };

static void die(const char *what) {
    fprintf(stderr, "locks: %s\n", what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static redisContext *connect_to(const char *path) {
    redisContext *c = redisConnectUnix(path);
    if (!c || c->err) die("no Redis there");
    return c;
}

static int64_t ask(redisContext *c, const char *command) {
    redisReply *r = redisCommand(c, command);
    if (!r || r->type == REDIS_REPLY_ERROR) die(r ? r->str : c->errstr);
    int64_t n = r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
    freeReplyObject(r);
    return n;
}

static struct latchwork_lock *open_lock(struct latchwork_client **client, const char *path) {
    char url[300];
    struct latchwork_error error;
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = TTL_MS};
    snprintf(url, sizeof url, "unix://%s", path);
    *client = latchwork_client_open(url, NULL, &error);
    struct latchwork_lock *l = *client ? latchwork_lock_open(*client, "bench", &o, &error) : NULL;
    if (!l) die(error.text);
    return l;
}

static struct latchwork_hold *take(struct latchwork_lock *l, int64_t wait_ms) {
    struct latchwork_error error;
    struct latchwork_hold *h;
    if (latchwork_lock_acquire(l, wait_ms, &h, &error) != LATCHWORK_LOCK_OK) die(error.text);
    return h;
}
static void give(struct latchwork_hold *h) {
    struct latchwork_error error;
    if (latchwork_hold_release(h, &error) != LATCHWORK_LOCK_OK) die(error.text);
}

/* --- uncontended pairs ------------------------------------------------------------------------ */

static void load(redisContext *c, const struct lw_script *script, char sha[41]) {
    redisReply *r = redisCommand(c, "SCRIPT LOAD %s", script->text);
    if (!r || r->type != REDIS_REPLY_STRING) die("SCRIPT LOAD");
    memcpy(sha, r->str, 41);
    freeReplyObject(r);
}

static uint64_t bare_pair(redisContext *c, const char *take_sha, const char *drop_sha) {
    unsigned char bytes[16];
    char token[33];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) die("getrandom");
    for (int i = 0; i < 16; i++) snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    redisReply *r = redisCommand(c, "EVALSHA %s 2 bare:lock bare:fence %s 10000", take_sha, token);
    if (!r || r->type != REDIS_REPLY_STRING) die("the bare loop can't take");
    uint64_t fence = strtoull(r->str, NULL, 10);
    freeReplyObject(r);
    r = redisCommand(c, "EVALSHA %s 1 bare:lock %s", drop_sha, token);
    if (!r || r->integer != 1) die("the bare loop can't release");
    freeReplyObject(r);
    return fence;
}

struct used {
    int64_t ns, here_ns, redis_ns;
};
static int64_t cpu_here(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}
static int64_t cpu_of_redis(redisContext *c) {
    redisReply *r = redisCommand(c, "INFO cpu");
    double sum = 0;
    static const char *const fields[] = {"used_cpu_sys:", "used_cpu_user:"};
    for (int i = 0; r && i < 2; i++) {
        const char *at = strstr(r->str, fields[i]);
        if (at) sum += strtod(at + strlen(fields[i]), NULL);
    }
    if (r) freeReplyObject(r);
    return (int64_t)(sum * 1e9);
}

static int pairs(const char *path, int n) {
    redisContext *c = connect_to(path);
    struct latchwork_client *client;
    struct latchwork_lock *l = open_lock(&client, path);
    char take_sha[41], drop_sha[41];
    load(c, &bench_script_bare_take, take_sha), load(c, &bench_script_bare_drop, drop_sha);
    uint64_t last = bare_pair(c, take_sha, drop_sha);
    give(take(l, 0));
    for (int block = 0; block < 2 * BLOCKS; block++) {
        /* The library and the bare loop alternate as ABBA, so that neither gains if the machine
         * becomes slower. */
        bool ours = block % 2 == (block / 2) % 2;
        struct used u = {-now_ns(), -cpu_here(), -cpu_of_redis(c)};
        for (int i = 0; i < n / BLOCKS; i++) {
            if (ours) {
                struct latchwork_hold *h = take(l, 0);
                if (latchwork_hold_fence(h) <= last) die("a fence that does not grow");
                give(h);
                continue;
            }
            uint64_t fence = bare_pair(c, take_sha, drop_sha);
            if (fence <= last) die("a fence that does not grow");
        }
        u.redis_ns += cpu_of_redis(c), u.here_ns += cpu_here(), u.ns += now_ns();
        int64_t each = n / BLOCKS;
        printf("pair %s %" PRId64 " %" PRId64 " %" PRId64 "\n", ours ? "latchwork" : "bare",
               u.ns / each, u.here_ns / each, u.redis_ns / each);
    }
    latchwork_lock_close(l);
    latchwork_client_close(client);
    redisFree(c);
    return 0;
}

/* --- hand-over -------------------------------------------------------------------------------- */

struct shared {
    /* `held` is the number of the latest round in which the first process has acquired the lock,
     * and `has_it` the number of the latest round in which the second process has acquired and
     * released it. */
    _Atomic int held, has_it;
    _Atomic int64_t released_ns;
};
static struct shared *shared;

/* Runs in the second of two processes. In each round, waits for the lock, prints the time since the
 * first process released the lock, and releases the lock again. */
static int other(const char *path, int times) {
    struct latchwork_client *client;
    struct latchwork_lock *l = open_lock(&client, path);
    for (int i = 1; i <= times; i++) {
        while (shared->held < i) usleep(100);
        struct latchwork_hold *h = take(l, 30000);
        int64_t has_ns = now_ns();
        printf("handover %" PRId64 "\n", has_ns - shared->released_ns);
        give(h);
        shared->has_it = i;
    }
    fflush(stdout);
    latchwork_lock_close(l);
    latchwork_client_close(client);
    return 0;
}

static int handover(const char *path, int times, int pause_us) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) die("mmap");
    struct latchwork_client *client;
    pid_t parent = getpid(), pid;
    redisContext *c;
    if ((pid = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == parent ? other(path, times) : 1);
    }
    struct latchwork_lock *l = open_lock(&client, path);
    c = connect_to(path);
    for (int i = 1; i <= times; i++) {
        struct latchwork_hold *h = take(l, 30000);
        shared->held = i;
        while (ask(c, "ZCARD lwl:{bench}:wait") < 1) usleep(100);
        /* The second process already waits for the lock. This pause gives it time to sleep. */
        usleep((useconds_t)(1000 + rand() % (pause_us + 1)));
        int64_t ping_ns = now_ns();
        ask(c, "PING");
        printf("ping %" PRId64 "\n", now_ns() - ping_ns);
        shared->released_ns = now_ns();
        give(h);
        while (shared->has_it < i) usleep(100);
    }
    fflush(stdout);
    int status;
    if (waitpid(pid, &status, 0) != pid || status) die("the other process failed");
    latchwork_lock_close(l);
    latchwork_client_close(client);
    redisFree(c);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "pairs") && atoi(argv[3]) >= BLOCKS)
        return pairs(argv[2], atoi(argv[3]));
    if (argc == 5 && !strcmp(argv[1], "handover") && atoi(argv[3]) > 0)
        return handover(argv[2], atoi(argv[3]), atoi(argv[4]));
    fprintf(stderr, "usage: locks pairs PATH PAIRS | locks handover PATH TIMES PAUSE_US\n");
    return 2;
}
