/* SPDX-License-Identifier: Apache-2.0 */
/* tell: what the worker tells people. Log lines about single messages, the outcomes and the
 * partitions that the exporter reads from the board, the reason why nothing goes on (/readyz), and
 * the dump of the memory (SIGUSR1). How messages are handled does not depend on this file. */
#include "consumer/worker/private.h"

#include <xxhash.h>

/* --- log lines about single messages --------------------------------------------------------- */

void tell_key(const struct lw_worker *w, struct lw_bytes key, char out[LW_KEY_TEXT]) {
    snprintf(out, LW_KEY_TEXT, "(log.keys: none)");
    if (w->c->log.keys == LW_KEYS_HASH)
        snprintf(out, LW_KEY_TEXT, "with key hash %016" PRIx64,
                 (uint64_t)XXH3_64bits(key.p ? key.p : "", key.n));
    else if (w->c->log.keys == LW_KEYS_PLAIN)
        lw_key_plain(key, out);
}

void tell_end(struct lw_worker *w, const struct run *r, enum lw_log_level level, const char *what) {
    const struct lw_job *j = &r->job;
    char key[LW_KEY_TEXT];
    int n = 0;
    struct lw_log_field f[8];
    if (!lw_log_on(level)) return;
    f[n++] = (struct lw_log_field){"id", j->identity, 0};
    n += lw_key_field(w->c->log.keys, j->key, XXH3_64bits(j->key.p ? j->key.p : "", j->key.n), key,
                      &f[n]);
    f[n++] = (struct lw_log_field){"attempt", NULL, j->attempt};
    f[n++] = (struct lw_log_field){"fence", NULL, (long long)j->fence};
    f[n++] = (struct lw_log_field){"duration_ms", NULL, j->took_us / 1000};
    const char *between = j->reason[0] ? ": " : "";
    /* dead letters have a limit of their own, so that many retries do not hide them */
    if (level == LW_LOG_DEBUG)
        lw_log_with(level, f, n, "%s %s%s%s", j->identity, what, between, j->reason);
    else if (level == LW_LOG_INFO)
        lw_some(200, level, f, n, "%s %s%s%s", j->identity, what, between, j->reason);
    else
        lw_some(200, level, f, n, "%s %s%s%s", j->identity, what, between, j->reason);
}

/* --- Redis: which message runs --------------------------------------------------------------- */

/* A message that is younger than this share of the TTL is not noted: most messages end sooner, and
 * cost nothing here. */
enum { NOTE_PART = 12 };

/* Writes which message of the hold runs to `out`, or "" if none has run for long. */
static void run_text(struct lw_worker *w, const struct hold *h, int64_t now,
                     char out[LW_LEASE_RUN]) {
    static_assert(LW_LEASE_RUN >= LW_IDENTITY_MAX + 48, "an identity, an attempt and a time fit");
    const struct run *r = h->first;
    while (r && r->state == FINISHED) r = r->next;
    int64_t started = r && r->state == RUNNING
                          ? atomic_load_explicit(&r->job.started_ms, memory_order_relaxed)
                          : 0;
    out[0] = '\0';
    if (started && now - started >= w->c->lock.ttl_ms / NOTE_PART)
        snprintf(out, LW_LEASE_RUN, "%s %d %" PRId64, r->job.identity, r->job.attempt,
                 w->io->wall_ms(w->ctx) - (now - started));
}

void tell_runs(struct lw_worker *w, struct shard *sh, int64_t now) {
    for (const struct lane *l = sh->lanes; l; l = l->hh.next) {
        char run[LW_LEASE_RUN];
        if (!l->hold) continue;
        run_text(w, l->hold, now, run);
        /* only this thread writes `run` of a lease */
        if (strcmp(run, l->hold->lease.run) != 0) lw_leases_note(w->leases, &l->hold->lease, run);
    }
}

/* --- the board: how messages ended ----------------------------------------------------------- */

/* Returns the index of the slot on the board that has the partition's name, or -1 if the board has
 * no room for the name. Partitions of other workers have slots, too, because this worker may run
 * their waiting messages. */
static int32_t slot_of(const struct lw_worker *w, struct part *p) {
    if (!p->board.named) {
        const struct lw_board_partition *slot = lw_board_slot(w->set.board, p->topic, p->partition);
        p->board.named = slot ? (int32_t)(slot - w->set.board->partitions) + 1 : -1;
    }
    return p->board.named - (p->board.named > 0);
}

static void add_outcome(struct lw_worker *w, struct part *p, struct lw_outcome_record *r,
                        struct lw_bytes key, const char *reason, bool waited) {
    r->slot = slot_of(w, p);
    if (r->slot < 0) return;
    lw_outcome_texts(r, key, reason);
    lw_outcome_add(&w->set.board->workers[w->set.index].outcomes, r, waited);
}

void outcome_of_run(struct lw_worker *w, const struct run *r, int64_t wall_ms) {
    if (!w->set.board) return;
    struct lw_outcome_record o;
    o.at_ms = wall_ms;
    o.offset = r->msg->offset;
    o.fence = r->job.fence;
    o.took_us = r->job.took_us;
    o.attempt = (uint32_t)r->job.attempt;
    o.end = (uint8_t)(r->dropped ? LW_END_DROPPED : lw_end_of(r->outcome));
    add_outcome(w, r->msg->part, &o, r->job.key,
                r->outcome == LW_DONE && !r->dropped ? "" : r->job.reason, r->hold->kind == LANE);
}

void outcome_of_record(struct lw_worker *w, struct part *p, int64_t offset, struct lw_bytes key,
                       enum lw_end end, const char *reason) {
    if (!w->set.board) return;
    struct lw_outcome_record o = {
        .at_ms = w->io->wall_ms(w->ctx), .offset = offset, .end = (uint8_t)end};
    add_outcome(w, p, &o, key, reason, false);
}

/* --- the board: what groups take of the handlers ---------------------------------------------- */

void tell_running(struct lw_worker *w, struct group *g, int by) {
    if (!w->set.board) return;
    struct lw_shares *shares = &w->set.board->workers[w->set.index].shares;
    int64_t now = now_ms(w);
    lw_share_run(&shares->all, by, now);
    if (g && by > 0 && g->in_handler == 1) g->share = lw_share_take(shares, g->id, now);
    if (g && g->share) lw_share_run(g->share, by, now);
}

/* --- the board: partitions ------------------------------------------------------------------- */

static void put(_Atomic int64_t *to, int64_t v) {
    atomic_store_explicit(to, v, memory_order_relaxed);
}
static int64_t get(_Atomic int64_t *from) {
    return atomic_load_explicit(from, memory_order_relaxed);
}

static void show_part(struct part *p, int64_t end, int64_t now) {
    struct lw_board_partition *b = p->board.slot;
    int64_t mark = lw_offsets_watermark(p->offsets),
            unfinished = (int64_t)lw_offsets_unfinished(p->offsets);
    /* the log reaches at least as far as it did when the partition was assigned */
    if (end < p->log_end) end = p->log_end;
    put(&b->committed, p->committed >= 0 ? p->committed : p->begin);
    put(&b->log_end, end > mark ? end : mark);
    put(&b->waiting, (int64_t)lw_offsets_waiting(p->offsets));
    put(&b->unfinished, unfinished);
    put(&b->records, (int64_t)lw_offsets_held(p->offsets));
    if (mark != get(&b->watermark) || !unfinished) put(&b->moved_ms, now);
    put(&b->watermark, mark);
}

static void take_slot(struct lw_worker *w, struct part *p, int64_t now) {
    assert(p->gen && !p->board.slot);
    p->board.slot = lw_board_own(w->set.board, w->set.index, p->topic, p->partition);
    if (!p->board.slot) return;
    put(&p->board.slot->watermark, lw_offsets_watermark(p->offsets));
    put(&p->board.slot->moved_ms, now);
}

void lw_worker_observe(struct lw_worker *w, int64_t (*log_end)(void *ctx, uint32_t gen),
                       void *ctx) {
    if (!w->set.board) return;
    int64_t now = now_ms(w);
    for (struct part *p = w->parts; p; p = p->hh.next) {
        bool ours = p->gen && p->offsets;
        if (p->board.slot && !ours) {
            lw_board_disown(p->board.slot, w->set.index);
            p->board.slot = NULL;
        } else if (ours) {
            if (!p->board.slot) take_slot(w, p, now);
            if (p->board.slot) show_part(p, log_end ? log_end(ctx, p->gen) : -1, now);
        }
    }
}

/* --- why nothing goes on --------------------------------------------------------------------- */

static bool shard_why(struct lw_worker *w, struct shard *sh, int64_t now, char *out, size_t size) {
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
    else if (sh->first.waits)
        snprintf(out, size,
                 "redis shard %d: nothing is handled before Kafka has accepted a commit of the "
                 "group",
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
    if (!p->gen || !p->offsets || (int64_t)lw_offsets_waiting(p->offsets) < w->c->queue.max_waiting)
        return false;
    snprintf(out, size,
             "%s: reading paused: %zu of its messages wait in Redis (queue.max_waiting is %" PRId64
             ")",
             p->name, (size_t)lw_offsets_waiting(p->offsets), (int64_t)w->c->queue.max_waiting);
    return true;
}

bool lw_worker_why(struct lw_worker *w, char *out, size_t size) {
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
    if (limit_why(w, out, size)) return true;
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

/* --- the dump -------------------------------------------------------------------------------- */

enum { PARTS_SHOWN = 64, SHARDS_SHOWN = 32, HOLDS_SHOWN = 64 };

static const char *const phase_name[] = {"down", "hello", "entering", "repairing", "ready"};
static const char *const run_name[] = {"ahead", "running", "sending", "finished"};

static void dump_part(const struct part *p, int64_t now, int n_shards) {
    int64_t mark = lw_offsets_watermark(p->offsets);
    int64_t still = p->board.slot && lw_offsets_unfinished(p->offsets)
                        ? now - atomic_load(&p->board.slot->moved_ms)
                        : 0;
    lw_info("dump: %s watermark %" PRId64 " for %" PRId64 " ms, committed %" PRId64
            ", next %" PRId64 ", unfinished %zu, waiting %zu%s%s",
            p->name, mark, still, p->committed, lw_offsets_next(p->offsets),
            lw_offsets_unfinished(p->offsets), lw_offsets_waiting(p->offsets),
            p->paused ? ", held back" : "",
            p->watch.n_fresh < n_shards ? ", its states are not read yet" : "");
}

static void dump_hold(const struct hold *h, const struct lane *l, int64_t now, const char *what) {
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
    for (const struct lane *l = sh->lanes; l && left > 0; l = l->hh.next) {
        if (l->hold && left-- > 0) dump_hold(l->hold, l, now, "hold");
        for (const struct hold *h = l->lost; h && left-- > 0; h = h->next)
            dump_hold(h, l, now, "hold of a lost epoch");
    }
    return left;
}

static void dump_shard(const struct shard *sh, int64_t now) {
    char out[64] = "";
    if (sh->pipe.open)
        snprintf(out, sizeof out, ", a pipeline is out for %" PRId64 " ms", now - sh->pipe.sent_ms);
    lw_info("dump: shard %d %s, epoch %s, %u lanes known here%s, %d calls to send again, %zu "
            "hints, quarantine for another %" PRId64 " ms%s%s%s",
            sh->index, phase_name[sh->phase], sh->epoch.id[0] ? sh->epoch.id : "none",
            HASH_COUNT(sh->lanes), out, sh->pipe.n_kept, sh->hints.n, quarantine_left_ms(sh, now),
            sh->settle.listed ? ", some to settle" : "", sh->gate.n_listed ? ", some to gate" : "",
            sh->gate.oom_until_ms ? ", Redis is at maxmemory" : "");
}

void lw_worker_dump(struct lw_worker *w) {
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
