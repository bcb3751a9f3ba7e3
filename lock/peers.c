/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/peers.h"

#include "base/clock.h"
#include "base/thread.h"
#include "lock/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HOST_MAX = 256 };

/* --- peers; the client's mutex is held, except when it is opened or closed -------------------- */

static struct lw_peer *new_peer(struct latchwork_client *c) {
    struct lw_peer *p = calloc(1, sizeof *p + (size_t)c->connections * sizeof p->idle[0]);
    if (p) p->id = ++c->peer_ids;
    return p;
}

static void drop_idle(struct lw_peer *p) {
    while (p->n_idle) {
        lw_redis_close(p->idle[--p->n_idle]);
        p->n_open--;
    }
}

static void free_peer(struct lw_peer *p) {
    drop_idle(p);
    lw_redis_url_free(&p->at);
    free(p);
}

static struct lw_peer *peer_with(const struct latchwork_client *c, uint64_t id) {
    for (size_t i = 0; i < c->n_peers; i++)
        if (c->peer[i] && c->peer[i]->id == id) return c->peer[i];
    return NULL;
}

/* Writes to *out the client's URL with another host and port. */
static bool address(const struct latchwork_client *c, const char *host, int port,
                    struct lw_redis_url *out) {
    if (lw_redis_url_copy(&c->url, out, NULL)) return false;
    free(out->host);
    out->port = port;
    out->only_master = true;
    out->via = LW_VIA_FOUND;
    out->host = strdup(host);
    if (out->host) return true;
    lw_redis_url_free(out);
    return false;
}

/* Returns the index of the node's peer, and creates the peer if necessary. Returns -1 if an
 * allocation failed or the array of peers is full. */
static int peer_at(struct latchwork_client *c, const char *host, int port) {
    int room = -1;
    for (size_t i = 0; i < c->n_peers; i++) {
        const struct lw_peer *p = c->peer[i];
        if (p && p->at.port == port && !strcmp(p->at.host, host)) return (int)i;
        if (!p && room < 0) room = (int)i;
    }
    if (room < 0 && c->n_peers == LW_PEERS_MAX) return -1;
    struct lw_peer *p = new_peer(c);
    if (!p || !address(c, host, port, &p->at)) {
        free(p);
        return -1;
    }
    if (room < 0) room = (int)c->n_peers++;
    c->peer[room] = p;
    return room;
}

/* --- the table; the client's mutex is held ---------------------------------------------------- */

/* Removes the peers that own no slot, except those to which a thread has a connection or for which
 * a thread waits. */
static void remove_unused(struct latchwork_client *c) {
    for (size_t i = 0; i < c->n_peers; i++) {
        struct lw_peer *p = c->peer[i];
        if (!p || p->owns) continue;
        drop_idle(p);
        if (p->n_open || p->n_waiting) continue;
        free_peer(p);
        c->peer[i] = NULL;
    }
}

/* Fills the slot table from a slot map. Returns false if an allocation failed; the owners of some
 * slots then stay unknown. */
static bool apply(struct latchwork_client *c, const struct lw_slot_map *found) {
    struct lw_slot_table *t = c->table;
    bool whole = true;
    memset(t->owner, 0, sizeof t->owner);
    for (size_t i = 0; i < c->n_peers; i++)
        if (c->peer[i]) c->peer[i]->owns = false;
    for (size_t i = 0; i < found->n; i++) {
        const struct lw_span *span = &found->span[i];
        int owner = span->n_nodes ? peer_at(c, span->node[0].host, span->node[0].port) : -1;
        whole = whole && (owner >= 0 || !span->n_nodes);
        if (owner < 0) continue;
        c->peer[owner]->owns = true;
        for (int slot = span->first; slot <= span->last; slot++)
            t->owner[slot] = (uint16_t)(owner + 1);
    }
    remove_unused(c);
    return whole;
}

static struct lw_peer *owner_of(const struct latchwork_client *c, int slot) {
    if (!c->table) return c->peer[0];
    if (slot != LW_ANY_SLOT)
        return c->table->owner[slot] ? c->peer[c->table->owner[slot] - 1] : NULL;
    for (size_t i = 0; i < c->n_peers; i++)
        if (c->peer[i] && c->peer[i]->owns) return c->peer[i];
    return NULL;
}

static void forget(struct latchwork_client *c, struct lw_peer *p) {
    p->owns = false;
    for (int slot = 0; slot < LW_SLOTS; slot++)
        if (c->table->owner[slot] && c->peer[c->table->owner[slot] - 1] == p)
            c->table->owner[slot] = 0;
}

/* Reads the slot map. The caller holds the client's mutex, which this function releases while the
 * map is read. If another thread is already reading the map, waits for that thread, and reads the
 * map only if that thread failed. Returns false with *error on failure. */
static bool read_map(struct latchwork_client *c, int slot, int64_t timeout_ms,
                     struct latchwork_error *error) {
    struct lw_slot_table *t = c->table;
    struct timespec until = lw_from_now(timeout_ms);
    unsigned before = t->reads;
    while (t->reading)
        if (pthread_cond_timedwait(&t->read, &c->mutex, &until) == ETIMEDOUT) {
            lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_TIMEOUT,
                         "Redis at %s: no map of the slots in time", c->where);
            return false;
        }
    if (t->reads != before) return true;
    t->reading = true;
    pthread_mutex_unlock(&c->mutex);
    struct lw_slot_map found;
    struct lw_err why = {0};
    int failed = lw_cluster_map(t->cluster, slot, timeout_ms, &found, &why);
    pthread_mutex_lock(&c->mutex);
    t->reading = false;
    bool whole = !failed && apply(c, &found);
    if (!failed) t->reads++;
    if (!failed) lw_slot_map_free(&found);
    if (failed) lw_client_failed(c->where, &why, error);
    if (!failed && !whole) lw_lock_no_memory(error);
    pthread_cond_broadcast(&t->read);
    return whole;
}

/* Returns the owner of a slot, or NULL with *error. Locks the client's mutex, and leaves it locked
 * on success and on failure. */
static struct lw_peer *find_owner(struct latchwork_client *c, int slot, int64_t timeout_ms,
                                  struct latchwork_error *error) {
    pthread_mutex_lock(&c->mutex);
    struct lw_peer *p = owner_of(c, slot);
    if (p) return p;
    if (read_map(c, slot, timeout_ms, error)) {
        p = owner_of(c, slot);
        if (!p)
            lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_READONLY,
                         "Redis at %s: slot %d has no owner that is known; try again", c->where,
                         slot);
    }
    return p;
}

uint64_t lw_peer_of(struct latchwork_client *c, int slot, int64_t timeout_ms,
                    struct latchwork_error *error) {
    const struct lw_peer *p = find_owner(c, slot, timeout_ms, error);
    uint64_t id = p ? p->id : 0;
    pthread_mutex_unlock(&c->mutex);
    return id;
}

uint64_t lw_peer_known(struct latchwork_client *c, int slot) {
    pthread_mutex_lock(&c->mutex);
    const struct lw_peer *p = owner_of(c, slot);
    uint64_t id = p ? p->id : 0;
    pthread_mutex_unlock(&c->mutex);
    return id;
}

bool lw_peer_url(struct latchwork_client *c, uint64_t peer, struct lw_redis_url *out) {
    pthread_mutex_lock(&c->mutex);
    const struct lw_peer *p = peer_with(c, peer);
    bool good = p && !lw_redis_url_copy(c->table ? &p->at : &c->url, out, NULL);
    pthread_mutex_unlock(&c->mutex);
    return good;
}

void lw_peer_doubt(struct latchwork_client *c, uint64_t peer) {
    if (!c->table) return;
    pthread_mutex_lock(&c->mutex);
    struct lw_peer *p = peer_with(c, peer);
    if (p) forget(c, p);
    pthread_mutex_unlock(&c->mutex);
    /* Ask another node for the next slot map, because the node that named this owner may have an
     * outdated map. */
    lw_cluster_doubt(c->table->cluster);
}

size_t lw_peers_slots(struct latchwork_client *c, int *slot, size_t max,
                      struct latchwork_error *error) {
    size_t n = 0;
    pthread_mutex_lock(&c->mutex);
    if (read_map(c, LW_ANY_SLOT, c->connect_ms, error)) {
        const struct lw_peer *seen[LW_PEERS_MAX] = {0};
        for (int s = 0; s < LW_SLOTS && n < max && n < LW_PEERS_MAX; s++) {
            const struct lw_peer *p = owner_of(c, s);
            size_t i = 0;
            while (p && i < n && seen[i] != p) i++;
            if (p && i == n) seen[n] = p, slot[n++] = s;
        }
        if (!n)
            lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_READONLY,
                         "Redis at %s: no slot has an owner; try again", c->where);
    }
    pthread_mutex_unlock(&c->mutex);
    return n;
}

/* --- refusals --------------------------------------------------------------------------------- */

/* Parses "MOVED 3999 10.0.0.7:6381" or "ASK …". If the text has no host, the host is that of the
 * node that sent it. Returns false if the text contains no address. */
static bool read_address(const struct lw_redis *redis, const char *text, int *slot, char *host,
                         int *port) {
    char *end;
    const char *at = strchr(text, ' ');
    long number = at ? strtol(at, &end, 10) : -1;
    if (number < 0 || number >= LW_SLOTS || *end != ' ') return false;
    at = end + 1;
    const char *colon = strrchr(at, ':');
    if (!colon || (size_t)(colon - at) >= HOST_MAX) return false;
    snprintf(host, HOST_MAX, "%.*s", (int)(colon - at), at);
    *slot = (int)number;
    *port = (int)strtol(colon + 1, NULL, 10);
    const struct lw_peer *asked = redis->owner;
    if (!*host && asked && asked->at.host) snprintf(host, HOST_MAX, "%s", asked->at.host);
    return *host && strcmp(host, "?") && *port > 0 && *port <= UINT16_MAX;
}

/* Handles the address in a MOVED or ASK refusal: finds or creates the peer, and after MOVED
 * corrects the slot table. Returns the index of the peer, or -1 if there is none. */
static int take_address(struct latchwork_client *c, const struct lw_redis *redis, const char *text,
                        bool moved) {
    char host[HOST_MAX];
    int slot = LW_ANY_SLOT, port = 0;
    bool named = read_address(redis, text, &slot, host, &port);
    int peer = named ? peer_at(c, host, port) : -1;
    if (moved && slot != LW_ANY_SLOT) {
        /* If the refusal names no peer, the slot's owner becomes 0, which means unknown, so that
         * the slot table is read again. */
        c->table->owner[slot] = (uint16_t)(peer + 1);
        if (peer >= 0) c->peer[peer]->owns = true;
    }
    return peer;
}

bool lw_peer_turned(struct latchwork_client *c, const struct lw_redis *redis, const char *text,
                    int slot, struct lw_turn *turn) {
    *turn = (struct lw_turn){0};
    if (!c->table || !lw_redis_deposed(text)) return false;
    bool moved = !strncmp(text, "MOVED ", 6), ask = !strncmp(text, "ASK ", 4);
    /* A text with "script: …" or "Script attempted …" says that a script stopped in the middle. */
    turn->half_done = strstr(text, "cript") != NULL;
    pthread_mutex_lock(&c->mutex);
    int peer = moved || ask ? take_address(c, redis, text, moved) : -1;
    if (ask && peer >= 0) turn->ask = c->peer[peer]->id;
    turn->wait = !moved && !turn->ask;
    /* Forget the owner, because another node may own the slot now: a promoted replica, or a node on
     * the other side of a network partition. */
    if (!moved && !ask && !lw_redis_moved(text) && slot != LW_ANY_SLOT) c->table->owner[slot] = 0;
    pthread_mutex_unlock(&c->mutex);
    return true;
}

/* --- connections ------------------------------------------------------------------------------ */

/* Waits until the peer has an idle connection or may open another one. The caller holds the
 * client's mutex, which is released during the wait. Returns false after a timeout. */
static bool wait_for_turn(struct latchwork_client *c, struct lw_peer *p) {
    struct timespec until = lw_from_now(c->connect_ms + 2 * c->command_ms + 1000);
    bool late = false;
    p->n_waiting++;
    while (!late && !p->n_idle && p->n_open == c->connections)
        late = pthread_cond_timedwait(&c->freed, &c->mutex, &until) == ETIMEDOUT;
    p->n_waiting--;
    return p->n_idle || p->n_open < c->connections;
}

/* Returns a connection to the peer, or NULL with *error. The caller holds the client's mutex, and
 * this function releases the mutex. */
static struct lw_redis *get_from(struct latchwork_client *c, struct lw_peer *p,
                                 struct latchwork_error *error) {
    bool free = wait_for_turn(c, p);
    struct lw_redis *redis = free && p->n_idle ? p->idle[--p->n_idle] : NULL;
    if (free && !redis) p->n_open++;
    pthread_mutex_unlock(&c->mutex);
    if (!free)
        lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_POOL,
                     "all %d connections to Redis at %s stayed in use; allow more", c->connections,
                     c->where);
    if (redis || !free) return redis;
    /* The peer stays valid although the client's mutex is released, because n_open counts the new
     * connection. */
    redis = lw_client_connect(c, p->id, c->connect_ms, c->command_ms, error);
    if (redis) {
        redis->owner = p;
        return redis;
    }
    pthread_mutex_lock(&c->mutex);
    p->n_open--;
    pthread_cond_broadcast(&c->freed);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

struct lw_redis *lw_client_get_at(struct latchwork_client *c, uint64_t peer,
                                  struct latchwork_error *error) {
    pthread_mutex_lock(&c->mutex);
    struct lw_peer *p = peer_with(c, peer);
    if (p) return get_from(c, p, error);
    pthread_mutex_unlock(&c->mutex);
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_READONLY,
                 "Redis at %s: the node has left the cluster; try again", c->where);
    return NULL;
}

struct lw_redis *lw_client_get(struct latchwork_client *c, int slot,
                               struct latchwork_error *error) {
    struct latchwork_error why = {0};
    for (int attempt = 0;; attempt++) {
        struct lw_peer *p = find_owner(c, slot, c->connect_ms, &why);
        if (!p) pthread_mutex_unlock(&c->mutex);
        uint64_t id = p ? p->id : 0;
        struct lw_redis *redis = p ? get_from(c, p, &why) : NULL;
        if (redis) return redis;
        bool again = c->table && p && !attempt &&
                     (why.code == LATCHWORK_E_CONNECT || why.code == LATCHWORK_E_TIMEOUT);
        if (again) lw_peer_doubt(c, id);
        if (again) continue;
        if (error) *error = why;
        return NULL;
    }
}

void lw_client_put(struct latchwork_client *c, struct lw_redis *redis) {
    struct lw_peer *p = redis->owner;
    bool broken = redis->err != 0;
    if (broken) lw_redis_close(redis);
    pthread_mutex_lock(&c->mutex);
    if (broken) {
        p->n_open--;
        drop_idle(p);
    } else {
        p->idle[p->n_idle++] = redis;
    }
    /* Wake all threads, because a single woken thread may be waiting for another peer. */
    if (c->table || broken)
        pthread_cond_broadcast(&c->freed);
    else
        pthread_cond_signal(&c->freed);
    pthread_mutex_unlock(&c->mutex);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static bool open_table(struct latchwork_client *c, struct lw_cluster *cluster) {
    c->table = calloc(1, sizeof *c->table);
    if (!c->table) {
        lw_cluster_close(cluster);
        return false;
    }
    c->table->cluster = cluster;
    lw_cond_init(&c->table->read);
    return true;
}

bool lw_peers_open(struct latchwork_client *c, struct lw_cluster *cluster,
                   struct latchwork_error *error) {
    if (cluster && !open_table(c, cluster)) return lw_lock_no_memory(error), false;
    c->peer = calloc(cluster ? LW_PEERS_MAX : 1, sizeof(struct lw_peer *));
    if (c->peer && !cluster) c->n_peers = (c->peer[0] = new_peer(c)) != NULL;
    bool whole = c->peer && (cluster || c->n_peers);
    return whole ? true : (lw_lock_no_memory(error), false);
}

void lw_peers_close(struct latchwork_client *c, bool child) {
    for (size_t i = 0; i < c->n_peers; i++)
        if (c->peer[i]) free_peer(c->peer[i]);
    free(c->peer);
    if (!c->table) return;
    lw_cluster_close(c->table->cluster);
    if (!child) pthread_cond_destroy(&c->table->read);
    free(c->table);
}
