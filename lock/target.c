/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/target.h"

#include <stdio.h>
#include <stdlib.h>

void lw_target_free(struct lw_target *t) {
    lw_redis_url_free(&t->at);
    if (t->servers) lw_redis_servers_free(t->servers);
    free(t->servers);
    lw_cluster_close(t->cluster);
    free(t->where);
    *t = (struct lw_target){0};
}

/* Replaces *to with a copy of `from`, unless `from` is NULL. */
static bool put_text(char **to, const char *from) {
    if (!from) return true;
    free(*to);
    return lw_text_copy(to, from);
}

static bool put_tls(struct lw_tls *t, const char *ca, const char *cert, const char *key,
                    const char *name) {
    if (cert) free(t->key_file), t->key_file = NULL;
    return put_text(&t->ca_file, ca) && put_text(&t->cert_file, cert) &&
           put_text(&t->key_file, cert ? key : NULL) && put_text(&t->server_name, name);
}

/* Adds the credentials and TLS settings of the options to those of a URL. If the URL has a
 * password, the user and the password of the options are ignored. */
static bool add_login(struct lw_redis_url *u, const struct latchwork_client_options *o,
                      struct latchwork_error *error) {
    if (o->user && !o->password) {
        lw_lock_wrong(error, "options.user needs a password");
        return false;
    }
    bool whole = u->password || !o->password ||
                 (put_text(&u->user, o->user) && put_text(&u->password, o->password));
    if (o->flags & LATCHWORK_FLAG_NO_VERIFY) u->tls.no_verify = true;
    if (o->flags & LATCHWORK_FLAG_TLS) u->tls.on = true;
    if (whole && put_tls(&u->tls, o->tls_ca, o->tls_cert, o->tls_key, o->tls_name)) return true;
    lw_lock_no_memory(error);
    return false;
}

/* Reports why the option `what` was refused. Always returns false. */
static bool refused(const char *what, const struct lw_err *why, struct latchwork_error *error) {
    why->memory ? lw_lock_no_memory(error) : lw_lock_wrong(error, "%s: %.400s", what, why->text);
    return false;
}

static bool take_url(const char *url, struct lw_target *t, struct latchwork_error *error) {
    struct lw_err why = {0};
    if (lw_redis_url_parse(url, &t->at, &why)) return refused("url", &why, error);
    t->where = lw_url_redact(url);
    if (!t->where) lw_lock_no_memory(error);
    return t->where;
}

static bool take_text(struct lw_buf *text, char **out, struct latchwork_error *error) {
    *out = lw_buf_take(text);
    if (!*out) lw_lock_no_memory(error);
    return *out;
}

/* Builds the address of a cluster node, with the user, password and TLS settings of the client. */
static bool node(const char *address, const struct lw_target *t, struct lw_redis_url *out,
                 struct latchwork_error *error) {
    struct lw_err why = {0};
    struct lw_redis_url at;
    if (!address || lw_redis_address_parse(address, LATCHWORK_DEFAULT_PORT, &at, &why)) {
        if (!address) lw_fail(&why, "an address is NULL");
        return refused("options.cluster", &why, error);
    }
    bool whole = !lw_redis_url_copy(&t->at, out, NULL);
    if (whole) {
        free(out->host);
        out->host = at.host, at.host = NULL;
        out->port = at.port;
        out->via = LW_VIA_FOUND;
    }
    lw_redis_url_free(&at);
    if (!whole) lw_lock_no_memory(error);
    return whole;
}

static bool is_among(const struct lw_redis_url *u, const struct lw_redis_url *others, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (u->port == others[i].port && !strcmp(u->host, others[i].host)) return true;
    return false;
}

/* Opens the cluster. The options and the URL name nodes of the cluster; `url` may be NULL. Returns
 * false with *error on failure. */
static bool take_cluster(const char *url, const struct latchwork_client_options *o,
                         struct lw_target *t, struct latchwork_error *error) {
    struct lw_redis_url given[LATCHWORK_MAX_ADDRESSES + 1];
    struct lw_err why = {0};
    char at[160];
    size_t n = 0;
    bool good = !url || !lw_redis_url_copy(&t->at, &given[0], NULL);
    if (!good) lw_lock_no_memory(error);
    if (good && url) n = 1;
    for (size_t i = 0; good && i < o->n_cluster; i++) {
        good = node(o->cluster[i], t, &given[n], error);
        if (good && is_among(&given[n], given, n))
            lw_redis_url_free(&given[n]);
        else
            n += good;
    }
    if (good) t->cluster = lw_cluster_open(given, n, &why);
    if (good && !t->cluster) good = refused("options.cluster", &why, error);
    struct lw_buf where = {0};
    if (good)
        lw_buf_tryf(&where, "the cluster of %s", lw_redis_url_where(&given[0], at, sizeof at));
    free(t->where);
    t->where = NULL;
    good = good && take_text(&where, &t->where, error);
    for (size_t i = 0; i < n; i++) lw_redis_url_free(&given[i]);
    return good;
}

static bool sentinel(const char *address, const struct latchwork_sentinels *s,
                     struct lw_redis_url *out, struct latchwork_error *error) {
    struct lw_err why = {0};
    if (!address || lw_redis_address_parse(address, LATCHWORK_DEFAULT_SENTINEL_PORT, out, &why)) {
        if (!address) lw_fail(&why, "an address is NULL");
        return refused("sentinels.addresses", &why, error);
    }
    out->via = LW_VIA_SENTINEL;
    out->tls.on = s->flags & LATCHWORK_FLAG_TLS;
    out->tls.no_verify = s->flags & LATCHWORK_FLAG_NO_VERIFY;
    bool whole = put_text(&out->user, s->user) && put_text(&out->password, s->password) &&
                 put_tls(&out->tls, s->tls_ca, s->tls_cert, s->tls_key, s->tls_name);
    if (!whole) lw_lock_no_memory(error);
    return whole;
}

static const char *wrong_sentinels(const struct latchwork_sentinels *s) {
    if (s->size < 8 || s->size > 4096)
        return "size is not set: begin them with LATCHWORK_SENTINELS_INIT";
    if (s->flags & ~(unsigned)(LATCHWORK_FLAG_TLS | LATCHWORK_FLAG_NO_VERIFY))
        return "flags has an unknown flag";
    if (!s->addresses || s->n_addresses < 1 || s->n_addresses > LATCHWORK_MAX_ADDRESSES)
        return "1 to 64 addresses are needed";
    if (!s->master || !*s->master)
        return "master is missing: give the name of \"sentinel monitor NAME\"";
    return s->user && !s->password ? "user needs a password" : NULL;
}

static bool fill_sentinels(const struct latchwork_sentinels *s, struct lw_target *t,
                           struct latchwork_error *error) {
    struct lw_redis_servers *servers = t->servers = calloc(1, sizeof *servers);
    if (servers) servers->at = calloc(s->n_addresses, sizeof *servers->at);
    if (!servers || !servers->at || !lw_text_copy(&servers->master, s->master) ||
        lw_redis_url_copy(&t->at, &servers->login, NULL))
        return lw_lock_no_memory(error), false;
    servers->kind = LW_REDIS_SENTINEL;
    for (; servers->n < s->n_addresses; servers->n++)
        if (!sentinel(s->addresses[servers->n], s, &servers->at[servers->n], error)) {
            /* count this Sentinel, too, so that its memory is freed with that of the others */
            servers->n++;
            return false;
        }
    return true;
}

static bool take_sentinels(const struct latchwork_sentinels *given, struct lw_target *t,
                           struct latchwork_error *error) {
    struct latchwork_sentinels s = {0};
    memcpy(&s, given, given->size < sizeof s ? given->size : sizeof s);
    const char *wrong = wrong_sentinels(&s);
    if (wrong) {
        lw_lock_wrong(error, "options.sentinels: %s", wrong);
        return false;
    }
    struct lw_buf where = {0};
    lw_buf_tryf(&where, "master \"%s\"", s.master);
    return take_text(&where, &t->where, error) && fill_sentinels(&s, t, error);
}

static const char *wrong_target(const char *url, const struct latchwork_client_options *o) {
    if (o->sentinels && o->n_cluster) return "either cluster or sentinels";
    if (o->sentinels && url)
        return "url must be NULL if there are sentinels, which name the server";
    if (o->n_cluster > LATCHWORK_MAX_ADDRESSES || (o->n_cluster && !o->cluster))
        return "cluster has 1 to 64 addresses";
    if (o->db < 0 || (o->db && !o->sentinels))
        return "db goes with sentinels; without them, write it into the url";
    return NULL;
}

bool lw_target_take(const char *url, const struct latchwork_client_options *o, struct lw_target *t,
                    struct latchwork_error *error) {
    const char *wrong = wrong_target(url, o);
    t->slot = LW_ANY_SLOT;
    if (wrong || (!url && !o->sentinels && !o->n_cluster)) {
        lw_lock_wrong(error, "%s%s", wrong ? "options: " : "", wrong ? wrong : "url: none given");
        return false;
    }
    if (url && !take_url(url, t, error)) return false;
    t->at.db = url ? t->at.db : o->db;
    if (o->sentinels) t->at.via = LW_VIA_FOUND;
    if (o->n_cluster && (t->at.path || t->at.db)) {
        lw_lock_wrong(error, "url: a node of a cluster has a host, and no database but 0");
        return false;
    }
    if (!add_login(&t->at, o, error)) return false;
    if (o->n_cluster) return take_cluster(url, o, t, error);
    return !o->sentinels || take_sentinels(o->sentinels, t, error);
}

bool lw_target_of(struct lw_redis_servers *servers, int shard, const char *where,
                  struct lw_target *t) {
    t->shard = shard;
    t->slot = LW_ANY_SLOT;
    t->where = strdup(where);
    bool whole = t->where;
    if (servers->kind == LW_REDIS_CLUSTER) {
        t->slot = servers->slot[shard];
        t->cluster = servers->cluster;
        servers->cluster = NULL;
        whole = whole && !lw_redis_url_copy(&servers->at[0], &t->at, NULL);
    } else if ((t->servers = malloc(sizeof *t->servers))) {
        *t->servers = *servers;
        *servers = (struct lw_redis_servers){0};
    }
    return whole && (t->cluster || t->servers);
}
