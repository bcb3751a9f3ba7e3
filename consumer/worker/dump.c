/* SPDX-License-Identifier: Apache-2.0 */
/* Logs the state that a worker has in memory. An operator who finds that a worker makes no progress
 * asks for this output with SIGUSR1. The output is bounded and shows keys only as hashes. */
#include "consumer/worker/private.h"

enum { PARTS_SHOWN = 64, SHARDS_SHOWN = 32, HOLDS_SHOWN = 64 };

static const char *const phase_name[] = {"down", "hello", "entering", "repairing", "ready"};
static const char *const run_name[] = {"ahead", "running", "sending", "finished"};

static void dump_part(const struct part *p, int64_t now, int n_shards) {
    check_part(p);
    assert(p->gen);
    int64_t mark = lw_offsets_watermark(p->offsets);
    int64_t still =
        p->slot && lw_offsets_unfinished(p->offsets) ? now - atomic_load(&p->slot->moved_ms) : 0;
    lw_info("dump: %s watermark %" PRId64 " for %" PRId64 " ms, committed %" PRId64
            ", next %" PRId64 ", unfinished %zu, waiting %zu%s%s",
            p->name, mark, still, p->committed, lw_offsets_next(p->offsets),
            lw_offsets_unfinished(p->offsets), lw_offsets_waiting(p->offsets),
            p->held ? ", held back" : "",
            p->watch.n_fresh < n_shards ? ", its states are not read yet" : "");
}

static void dump_hold(const struct hold *h, const struct lane *l, int64_t now, const char *what) {
    check_hold(h);
    assert(h->lane == l);
    const struct run *r = h->first;
    while (r && r->state == FINISHED) r = r->next;
    lw_info("dump: %s of lane %08" PRIx32 " in shard %d, %s, for %" PRId64
            " ms more: %d finished, %d open%s%s%s; %s %s",
            what, l->tag, l->shard, h->kind == FAST ? "fast" : "from its list",
            atomic_load(&h->lease.held.deadline_ms) - now, h->n_finished, h->n_open,
            h->failed ? ", failed" : "", h->stale ? ", stale" : "",
            l->in_call ? ", Redis is asked" : "", r ? r->job.identity : "nothing runs",
            r ? run_name[r->state] : "here");
}

static int dump_holds(const struct shard *sh, int64_t now, int left) {
    assert(left <= HOLDS_SHOWN);
    for (const struct lane *l = sh->lanes; l && left > 0; l = l->hh.next) {
        if (l->hold && left-- > 0) dump_hold(l->hold, l, now, "hold");
        for (const struct hold *h = l->lost; h && left-- > 0; h = h->next)
            dump_hold(h, l, now, "hold of a lost epoch");
    }
    return left;
}

static void dump_shard(const struct shard *sh, int64_t now) {
    check_shard(sh);
    int64_t quarantine =
        sh->epoch.quarantine_until_ms > now ? sh->epoch.quarantine_until_ms - now : 0;
    char out[64] = "";
    if (sh->pipe.open)
        snprintf(out, sizeof out, ", a pipeline is out for %" PRId64 " ms", now - sh->pipe.sent_ms);
    lw_info("dump: shard %d %s, epoch %s, %u lanes known here%s, %d calls to send again, %zu "
            "hints, quarantine for another %" PRId64 " ms%s%s%s",
            sh->index, phase_name[sh->phase], sh->epoch.id[0] ? sh->epoch.id : "none",
            HASH_COUNT(sh->lanes), out, sh->pipe.n_kept, sh->hints.n, quarantine,
            sh->settle.listed ? ", some to settle" : "", sh->gate.head ? ", some to gate" : "",
            sh->gate.oom_until_ms ? ", Redis is at maxmemory" : "");
}

void lw_worker_dump(struct lw_worker *w) {
    check_worker(w);
    int64_t now = now_ms(w);
    int holds = HOLDS_SHOWN;
    lw_info("dump: %zu records in memory (%zu bytes), %zu granted, %zu in handlers, window %zu, "
            "%zu partitions%s%s",
            w->held, w->memory.held, w->runs.in_flight, w->runs.in_handler, w->window,
            w->n_assigned, w->commit.confirm ? ", Kafka has to confirm the assignment" : "",
            w->stopping ? ", stopping" : "");
    for (size_t i = 0; i < w->n_assigned && i < PARTS_SHOWN; i++)
        dump_part(w->assigned[i], now, w->n_shards);
    if (w->n_assigned > PARTS_SHOWN)
        lw_info("dump: and %zu partitions more", w->n_assigned - PARTS_SHOWN);
    for (int s = 0; s < w->n_shards && s < SHARDS_SHOWN; s++) dump_shard(&w->shards[s], now);
    for (int s = 0; s < w->n_shards && holds > 0; s++)
        holds = dump_holds(&w->shards[s], now, holds);
    lw_info("dump: end%s", holds > 0 ? "" : "; there are more holds");
}
