/* SPDX-License-Identifier: Apache-2.0 */
/* Computes from several configuration keys how to reach the Redis server of a shard. */
#include "base/redis/connection.h"
#include "base/bytes.h"
#include "config/option.h"
#include "config/shard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sets *to to a copy of `from` if *to is not set and `from` is. Returns false if an allocation
 * failed. */
static bool fill(char **to, const char *from) { return *to || lw_text_copy(to, from); }

static bool fill_tls(struct lw_tls *t, const struct lw_tls *from) {
    t->no_verify = from->no_verify;
    return fill(&t->ca_file, from->ca_file) && fill(&t->cert_file, from->cert_file) &&
           fill(&t->key_file, from->key_file) && fill(&t->server_name, from->server_name);
}

/* Completes the URL of a server: adds redis.username and redis.password if the URL has no password,
 * and adds the settings of redis.tls. */
static int fill_login(struct lw_redis_url *u, const struct lw_config *c, struct lw_err *err) {
    bool whole =
        u->password || (fill(&u->user, c->redis.username) && fill(&u->password, c->redis.password));
    return whole && fill_tls(&u->tls, &c->redis.tls) ? 0 : lw_fail_memory(err);
}

/* --- the servers ------------------------------------------------------------------------------ */

static int list(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err) {
    out->n = c->redis.n_urls;
    for (size_t i = 0; i < out->n; i++)
        if (lw_redis_url_parse(c->redis.urls[i], &out->at[i], err) ||
            fill_login(&out->at[i], c, err))
            return -1;
    return 0;
}

static int sentinel(const struct lw_config *c, const char *address, struct lw_redis_url *out,
                    struct lw_err *err) {
    if (lw_redis_address_parse(address, LW_SENTINEL_PORT, out, err)) return -1;
    out->via = LW_VIA_SENTINEL;
    out->tls.on = c->redis.sentinel.tls.on;
    bool whole = fill(&out->user, c->redis.sentinel.username) &&
                 fill(&out->password, c->redis.sentinel.password) &&
                 fill_tls(&out->tls, &c->redis.sentinel.tls);
    return whole ? 0 : lw_fail_memory(err);
}

static int sentinels(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err) {
    out->kind = LW_REDIS_SENTINEL;
    out->login.db = c->redis.db;
    out->login.tls.on = c->redis.tls.on;
    if (!fill(&out->master, c->redis.sentinel.master) || fill_login(&out->login, c, err))
        return lw_fail_memory(err);
    out->n = c->redis.sentinel.n_addresses;
    for (size_t i = 0; i < out->n; i++)
        if (sentinel(c, c->redis.sentinel.addresses[i], &out->at[i], err)) return -1;
    return 0;
}

static int node(const struct lw_config *c, const char *address, struct lw_redis_url *out,
                struct lw_err *err) {
    if (lw_redis_address_parse(address, LW_REDIS_PORT, out, err)) return -1;
    out->via = LW_VIA_FOUND;
    out->tls.on = c->redis.tls.on;
    return fill_login(out, c, err);
}

static int cluster(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err) {
    out->kind = LW_REDIS_CLUSTER;
    out->n_slots = (size_t)c->redis.shards;
    out->slot = calloc(out->n_slots, sizeof *out->slot);
    if (!out->slot) return lw_fail_memory(err);
    for (int s = 0; s < c->redis.shards; s++) out->slot[s] = lw_shard_slot(c, s);
    for (; out->n < c->redis.cluster.n_nodes; out->n++)
        if (node(c, c->redis.cluster.nodes[out->n], &out->at[out->n], err)) return -1;
    out->cluster = lw_cluster_open(out->at, out->n, err);
    return out->cluster ? 0 : -1;
}

size_t lw_config_servers_count(const struct lw_config *c) {
    if (c->redis.cluster.on) return (size_t)c->redis.shards;
    return c->redis.sentinel.on ? 1 : c->redis.n_urls;
}

int lw_config_servers(const struct lw_config *c, struct lw_redis_servers *out, struct lw_err *err) {
    *out = (struct lw_redis_servers){0};
    out->at = calloc(c->redis.n_urls + c->redis.sentinel.n_addresses + c->redis.cluster.n_nodes,
                     sizeof *out->at);
    if (!out->at) return lw_fail_memory(err);
    if (!(c->redis.cluster.on ? cluster : c->redis.sentinel.on ? sentinels : list)(c, out, err))
        return 0;
    lw_redis_servers_free(out);
    return -1;
}

static struct lw_redis *open_at(const struct lw_redis_url *at, const char *client_name,
                                int64_t connect_ms, int64_t answer_ms, struct lw_err *err) {
    struct lw_err why = {0};
    char where[160];
    struct lw_redis *redis = lw_redis_open(at, client_name, connect_ms, answer_ms, &why);
    if (!redis && why.memory) lw_fail_memory(err);
    if (!redis)
        lw_fail(err, "Redis at %s: %s", lw_redis_url_where(at, where, sizeof where), why.text);
    return redis;
}

struct lw_redis *lw_config_connect(const struct lw_config *c, int shard, const char *client_name,
                                   int64_t connect_ms, int64_t answer_ms, struct lw_err *err) {
    struct lw_redis_servers servers;
    struct lw_redis_url at;
    if (lw_config_servers(c, &servers, err)) return NULL;
    int failed = lw_redis_servers_find(&servers, shard, connect_ms, &at, err);
    struct lw_redis *redis = failed ? NULL : open_at(&at, client_name, connect_ms, answer_ms, err);
    lw_redis_url_free(&at);
    lw_redis_servers_free(&servers);
    return redis;
}

/* --- checks ----------------------------------------------------------------------------------- */

void lw_section_given(struct lw_loader *l, const char *path) {
    if (!strcmp(path, "redis.tls")) l->c->redis.tls.on = true;
    if (!strcmp(path, "redis.sentinel")) l->c->redis.sentinel.on = true;
    if (!strcmp(path, "redis.sentinel.tls")) l->c->redis.sentinel.tls.on = true;
}

static void check_file(struct lw_loader *l, const char *section, const char *key,
                       const char *file) {
    if (file && access(file, R_OK))
        lw_problem(l->problems, "%s.%s: %s can't be read: %s", section, key, file, strerror(errno));
}

static void check_tls(struct lw_loader *l, const char *section, const struct lw_tls *t) {
    check_file(l, section, "ca_file", t->ca_file);
    check_file(l, section, "cert_file", t->cert_file);
    check_file(l, section, "key_file", t->key_file);
    if (t->key_file && !t->cert_file)
        lw_problem(l->problems, "%s.key_file: needs %s.cert_file", section, section);
}

static bool any_tls(const struct lw_config *c) {
    if (c->redis.sentinel.on || c->redis.cluster.on) return c->redis.tls.on;
    for (size_t i = 0; i < c->redis.n_urls; i++)
        if (!strncmp(c->redis.urls[i], "rediss://", 9)) return true;
    return false;
}

static void finish_tls(struct lw_loader *l) {
    const struct lw_tls *t = &l->c->redis.tls;
    check_tls(l, "redis.tls", t);
    bool given = t->ca_file || t->cert_file || t->server_name || t->no_verify;
    if (given && !any_tls(l->c))
        lw_problem_warn(l->problems, "redis.tls: no effect: redis.url begins with no rediss://");
    if (t->no_verify && any_tls(l->c))
        lw_problem_warn(l->problems, "redis.tls.verify: with false, any server is taken for Redis; "
                                     "set redis.tls.ca_file instead");
}

static void finish_cluster(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (!c->redis.cluster.on) return;
    if (c->redis.n_urls)
        lw_problem(l->problems, "redis.url: not together with redis.cluster, which finds the "
                                "servers; remove one of them");
    if (c->redis.sentinel.on)
        lw_problem(l->problems, "redis.sentinel: not together with redis.cluster, which needs no "
                                "Sentinels; remove one of them");
    if (c->redis.db) lw_problem(l->problems, "redis.db: a cluster has database 0 only; remove it");
}

static void finish_sentinel(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (!c->redis.sentinel.on) {
        if (c->redis.db && !c->redis.cluster.on)
            lw_problem(
                l->problems,
                "redis.db: only with redis.sentinel; write the database into redis.url, as /%d",
                c->redis.db);
        return;
    }
    if (c->redis.n_urls)
        lw_problem(l->problems, "redis.url: not together with redis.sentinel, which finds the "
                                "server; remove one of them");
    if (!c->redis.sentinel.n_addresses)
        lw_problem(l->problems,
                   "redis.sentinel.addresses: missing; list the Sentinels, as 10.0.0.7:26379");
    if (!c->redis.sentinel.master)
        lw_problem(l->problems, "redis.sentinel.master: missing; give the name that stands in "
                                "\"sentinel monitor NAME\"");
    if (c->redis.sentinel.username && !c->redis.sentinel.password)
        lw_problem(l->problems, "redis.sentinel.username: needs redis.sentinel.password");
    check_tls(l, "redis.sentinel.tls", &c->redis.sentinel.tls);
    if (c->redis.sentinel.tls.no_verify)
        lw_problem_warn(l->problems, "redis.sentinel.tls.verify: with false, any server is taken "
                                     "for a Sentinel; set redis.sentinel.tls.ca_file instead");
}

void lw_finish_redis(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (c->redis.username && !c->redis.password)
        lw_problem(l->problems, "redis.username: needs redis.password");
    finish_tls(l);
    finish_sentinel(l);
    finish_cluster(l);
}
