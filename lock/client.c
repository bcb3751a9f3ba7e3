/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes clients of the lock library, and reads their options. */
#include "lock/client.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "lock/renewer.h"
#include "lock/target.h"
#include "lock/waking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_uint forks;
static void forked(void) { atomic_fetch_add(&forks, 1); }
unsigned lw_forks(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

/* Registers the fork handler once per process. If the registration fails, opening the next client
 * tries again. */
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
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_FORK,
                 "this client was opened before a fork: open another in the child");
    return false;
}

/* --- options ---------------------------------------------------------------------------------- */

static bool is_label(const char *s) {
    size_t n = strspn(s, LW_PLAIN);
    return n > 0 && n <= LATCHWORK_MAX_LABEL && !s[n];
}

static void default_label(char *label) {
    char host[41];
    if (gethostname(host, sizeof host)) snprintf(host, sizeof host, "host");
    host[sizeof host - 1] = '\0';
    snprintf(label, LATCHWORK_MAX_LABEL + 1, "%s.%ld", host, (long)getpid());
    for (char *p = label; *p; p++)
        if (strspn(p, LW_PLAIN) == 0) *p = '-';
}

/* Copies the caller's options. A program compiled with an earlier version of the header passes a
 * smaller struct; the options missing from it are 0. */
static bool read_options(const struct latchwork_client_options *given,
                         struct latchwork_client_options *o, struct latchwork_error *error) {
    *o = (struct latchwork_client_options){0};
    if (!given) return true;
    if (given->size < 8 || given->size > 4096) {
        lw_lock_wrong(error, "options.size is not set: begin them with LATCHWORK_CLIENT_INIT");
        return false;
    }
    memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    return true;
}

static bool take_options(struct latchwork_client *c, const struct latchwork_client_options *o,
                         struct latchwork_error *error) {
    if (o->flags & ~(unsigned)(LATCHWORK_FLAG_NO_SCRIPTS | LATCHWORK_FLAG_NO_VERIFY |
                               LATCHWORK_FLAG_TLS) ||
        o->connections < 0 || o->connections > LATCHWORK_MAX_CONNECTIONS || o->connect_ms < 0 ||
        o->connect_ms > LATCHWORK_MAX_WAIT_MS || o->command_ms < 0 ||
        o->command_ms > LATCHWORK_MAX_WAIT_MS || (o->label && !is_label(o->label))) {
        lw_lock_wrong(error,
                      "a client option is out of range: connections 1 to %d, times 1 to %d ms, "
                      "label 1 to %d of A-Za-z0-9._-",
                      (int)LATCHWORK_MAX_CONNECTIONS, (int)LATCHWORK_MAX_WAIT_MS,
                      (int)LATCHWORK_MAX_LABEL);
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

/* --- opening and closing ---------------------------------------------------------------------- */

/* Moves the options and the target into the client. The caller calls free_client() even if this
 * function fails. */
static bool fill_in(struct latchwork_client *c, struct lw_target *t,
                    const struct latchwork_client_options *o, struct latchwork_error *error) {
    if (!take_options(c, o, error) || !watch_forks(error) ||
        !lw_random_hex(c->id, sizeof c->id, error))
        return false;
    struct lw_cluster *cluster = t->cluster;
    c->url = t->at;
    c->servers = t->servers;
    c->shard = t->shard;
    c->slot = t->slot;
    c->where = t->where;
    *t = (struct lw_target){0};
    c->forks = lw_forks();
    if (cluster) c->id[0] = 'p';
    return lw_peers_open(c, cluster, error);
}

static void free_client(struct latchwork_client *c, bool child) {
    lw_peers_close(c, child);
    lw_redis_url_free(&c->url);
    if (c->servers) lw_redis_servers_free(c->servers);
    free(c->servers);
    free(c->where);
    free(c);
}

/* Opens a client for the target. Takes ownership of the target, even if opening fails. */
static struct latchwork_client *open_target(struct lw_target *t,
                                            const struct latchwork_client_options *o,
                                            struct latchwork_error *error) {
    struct latchwork_client *c = calloc(1, sizeof *c);
    if (!c || !fill_in(c, t, o, error)) {
        if (c)
            free_client(c, false);
        else
            lw_lock_no_memory(error);
        lw_target_free(t);
        return NULL;
    }
    pthread_mutex_init(&c->mutex, NULL);
    pthread_mutex_init(&c->start, NULL);
    lw_cond_init(&c->freed);
    return c;
}

struct latchwork_client *lw_client_open_servers(struct lw_redis_servers *servers, int shard,
                                                const char *where, struct latchwork_error *error) {
    const struct latchwork_client_options none = {0};
    struct lw_target t = {0};
    bool whole = lw_target_of(servers, shard, where, &t);
    lw_redis_servers_free(servers);
    if (whole) return open_target(&t, &none, error);
    lw_target_free(&t);
    lw_lock_no_memory(error);
    return NULL;
}

struct latchwork_client *latchwork_client_open(const char *url,
                                               const struct latchwork_client_options *options,
                                               struct latchwork_error *error) {
    struct latchwork_client_options o;
    struct lw_target t = {0};
    if (!read_options(options, &o, error)) return NULL;
    if (lw_target_take(url, &o, &t, error)) return open_target(&t, &o, error);
    lw_target_free(&t);
    return NULL;
}

void latchwork_client_close(struct latchwork_client *c) {
    if (!c) return;
    /* In a child of fork() the client's threads do not exist, and a thread of the parent may have
     * held a mutex when the process forked. So the child neither joins the threads nor destroys the
     * mutexes. */
    bool child = !lw_client_ok(c, NULL);
    if (!child) {
        lw_waking_close(atomic_load(&c->waking));
        lw_hold_renewer_close(atomic_load(&c->renewer));
        pthread_cond_destroy(&c->freed);
        pthread_mutex_destroy(&c->mutex);
        pthread_mutex_destroy(&c->start);
    }
    free_client(c, child);
}

void latchwork_client_interrupt(struct latchwork_client *c) {
    if (!c) return;
    atomic_store(&c->interrupted, true);
    if (!lw_client_ok(c, NULL)) return;
    /* Take the mutex `start` to wait until a thread that is being started exists. A thread that is
     * started later reads the field `interrupted` itself. */
    pthread_mutex_lock(&c->start);
    struct lw_waking *waking = atomic_load(&c->waking);
    pthread_mutex_unlock(&c->start);
    if (waking) lw_waking_rouse(waking);
}

enum latchwork_result latchwork_client_ping(struct latchwork_client *c,
                                            struct latchwork_error *error) {
    if (!lw_client_ok(c, error)) return LATCHWORK_LOCK_ERROR;
    struct lw_call call;
    lw_call_script(&call, NULL, 0);
    lw_call_add(&call, "PING", 4);
    redisReply *reply = lw_client_call(c, &call, error);
    if (!reply) return LATCHWORK_LOCK_ERROR;
    freeReplyObject(reply);
    return LATCHWORK_LOCK_OK;
}

/* --- connecting ------------------------------------------------------------------------------- */

void lw_client_failed(const char *where, const struct lw_err *why, struct latchwork_error *error) {
    bool denied = strstr(why->text, "(NOAUTH") || strstr(why->text, "(WRONGPASS") ||
                  strstr(why->text, "(ERR invalid password");
    int code = why->memory ? LATCHWORK_E_MEMORY
               : why->late ? LATCHWORK_E_TIMEOUT
               : denied    ? LATCHWORK_E_DENIED
                           : LATCHWORK_E_CONNECT;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, code, "Redis at %s: %.400s", where, why->text);
}

struct lw_redis *lw_client_dial(struct latchwork_client *c, struct latchwork_error *error) {
    struct lw_err why = {0};
    struct lw_redis *redis = lw_redis_start(&c->url, &why);
    if (!redis) lw_client_failed(c->where, &why, error);
    return redis;
}

static struct lw_redis *open_found(struct latchwork_client *c, int64_t connect_ms,
                                   int64_t command_ms, struct lw_err *err) {
    struct lw_redis_url at;
    if (lw_redis_servers_find(c->servers, c->shard, connect_ms, &at, err)) return NULL;
    struct lw_redis *redis = lw_redis_open(&at, c->name, connect_ms, command_ms, err);
    lw_redis_url_free(&at);
    if (!redis) lw_redis_servers_doubt(c->servers);
    return redis;
}

static struct lw_redis *open_peer(struct latchwork_client *c, uint64_t peer, int64_t connect_ms,
                                  int64_t command_ms, struct latchwork_error *error) {
    struct lw_err why = {0};
    struct lw_redis_url at;
    char where[160];
    if (!lw_peer_url(c, peer, &at)) return lw_lock_no_memory(error), NULL;
    struct lw_redis *redis = lw_redis_open(&at, c->name, connect_ms, command_ms, &why);
    if (!redis) lw_client_failed(lw_redis_url_where(&at, where, sizeof where), &why, error);
    lw_redis_url_free(&at);
    return redis;
}

struct lw_redis *lw_client_connect(struct latchwork_client *c, uint64_t peer, int64_t connect_ms,
                                   int64_t command_ms, struct latchwork_error *error) {
    struct lw_err why = {0};
    if (c->table) return open_peer(c, peer, connect_ms, command_ms, error);
    struct lw_redis *redis = c->servers
                                 ? open_found(c, connect_ms, command_ms, &why)
                                 : lw_redis_open(&c->url, c->name, connect_ms, command_ms, &why);
    if (!redis) lw_client_failed(c->where, &why, error);
    return redis;
}
