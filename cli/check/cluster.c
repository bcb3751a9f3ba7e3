/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a cluster serves every slot and whether masters have replicas, and shows how the
 * shards are spread over the masters. */
#include "base/redis/slot.h"
#include "cli/check/servers.h"

#include <stdlib.h>
#include <string.h>

/* Describes a master of the cluster. A master is listed once, even if it serves several ranges of
 * slots. */
struct master {
    const struct lw_place *at;
    size_t n_replicas;
    int n_shards;
};

struct look {
    const struct lw_redis_servers *servers;
    struct lw_slot_map map;
    struct master *master;
    size_t n_masters;
    struct lw_check_report *r;
};

#define WARN(l, ...) lw_problem_warn(&(l)->r->problems, "redis.cluster: " __VA_ARGS__)

static struct master *master_of(struct look *l, const struct lw_span *span) {
    for (size_t i = 0; i < l->n_masters; i++)
        if (l->master[i].at->port == span->node[0].port &&
            !strcmp(l->master[i].at->host, span->node[0].host))
            return &l->master[i];
    l->master[l->n_masters] =
        (struct master){.at = &span->node[0], .n_replicas = span->n_nodes - 1};
    return &l->master[l->n_masters++];
}

static void look_at_shard(struct look *l, int shard) {
    int slot = l->servers->slot[shard];
    const struct lw_span *span = lw_slot_map_find(&l->map, slot);
    if (!span) {
        lw_problem(&l->r->problems,
                   "redis.cluster: shard %d: no node has its slot, %d; see CLUSTER NODES", shard,
                   slot);
        return;
    }
    struct master *m = master_of(l, span);
    m->n_shards++;
    lw_buf_addf(&l->r->notes, "shard %d: slot %d, %s:%d, %zu replica%s\n", shard, slot, m->at->host,
                m->at->port, m->n_replicas, m->n_replicas == 1 ? "" : "s");
}

static void look_at_slots(struct look *l) {
    int served = 0;
    for (size_t i = 0; i < l->map.n; i++) {
        served += l->map.span[i].last - l->map.span[i].first + 1;
        master_of(l, &l->map.span[i]);
    }
    if (served < LW_SLOTS)
        WARN(l,
             "%d slots have no owner: unless cluster-require-full-coverage is off, no node of the "
             "cluster answers",
             LW_SLOTS - served);
}

static void look_at_masters(struct look *l, int shards) {
    int least = shards, most = 0;
    for (size_t i = 0; i < l->n_masters; i++) {
        const struct master *m = &l->master[i];
        least = m->n_shards < least ? m->n_shards : least;
        most = m->n_shards > most ? m->n_shards : most;
        if (m->n_shards && !m->n_replicas)
            WARN(l, "%s:%d has no replica: if it fails, its shards stop until it is back",
                 m->at->host, m->at->port);
        if (!m->n_shards)
            WARN(l,
                 "%s:%d has none of the %d shards: its share of the work is done by the others; "
                 "redis.shards should be a multiple of the "
                 "%zu masters",
                 m->at->host, m->at->port, shards, l->n_masters);
    }
    if (least && most > least + 1)
        WARN(l,
             "the masters have %d to %d shards each: move slots so that they have about the same "
             "number",
             least, most);
}

void lw_check_cluster(const struct lw_redis_servers *servers, struct lw_check_report *r) {
    struct look l = {.servers = servers, .r = r};
    struct lw_err err = {0};
    if (servers->kind != LW_REDIS_CLUSTER) return;
    /* an error is not reported here, because the code that looks for the node of shard 0 reports
     * it */
    if (lw_cluster_map(servers->cluster, -1, r->wait_ms, &l.map, &err)) return;
    l.master = lw_alloc((l.map.n + 1) * sizeof *l.master);
    look_at_slots(&l);
    for (size_t s = 0; s < servers->n_slots; s++) look_at_shard(&l, (int)s);
    look_at_masters(&l, (int)servers->n_slots);
    free(l.master);
    lw_slot_map_free(&l.map);
}
