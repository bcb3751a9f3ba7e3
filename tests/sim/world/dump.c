/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the state of the simulated workers, which shows why a run does not end (sim_lanes
 * --trace). */
#include "consumer/worker/private.h"
#include "tests/sim/world/world.h"

#include <inttypes.h>
#include <stdio.h>

static void dump_hold(const struct hold *h, const char *what) {
    if (!h) return;
    fprintf(stderr, " %s kind %d finished %d open %d in call %d failed %d lost %d listed %d:", what,
            h->kind, h->n_finished, h->n_open, h->n_in_call, h->failed, h->stale, h->listed);
    for (const struct run *r = h->first; r; r = r->next)
        fprintf(stderr, " [%s state %d linked %d late %d repair %d]", r->job.identity, r->state,
                r->linked, r->late, r->in_repair);
}

void world_dump(const struct world *w) {
    for (int i = 0; i < WORKERS; i++) {
        const struct lw_worker *x = w->w[i].lw;
        if (!x) continue;
        fprintf(stderr, "worker %d: held %zu in flight %zu in handler %zu confirm %d\n", i, x->held,
                x->runs.in_flight, x->runs.in_handler, x->commit.confirm);
        for (size_t k = 0; k < x->n_assigned; k++) {
            const struct part *p = x->assigned[k];
            fprintf(stderr,
                    "  %s gen %u pass %u paused %d fresh %d watermark %" PRId64 " next %" PRId64
                    " waiting %zu unfinished %zu\n",
                    p->name, p->gen, p->pass, p->paused, p->watch.n_fresh,
                    lw_offsets_watermark(p->offsets), lw_offsets_next(p->offsets),
                    lw_offsets_waiting(p->offsets), lw_offsets_unfinished(p->offsets));
        }
        for (int s = 0; s < x->n_shards; s++) {
            const struct shard *sh = &x->shards[s];
            fprintf(stderr,
                    "  shard %d phase %d open %d kept %d checking %d quiet %" PRId64
                    " hints %zu finished %d late %zu to gate %d\n",
                    s, sh->phase, sh->pipe.open, sh->pipe.n_kept, sh->server.checking,
                    sh->epoch.quarantine_until_ms, sh->hints.n, sh->settle.listed != NULL,
                    sh->repair.n_late, sh->gate.n_listed > 0);
            for (const struct lane *l = sh->lanes; l; l = l->hh.next) {
                fprintf(stderr, "    lane %.*s n %zu in_call %d listed %d stale %d", (int)l->id.n,
                        l->id.p, l->n, l->in_call, l->listed, l->lost != NULL);
                if (l->head)
                    fprintf(stderr, " head %s/%" PRId64, l->head->part->name, l->head->offset);
                dump_hold(l->lost, "lost");
                dump_hold(l->hold, "hold");
                fputc('\n', stderr);
            }
        }
    }
}
