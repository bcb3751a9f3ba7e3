/* SPDX-License-Identifier: Apache-2.0 */
/* Makes faults of the simulated Kafka (the coordinator is away for a while, commits are refused or
 * get no answer, seeks fail), and faults that hit a repair or most of the fleet. */
#include "tests/sim/world/world.h"

#include <inttypes.h>

/* Sometimes makes Kafka's coordinator go away for a while. Returns true if it did. The world then
 * makes no other fault in this step. */
bool trouble_begin(struct world *w) {
    if (rnd_unit(w) >= 0.003 * w->f->commits) return false;
    w->kafka_away_ms = w->now_ms + 100 + rnd_below(w, 3000);
    trace(w, "Kafka's coordinator is away until %" PRId64, w->kafka_away_ms);
    return true;
}

/* Returns true if a commit fails. Sets *taken to true if the broker accepted the commit and only
 * its answer was lost. */
bool trouble_commit(struct world *w, bool *taken) {
    *taken = false;
    if (w->faults_on && w->now_ms < w->fresh_until_ms) return *taken = rnd_unit(w) < 0.01, true;
    if (!w->faults_on || w->now_ms >= w->kafka_away_ms) return false;
    *taken = rnd_unit(w) < 0.1;
    return true;
}

/* Returns true if the worker's request for the group's commits gets no answer. */
bool trouble_look(struct world *w) {
    return w->faults_on && (w->now_ms < w->kafka_away_ms || rnd_unit(w) < 0.1);
}

/* Returns true if the seek fails. A failed seek ends the worker (lw_io.seek), and the worker that
 * replaces it begins at the committed offset. */
bool trouble_seek(struct world *w, struct sim_worker *me) {
    if (!w->faults_on || w->f->seeks <= 0 || rnd_unit(w) >= 0.1 * w->f->seeks) return false;
    trace(w, "worker %d: a seek fails", me->index);
    me->ending = true;
    return true;
}

/* Returns true if the handler cannot end yet, because its record keeps it busy for a long time. The
 * watermark then stands still while later records are finished. */
bool trouble_lingers(struct world *w, const struct exec *x) {
    if (!w->faults_on || !w->f->linger) return false;
    return x->job->offset % w->f->linger == 0 && rnd_unit(w) < 0.9;
}

static bool carries_repair(const struct world *w, const struct pipe *p) {
    for (int i = p->done; w->repair_sha[0] && i < p->n; i++)
        if (!strcmp(p->cmd[i].argv[0], "EVALSHA") && !strcmp(p->cmd[i].argv[1], w->repair_sha))
            return true;
    return false;
}

/* Sometimes breaks a connection on which a call of repair is under way, so that only a part of what
 * the owner writes back arrives. */
bool trouble_cut_repair(struct world *w) {
    if (rnd_unit(w) >= 0.05 * w->f->cut_repairs) return false;
    for (int i = 0; i < w->n_pipes; i++) {
        const struct pipe *p = w->pipe[i];
        struct sim_worker *me = &w->w[p->worker];
        if (!p->live || p->busy || !me->lw || me->dead_until_ms > w->now_ms ||
            !carries_repair(w, p))
            continue;
        wire_cut(w, me, p->shard);
        return true;
    }
    return false;
}

/* Sometimes makes a disaster: most workers die and most shards are wiped at once, as when a cluster
 * restarts. The next owners of the partitions know only what Kafka knows. */
bool trouble_disaster(struct world *w) {
    if (rnd_unit(w) >= 0.0005 * w->f->disaster) return false;
    trace(w, "a disaster");
    for (int i = 0; i < WORKERS; i++) {
        if (rnd_unit(w) < 0.2 || !w->w[i].lw || world_revoking(w, &w->w[i])) continue;
        world_kill(w, &w->w[i], 50 + rnd_below(w, 300));
    }
    for (int s = 0; s < SHARDS; s++)
        if (rnd_unit(w) < 0.8) world_wipe(w, s);
    return true;
}
