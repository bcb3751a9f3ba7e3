/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/redis_server.h"

#include "tests/support/server_process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FIXED_ARGS = 14, EXTRA_ARGS_MAX = 60, READY_TRIES = 2000, READY_PAUSE_MS = 5 };

struct lw_test_redis {
    char dir[LW_TEST_DIR];
    /* The path must be short, because the address of a unix socket has at most 108 bytes. */
    char path[LW_TEST_DIR + 8];
    char *extra[EXTRA_ARGS_MAX + 1];
    pid_t pid;
};

const char *lw_test_redis_program(void) {
    const char *named = getenv("LW_REDIS_SERVER");
    return named && *named ? named : "redis-server";
}

static void run_server(struct lw_test_redis *r, pid_t parent) {
    char *argv[FIXED_ARGS + EXTRA_ARGS_MAX + 1] = {
        "redis-server", "--port", "0", "--unixsocket", r->path, "--dir", r->dir, "--logfile",
        "redis.log",    "--save", "",  "--appendonly", "no",
    };
    size_t n = 0;
    while (argv[n]) n++;
    for (size_t i = 0; r->extra[i]; i++) argv[n++] = r->extra[i];
    lw_test_exec(parent, SIGKILL, lw_test_redis_program(), argv);
}

static bool answers(const char *path) {
    struct timeval wait = {.tv_sec = 1};
    redisContext *c = redisConnectUnixWithTimeout(path, wait);
    bool ok = false;
    if (c && !c->err && redisSetTimeout(c, wait) == REDIS_OK) {
        redisReply *reply = redisCommand(c, "PING");
        /* The error reply LOADING means that the server is not ready yet. */
        ok = reply && reply->type == REDIS_REPLY_STATUS;
        if (reply) freeReplyObject(reply);
    }
    if (c) redisFree(c);
    return ok;
}

static bool wait_ready(struct lw_test_redis *r) {
    const struct timespec pause = {.tv_nsec = READY_PAUSE_MS * 1000000L};
    for (int i = 0; i < READY_TRIES; i++) {
        if (answers(r->path)) return true;
        int status;
        if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
            fprintf(stderr, "redis-server: ended at its start (wait status 0x%x)\n",
                    (unsigned)status);
            r->pid = -1;
            return false;
        }
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "redis-server: does not answer on %s\n", r->path);
    return false;
}

static bool launch(struct lw_test_redis *r) {
    unlink(r->path); /* Remove the socket that a killed server left. */
    pid_t parent = getpid();
    r->pid = fork();
    if (r->pid == 0) run_server(r, parent);
    if (r->pid < 0) {
        fprintf(stderr, "redis-server: fork: %s\n", strerror(errno));
        return false;
    }
    if (wait_ready(r)) return true;
    lw_test_log_show(r->dir, "redis.log");
    lw_test_redis_kill(r);
    return false;
}

static bool copy_args(struct lw_test_redis *r, const char *const *extra_args) {
    for (size_t i = 0; extra_args && extra_args[i]; i++) {
        if (i == EXTRA_ARGS_MAX) {
            fprintf(stderr, "redis-server: more than %d arguments\n", EXTRA_ARGS_MAX);
            return false;
        }
        r->extra[i] = strdup(extra_args[i]);
        if (!r->extra[i]) return false;
    }
    return true;
}

static bool make_dir(struct lw_test_redis *r) {
    if (!lw_test_dir_make(r->dir, "redis")) return false;
    snprintf(r->path, sizeof r->path, "%s/s", r->dir);
    return true;
}

struct lw_test_redis *lw_test_redis_start(const char *const *extra_args) {
    struct lw_test_redis *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->pid = -1;
    if (copy_args(r, extra_args) && make_dir(r) && launch(r)) return r;
    lw_test_redis_stop(r);
    return NULL;
}

const char *lw_test_redis_path(const struct lw_test_redis *r) { return r->path; }
const char *lw_test_redis_dir(const struct lw_test_redis *r) { return r->dir; }
pid_t lw_test_redis_pid(const struct lw_test_redis *r) { return r->pid; }

redisContext *lw_test_redis_connect(const struct lw_test_redis *r) {
    struct timeval wait = {.tv_sec = 10};
    redisContext *c = redisConnectUnixWithTimeout(r->path, wait);
    if (c && !c->err && redisSetTimeout(c, wait) == REDIS_OK) return c;
    fprintf(stderr, "redis-server: connecting to %s: %s\n", r->path,
            c ? c->errstr : "out of memory");
    if (c) redisFree(c);
    return NULL;
}

bool lw_test_redis_flush(struct lw_test_redis *r) {
    redisContext *c = lw_test_redis_connect(r);
    if (!c) return false;
    redisReply *reply = redisCommand(c, "FLUSHALL");
    bool ok = reply && reply->type == REDIS_REPLY_STATUS;
    if (!ok)
        fprintf(stderr, "redis-server: FLUSHALL: %s\n",
                reply && reply->str ? reply->str : c->errstr);
    if (reply) freeReplyObject(reply);
    redisFree(c);
    return ok;
}

void lw_test_redis_kill(struct lw_test_redis *r) {
    if (r->pid <= 0) return;
    /* Send SIGKILL, because it also ends a server that SIGSTOP has stopped. */
    kill(r->pid, SIGKILL);
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR) {}
    r->pid = -1;
}

bool lw_test_redis_restart(struct lw_test_redis *r) {
    lw_test_redis_kill(r);
    return launch(r);
}

void lw_test_redis_stop(struct lw_test_redis *r) {
    if (!r) return;
    lw_test_redis_kill(r);
    lw_test_dir_remove(r->dir);
    for (size_t i = 0; r->extra[i]; i++) free(r->extra[i]);
    free(r);
}
