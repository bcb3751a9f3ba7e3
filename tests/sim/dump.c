/* Shows what a worker remembers, for a run that is stuck: sim_lanes --trace. */
#include "consumer/state.h"
#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdio.h>

void world_dump(const struct world *w) {
    for (int i = 0; i < WORKERS; i++) {
        const struct lw_worker *x = w->w[i].lw;
        if (!x) continue;
        fprintf(stderr, "worker %d: held %zu in flight %zu in handler %zu waiting %d alone %d confirm %d\n", i, x->held, x->in_flight,
                x->in_handler, x->waiting != NULL, x->running_alone, x->confirm);
        for (size_t k = 0; k < x->n_assigned; k++) {
            const struct part *p = x->assigned[k];
            fprintf(stderr, "  %s gen %u pass %u held %d fresh %d watermark %" PRId64 " next %" PRId64 " queued %zu unfinished %zu\n",
                    p->name, p->gen, p->pass, p->held, p->n_fresh, lw_offsets_watermark(p->offsets), lw_offsets_next(p->offsets),
                    lw_offsets_queued(p->offsets), lw_offsets_unfinished(p->offsets));
        }
        for (int s = 0; s < x->n_shards; s++) {
            const struct shard *sh = &x->shards[s];
            fprintf(stderr,
                    "  shard %d phase %d open %d kept %d checking %d quiet %" PRId64 " hints %zu finished %d late %zu gate queue %d\n", s,
                    sh->phase, sh->open, sh->n_kept, sh->checking, sh->quiet_until_ms, sh->n_hints, sh->finished != NULL, sh->n_late,
                    sh->gate_head != NULL);
            for (const struct lane *l = sh->lanes; l; l = l->hh.next) {
                fprintf(stderr, "    lane %.*s n %zu in_call %d queued %d stale %d", (int)l->id.n, l->id.p, l->n, l->in_call, l->queued,
                        l->stale != NULL);
                if (l->head) fprintf(stderr, " head %s/%" PRId64, l->head->part->name, l->head->offset);
                if (l->stale) fprintf(stderr, " stale %s late %d repair %d", l->stale->job.identity, l->stale->late, l->stale->in_repair);
                if (l->run) fprintf(stderr, " run %s kind %d state %d", l->run->job.identity, l->run->kind, l->run->state);
                fputc('\n', stderr);
            }
        }
    }
}
