/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the tests of Redlock: five Redis servers, each with a wall clock that can jump. */
#ifndef LW_TEST_LOCK_FIVE_H
#define LW_TEST_LOCK_FIVE_H

#include "tests/lock/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODES = 5 };

static struct lw_test_redis *node[NODES];
static redisContext *node_admin[NODES];
static char urls[NODES][256], clock_file[NODES][256];
static const char *all_urls[NODES];

/* Sets how many seconds the wall clock of server i is ahead of the true time. The library made from
 * tests/preload/jumping_clock.c, which is loaded into the server, reads this number from a file. */
static inline void jump_clock(int i, int64_t ahead_s) {
    FILE *f = fopen(clock_file[i], "r+");
    assert_non_null(f);
    assert_int_equal(fwrite(&ahead_s, sizeof ahead_s, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static char library[4096];
static inline void with_clock(int i) {
    setenv("LW_CLOCK_FILE", clock_file[i], 1);
    setenv("LD_PRELOAD", library, 1);
}

static inline bool start_node(int i) {
    int64_t zero = 0;
    snprintf(clock_file[i], sizeof clock_file[i], "%s/lw-clock-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    int fd = mkstemp(clock_file[i]);
    if (fd < 0 || write(fd, &zero, sizeof zero) != sizeof zero || close(fd)) return false;
    with_clock(i);
    node[i] = lw_test_redis_start(NULL);
    unsetenv("LD_PRELOAD");
    if (!node[i]) return false;
    node_admin[i] = lw_test_redis_connect(node[i]);
    snprintf(urls[i], sizeof urls[i], "unix://%s", lw_test_redis_path(node[i]));
    all_urls[i] = urls[i];
    return node_admin[i] != NULL;
}

static inline int start_nodes(void **state) {
    (void)state;
    ssize_t n = readlink("/proc/self/exe", library, sizeof library - 64);
    if (n < 0) return -1;
    library[n] = '\0';
    strcpy(strrchr(library, '/'), "/../preload/jumping_clock.so");
    for (int i = 0; i < NODES; i++)
        if (!start_node(i)) return -1;
    return 0;
}
static inline int stop_nodes(void **state) {
    (void)state;
    for (int i = 0; i < NODES; i++) {
        if (node_admin[i]) redisFree(node_admin[i]);
        lw_test_redis_stop(node[i]);
        unlink(clock_file[i]);
    }
    return 0;
}

#define on_node(i, ...) (admin = node_admin[i], redis_says(__VA_ARGS__))
#define number_on(i, ...) strtoll(on_node(i, __VA_ARGS__), NULL, 10)

static inline void freeze(int i) { kill(lw_test_redis_pid(node[i]), SIGSTOP); }
static inline void thaw(int i) { kill(lw_test_redis_pid(node[i]), SIGCONT); }
static inline void kill_node(int i) { lw_test_redis_kill(node[i]); }
static inline void restart_node(int i) {
    with_clock(i);
    assert_true(lw_test_redis_restart(node[i]));
    unsetenv("LD_PRELOAD");
    redisFree(node_admin[i]);
    node_admin[i] = lw_test_redis_connect(node[i]);
    assert_non_null(node_admin[i]);
}

static inline int setup(void **state) {
    (void)state;
    for (int i = 0; i < NODES; i++) {
        jump_clock(i, 0);
        if (lw_test_redis_pid(node[i]) < 0) restart_node(i);
        thaw(i);
        on_node(i, "CONFIG SET maxmemory 0");
        on_node(i, "SCRIPT FLUSH");
        on_node(i, "FLUSHALL");
    }
    return 0;
}

/* node_ms is long enough for a busy machine. A test that needs a slow server freezes a server
 * instead of using a short node_ms. */
#define QUICK \
    LATCHWORK_REDLOCK_INIT, .node_ms = 300, .retry_min_ms = 5, .retry_max_ms = 30, .restart_ms = -1
static inline struct latchwork_redlock *open_urls(const char *const *which, size_t n,
                                                  int64_t restart_ms) {
    struct latchwork_redlock_options o = {QUICK};
    o.restart_ms = restart_ms;
    struct latchwork_redlock *r = latchwork_redlock_open(which, n, &o, &error);
    if (!r) fail_msg("redlock: %s", error.text);
    return r;
}
static inline struct latchwork_redlock *open_all(void) { return open_urls(all_urls, NODES, -1); }
static inline struct latchwork_lock *open_red(struct latchwork_redlock *r, int64_t ttl_ms,
                                              unsigned flags) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .ttl_ms = ttl_ms, .flags = flags};
    struct latchwork_lock *l = latchwork_redlock_lock_open(r, "a", &o, &error);
    if (!l) fail_msg("lock: %s", error.text);
    return l;
}

#define KEY "lwl:{a}:lock"
/* COMES_MS is the maximum wait in ms for keys to appear or vanish. It is shorter than the TTL of
 * the locks, so that a key cannot vanish by expiring. */
enum { MAJORITY = NODES / 2 + 1, COMES_MS = 10000 };

/* Returns the number of running servers on which the key has this token as its value. */
static inline int holding_key(const char *key, const char *token) {
    int n = 0;
    for (int i = 0; i < NODES; i++)
        if (lw_test_redis_pid(node[i]) > 0) n += strcmp(on_node(i, "GET %s", key), token) == 0;
    return n;
}
static inline int holding(const char *token) { return holding_key(KEY, token); }
static inline int keys_anywhere(void) {
    int n = 0;
    for (int i = 0; i < NODES; i++)
        if (lw_test_redis_pid(node[i]) > 0) n += (int)number_on(i, "EXISTS " KEY);
    return n;
}
/* Waits until the lock's key exists on `wanted` servers. A call of the library returns when a
 * majority has answered, so the other servers may execute the call later. */
static inline void wait_for_keys(int wanted) {
    int64_t until = lw_boot_ms() + COMES_MS;
    while (keys_anywhere() != wanted && lw_boot_ms() < until) lw_sleep_ms(2);
    assert_int_equal(keys_anywhere(), wanted);
}

#endif
