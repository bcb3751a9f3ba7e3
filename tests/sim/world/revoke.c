/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a rebalance that takes partitions away from a worker. While the worker waits for the
 * handlers that it has started, the rest of the world continues: handlers end, and connections
 * break. Two things must hold besides the oracles of every run. No message of a revoked partition
 * may start from the fast path. The wait must end soon after the last handler of the revoked
 * partitions has ended, however many messages of these partitions wait in Redis. */
#include "tests/sim/world/world.h"

#include "tests/sim/world/inside.h"
#include "tests/sim/world/operator.h"

#include <inttypes.h>
#include <stdio.h>

/* Maximum time for which a worker may wait after the handlers of the revoked partitions have ended.
 * It is enough to settle the messages of these handlers, even with lost answers, a quarantine or a
 * dead letter that is sent again in between. */
enum { IDLE_MS = 10000 };

static bool leaves(const struct world *w, int worker, const struct lw_job *job) {
    const struct revoke *r = &w->revoke;
    return r->worker == worker && job->partition >= 0 && job->partition < PARTS &&
           r->part[job->partition] && !operator_replay(job);
}

/* Checks that no message of a revoked partition starts from the fast path. */
void revoke_started(struct world *w, int worker, const struct lw_job *job) {
    if (w->revoke.on && leaves(w, worker, job) && inside_is_fast(job))
        world_bad(w, "worker %d starts %s, whose partition is being revoked", worker,
                  job->identity);
}

/* Returns true if a message of a revoked partition has not ended. Only messages that were with a
 * handler or in the pool's queue when the revocation began are looked at. */
static bool at_work(const struct world *w, const struct sim_worker *me) {
    for (int i = 0; i < w->n_exec; i++)
        if (w->exec[i].before_revoke && leaves(w, me->index, w->exec[i].job)) return true;
    return false;
}

/* Time passes for the whole world, but the worker that gives partitions up gets nothing from
 * Kafka. */
static void wait_ms(struct world *w, struct sim_worker *me, int64_t ms) {
    struct revoke *r = &w->revoke;
    int64_t until = w->now_ms + ms;
    while (w->now_ms < until || me->dead_until_ms > w->now_ms) {
        world_step(w);
        /* The worker may wait while Kafka's coordinator is away, because after a lost epoch nothing
         * can be settled until Kafka confirms a commit. */
        if (at_work(w, me) || me->dead_until_ms > w->now_ms || w->now_ms < w->kafka_away_ms)
            r->busy_ms = w->now_ms;
        if (w->now_ms - r->busy_ms > IDLE_MS)
            world_bad(w,
                      "worker %d waits for partitions that leave, though what had started of them "
                      "is over since %d ms",
                      me->index, IDLE_MS);
    }
}

void revoke_parts(struct world *w, struct sim_worker *me, const bool *part, bool lost) {
    uint32_t gens[PARTS];
    size_t n = 0;
    for (int p = 0; p < PARTS; p++)
        if (part[p]) gens[n++] = me->gen[p];
    if (!n) return;
    trace(w, "worker %d lets %zu partitions go%s", me->index, n, lost ? " (lost)" : "");
    w->revoke = (struct revoke){.on = true, .worker = me->index, .busy_ms = w->now_ms};
    for (int p = 0; p < PARTS; p++) w->revoke.part[p] = part[p];
    for (int i = 0; i < w->n_exec; i++) w->exec[i].before_revoke = true;
    int64_t began_ms = w->now_ms;
    while (!lw_worker_revoke(me->lw, gens, n, lost)) wait_ms(w, me, 20);
    trace(w, "worker %d has let go after %" PRId64 " ms", me->index, w->now_ms - began_ms);
    w->revoke.on = false;
    for (int p = 0; p < PARTS; p++)
        if (part[p]) me->gen[p] = 0;
}
