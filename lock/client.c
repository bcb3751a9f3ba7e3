/* SPDX-License-Identifier: Apache-2.0 */
/* A client: options, and the pool of connections. */
#include "lock/client.h"

#include "base/clock.h"
#include "base/redis/dial.h"
#include "lock/keeper.h"
#include "lock/waking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_uint forks;
static void forked(void) { atomic_fetch_add(&forks, 1); }
unsigned lw_forks(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

/* Registers the fork handlers once per process. If that fails, the next client tries again. */
static bool watch_forks(struct latchwork_error *error) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool watched;
    pthread_mutex_lock(&mutex);
    watched = watched || pthread_atfork(NULL, NULL, forked) == 0;
    bool good = watched;
    pthread_mutex_unlock(&mutex);
    if (!good) lw_lock_no_memory(error);
    return good;
}

bool lw_client_ok(const struct latchwork_client *c, struct latchwork_error *error) {
    if (!c) {
        lw_lock_wrong(error, "the client, or what it belongs to, is NULL: opening it failed");
        return false;
    }
    if (c->forks == lw_forks()) return true;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_FORK, "this client was opened before a fork: open another in the child");
    return false;
}

/* --- options -------------------------------------------------------------------------------------------------------------------- */

static bool is_label(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= LATCHWORK_MAX_LABEL && !s[n];
}

static void default_label(char *label) {
    char host[41];
    if (gethostname(host, sizeof host)) snprintf(host, sizeof host, "host");
    host[sizeof host - 1] = '\0';
    snprintf(label, LATCHWORK_MAX_LABEL + 1, "%s.%ld", host, (long)getpid());
    for (char *p = label; *p; p++)
        if (strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == 0) *p = '-';
}

static bool take_options(struct latchwork_client *c, const struct latchwork_client_options *given, struct latchwork_error *error) {
    struct latchwork_client_options o = {0};
    if (given && (given->size < 8 || given->size > 4096)) {
        lw_lock_wrong(error, "options.size is not set: begin them with LATCHWORK_CLIENT_INIT");
        return false;
    }
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    if (o.flags & ~(unsigned)LATCHWORK_FLAG_NO_SCRIPTS || o.connections < 0 || o.connections > LATCHWORK_MAX_CONNECTIONS ||
        o.connect_ms < 0 || o.connect_ms > LATCHWORK_MAX_WAIT_MS || o.command_ms < 0 || o.command_ms > LATCHWORK_MAX_WAIT_MS ||
        (o.label && !is_label(o.label))) {
        lw_lock_wrong(error, "a client option is out of range: connections 1 to %d, times 1 to %d ms, label 1 to %d of A-Za-z0-9._-",
                      (int)LATCHWORK_MAX_CONNECTIONS, (int)LATCHWORK_MAX_WAIT_MS, (int)LATCHWORK_MAX_LABEL);
        return false;
    }
    c->flags = o.flags;
    c->connections = o.connections ? o.connections : LATCHWORK_DEFAULT_CONNECTIONS;
    c->connect_ms = o.connect_ms ? o.connect_ms : LATCHWORK_DEFAULT_CONNECT_MS;
    c->command_ms = o.command_ms ? o.command_ms : LATCHWORK_DEFAULT_COMMAND_MS;
    if (o.label)
        snprintf(c->label, sizeof c->label, "%s", o.label);
    else
        default_label(c->label);
    return true;
}

static bool take_url(struct latchwork_client *c, const char *url, struct latchwork_error *error) {
    struct lw_err why = {0};
    if (url && !lw_redis_url_parse(url, &c->url, &why)) {
        c->where = lw_url_redact(url);
        why.memory = !c->where;
        if (c->where) return true;
    }
    if (why.memory)
        lw_lock_no_memory(error);
    else
        lw_lock_wrong(error, "url: %.400s", url ? why.text : "none given");
    return false;
}

/* Sets everything that needs no undoing but free(). */
static bool fill_in(struct latchwork_client *c, const char *url, const struct latchwork_client_options *options,
                    struct latchwork_error *error) {
    if (!take_url(c, url, error) || !take_options(c, options, error)) return false;
    if (!watch_forks(error) || !lw_random_hex(c->id, sizeof c->id, error)) return false;
    c->forks = lw_forks();
    c->idle = calloc((size_t)c->connections, sizeof *c->idle);
    if (!c->idle) lw_lock_no_memory(error);
    return c->idle != NULL;
}

static void free_client(struct latchwork_client *c) {
    lw_redis_url_free(&c->url);
    free(c->where);
    free(c->idle);
    free(c);
}

struct latchwork_client *latchwork_client_open(const char *url, const struct latchwork_client_options *options,
                                               struct latchwork_error *error) {
    struct latchwork_client *c = calloc(1, sizeof *c);
    if (!c) return lw_lock_no_memory(error), NULL;
    if (!fill_in(c, url, options, error)) {
        free_client(c);
        return NULL;
    }
    pthread_mutex_init(&c->mutex, NULL);
    pthread_mutex_init(&c->start, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return c;
}

static void drop_idle(struct latchwork_client *c) {
    while (c->n_idle) {
        redisFree(c->idle[--c->n_idle]);
        c->n_open--;
    }
}

void latchwork_client_close(struct latchwork_client *c) {
    if (!c) return;
    if (lw_client_ok(c, NULL)) {
        lw_waking_close(atomic_load(&c->waking));
        lw_keeper_close(atomic_load(&c->keeper));
        pthread_cond_destroy(&c->freed);
        pthread_mutex_destroy(&c->mutex);
        pthread_mutex_destroy(&c->start);
    } /* after a fork its threads, and whoever held its mutexes, are in the parent only */
    drop_idle(c);
    free_client(c);
}

void latchwork_client_interrupt(struct latchwork_client *c) {
    if (!c) return;
    atomic_store(&c->interrupted, true);
    if (!lw_client_ok(c, NULL)) return;
    pthread_mutex_lock(&c->start); /* a thread that is started from now on sees the flag */
    struct lw_waking *waking = atomic_load(&c->waking);
    pthread_mutex_unlock(&c->start);
    if (waking) lw_waking_rouse(waking);
}

enum latchwork_result latchwork_client_ping(struct latchwork_client *c, struct latchwork_error *error) {
    if (!lw_client_ok(c, error)) return LATCHWORK_LOCK_ERROR;
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_add(&call, "PING", 4);
    redisReply *reply = lw_client_call(c, &call, error);
    if (!reply) return LATCHWORK_LOCK_ERROR;
    freeReplyObject(reply);
    return LATCHWORK_LOCK_OK;
}

/* --- connections ---------------------------------------------------------------------------------------------------------------- */

static struct timeval timeval_of(int64_t ms) { return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}; }

static bool said_ok(struct latchwork_client *c, redisContext *redis, const char *const *words, struct latchwork_error *error) {
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    for (; *words; words++) lw_call_text(&call, *words);
    redisReply *reply = lw_call_on(c, redis, &call, error);
    if (reply) reply = lw_take_reply(c, reply, error);
    if (reply) freeReplyObject(reply);
    return reply != NULL;
}

static bool log_in(struct latchwork_client *c, redisContext *redis, struct latchwork_error *error) {
    struct lw_redis_login login;
    lw_redis_login(&c->url, &login);
    for (size_t i = 0; i < login.n; i++)
        if (!said_ok(c, redis, login.command[i].word, error)) return false;
    return true;
}

redisContext *lw_client_dial(struct latchwork_client *c, int64_t connect_ms, struct latchwork_error *error) {
    struct lw_err why = {0};
    int fd = lw_dial(&c->url, connect_ms, &why);
    redisContext *redis = fd < 0 ? NULL : redisConnectFd(fd);
    if (!redis) {
        bool memory = fd >= 0 || why.memory;
        if (fd >= 0) close(fd);
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, memory ? LATCHWORK_E_MEMORY : LATCHWORK_E_CONNECT, "Redis at %s: %.300s", c->where,
                     fd >= 0 ? "out of memory" : why.text);
        return NULL;
    }
    if (!connect_ms) redis->flags &= ~REDIS_BLOCK;
    redis->reader->maxbuf = 0; /* hiredis asserts the allocation of a smaller buffer for one that it shrinks, so it must not shrink */
    return redis;
}

redisContext *lw_client_connect(struct latchwork_client *c, int64_t connect_ms, int64_t command_ms, struct latchwork_error *error) {
    redisContext *redis = lw_client_dial(c, connect_ms, error);
    if (!redis) return NULL;
    if (!c->url.path) redisEnableKeepAlive(redis);
    if (redisSetTimeout(redis, timeval_of(command_ms)) != REDIS_OK)
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, lw_broken_code(redis->err), "Redis at %s: %s", c->where, redis->errstr);
    else if (log_in(c, redis, error))
        return redis;
    redisFree(redis);
    return NULL;
}

redisContext *lw_client_get(struct latchwork_client *c, struct latchwork_error *error) {
    struct timespec until;
    bool timed = false;
    pthread_mutex_lock(&c->mutex);
    while (!c->n_idle && c->n_open == c->connections) {
        if (!timed) {
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += (c->connect_ms + 2 * c->command_ms) / 1000 + 1;
            timed = true;
        }
        if (pthread_cond_timedwait(&c->freed, &c->mutex, &until) != ETIMEDOUT) continue;
        pthread_mutex_unlock(&c->mutex);
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_POOL, "all %d connections to Redis at %s stayed in use; allow more",
                     c->connections, c->where);
        return NULL;
    }
    redisContext *redis = c->n_idle ? c->idle[--c->n_idle] : NULL;
    if (!redis) c->n_open++;
    pthread_mutex_unlock(&c->mutex);
    if (redis) return redis;
    redis = lw_client_connect(c, c->connect_ms, c->command_ms, error);
    if (redis) return redis;
    pthread_mutex_lock(&c->mutex);
    c->n_open--;
    pthread_cond_signal(&c->freed);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

void lw_client_put(struct latchwork_client *c, redisContext *redis) {
    bool broken = redis->err != 0;
    if (broken) redisFree(redis);
    pthread_mutex_lock(&c->mutex);
    if (broken) {
        c->n_open--;
        drop_idle(c);
        pthread_cond_broadcast(&c->freed);
    } else {
        c->idle[c->n_idle++] = redis;
        pthread_cond_signal(&c->freed);
    }
    pthread_mutex_unlock(&c->mutex);
}
