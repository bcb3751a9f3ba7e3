/* SPDX-License-Identifier: Apache-2.0 */
#include "base/redis/servers.h"

#include "base/clock.h"
#include "base/redis/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHERE_SIZE = 160, STEPS = 3 /* number of steps that have a limit each: connecting, login, the question */ };

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

const char *lw_redis_deposed(const char *error) {
    static const struct {
        const char *begins, *says;
    } known[] = {{"READONLY", "it is a replica now"},
                 {"MASTERDOWN", "it is a replica without its master now"},
                 {"LOADING", "it is still loading its data"},
                 {"NOREPLICAS", "too few of its replicas are in good order"},
                 {"UNBLOCKED", "its role has changed"},
                 {"MOVED ", "the slot of this shard is on another node"},
                 {"ASK ", "the slot of this shard is being moved to another node"},
                 {"TRYAGAIN", "the slot of this shard is being moved to another node"},
                 {"CLUSTERDOWN", "its cluster is down, or it is cut off from the others"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(error, known[i].begins, strlen(known[i].begins))) return known[i].says;
    if (strstr(error, "Script attempted to access a non local key in a cluster node"))
        return "the slot of this shard is being moved to another node";
    if (strstr(error, "Script attempted") && strstr(error, "while the cluster is down"))
        return "its cluster is down, or it is cut off from the others";
    return NULL;
}

bool lw_redis_moved(const char *error) {
    return !strncmp(error, "MOVED ", 6) || !strncmp(error, "ASK ", 4) || !strncmp(error, "TRYAGAIN", 8) ||
           strstr(error, "access a non local key") || strstr(error, "undeclared keys were accessed during rehashing of the slot");
}

/* --- Sentinels ------------------------------------------------------------------------------------------------------------------ */

static int found(const struct lw_redis_servers *s, const char *host, int port, struct lw_redis_url *out, struct lw_err *err) {
    if (lw_redis_url_copy(&s->login, out, err)) return -1;
    out->port = port;
    out->only_master = true;
    out->via = LW_VIA_FOUND;
    out->host = strdup(host);
    if (out->host) return 0;
    lw_redis_url_free(out);
    return lw_fail_memory(err);
}

static int take_address(const struct lw_redis_servers *s, const redisReply *r, struct lw_redis_url *out, struct lw_err *err) {
    if (r->type == REDIS_REPLY_ERROR) return lw_fail(err, "%.200s", r->str);
    if (r->type == REDIS_REPLY_NIL) return lw_fail(err, "it knows no master of this name; correct redis.sentinel.master");
    bool sound = r->type == REDIS_REPLY_ARRAY && r->elements == 2 && r->element[0]->type == REDIS_REPLY_STRING &&
                 r->element[1]->type == REDIS_REPLY_STRING;
    long port = sound ? strtol(r->element[1]->str, NULL, 10) : 0;
    if (!sound || !r->element[0]->len || port < 1 || port > 65535)
        return lw_fail(err, "malformed reply to SENTINEL GET-MASTER-ADDR-BY-NAME");
    return found(s, r->element[0]->str, (int)port, out, err);
}

static int ask_one(const struct lw_redis_servers *s, const struct lw_redis_url *sentinel, int64_t step_ms, struct lw_redis_url *out,
                   struct lw_err *err) {
    struct lw_redis *c = lw_redis_open(sentinel, "latchwork:finder", step_ms, step_ms, err);
    if (!c) return -1;
    redisReply *r = lw_redis_ask(c, "SENTINEL GET-MASTER-ADDR-BY-NAME %s", s->master);
    int failed = r ? take_address(s, r, out, err) : c->err == LW_REDIS_MEMORY ? lw_fail_memory(err) : lw_fail(err, "%s", c->why);
    if (r) freeReplyObject(r);
    lw_redis_close(c);
    return failed;
}

static void add_failure(struct lw_err *all, const struct lw_redis_url *sentinel, const char *why) {
    char where[WHERE_SIZE];
    size_t n = strlen(all->text);
    snprintf(all->text + n, sizeof all->text - n, "%s%s: %s", n ? "; " : "", lw_redis_url_where(sentinel, where, sizeof where), why);
}

/* Asks one Sentinel, within its share of the time, so that time is left for the `others` if it does not answer. */
static int ask_in_time(const struct lw_redis_servers *s, size_t k, int64_t until_ms, size_t others, struct lw_redis_url *out,
                       struct lw_err *err) {
    int64_t left_ms = until_ms - lw_boot_ms(), step_ms = left_ms / (int64_t)(others + 1) / STEPS;
    if (left_ms <= 0) return lw_fail(err, "not asked, because no time was left");
    return ask_one(s, &s->at[k], step_ms > 1 ? step_ms : 1, out, err);
}

/* Asks the Sentinels in turn. */
static int ask_sentinels(struct lw_redis_servers *s, int64_t timeout_ms, struct lw_redis_url *out, struct lw_err *err) {
    struct lw_err all = {0};
    size_t first = atomic_load(&s->first);
    int64_t until_ms = lw_boot_ms() + timeout_ms;
    for (size_t i = 0; i < s->n; i++) {
        size_t k = (first + i) % s->n;
        struct lw_err why = {0};
        if (!ask_in_time(s, k, until_ms, s->n - i - 1, out, &why)) {
            if (i) atomic_store(&s->first, k);
            return 0;
        }
        if (why.memory) return lw_fail_memory(err);
        add_failure(&all, &s->at[k], why.text);
    }
    return lw_fail(err, "no Sentinel names the master \"%s\": %s", s->master, all.text);
}

int lw_redis_servers_find(struct lw_redis_servers *s, int shard, int64_t timeout_ms, struct lw_redis_url *out, struct lw_err *err) {
    *out = (struct lw_redis_url){0};
    if (s->kind == LW_REDIS_SENTINEL) return ask_sentinels(s, timeout_ms, out, err);
    if (s->kind == LW_REDIS_CLUSTER) return lw_cluster_find(s->cluster, s->slot[(size_t)shard % s->n_slots], timeout_ms, out, err);
    return lw_redis_url_copy(&s->at[(size_t)shard % s->n], out, err);
}
