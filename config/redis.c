/* SPDX-License-Identifier: Apache-2.0 */
/* How a shard's Redis is reached: what several keys say together. */
#include "base/redis/connection.h"
#include "config/option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* *to becomes a copy of `from` if it is empty and there is one. */
static bool fill(char **to, const char *from) {
    if (*to || !from) return true;
    *to = strdup(from);
    return *to != NULL;
}

static bool fill_all(struct lw_redis_url *u, const struct lw_config *c) {
    const struct lw_tls *from = &c->redis.tls;
    struct lw_tls *t = &u->tls;
    if (!u->password && (!fill(&u->user, c->redis.username) || !fill(&u->password, c->redis.password))) return false;
    t->no_verify = from->no_verify;
    return fill(&t->ca_file, from->ca_file) && fill(&t->cert_file, from->cert_file) && fill(&t->key_file, from->key_file) &&
           fill(&t->server_name, from->server_name);
}

int lw_config_redis(const struct lw_config *c, int shard, struct lw_redis_url *out, struct lw_err *err) {
    if (lw_redis_url_parse(c->redis.urls[(size_t)shard % c->redis.n_urls], out, err)) return -1;
    if (fill_all(out, c)) return 0;
    lw_redis_url_free(out);
    return lw_fail_memory(err);
}

struct lw_redis *lw_config_connect(const struct lw_config *c, int shard, const char *client_name, int64_t connect_ms, int64_t answer_ms,
                                   struct lw_err *err) {
    struct lw_redis_url at;
    struct lw_err why = {0};
    char where[160];
    if (lw_config_redis(c, shard, &at, err)) return NULL;
    struct lw_redis *redis = lw_redis_open(&at, client_name, connect_ms, answer_ms, &why);
    if (!redis && why.memory) lw_fail_memory(err);
    if (!redis) lw_fail(err, "Redis at %s: %s", lw_redis_url_where(&at, where, sizeof where), why.text);
    lw_redis_url_free(&at);
    return redis;
}

/* --- checks ----------------------------------------------------------------------------------------------------------------------- */

static void check_file(struct lw_loader *l, const char *path, const char *file) {
    if (file && access(file, R_OK)) lw_problem(l->problems, "%s: %s can't be read: %s", path, file, strerror(errno));
}

static bool any_tls(const struct lw_config *c) {
    for (size_t i = 0; i < c->redis.n_urls; i++)
        if (!strncmp(c->redis.urls[i], "rediss://", 9)) return true;
    return false;
}

static void finish_tls(struct lw_loader *l) {
    const struct lw_tls *t = &l->c->redis.tls;
    check_file(l, "redis.tls.ca_file", t->ca_file);
    check_file(l, "redis.tls.cert_file", t->cert_file);
    check_file(l, "redis.tls.key_file", t->key_file);
    if (t->key_file && !t->cert_file) lw_problem(l->problems, "redis.tls.key_file: needs redis.tls.cert_file");
    bool given = t->ca_file || t->cert_file || t->server_name || t->no_verify;
    if (given && !any_tls(l->c)) lw_problem_warn(l->problems, "redis.tls: no effect: redis.url begins with no rediss://");
    if (t->no_verify && any_tls(l->c))
        lw_problem_warn(l->problems, "redis.tls.verify: with false, any server is taken for Redis; set redis.tls.ca_file instead");
}

void lw_finish_redis(struct lw_loader *l) {
    const struct lw_config *c = l->c;
    if (c->redis.username && !c->redis.password) lw_problem(l->problems, "redis.username: needs redis.password");
    finish_tls(l);
}
