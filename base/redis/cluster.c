/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/cluster.h"

#include "base/redis/reply.h"
#include "base/redis/search.h"
#include "base/redis/slot.h"
#include "base/bytes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* maximum number of nodes asked per search, so that each has enough time to answer */
    ASKED_MAX = 8,
    NODES_MAX = 512, /* maximum number of nodes that are remembered */
    /* number of words before the replicas in an entry of CLUSTER SLOTS: first slot, last slot,
     * owner */
    SPAN_WORDS = 3,
};

struct lw_cluster {
    pthread_mutex_t mutex; /* guards the fields below */
    struct lw_redis_url *node;
    /* the user gave the first n_given elements of `node`; all others come from the last slot map */
    size_t n, n_given;
    size_t first; /* index of the node to ask first, modulo n */
};

/* --- a map ------------------------------------------------------------------------------------ */

void lw_slot_map_free(struct lw_slot_map *m) {
    for (size_t i = 0; i < m->n; i++) {
        for (size_t k = 0; k < m->span[i].n_nodes; k++) free(m->span[i].node[k].host);
        free(m->span[i].node);
    }
    free(m->span);
    *m = (struct lw_slot_map){0};
}

const struct lw_span *lw_slot_map_find(const struct lw_slot_map *m, int slot) {
    for (size_t i = 0; i < m->n; i++)
        if (m->span[i].first <= slot && slot <= m->span[i].last) return &m->span[i];
    return NULL;
}

static bool is_text(const redisReply *r) {
    return r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS;
}

/* Returns the address of a node whose host is "?", from the names and values that follow in the
 * node's entry. Returns NULL if the entry contains no address. Redis answers "?" if it is
 * configured to name hosts and the node has no name. */
static const char *address_of(const redisReply *node) {
    const redisReply *more = node->elements > SPAN_WORDS ? node->element[SPAN_WORDS] : NULL;
    for (size_t i = 0; more && more->elements && i + 1 < more->elements; i += 2)
        if (is_text(more->element[i]) && is_text(more->element[i + 1]) &&
            !strcmp(more->element[i]->str, "ip"))
            return more->element[i + 1]->str;
    return NULL;
}

/* Returns the host of a node. If the answer has null or "" as the host, the node is the one that
 * was asked, so the function returns the host of `asked`. Returns NULL if the answer is malformed,
 * or if the host is "?" and the entry has no address. */
static const char *host_of(const redisReply *node, const struct lw_redis_url *asked) {
    const redisReply *host = node->element[0];
    if (host->type == REDIS_REPLY_NIL || (is_text(host) && !host->len)) return asked->host;
    if (!is_text(host)) return NULL;
    return strcmp(host->str, "?") ? host->str : address_of(node);
}

static int malformed(const redisReply *r, const char *expected, struct lw_err *err) {
    char why[LW_REPLY_TEXT];
    return lw_fail(err, "%s", lw_malformed(why, r, "CLUSTER SLOTS", "%s", expected));
}

static int read_node(const redisReply *r, const struct lw_redis_url *asked, struct lw_span *span,
                     struct lw_err *err) {
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements >= 2 &&
                 r->element[1]->type == REDIS_REPLY_INTEGER;
    const char *host = sound ? host_of(r, asked) : NULL;
    long long port = sound ? r->element[1]->integer : 0;
    if (!host || port < 0 || port > UINT16_MAX)
        return malformed(r, "[host, port, ...] as a node", err);
    struct lw_place *p = &span->node[span->n_nodes];
    p->port = port ? (int)port : asked->port;
    p->host = strdup(host);
    if (!p->host) return lw_fail_memory(err);
    span->n_nodes++;
    return 0;
}

static int read_span(const redisReply *r, const struct lw_redis_url *asked, struct lw_span *span,
                     struct lw_err *err) {
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements >= SPAN_WORDS &&
                 r->element[0]->type == REDIS_REPLY_INTEGER &&
                 r->element[1]->type == REDIS_REPLY_INTEGER;
    if (!sound || r->element[0]->integer < 0 || r->element[1]->integer < r->element[0]->integer ||
        r->element[1]->integer >= LW_SLOTS)
        return malformed(r, "[first slot, last slot, node, ...]", err);
    span->first = (int)r->element[0]->integer;
    span->last = (int)r->element[1]->integer;
    span->node = calloc(r->elements - 2, sizeof *span->node);
    if (!span->node) return lw_fail_memory(err);
    for (size_t i = 2; i < r->elements; i++)
        if (read_node(r->element[i], asked, span, err)) return -1;
    return 0;
}

int lw_slot_map_read(const redisReply *r, const struct lw_redis_url *asked, struct lw_slot_map *out,
                     struct lw_err *err) {
    *out = (struct lw_slot_map){0};
    if (r->type == REDIS_REPLY_ERROR && strstr(r->str, "cluster support disabled"))
        return lw_fail(err, "it is no cluster node; write redis.url for a single Redis");
    if (r->type == REDIS_REPLY_ERROR) return lw_fail(err, "CLUSTER SLOTS: %.200s", r->str);
    if (r->type != REDIS_REPLY_ARRAY) return malformed(r, "an array", err);
    out->span = calloc(r->elements ? r->elements : 1, sizeof *out->span);
    if (!out->span) return lw_fail_memory(err);
    for (; out->n < r->elements; out->n++)
        if (read_span(r->element[out->n], asked, &out->span[out->n], err)) {
            /* count the malformed entry, too, so that lw_slot_map_free() frees what was read of
             * it */
            out->n++;
            lw_slot_map_free(out);
            return -1;
        }
    return 0;
}

/* --- the nodes -------------------------------------------------------------------------------- */

static void free_nodes(struct lw_redis_url *node, size_t n) {
    for (size_t i = 0; i < n; i++) lw_redis_url_free(&node[i]);
    free(node);
}

struct lw_cluster *lw_cluster_open(const struct lw_redis_url *given, size_t n, struct lw_err *err) {
    struct lw_cluster *c = calloc(1, sizeof *c);
    if (c) c->node = calloc(NODES_MAX, sizeof *c->node);
    bool whole = c && c->node;
    for (size_t i = 0; whole && i < n && i < NODES_MAX; i++) {
        whole = !lw_redis_url_copy(&given[i], &c->node[i], NULL);
        if (whole) c->n_given = c->n = i + 1;
    }
    if (c) pthread_mutex_init(&c->mutex, NULL);
    if (whole) return c;
    lw_cluster_close(c);
    return lw_fail_memory(err), NULL;
}

void lw_cluster_close(struct lw_cluster *c) {
    if (!c) return;
    if (c->node) free_nodes(c->node, c->n);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

void lw_cluster_doubt(struct lw_cluster *c) {
    pthread_mutex_lock(&c->mutex);
    c->first++;
    pthread_mutex_unlock(&c->mutex);
}

/* Copies the URL `like` to *out, with the host and port of the node `at`. Returns 0, or -1 if an
 * allocation failed. */
static int node_at(const struct lw_redis_url *like, const struct lw_place *at,
                   struct lw_redis_url *out) {
    if (lw_redis_url_copy(like, out, NULL)) return -1;
    free(out->host);
    out->port = at->port;
    out->host = strdup(at->host);
    if (out->host) return 0;
    lw_redis_url_free(out);
    return -1;
}

static bool is_at(const struct lw_redis_url *u, const char *host, int port) {
    return u->port == port && !strcmp(u->host, host);
}

static size_t index_of(const struct lw_cluster *c, const char *host, int port) {
    size_t i = 0;
    while (i < c->n && !is_at(&c->node[i], host, port)) i++;
    return i;
}

/* Replaces the nodes that earlier slot maps named with the nodes of the new map. A node is left out
 * if an allocation fails, because the next map names it again. */
static void learn(struct lw_cluster *c, const struct lw_slot_map *m,
                  const struct lw_redis_url *asked) {
    pthread_mutex_lock(&c->mutex);
    for (; c->n > c->n_given; c->n--) lw_redis_url_free(&c->node[c->n - 1]);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->span[i].n_nodes; k++) {
            const struct lw_place *p = &m->span[i].node[k];
            if (c->n < NODES_MAX && index_of(c, p->host, p->port) == c->n &&
                !node_at(&c->node[0], p, &c->node[c->n]))
                c->n++;
        }
    size_t found = index_of(c, asked->host, asked->port);
    if (found < c->n) c->first = found;
    pthread_mutex_unlock(&c->mutex);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Copies node k of the list. k is taken modulo the length of the list, because other threads may
 * have shortened the list since the caller read its length. */
static int candidate(struct lw_cluster *c, size_t k, struct lw_redis_url *out) {
    pthread_mutex_lock(&c->mutex);
    int failed = lw_redis_url_copy(&c->node[k % c->n], out, NULL);
    pthread_mutex_unlock(&c->mutex);
    return failed;
}

/* Returns 0 if the map has an owner for the slot or if `slot` is -1. Otherwise returns -1, with the
 * reason in *why. */
static int fits(const struct lw_slot_map *m, int slot, struct lw_err *why) {
    if (slot < 0 || lw_slot_map_find(m, slot)) return 0;
    return lw_fail(why, "its map has no owner of slot %d", slot);
}

/* The slot whose owner a search looks for, and the map that the search fills in. */
struct wanted {
    int slot;
    struct lw_slot_map *map;
};

static int read_map(void *ctx, const redisReply *r, const struct lw_redis_url *asked,
                    struct lw_err *err) {
    const struct wanted *w = ctx;
    if (lw_slot_map_read(r, asked, w->map, err)) return -1;
    if (!fits(w->map, w->slot, err)) return 0;
    lw_slot_map_free(w->map);
    return -1;
}

static int ask_nodes(struct lw_cluster *c, int slot, int64_t timeout_ms, struct lw_slot_map *out,
                     struct lw_redis_url *asked, struct lw_err *err) {
    struct wanted wanted = {slot, out};
    const char *argv[] = {"CLUSTER", "SLOTS"};
    const struct lw_question question = {argv, 2, read_map, &wanted};
    struct lw_search search;
    lw_search_begin(&search, timeout_ms);
    pthread_mutex_lock(&c->mutex);
    size_t first = c->first % c->n, n = c->n < ASKED_MAX ? c->n : ASKED_MAX;
    pthread_mutex_unlock(&c->mutex);
    for (size_t i = 0; i < n; i++) {
        if (candidate(c, first + i, asked)) return lw_fail_memory(err);
        if (!lw_search_ask(&search, asked, n - i - 1, &question)) return 0;
        lw_redis_url_free(asked);
        if (search.each.memory) return lw_fail_memory(err);
    }
    /* begin the next search at another node, so that several searches reach all nodes of a large
     * cluster */
    lw_cluster_doubt(c);
    return lw_fail(err, "no cluster node names the owner of its slot: %s", search.each.text);
}

int lw_cluster_map(struct lw_cluster *c, int slot, int64_t timeout_ms, struct lw_slot_map *out,
                   struct lw_err *err) {
    struct lw_redis_url asked;
    if (ask_nodes(c, slot, timeout_ms, out, &asked, err)) return -1;
    learn(c, out, &asked);
    lw_redis_url_free(&asked);
    return 0;
}

int lw_cluster_find(struct lw_cluster *c, int slot, int64_t timeout_ms, struct lw_redis_url *out,
                    struct lw_err *err) {
    struct lw_slot_map m;
    *out = (struct lw_redis_url){0};
    if (lw_cluster_map(c, slot, timeout_ms, &m, err)) return -1;
    const struct lw_span *span = lw_slot_map_find(&m, slot);
    /* node 0 may be read without the mutex, because the user gave it and it never changes */
    int failed = node_at(&c->node[0], &span->node[0], out) ? lw_fail_memory(err) : 0;
    if (!failed) out->only_master = true;
    lw_slot_map_free(&m);
    return failed;
}
