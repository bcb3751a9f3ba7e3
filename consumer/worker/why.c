/* SPDX-License-Identifier: Apache-2.0 */
/* Describes why a worker makes no progress, as far as the worker's logic can see, for the log and
 * /readyz. This file only reads the worker's state. */
#include "consumer/worker/private.h"

static bool shard_why(struct lw_worker *w, struct shard *sh, int64_t now, char *out, size_t size) {
    check_shard(sh);
    assert(out && size > 0);
    static const char *const doing[] = {"not connected", "reading the server's run id and clock",
                                        "entering its epoch", "repairing its epoch"};
    const char *refused = refusal_text(sh);
    char slow[256];
    if (refused)
        snprintf(out, size, "redis shard %d: %s", sh->index, refused);
    else if (sh->phase == HELLO && connection_slow(w, sh, slow, sizeof slow))
        snprintf(out, size, "redis shard %d: %s", sh->index, slow);
    else if (sh->phase != READY)
        snprintf(out, size, "redis shard %d: %s", sh->index, doing[sh->phase]);
    else if (first_waits(sh) && !quarantine_left_ms(sh, now))
        snprintf(out, size,
                 "redis shard %d: the group has no commit yet, and nothing is handled before Kafka "
                 "has accepted the first one",
                 sh->index);
    else if (shard_quarantined(sh, now))
        snprintf(out, size,
                 "redis shard %d: quarantine for %" PRId64
                 " ms more, until all earlier leases have ended",
                 sh->index, quarantine_left_ms(sh, now));
    else if (gate_rests(sh, now))
        snprintf(out, size, "redis shard %d: out of memory (maxmemory); admitting no new messages",
                 sh->index);
    else
        return false;
    return true;
}

static bool part_why(const struct lw_worker *w, const struct part *p, char *out, size_t size) {
    check_part(p);
    assert(out && size > 0);
    if (!p->gen || !p->offsets || (int64_t)lw_offsets_waiting(p->offsets) < w->c->queue.max_waiting)
        return false;
    snprintf(out, size,
             "%s: reading paused: %zu of its messages wait in Redis (queue.max_waiting is %" PRId64
             ")",
             p->name, (size_t)lw_offsets_waiting(p->offsets), (int64_t)w->c->queue.max_waiting);
    return true;
}

bool lw_worker_why(struct lw_worker *w, char *out, size_t size) {
    check_worker(w);
    assert(out && size > 0);
    int64_t now = now_ms(w);
    for (int s = 0; s < w->n_shards; s++)
        if (shard_why(w, &w->shards[s], now, out, size)) return true;
    if (w->commit.confirm) {
        snprintf(out, size,
                 "an epoch was lost: waiting for Kafka to accept a commit of every watermark");
        return true;
    }
    for (size_t i = 0; i < w->n_assigned; i++)
        if (part_why(w, w->assigned[i], out, size)) return true;
    if (!lw_worker_wants(w) && w->held) {
        snprintf(
            out, size,
            "reading paused: %zu records (%zu bytes) in memory wait for Redis or for their keys",
            w->held, w->memory.held);
        return true;
    }
    out[0] = 0;
    return false;
}
