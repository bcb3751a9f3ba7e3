/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/servers.h"

#include "base/redis/reply.h"
#include "base/redis/search.h"

#include <stdlib.h>
#include <string.h>

void lw_redis_servers_free(struct lw_redis_servers *s) {
    for (size_t i = 0; i < s->n; i++) lw_redis_url_free(&s->at[i]);
    free(s->at);
    lw_redis_url_free(&s->login);
    free(s->master);
    lw_cluster_close(s->cluster);
    free(s->slot);
    *s = (struct lw_redis_servers){0};
}

size_t lw_redis_servers_count(const struct lw_redis_servers *s) {
    if (s->kind == LW_REDIS_CLUSTER) return s->n_slots;
    return s->kind == LW_REDIS_LIST ? s->n : 1;
}

void lw_redis_servers_doubt(struct lw_redis_servers *s) {
    if (s->kind == LW_REDIS_SENTINEL) atomic_fetch_add(&s->first, 1);
    if (s->kind == LW_REDIS_CLUSTER) lw_cluster_doubt(s->cluster);
}

/* Describes an error reply which means that the server no longer serves the shard. */
struct deposed {
    /* The error reply begins with `text` or, if `inside` is true, contains `text`. */
    const char *text;
    bool inside;
    /* true if the error means that the shard's slot, or a key of it, is on another node */
    bool moves;
    const char *says;
};

static const struct deposed *known_error(const char *error) {
    static const char moved[] = "the slot of this shard is on another node",
                      moving[] = "the slot of this shard is being moved to another node",
                      down[] = "its cluster is down, or it is cut off from the others";
    static const struct deposed known[] = {
        {"READONLY", false, false, "it is a replica now"},
        {"MASTERDOWN", false, false, "it is a replica without its master now"},
        {"LOADING", false, false, "it is still loading its data"},
        {"NOREPLICAS", false, false, "too few of its replicas are in good order"},
        {"UNBLOCKED", false, false, "its role has changed"},
        {"MOVED ", false, true, moved},
        {"ASK ", false, true, moving},
        {"TRYAGAIN", false, true, moving},
        {"CLUSTERDOWN", false, false, down},
        {"access a non local key", true, true, moving},
        /* Valkey's text for a key that is on another node */
        {"undeclared keys were accessed during rehashing of the slot", true, true, moving},
        {"Script attempted to execute a command while the cluster is down", true, false, down},
        {"Script attempted to execute a write command while the cluster is down", true, false,
         down},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct deposed *d = &known[i];
        if (d->inside ? strstr(error, d->text) != NULL : !strncmp(error, d->text, strlen(d->text)))
            return d;
    }
    return NULL;
}

const char *lw_redis_deposed(const char *error) {
    const struct deposed *d = known_error(error);
    return d ? d->says : NULL;
}

bool lw_redis_moved(const char *error) {
    const struct deposed *d = known_error(error);
    return d && d->moves;
}

/* --- Sentinels -------------------------------------------------------------------------------- */

static int found(const struct lw_redis_servers *s, const char *host, int port,
                 struct lw_redis_url *out, struct lw_err *err) {
    if (lw_redis_url_copy(&s->login, out, err)) return -1;
    out->port = port;
    out->only_master = true;
    out->via = LW_VIA_FOUND;
    out->host = strdup(host);
    if (out->host) return 0;
    lw_redis_url_free(out);
    return lw_fail_memory(err);
}

static int take_address(const struct lw_redis_servers *s, const redisReply *r,
                        struct lw_redis_url *out, struct lw_err *err) {
    if (r->type == REDIS_REPLY_ERROR) return lw_fail(err, "%.200s", r->str);
    if (r->type == REDIS_REPLY_NIL)
        return lw_fail(err, "it knows no master of this name; correct redis.sentinel.master");
    char why[LW_REPLY_TEXT];
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
                 r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[1]->type == REDIS_REPLY_STRING;
    long port = sound ? strtol(r->element[1]->str, NULL, 10) : 0;
    if (!sound || !r->element[0]->len || port < 1 || port > 65535)
        return lw_fail(err, "%s",
                       lw_malformed(why, r, "SENTINEL GET-MASTER-ADDR-BY-NAME",
                                    "[host, port from 1 to 65535]"));
    return found(s, r->element[0]->str, (int)port, out, err);
}

/* The context of read_address(): the servers, and the place to which it writes the address of the
 * master. */
struct wanted {
    const struct lw_redis_servers *servers;
    struct lw_redis_url *out;
};

static int read_address(void *ctx, const redisReply *r, const struct lw_redis_url *asked,
                        struct lw_err *err) {
    const struct wanted *w = ctx;
    (void)asked;
    return take_address(w->servers, r, w->out, err);
}

/* Asks the Sentinels one after the other, beginning with the one that s->first names. */
static int ask_sentinels(struct lw_redis_servers *s, int64_t timeout_ms, struct lw_redis_url *out,
                         struct lw_err *err) {
    struct wanted wanted = {s, out};
    const char *argv[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s->master};
    const struct lw_question question = {argv, 3, read_address, &wanted};
    struct lw_search search;
    size_t first = atomic_load(&s->first);
    lw_search_begin(&search, timeout_ms);
    for (size_t i = 0; i < s->n; i++) {
        size_t k = (first + i) % s->n;
        if (!lw_search_ask(&search, &s->at[k], s->n - i - 1, &question)) {
            if (i) atomic_store(&s->first, k);
            return 0;
        }
        if (search.each.memory) return lw_fail_memory(err);
    }
    return lw_fail(err, "no Sentinel names the master \"%s\": %s", s->master, search.each.text);
}

int lw_redis_servers_find(struct lw_redis_servers *s, int shard, int64_t timeout_ms,
                          struct lw_redis_url *out, struct lw_err *err) {
    *out = (struct lw_redis_url){0};
    if (s->kind == LW_REDIS_SENTINEL) return ask_sentinels(s, timeout_ms, out, err);
    if (s->kind == LW_REDIS_CLUSTER)
        return lw_cluster_find(s->cluster, s->slot[(size_t)shard % s->n_slots], timeout_ms, out,
                               err);
    return lw_redis_url_copy(&s->at[(size_t)shard % s->n], out, err);
}
