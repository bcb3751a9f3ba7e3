/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes clients: their options, and the pool of their connections. */
#include "lock/client.h"

#include "base/clock.h"
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

/* Reads the caller's options. A program that was built with an earlier version of the header has fewer of them. */
static bool read_options(const struct latchwork_client_options *given, struct latchwork_client_options *o, struct latchwork_error *error) {
    *o = (struct latchwork_client_options){0};
    if (!given) return true;
    if (given->size < 8 || given->size > 4096) {
        lw_lock_wrong(error, "options.size is not set: begin them with LATCHWORK_CLIENT_INIT");
        return false;
    }
    memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    return true;
}

static bool take_options(struct latchwork_client *c, const struct latchwork_client_options *o, struct latchwork_error *error) {
    if (o->flags & ~(unsigned)(LATCHWORK_FLAG_NO_SCRIPTS | LATCHWORK_FLAG_NO_VERIFY) || o->connections < 0 ||
        o->connections > LATCHWORK_MAX_CONNECTIONS || o->connect_ms < 0 || o->connect_ms > LATCHWORK_MAX_WAIT_MS || o->command_ms < 0 ||
        o->command_ms > LATCHWORK_MAX_WAIT_MS || (o->label && !is_label(o->label))) {
        lw_lock_wrong(error, "a client option is out of range: connections 1 to %d, times 1 to %d ms, label 1 to %d of A-Za-z0-9._-",
                      (int)LATCHWORK_MAX_CONNECTIONS, (int)LATCHWORK_MAX_WAIT_MS, (int)LATCHWORK_MAX_LABEL);
        return false;
    }
    c->flags = o->flags;
    c->connections = o->connections ? o->connections : LATCHWORK_DEFAULT_CONNECTIONS;
    c->connect_ms = o->connect_ms ? o->connect_ms : LATCHWORK_DEFAULT_CONNECT_MS;
    c->command_ms = o->command_ms ? o->command_ms : LATCHWORK_DEFAULT_COMMAND_MS;
    if (o->label)
        snprintf(c->label, sizeof c->label, "%s", o->label);
    else
        default_label(c->label);
    snprintf(c->name, sizeof c->name, "latchwork-lock:%s", c->label);
    return true;
}

/* Sets the server's address, with the credentials and TLS settings that the options add to the URL. */
static bool take_place(struct latchwork_client *c, const struct lw_redis_url *at, const char *where,
                       const struct latchwork_client_options *o, struct latchwork_error *error) {
    struct lw_redis_url u = *at;
    if (o->user && !o->password) {
        lw_lock_wrong(error, "options.user needs a password");
        return false;
    }
    if (o->password && !u.password) u.user = (char *)(uintptr_t)o->user, u.password = (char *)(uintptr_t)o->password;
    if (o->tls_ca) u.tls.ca_file = (char *)(uintptr_t)o->tls_ca;
    if (o->tls_cert) u.tls.cert_file = (char *)(uintptr_t)o->tls_cert, u.tls.key_file = (char *)(uintptr_t)o->tls_key;
    if (o->tls_name) u.tls.server_name = (char *)(uintptr_t)o->tls_name;
    if (o->flags & LATCHWORK_FLAG_NO_VERIFY) u.tls.no_verify = true;
    c->where = strdup(where);
    if (c->where && !lw_redis_url_copy(&u, &c->url, NULL)) return true;
    lw_lock_no_memory(error);
    return false;
}

/* Sets the fields that free_client() frees. */
static bool fill_in(struct latchwork_client *c, const struct lw_redis_url *at, const char *where,
                    const struct latchwork_client_options *given, struct latchwork_error *error) {
    struct latchwork_client_options o;
    if (!read_options(given, &o, error) || !take_options(c, &o, error) || !take_place(c, at, where, &o, error)) return false;
    if (!watch_forks(error) || !lw_random_hex(c->id, sizeof c->id, error)) return false;
    c->forks = lw_forks();
    c->idle = calloc((size_t)c->connections, sizeof *c->idle);
    if (!c->idle) lw_lock_no_memory(error);
    return c->idle != NULL;
}

static void free_client(struct latchwork_client *c) {
    lw_redis_url_free(&c->url);
    if (c->servers) lw_redis_servers_free(c->servers);
    free(c->servers);
    free(c->where);
    free(c->idle);
    free(c);
}

static struct latchwork_client *open_at(const struct lw_redis_url *at, const char *where, const struct latchwork_client_options *options,
                                        struct latchwork_error *error) {
    struct latchwork_client *c = calloc(1, sizeof *c);
    if (!c) return lw_lock_no_memory(error), NULL;
    if (!fill_in(c, at, where, options, error)) {
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

struct latchwork_client *lw_client_open_servers(struct lw_redis_servers *servers, int shard, const char *where,
                                                struct latchwork_error *error) {
    struct lw_redis_servers *own = malloc(sizeof *own);
    struct latchwork_client *c = own ? open_at(&(struct lw_redis_url){0}, where, NULL, error) : NULL;
    if (c) {
        *own = *servers;
        *servers = (struct lw_redis_servers){0};
        c->servers = own;
        c->shard = shard;
        return c;
    }
    if (!own) lw_lock_no_memory(error);
    free(own);
    lw_redis_servers_free(servers);
    return NULL;
}

struct latchwork_client *latchwork_client_open(const char *url, const struct latchwork_client_options *options,
                                               struct latchwork_error *error) {
    struct lw_redis_url at;
    struct lw_err why = {0};
    if (!url || lw_redis_url_parse(url, &at, &why)) {
        if (why.memory)
            lw_lock_no_memory(error);
        else
            lw_lock_wrong(error, "url: %.400s", url ? why.text : "none given");
        return NULL;
    }
    char *where = lw_url_redact(url);
    struct latchwork_client *c = where ? open_at(&at, where, options, error) : NULL;
    if (!where) lw_lock_no_memory(error);
    free(where);
    lw_redis_url_free(&at);
    return c;
}

static void drop_idle(struct latchwork_client *c) {
    while (c->n_idle) {
        lw_redis_close(c->idle[--c->n_idle]);
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
    } /* in a child of fork() the threads do not exist, and a mutex may be held for ever, so they are left alone */
    drop_idle(c);
    free_client(c);
}

void latchwork_client_interrupt(struct latchwork_client *c) {
    if (!c) return;
    atomic_store(&c->interrupted, true);
    if (!lw_client_ok(c, NULL)) return;
    pthread_mutex_lock(&c->start); /* a thread that starts after this sees `interrupted` */
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

static void tell_failure(struct latchwork_client *c, const struct lw_err *why, struct latchwork_error *error) {
    bool denied = strstr(why->text, "(NOAUTH") || strstr(why->text, "(WRONGPASS") || strstr(why->text, "(ERR invalid password");
    int code = why->memory ? LATCHWORK_E_MEMORY : why->late ? LATCHWORK_E_TIMEOUT : denied ? LATCHWORK_E_DENIED : LATCHWORK_E_CONNECT;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, code, "Redis at %s: %.400s", c->where, why->text);
}

struct lw_redis *lw_client_dial(struct latchwork_client *c, struct latchwork_error *error) {
    struct lw_err why = {0};
    struct lw_redis *redis = lw_redis_start(&c->url, &why);
    if (!redis) tell_failure(c, &why, error);
    return redis;
}

static struct lw_redis *open_found(struct latchwork_client *c, int64_t connect_ms, int64_t command_ms, struct lw_err *err) {
    struct lw_redis_url at;
    if (lw_redis_servers_find(c->servers, c->shard, connect_ms, &at, err)) return NULL;
    struct lw_redis *redis = lw_redis_open(&at, c->name, connect_ms, command_ms, err);
    lw_redis_url_free(&at);
    if (!redis) lw_redis_servers_doubt(c->servers);
    return redis;
}

struct lw_redis *lw_client_connect(struct latchwork_client *c, int64_t connect_ms, int64_t command_ms, struct latchwork_error *error) {
    struct lw_err why = {0};
    struct lw_redis *redis =
        c->servers ? open_found(c, connect_ms, command_ms, &why) : lw_redis_open(&c->url, c->name, connect_ms, command_ms, &why);
    if (!redis) tell_failure(c, &why, error);
    return redis;
}

struct lw_redis *lw_client_get(struct latchwork_client *c, struct latchwork_error *error) {
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
    struct lw_redis *redis = c->n_idle ? c->idle[--c->n_idle] : NULL;
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

void lw_client_put(struct latchwork_client *c, struct lw_redis *redis) {
    bool broken = redis->err != 0;
    if (broken) lw_redis_close(redis);
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
