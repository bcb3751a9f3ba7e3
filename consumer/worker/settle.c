/* SPDX-License-Identifier: Apache-2.0 */
/* settle: the step that records the outcomes of runs and decides how their lanes go on. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

enum {
    /* If a hold has at most LOW_WATER unfinished messages, a settle is due at once, so that it asks
     * for more messages. */
    LOW_WATER = 4,
    /* If nobody waits for the outcome of a hold's finished messages, a settle for them is due after
     * TELL_MS at the latest, so that one call tells of many. */
    TELL_MS = 20,
};

/* Returns the time before a retry. If the handler asked for a time, returns that time. Otherwise
 * the time grows exponentially with the attempts, and up to half of it is random, so that messages
 * that failed together are not retried together. If no attempt counts, nothing grows, so the time
 * is the longest one, and it is never shorter than the first one. */
static int64_t backoff(struct lw_worker *w, const struct run *r) {
    assert(w->c->retry.backoff_ms >= 0 && r->tried.n >= 0);
    bool counts = r->outcome == LW_RETRY;
    int64_t ms = w->c->retry.backoff_ms, asked_ms = r->job.wait_ms;
    if (asked_ms > 0) return counts || asked_ms > ms ? asked_ms : ms;
    if (!counts) ms = w->c->retry.backoff_max_ms;
    for (int i = 0; i < r->tried.n && ms < w->c->retry.backoff_max_ms; i++) ms *= 2;
    if (ms > w->c->retry.backoff_max_ms) ms = w->c->retry.backoff_max_ms;
    if (ms < 2) return ms;
    return ms / 2 + (int64_t)(w->io->random(w->ctx) % (uint64_t)(ms / 2 + 1));
}

static struct run *nth(const struct hold *h, int n) {
    struct run *r = h->first;
    assert(n >= 0 && n <= h->n_finished + h->n_open);
    while (n-- > 0) r = r->next;
    return r;
}

/* --- the list of holds that have finished runs ----------------------------------------------- */

void settle_open(struct shard *sh) {
    assert(!sh->settle.listed && !sh->settle.tail);
    sh->settle.tail = &sh->settle.listed;
}

void settle_list(struct shard *sh, struct hold *h) {
    assert(sh->settle.tail && !*sh->settle.tail);
    assert(!h->lost && !h->stale);
    h->listed = true;
    h->next = NULL;
    *sh->settle.tail = h;
    sh->settle.tail = &h->next;
    sh->settle.n_listed++;
}

void settle_unlist(struct shard *sh, struct hold *h) {
    if (!h->listed) return;
    struct hold **at = &sh->settle.listed;
    while (*at && *at != h) at = &(*at)->next;
    assert(*at == h);
    *at = h->next;
    if (!*at) sh->settle.tail = at;
    sh->settle.n_listed--;
    h->listed = false;
}

void settle_urge(struct shard *sh) { sh->settle.urgent = true; }

bool settle_urgent(const struct shard *sh) {
    return sh->settle.urgent || sh->settle.n_listed >= BATCH / 4;
}

bool settle_names(const struct shard *sh, const struct part *p) {
    for (int i = 0; i < sh->settle.n_named; i++)
        if (sh->settle.named[i].part == p) return true;
    return false;
}

/* --- when ------------------------------------------------------------------------------------ */

/* Returns true if somebody may wait for the lane of a hold of which nothing runs any more: others
 * of its messages, those of another worker, or messages that carry a business id, which is known to
 * others only when it is recorded. */
static bool awaited(const struct lw_worker *w, const struct hold *h) {
    return h->kind == LANE || h->lane->head || !h->n_finished || w->c->dedup.business ||
           gate_saw_busy(w, h->lane, h->done_ms);
}

static int64_t due_ms(const struct lw_worker *w, const struct hold *h) {
    if (h->failed || w->stopping) return 0;
    if (!h->n_open && awaited(w, h)) return 0;
    if (h->n_open && (h->n_open <= LOW_WATER || h->n_finished >= AHEAD_MAX / 2)) return 0;
    return h->done_ms + TELL_MS;
}

bool settle_at_once(const struct lw_worker *w, const struct hold *h) { return !due_ms(w, h); }

int64_t settle_due_ms(struct lw_worker *w, const struct shard *sh) {
    if (settle_urgent(sh)) return 0;
    int64_t due = INT64_MAX;
    for (const struct hold *h = sh->settle.listed; h && due; h = h->next) {
        int64_t d = due_ms(w, h);
        if (d < due) due = d;
    }
    return due;
}

/* --- how the lane goes on -------------------------------------------------------------------- */

static void name(struct shard *sh, struct settle_item *it, struct part *part, int64_t offset) {
    assert(part && offset >= 0);
    assert(sh->settle.n_named < BATCH && it->first_named + it->n_named == sh->settle.n_named);
    sh->settle.named[sh->settle.n_named++] = (struct named){part, offset};
    it->n_named++;
}

static void name_chain(struct lw_worker *w, struct shard *sh, struct settle_item *it, int most) {
    check_lane(it->hold->lane);
    if (!lane_first(w, it->hold->lane)) return;
    for (const struct msg *m = it->hold->lane->head;
         m && it->n_named < most && sh->settle.n_named < BATCH; m = m->next)
        if (msg_current(m)) name(sh, it, m->part, m->offset);
}

/* Returns true if the granted messages that this settle does not report take up more than half of a
 * lane's byte limit. The settle then asks for no more heads, because Redis would have to read all
 * these messages again to find the heads behind them. */
static bool has_plenty(const struct lw_worker *w, const struct settle_item *it) {
    assert(it->n_runs <= it->hold->n_finished);
    size_t bytes = 0;
    for (const struct run *r = nth(it->hold, it->n_runs); r; r = r->next) bytes += r->msg->bytes;
    return bytes > w->bytes.lane / 2;
}

/* Chooses how the lane goes on after a settle that does not report all runs of the hold. The other
 * runs have not finished, did not fit into the call, or finished after the call was built. */
static void choose_more(struct lw_worker *w, struct shard *sh, struct settle_item *it, bool again) {
    check_hold(it->hold);
    assert(it->n_runs <= it->hold->n_finished);
    struct hold *h = it->hold;
    int open = h->n_open + h->n_finished - it->n_runs;
    bool no_more = again || h->failed || h->stale || w->stopping || !lw_config_runs_ahead(w->c);
    it->go = h->kind == FAST ? LW_GO_NAMED : LW_GO_HEADS;
    if (no_more) return;
    int most = (int)wanted_heads(w) - open;
    if (h->kind == FAST) {
        if (most > w->c->lock.max_run - h->n) most = w->c->lock.max_run - h->n;
        name_chain(w, sh, it, most);
    } else if (most > 0 && sh->settle.n_named < BATCH && heads_fit(w) && !has_plenty(w, it)) {
        struct run *last = nth(h, h->n_finished + h->n_open - 1);
        name(sh, it, last->msg->part, last->msg->offset);
        it->want = most;
        it->before = it->n_runs + open;
    }
}

static void choose(struct lw_worker *w, struct shard *sh, struct settle_item *it, bool again) {
    assert(it->n_runs <= it->hold->n_finished);
    struct hold *h = it->hold;
    it->go = LW_GO_DROP;
    it->first_named = sh->settle.n_named;
    it->n_named = it->want = it->before = 0;
    if (h->n_finished + h->n_open > it->n_runs) {
        choose_more(w, sh, it, again);
        return;
    }
    if (again || w->stopping || !lw_outcome_ends(it->outcome)) return;
    /* with limits each message needs a permit first, and all lanes have their turn, so the lock is
     * given back: the lane's next message comes by gate or a hint */
    if (w->limits.on) return;
    if (h->kind == FAST && lane_first(w, h->lane)) {
        int left = w->c->lock.max_run - h->n;
        it->go = left > 0 ? LW_GO_KEEP : LW_GO_KEEP_ALONE;
        if (left <= 0) left = w->c->lock.max_run;
        int most = (int)wanted_heads(w);
        name_chain(w, sh, it, most < left ? most : left);
        if (it->n_named) return;
    }
    it->go = LW_GO_NEXT;
    it->want = (int)wanted_heads(w);
    it->before = h->kind == LANE ? it->n_runs : 0;
}

/* --- the call -------------------------------------------------------------------------------- */

static void add_places(struct shard *sh, const struct settle_item *it, struct lw_places *p) {
    const struct run *r = it->hold->first;
    for (int k = 0; k < it->n_runs; k++, r = r->next)
        lw_places_add(p, r->msg->part->name, r->msg->offset);
    for (int k = 0; k < it->n_named; k++) {
        const struct named *named = &sh->settle.named[it->first_named + k];
        lw_places_add(p, named->part->name, named->offset);
    }
}

static void encode_dedup(struct shard *sh, const struct settle_item *it,
                         const struct lw_lane_call *c) {
    const struct run *r = it->hold->first;
    for (int k = 0; k < it->n_runs; k++, r = r->next) lw_call_dedup(c, r->msg->dedup);
    for (int k = 0; k < it->n_named; k++) {
        /* with dedup, a settle names at most one message, the first of the chain */
        const struct msg *m = it->hold->lane->head;
        const struct named *named = &sh->settle.named[it->first_named + k];
        bool here = m && m->part == named->part && m->offset == named->offset;
        lw_call_dedup(c, here ? m->dedup : lw_bytes("", 0));
    }
}

static void encode_last(struct lw_worker *w, const struct settle_item *it,
                        const struct lw_lane_call *c) {
    if (!lw_settle_carries(it->outcome)) return;
    struct run *last = nth(it->hold, it->n_runs - 1);
    w->scratch.n = 0;
    msg_envelope(last->msg, &w->scratch);
    lw_settle_last(c, it->outcome, it->backoff_ms, last->job.reason,
                   lw_bytes(w->scratch.p, w->scratch.n),
                   last->msg->group ? &last->msg->group->id : NULL);
}

/* Encodes the items of a settle, and collects in `values` one hold for each different value of a
 * lock. Holds that one call granted have the same value. Returns the number of different values. */
static int encode_items(struct shard *sh, unsigned char *to, const struct hold **values) {
    int n = 0;
    for (int i = 0; i < sh->settle.n; i++, to += LW_ITEM_BYTES) {
        const struct settle_item *it = &sh->settle.item[i];
        int v = n - 1;
        while (v >= 0 && (values[v]->lease.token != it->hold->lease.token ||
                          values[v]->fence != it->hold->fence))
            v--;
        if (v < 0) values[v = n++] = it->hold;
        lw_settle_item(&(struct lw_settle_item){v, it->n_runs, it->outcome, it->go, it->n_named,
                                                it->want, it->before},
                       to);
    }
    return n;
}

void settle_encode(struct lw_worker *w, struct shard *sh) {
    static _Thread_local struct lw_places p;
    static _Thread_local const struct hold *values[BATCH];
    unsigned char items[LW_ITEM_BYTES * BATCH];
    char value[LW_TOKEN_TEXT];
    struct lw_lane_call c = pipe_lane_call(w, sh, &lw_script_settle);
    int n_values = encode_items(sh, items, values);
    lw_places_clear(&p);
    for (int i = 0; i < sh->settle.n; i++) add_places(sh, &sh->settle.item[i], &p);
    lw_settle_begin(&c, &p, sh->settle.n);
    for (int i = 0; i < sh->settle.n; i++) lw_call_lane(&c, sh->settle.item[i].hold->lane->id);
    struct lw_settle_call s = {
        .dedup = w->c->dedup.business,
        .window_s = w->c->dedup.window_s,
        .bounds = pipe_bounds(w),
        .items = lw_bytes((const char *)items, LW_ITEM_BYTES * (size_t)sh->settle.n),
        .n_values = n_values};
    lw_settle_args(&c, &p, &s);
    for (int v = 0; v < n_values; v++)
        lw_call_value(&c,
                      lw_value_text(value, w->set.id, values[v]->lease.token, values[v]->fence));
    for (int i = 0; i < sh->settle.n; i++) {
        encode_last(w, &sh->settle.item[i], &c);
        if (w->c->dedup.business) encode_dedup(sh, &sh->settle.item[i], &c);
    }
}

/* Returns how many bytes of this hold's messages a settle carries or makes Redis read again. A
 * settle carries the envelopes of messages that are not done, and the script compares heads with
 * the front of their list. */
static size_t carries(const struct hold *h, int n_runs) {
    assert(n_runs >= 0 && n_runs <= h->n_finished);
    size_t bytes = 0;
    const struct run *r = h->first;
    for (int k = 0; k < n_runs; k++, r = r->next)
        if (h->kind == LANE || r->outcome != LW_DONE) bytes += r->msg->bytes;
    return bytes;
}

void settle_build(struct lw_worker *w, struct shard *sh) {
    assert(!sh->settle.n && sh->phase == READY);
    static _Thread_local struct lw_places p;
    int64_t now = now_ms(w);
    if (settle_due_ms(w, sh) > now) return;
    lw_places_clear(&p);
    int runs = 0;
    size_t bytes = 0;
    struct hold *h = sh->settle.listed;
    sh->settle.listed = NULL;
    sh->settle.tail = &sh->settle.listed;
    sh->settle.n_listed = 0;
    sh->settle.urgent = false;
    while (h) {
        struct hold *next = h->next;
        struct lane *l = h->lane;
        bool yields = l->settled && l->listed && h->n_open && !h->failed;
        if (yields) lane_settled(l, false);
        int n_runs = h->n_finished < BATCH - runs ? h->n_finished : BATCH - runs;
        size_t more = carries(h, n_runs);
        bool full = runs >= BATCH || sh->settle.n_named >= BATCH || !lw_places_fit(&p, 200) ||
                    (bytes && bytes + more > w->bytes.call);
        bool early = h->n_open && due_ms(w, h) > now;
        if (yields || early || full) {
            settle_list(sh, h);
            h = next;
            continue;
        }
        assert(sh->settle.n < BATCH && l->hold == h && !h->lost);
        struct settle_item *it = &sh->settle.item[sh->settle.n++];
        *it = (struct settle_item){.hold = h, .n_runs = n_runs};
        bytes += more;
        struct run *last = it->n_runs ? nth(h, it->n_runs - 1) : NULL;
        it->outcome = last ? last->outcome : LW_DONE;
        if (it->outcome == LW_RETRY || it->outcome == LW_LATER) it->backoff_ms = backoff(w, last);
        if (it->outcome == LW_BACK) it->backoff_ms = w->stopping ? 0 : last->rest_ms;
        choose(w, sh, it, false);
        add_places(sh, it, &p);
        h->listed = it->n_runs < h->n_finished;
        if (h->listed) settle_list(sh, h);
        hold_in_call(h, it->n_runs);
        lane_call(l, NULL);
        runs += it->n_runs ? it->n_runs : 1;
        h = next;
    }
    if (!sh->settle.n) return;
    pipe_call(sh, CALL_SETTLE);
    settle_encode(w, sh);
}

void settle_back(struct lw_worker *w, struct shard *sh) {
    for (int i = 0; i < sh->settle.n; i++) {
        struct hold *h = sh->settle.item[i].hold;
        lane_answered(h->lane);
        hold_in_call(h, 0);
        hold_to_settle(w, h);
    }
    sh->settle.n = sh->settle.n_named = 0;
}

void settle_again(struct lw_worker *w, struct shard *sh, bool may_have_executed) {
    sh->settle.n_named = 0;
    for (int i = 0; i < sh->settle.n; i++) choose(w, sh, &sh->settle.item[i], may_have_executed);
}

/* --- the answers ----------------------------------------------------------------------------- */

static void account(struct lw_worker *w, struct run *r, bool recorded) {
    assert(r->state == FINISHED);
    if (r->accounted) return;
    r->accounted = true;
    enum lw_outcome v = r->outcome;
    if (!recorded)
        tell_end(w, r, LW_LOG_INFO,
                 "was not recorded: a name of its lane in Redis holds another type");
    if (!recorded)
        count(&w->counts->stale);
    else if (r->dropped)
        count(&w->counts->dropped);
    else if (v == LW_DONE)
        count(&w->counts->done);
    else if (v == LW_DEAD || v == LW_DEAD_SENT)
        count(&w->counts->dead);
    if (recorded) {
        int64_t wall_ms = w->io->wall_ms(w->ctx);
        if (lw_outcome_ends(v) && r->msg->timestamp_ms > 0)
            lw_hist_add(&w->counts->end_to_end, &lw_bounds_end_to_end,
                        1000 * (wall_ms - r->msg->timestamp_ms));
        outcome_of_run(w, r, wall_ms);
    }
    if (recorded && lw_outcome_ends(v) && r->hold->kind == LANE) count(&w->counts->drained);
    if (recorded && !lw_outcome_ends(v) && r->hold->kind == FAST) count(&w->counts->parked);
    if (recorded && lw_outcome_ends(v) && w->set.board &&
        atomic_load(&w->set.board->n_suspects) > 0)
        lw_board_forget(w->set.board, r->job.identity);
}

static void take_named(struct lw_worker *w, struct shard *sh, const struct settle_item *it,
                       const char *letters, struct grants *g) {
    assert(it->n_named >= 0 && it->first_named >= 0);
    struct hold *h = it->hold;
    struct lane *l = h->lane;
    bool stop = h->failed || w->stopping;
    uint64_t fence = g->fence;
    for (int k = 0; k < it->n_named; k++) {
        const struct named *want = &sh->settle.named[it->first_named + k];
        struct tried tried = letters[k] == LW_NAMED_GRANTED ? grants_tries(g) : (struct tried){0};
        uint64_t mine = letters[k] == LW_NAMED_GRANTED ? fence++ : 0;
        if (stop || h->failed || letters[k] == LW_NAMED_UNDECIDED) {
            stop = true;
            continue;
        }
        struct msg *m = lane_first(w, l);
        if (!m || m->part != want->part || m->offset != want->offset) {
            /* the named message is gone from the chain, because a rebalance has taken it away */
            stop = true;
        } else if (letters[k] == LW_NAMED_FINISHED) {
            part_mark(m->part, m->offset, LW_OFF_DONE);
            count(&w->counts->redelivered);
            msg_free(w, lane_pop(w, l));
        } else {
            lane_pop(w, l);
            hold_grant(w, h, m, mine, tried);
        }
    }
}

static void released(struct lw_worker *w, struct shard *sh, struct settle_item *it, char a) {
    struct lane *l = it->hold->lane;
    assert(l->hold == it->hold);
    if (w->c->group.on) ready_look(w, sh);
    if (a == LW_SETTLED_RELEASED && it->backoff_ms) tend_by(sh, now_ms(w) + it->backoff_ms + 2);
    if (a == LW_SETTLED_BAD) lane_hold_off(l, now_ms(w) + HOLD_BAD_MS);
    hold_free(w, it->hold);
}

/* Handles the answer that the lease no longer belongs to this worker. Redis has then recorded at
 * most one outcome: that of the first run, if the run is done. The lane's next holder runs the
 * other messages again, in order. */
static void stale(struct lw_worker *w, struct settle_item *it) {
    check_hold(it->hold);
    struct hold *h = it->hold;
    struct run *first = h->first;
    hold_to_stale(w, h);
    hold_in_call(h, 0);
    if (it->n_runs && first->outcome == LW_DONE) {
        account(w, first, true);
        part_mark(first->msg->part, first->msg->offset, LW_OFF_DONE);
        hold_drop_runs(w, h, 1);
    }
    hold_cut(w, h);
    hold_maybe_end(w, h);
}

static void record(struct lw_worker *w, struct settle_item *it, char a) {
    struct hold *h = it->hold;
    struct run *r = h->first;
    assert(it->n_runs <= h->n_finished && h->n_in_call == it->n_runs);
    for (int k = 0; k < it->n_runs; k++, r = r->next) {
        bool bad = a == LW_SETTLED_BAD && k == it->n_runs - 1;
        account(w, r, !bad);
        if (lw_outcome_ends(r->outcome)) {
            part_mark(r->msg->part, r->msg->offset, LW_OFF_DONE);
        } else if (!bad) {
            part_mark(r->msg->part, r->msg->offset, LW_OFF_WAITING);
        } else if (h->kind == FAST && msg_current(r->msg)) {
            /* a message whose outcome was not recorded asks gate again, before any newer message */
            lane_push_front(w, h->lane, run_take_msg(r));
        }
    }
    hold_settled(w, h);
    /* The runs that finished while this settle was in flight are still to be reported. The time
     * after which a settle must report them is counted from now. */
    hold_waits_from(h, now_ms(w));
}

static void answered(struct lw_worker *w, struct shard *sh, struct settle_item *it, char a,
                     const char *letters, struct grants *g, size_t heads) {
    check_hold(it->hold);
    struct hold *h = it->hold;
    struct lane *l = h->lane;
    lane_settled(l, true);
    if (a == LW_SETTLED_STALE) {
        /* stale() is called while in_call is still true, because the lane would be freed
         * otherwise */
        stale(w, it);
        lane_answered(l);
        return;
    }
    lane_answered(l);
    record(w, it, a);
    if (a != LW_SETTLED_KEPT && a != LW_SETTLED_NEXT) {
        released(w, sh, it, a);
        return;
    }
    lw_leases_extend(w->leases, &h->lease, sh->pipe.sent_ms + w->c->lock.ttl_ms);
    if (it->go == LW_GO_KEEP_ALONE) hold_gave_way(h);
    if (a == LW_SETTLED_NEXT) {
        hold_to_heads(h);
        take_heads(w, sh, l, h, g, heads, 0);
        hold_more(w, h, heads == (size_t)it->want);
        if (!h->first) { /* no head could be read, so the lock is left to expire */
            hold_free(w, h);
        }
        return;
    }
    bool waits = h->more;
    if (it->go == LW_GO_HEADS)
        take_heads(w, sh, l, h, g, heads, 0);
    else
        take_named(w, sh, it, letters, g);
    hold_more(w, h, it->want && heads == (size_t)it->want);
    /* the run that waited for newer heads */
    struct run *first = waits && h->n_open ? nth(h, h->n_finished) : NULL;
    if (first && first->state == AHEAD) run_start(w, first);
    /* if no message of the hold is left to run, another settle is due */
    if (!h->n_open) hold_to_settle(w, h);
}

void settle_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    int n = sh->settle.n;
    const redisReply *const *e = (const redisReply *const *)r->element;
    bool ok = r->type == REDIS_REPLY_ARRAY && r->elements == 7 && e[0]->str && e[1]->str &&
              e[1]->len == (size_t)n && e[2]->str && e[2]->len == (size_t)sh->settle.n_named &&
              e[4]->type == REDIS_REPLY_ARRAY && e[5]->type == REDIS_REPLY_ARRAY && e[6]->str &&
              e[6]->len == (size_t)n;
    if (!ok) {
        pipe_malformed(w, sh, r, "settle.lua",
                       "[string, string of %d bytes, string of %d bytes, integer, "
                       "array, array, string of %d bytes]",
                       n, sh->settle.n_named, n);
        return;
    }
    sh->settle.n = 0;
    struct grants g = {.fence = strtoull(e[0]->str, NULL, 10), .tries = e[4], .heads = e[5]};
    for (int i = 0; i < n; i++) {
        struct lane *l = sh->settle.item[i].hold->lane;
        answered(w, sh, &sh->settle.item[i], e[1]->str[i],
                 e[2]->str + sh->settle.item[i].first_named, &g, (unsigned char)e[6]->str[i]);
        lane_wake(w, l);
    }
    sh->settle.n_named = 0;
    if (e[3]->type == REDIS_REPLY_INTEGER) count_n(&w->counts->dropped, (uint64_t)e[3]->integer);
}
