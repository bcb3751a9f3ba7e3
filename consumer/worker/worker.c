/* SPDX-License-Identifier: Apache-2.0 */
/* worker: takes the turns of a worker, and begins and ends it. A message goes
 * arrive → gate → run → settle → watch → commit. The pipeline of a shard has these steps in another
 * order:
 *
 *   - Watch and settle come before claim and gate, so that messages that end make room for new
 *     ones.
 *   - Watch comes before settle. So watch reads only what earlier calls and other workers have
 *     recorded. The worker notes and counts the outcomes that this pipeline records only when it
 *     gets the reply to settle.
 *
 * A turn takes these steps, in this order:
 *
 *     run         starts the messages that a suspect has held up, sends refused dead letters
 *                 again, and gives the messages granted since the last turn to the handlers
 *     sweep       frees partitions of replays that have no messages any more (parts_sweep)
 *     confirm     after an epoch was lost, waits until Kafka has confirmed the assignment; until
 *                 then the turn ends here
 *     first look  on the first run of a name, asks Kafka whether the group has a commit, because
 *                 without a commit there is no need for a quarantine
 *     each shard  ends a refusal by Redis that is over (refusal_look); then sends one pipeline.
 *                 A new connection is checked first, then an epoch is entered and the shard is
 *                 repaired, each by pipelines of its own. When the shard is READY, the pipeline is
 *                 built and executed in this order:
 *                     lift     asks whether the quarantine may end
 *                     tend     makes lost hints again, and regularly checks the server
 *                     watch    reads the states of the messages that wait in Redis
 *                     settle   reports finished messages, so that their lanes are released before
 *                              claim and gate ask for lanes
 *                     hints    fetches more hints
 *                     ready    takes lanes of groups that have permits
 *                     claim    asks for heads of waiting lists, before new messages because they
 *                              are older
 *                     gate     asks for the lanes of new messages
 *                     late     writes back messages whose handlers ended after their epoch did
 *                     unpark   takes back the states of messages whose waiting lists were deleted
 *                     floor    reports the commits that Kafka has accepted
 *                 Before the pipeline is sent, the blocking pop for hints is switched on if
 *                 messages may be granted and no hint is known, and off if not (hints_want)
 *     pause       holds back the partitions of which nothing more may be read now
 *     commit      commits the watermarks, which the answers to earlier pipelines have raised
 *     flush       gives the messages granted during the turn to the handlers (run_flush)
 *
 * Arrival is not a step of a turn: records from Kafka (intake.c) and answers from Redis (pipe.c)
 * come between two turns.
 *
 * At the end of this file: the phases of a shard's connection, and how a worker begins and ends. */
#include "consumer/worker/private.h"

#include <xxhash.h>

/* --- turns ----------------------------------------------------------------------------------- */

/* PACE_MS is the minimum gap between non-urgent pipelines, so that each carries a larger batch. */
enum { PACE_MS = 2 };

/* Returns roughly the number of holds that this turn cannot settle, with at most `most` holds
 * counted per shard. A settle reports at most BATCH runs, and the other holds keep their leases
 * until a later turn. */
static size_t backlog(const struct lw_worker *w, size_t most) {
    assert(most <= 2 * BATCH);
    size_t n = 0;
    for (int i = 0; i < w->n_shards; i++) {
        size_t here = w->shards[i].settle.n_listed;
        if (here > BATCH) n += here - BATCH < most ? here - BATCH : most;
    }
    return n;
}

/* Returns how many messages a handler on trial gets: enough that at least one of them is not among
 * as many poison messages as are promised not to stop others, four per handler. */
static size_t few(const struct lw_worker *w) {
    size_t n = 5 * (size_t)lw_config_at_once(w->c);
    return n < 2 * BATCH ? n : 2 * BATCH;
}

/* Adapts the window, and returns how many more messages may be granted. The window limits how many
 * messages are granted and not finished. It grows at once to twice the number of messages that
 * finished since the last turn, and shrinks slowly. Messages of one key that finished in one batch
 * count once, because the next batch of the key takes their place. The window is never less than
 * twice the number of handlers or, with more than BATCH handlers, their number plus BATCH. So quick
 * handlers get full batches, and with slow handlers this worker does not hold locks that it cannot
 * use yet. */
static size_t may_grant_now(struct lw_worker *w) {
    size_t handlers = (size_t)lw_config_at_once(w->c),
           least = handlers + (handlers < BATCH ? handlers : BATCH);
    size_t want = 2 * runs_finished(w);
    if (want > w->window)
        w->window = want;
    else
        w->window -= (w->window - want) / 8;
    if (w->window < least) w->window = least;
    if (w->window > window_most(w)) w->window = window_most(w);
    size_t held = w->runs.in_flight + backlog(w, w->window < 2 * BATCH ? w->window : 2 * BATCH);
    if (w->limit == LW_GRANT_NONE) return 0;
    if (w->limit == LW_GRANT_FEW) return held < few(w) ? few(w) - held : 0;
    size_t most = held < w->window ? w->window - held : 0;
    return most < 2 * BATCH ? most : 2 * BATCH;
}

/* Returns true if a pipeline should be sent now. It is sent at once if an idle handler, a lane that
 * can continue, or a full batch waits for it. Less urgent calls go along with such a pipeline, or
 * PACE_MS after the last pipeline. */
static bool should_send(const struct lw_worker *w, const struct shard *sh, int64_t now) {
    if (sh->phase != READY || connection_unsure(sh) || sh->pipe.n_kept > 0 || w->stopping ||
        settle_urgent(sh) || now - sh->pipe.sent_ms >= PACE_MS)
        return true;
    bool hints = hints_known(sh) && heads_fit(w);
    return (sh->gate.n_listed || hints) && w->runs.in_flight < (size_t)lw_config_at_once(w->c);
}

/* Returns how many lanes gate asks for, if `most` messages may run. This is `ask` lanes per message
 * (one lane if grants are limited), because some lanes may be busy. But a number above `most` is at
 * most ASK_LANES, because all lanes may turn out to be free. */
static size_t lanes_to_ask(const struct lw_worker *w, size_t most, size_t ask) {
    assert(ask >= 1);
    enum { ASK_LANES = 64 };
    size_t n = w->limit == LW_GRANT_ALL && !w->limits.on ? most * ask : most;
    if (n > ASK_LANES) n = ASK_LANES;
    return n > most ? n : most;
}

/* Claim and gate share one budget, `most`, which is the number of messages that may still be
 * granted. Claim is served first, because heads are older than new messages. */
static void claim_step(struct lw_worker *w, struct shard *sh, size_t *most) {
    assert(sh->phase == READY && epoch_joined(sh));
    hints_build(w, sh, *most);
    ready_build(w, sh);
    size_t claimed = claim_build(w, sh, limit_of(w, *most));
    assert(claimed <= *most);
    limit_grants(w, claimed);
    *most -= claimed;
}

static void gate_step(struct lw_worker *w, struct shard *sh, size_t *most, int64_t now) {
    size_t may = limit_of(w, *most), lanes = lanes_to_ask(w, may, sh->gate.ask),
           asked = gate_rests(sh, now) ? 0 : gate_build(w, sh, lanes);
    if (!lanes) return;
    limit_grants(w, asked);
    /* the grants that this call is expected to bring are subtracted from the budget */
    size_t expected = (asked * may + lanes - 1) / lanes;
    assert(expected <= *most);
    *most -= expected;
}

/* Returns true if a pipeline with new work can be sent to the shard now. If something else must be
 * sent first, this function sends it: the check of the connection, calls that are sent again, or
 * the calls that enter an epoch and repair the shard. */
static bool may_begin(struct lw_worker *w, struct shard *sh) {
    if (sh->pipe.open || sh->phase == DOWN || connection_rests(sh, now_ms(w)) ||
        !should_send(w, sh, now_ms(w)) || pipe_urgent(w, sh))
        return false;
    if (sh->phase == ENTERING && (!sh->index || w->joined)) enter_build(w, sh);
    if (sh->phase == REPAIRING) repair_build(w, sh);
    return sh->phase == READY;
}

static void turn_shard(struct lw_worker *w, struct shard *sh, size_t *most) {
    assert(*most <= 2 * BATCH);
    refusal_look(w, sh, now_ms(w));
    if (!may_begin(w, sh)) return;
    int64_t now = now_ms(w);
    bool grants = !shard_quarantined(sh, now) && !w->stopping,
         admits = grants && !refusal_holds(sh, now);
    /* `wanted` (whether to fetch more hints) is computed before gate takes its share of the budget.
     * Otherwise new messages could use up the budget in each turn, no hints would be fetched, and
     * waiting messages would never run. */
    bool wanted = *most > 0;
    pipe_begin(sh);
    lift_build(w, sh, now);
    tend_build(w, sh, now);
    watch_build(w, sh);
    settle_build(w, sh);
    if (admits) claim_step(w, sh, most);
    if (admits) gate_step(w, sh, most, now);
    late_build(w, sh);
    unpark_build(w, sh);
    floor_build(w, sh);
    if (!sh->index) limit_build(w, sh);
    hints_want(w, sh, grants && wanted && !hints_known(sh));
    pipe_send(w, sh);
    check_shard(sh);
}

static void turn_shards(struct lw_worker *w) {
    bool idle = false;
    for (int i = 0; i < w->n_shards; i++)
        idle |= !w->shards[i].pipe.open && should_send(w, &w->shards[i], now_ms(w));
    /* if no pipeline is to be sent, may_grant_now() must not be called, because it adapts the
     * window */
    size_t most = idle ? may_grant_now(w) : 0;
    limit_begin(w);
    int first = w->n_shards > 1 ? (int)(w->turns++ % (uint64_t)w->n_shards) : 0;
    for (int i = 0; i < w->n_shards; i++)
        turn_shard(w, &w->shards[(first + i) % w->n_shards], &most);
}

void lw_worker_turn(struct lw_worker *w) {
    check_worker(w);
    run_step(w);
    parts_sweep(w);
    if (w->commit.confirm && !commit_confirm(w)) return;
    first_look(w);
    turn_shards(w);
    parts_pause(w);
    commit_step(w);
    run_flush(w);
    check_worker(w);
}

/* --- when the next turn is due --------------------------------------------------------------- */

static bool has_work(const struct lw_worker *w, const struct shard *sh, int64_t now) {
    bool hints = hints_known(sh) && heads_fit(w);
    return (sh->phase == ENTERING && (w->joined || !sh->index)) || sh->phase == REPAIRING ||
           sh->pipe.n_kept > 0 || connection_unsure(sh) ||
           (!w->stopping && !shard_quarantined(sh, now) && limit_of(w, 1) > 0 &&
            (hints || gate_due(sh, now)));
}

static bool may_grant(const struct lw_worker *w) {
    size_t most = w->limit == LW_GRANT_ALL ? w->window : w->limit == LW_GRANT_FEW ? few(w) : 0;
    return w->runs.in_flight < most;
}

void lw_worker_limit(struct lw_worker *w, enum lw_grant_limit limit) {
    assert(limit <= LW_GRANT_NONE);
    w->limit = limit;
}

int64_t lw_worker_wait_ms(struct lw_worker *w) {
    int64_t wait = 20, now = now_ms(w);
    /* The worker can do nothing before Kafka has confirmed the assignment, and asks Kafka again at
     * confirm_ms. */
    if (w->commit.confirm && now < w->commit.confirm_ms) return wait;
    limit_begin(w);
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        if (sh->pipe.open || sh->phase == DOWN || connection_rests(sh, now)) continue;
        if (sh->pipe.n_kept > 0) return 0;
        int64_t due = settle_due_ms(w, sh), limit_ms = limit_due_ms(w, sh);
        if (limit_ms < due) due = limit_ms;
        int64_t ready_ms = may_grant(w) ? ready_due_ms(w, sh) : INT64_MAX;
        if (ready_ms < due) due = ready_ms;
        if (has_work(w, sh, now) && may_grant(w)) due = now;
        if (due <= now) due = should_send(w, sh, now) ? now : sh->pipe.sent_ms + PACE_MS;
        if (due <= now) return 0;
        if (due - now < wait) wait = due - now;
    }
    return wait;
}

/* --- shards ---------------------------------------------------------------------------------- */

/* The phases of a shard:
 *
 *     DOWN --connected--> HELLO --same life--> READY <-------------------.
 *                           '--new or none--> ENTERING --OK--> REPAIRING-'
 *       any --LOST, other life, clock jumped--> DOWN
 *
 * If the life is the same, but the connection broke during the repair, HELLO leads to REPAIRING. On
 * a Redis Cluster each new connection goes through ENTERING. If the server of the new connection
 * has the id of this worker's epoch, the epoch goes on. connection.c sends HELLO, epoch.c sends
 * enter and repair. The calls gate, settle, claim and watch are sent only in phase READY. */
void shard_to(struct shard *sh, enum phase to) {
    assert(sh->phase <= READY && to <= READY);
    static const bool legal[5][5] = {
        [DOWN] = {[HELLO] = true},
        [HELLO] =
            {[DOWN] = true, [HELLO] = true, [ENTERING] = true, [REPAIRING] = true, [READY] = true},
        [ENTERING] = {[DOWN] = true, [HELLO] = true, [REPAIRING] = true, [READY] = true},
        [REPAIRING] = {[DOWN] = true, [HELLO] = true, [READY] = true},
        [READY] = {[DOWN] = true, [HELLO] = true},
    };
    assert(legal[sh->phase][to]);
    sh->phase = to;
}

static char *key_of(struct shard *sh, const char *name, const char *more) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, "%s%s%s%c", sh->prefix, name, more, 0);
    return b.p;
}

static void shard_init(struct lw_worker *w, struct shard *sh, int index) {
    sh->index = index;
    sh->n_prefix = lw_shard_prefix(w->c, index, sh->prefix);
    sh->key_epoch = key_of(sh, "epoch", "");
    sh->key_lanes = key_of(sh, "lanes", "");
    sh->key_floor = key_of(sh, "floor", "");
    sh->key_fence = key_of(sh, "fence", "");
    sh->key_ready = key_of(sh, "ready", "");
    sh->key_dead = key_of(sh, "dead", "");
    sh->key_workers = key_of(sh, "workers", "");
    sh->key_vanished = key_of(sh, "vanished", "");
    sh->key_limit = key_of(sh, "limit", "");
    sh->key_limits = key_of(sh, "limits", "");
    sh->key_limited = key_of(sh, "limited", "");
    sh->key_groups = key_of(sh, "groups", "");
    sh->key_claimed = key_of(sh, "claimed:", w->set.id);
    gate_open(sh);
    settle_open(sh);
}

static void shard_free(struct shard *sh) {
    assert(!sh->lanes);
    char *names[] = {sh->key_epoch,    sh->key_lanes, sh->key_floor,   sh->key_fence,
                     sh->key_ready,    sh->key_dead,  sh->key_workers, sh->key_claimed,
                     sh->key_vanished, sh->key_limit, sh->key_limits,  sh->key_limited,
                     sh->key_groups};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) free(names[i]);
    pipe_free(sh);
    hints_forget(sh);
}

/* --- begin and end --------------------------------------------------------------------------- */

static struct lw_byte_bounds bounds(const struct lw_byte_bounds *asked) {
    struct lw_byte_bounds b = *asked;
    if (!b.call) b.call = LW_CALL_BYTES;
    if (!b.lane) b.lane = LW_LANE_BYTES;
    if (!b.heads) b.heads = 32 << 20;
    if (!b.held) b.held = 64 << 20;
    return b;
}

struct lw_worker *lw_worker_open(const struct lw_worker_setup *setup) {
    assert(setup->config->redis.shards > 0);
    struct lw_worker *w = lw_alloc(sizeof *w);
    w->set = *setup;
    w->c = setup->config;
    w->io = setup->io;
    w->ctx = setup->ctx;
    w->counts = setup->counts ? setup->counts : &w->own_counts;
    w->n_shards = w->c->redis.shards;
    w->lanes_seed = XXH3_64bits(setup->id, strlen(setup->id)); /* the id has random digits */
    w->bytes = bounds(&setup->bytes);
    msgs_open(w);
    limit_open(w);
    if (w->set.board && w->limits.on) lw_shares_reset(&w->set.board->workers[w->set.index].shares);
    pthread_mutex_init(&w->epoch_mutex, NULL);
    w->leases = lw_leases_open(w->n_shards, w->c->lock.ttl_ms);
    w->shards = lw_alloc((size_t)w->n_shards * sizeof *w->shards);
    for (int s = 0; s < w->n_shards; s++) {
        shard_init(w, &w->shards[s], s);
        w->io->connect(w->ctx, s);
    }
    return w;
}

#define FREE_LIST(list, link) \
    while (list) {            \
        void *gone = list;    \
        list = (list)->link;  \
        free(gone);           \
    }

void lw_worker_free(struct lw_worker *w) {
    for (int s = 0; s < w->n_shards; s++) pipe_forget(w, &w->shards[s]);
    lane_drop_pending(w, NULL);
    while (w->n_assigned) part_drop(w, w->assigned[0]);
    assert(!w->held);
    for (int s = 0; s < w->n_shards; s++) {
        lanes_free(w, &w->shards[s]);
        ready_forget(w, &w->shards[s]);
        shard_free(&w->shards[s]);
    }
    struct part *p, *tmp;
    HASH_ITER(hh, w->parts, p, tmp) part_free(w, p);
    groups_free(w);
    fair_close(w);
    limit_close(w);
    FREE_LIST(w->runs.free, next)
    FREE_LIST(w->free_holds, next)
    FREE_LIST(w->memory.free, next)
    FREE_LIST(w->free_lanes, gate_next)
    lw_leases_close(w->leases);
    pthread_mutex_destroy(&w->epoch_mutex);
    lw_buf_free(&w->scratch);
    lw_buf_free(&w->scratch2);
    free(w->assigned), free(w->runs.start), free(w->shards), free(w->busy),
        free(w->runs.given_back);
    free(w);
}

struct lw_leases *lw_worker_leases(struct lw_worker *w) {
    return w->leases;
}

const char *lw_worker_prefix(const struct lw_worker *w, int shard) {
    assert(shard >= 0 && shard < w->n_shards);
    return w->shards[shard].prefix;
}

void lw_worker_stop(struct lw_worker *w) {
    w->stopping = true;
    lane_drop_pending(w, NULL);
    for (int s = 0; s < w->n_shards; s++)
        for (struct lane *l = w->shards[s].lanes; l; l = l->hh.next)
            if (l->hold) hold_cut(w, l->hold);
    lane_drop_pending(w, NULL);
    parts_pause(w);
}

bool lw_worker_busy(const struct lw_worker *w) {
    if (w->runs.in_handler) return true;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        if (sh->phase == DOWN || !epoch_joined(sh)) continue;
        if (sh->pipe.open || sh->pipe.n_kept > 0) return true;
        for (const struct lane *l = sh->lanes; l; l = l->hh.next)
            if (l->hold) return true;
    }
    return false;
}

bool lw_worker_ready(const struct lw_worker *w) {
    for (int s = 0; s < w->n_shards; s++)
        if (w->shards[s].phase != READY || refusal_text(&w->shards[s])) return false;
    return true;
}

uint64_t lw_worker_waiting(const struct lw_worker *w) {
    uint64_t n = 0;
    for (size_t i = 0; i < w->n_assigned; i++) n += lw_offsets_waiting(w->assigned[i]->offsets);
    return n;
}
