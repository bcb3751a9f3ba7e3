/* SPDX-License-Identifier: Apache-2.0 */
/* gate: the step in which new messages ask for their lane. The answer says for each message whether
 * it runs at once, waits in Redis, or is finished already. */

#include "consumer/worker/private.h"
#include "base/redis/reply.h"

enum { REST_MS = 20, OOM_MS = 200 };

/* If a lane was busy in the last BUSY_S seconds, a call of gate carries the envelopes of its
 * messages, because they will probably be parked. */
enum { BUSY_S = 2, BUSY_SLOTS = 1 << 16 };

enum { ASK_MAX = 16 };

void gate_open(struct shard *sh) { sh->gate.ask = 1; }

bool gate_due(const struct shard *sh, int64_t now) {
    return sh->gate.n_listed && !sh->gate.oom_until_ms && now >= sh->gate.rest_ms;
}

void gate_urge(struct shard *sh) { sh->gate.rest_ms = 0; }

/* A lane that must not ask before its time is in no group's list, so that it holds no turn. */
void gate_list(struct lw_worker *w, struct shard *sh, struct lane *l, int64_t now) {
    assert(!l->listed && !l->in_call && l->head && !l->waits);
    struct lane_list *to = &sh->gate.lanes;
    if (now >= l->not_before_ms) {
        sh->gate.rest_ms = 0;
        l->waits = l->head->group;
    }
    if (l->waits) {
        group_listed(w, l->waits, sh->index, 1);
        to = &l->waits->shard[sh->index].lanes;
    }
    l->listed = true;
    l->gate_next = NULL;
    *(to->head ? &to->last->gate_next : &to->head) = l;
    to->last = l;
    sh->gate.n_listed++;
}

static struct lane *pop(struct lw_worker *w, struct shard *sh, struct lane_list *from) {
    struct lane *l = from->head;
    assert(l->listed && sh->gate.n_listed > 0);
    from->head = l->gate_next;
    sh->gate.n_listed--;
    l->listed = false;
    if (l->waits) group_listed(w, l->waits, sh->index, -1);
    l->waits = NULL;
    return l;
}

static void seen_busy(struct lw_worker *w, const struct lane *l) {
    check_lane(l);
    if (!w->busy) w->busy = lw_alloc(BUSY_SLOTS * sizeof w->busy[0]);
    w->busy[l->tag % BUSY_SLOTS] = (uint32_t)(now_ms(w) / 1000) + 1;
}

bool gate_saw_busy(const struct lw_worker *w, const struct lane *l, int64_t now) {
    return w->busy && (int64_t)w->busy[l->tag % BUSY_SLOTS] - 1 + BUSY_S > now / 1000;
}

/* Adds the places of the call's messages to `p`. Writes one byte per lane to `counts`: the number
 * of the lane's messages in the call, plus flags. Returns true if each lane has a single message
 * and no flags. */
static bool gate_places(const struct shard *sh, struct lw_places *p, unsigned char *counts) {
    bool plain = true;
    lw_places_clear(p);
    for (int i = 0; i < sh->gate.n; i++) {
        const struct gate_item *it = &sh->gate.item[i];
        for (int k = 0; k < it->n; k++) {
            const struct msg *m = sh->gate.msgs[it->first + k];
            lw_places_add(p, m->part->name, m->offset);
        }
        counts[i] = (unsigned char)(it->n + (it->envelopes ? LW_GATE_ENVELOPES : 0));
        plain &= counts[i] == 1;
    }
    return plain;
}

static void encode_messages(struct lw_worker *w, const struct shard *sh,
                            const struct lw_lane_call *c) {
    for (int i = 0; i < sh->gate.n; i++) {
        const struct gate_item *it = &sh->gate.item[i];
        const struct group *g = sh->gate.msgs[it->first]->group;
        if (it->envelopes) lw_call_group(c, g ? &g->id : NULL, it->parks);
        for (int k = 0; k < it->n; k++) {
            struct msg *m = sh->gate.msgs[it->first + k];
            if (it->envelopes) {
                w->scratch.n = 0;
                msg_envelope(m, &w->scratch);
                lw_call_envelope(c, lw_bytes(w->scratch.p, w->scratch.n));
            }
            if (w->c->dedup.business) lw_call_dedup(c, m->dedup);
        }
    }
}

void gate_encode(struct lw_worker *w, struct shard *sh) {
    static _Thread_local struct lw_places p;
    unsigned char counts[BATCH];
    char token[LW_TOKEN_TEXT];
    assert(sh->gate.n > 0 && sh->gate.n_msgs >= sh->gate.n && sh->gate.n_msgs <= BATCH);
    struct lw_lane_call c = pipe_lane_call(w, sh, &lw_script_gate);
    bool plain = gate_places(sh, &p, counts);
    lw_gate_begin(&c, &p, sh->gate.n);
    for (int i = 0; i < sh->gate.n; i++) lw_call_lane(&c, sh->gate.item[i].lane->id);
    struct lw_gate_call g = {.dedup = w->c->dedup.business,
                             .token = lw_token_text(token, w->set.id, sh->gate.token),
                             .counts =
                                 lw_bytes((const char *)counts, plain ? 0 : (size_t)sh->gate.n)};
    lw_gate_args(&c, &p, &g);
    encode_messages(w, sh, &c);
}

/* Moves messages from the front of a lane to the call. Call this function only after
 * lane_may_gate() has returned true for the lane. */
static void take(struct lw_worker *w, struct shard *sh, struct lane *l, bool parks,
                 struct lw_places *p, size_t most, size_t *bytes, int64_t now) {
    assert(l->head && !l->in_call);
    assert(sh->gate.n < BATCH && !l->listed && !l->lost && most > 0);
    struct gate_item *it = &sh->gate.item[sh->gate.n++];
    *it = (struct gate_item){.lane = l,
                             .first = sh->gate.n_msgs,
                             .envelopes = parks || l->hold || gate_saw_busy(w, l, now),
                             .parks = parks};
    if (parks) sh->gate.n_parks++;
    struct group *g = l->head->group;
    do {
        struct msg *m = lane_pop(w, l);
        sh->gate.msgs[sh->gate.n_msgs++] = m;
        it->n++;
        lw_places_add(p, m->part->name, m->offset);
        *bytes += it->envelopes ? m->bytes : 0;
        if (*bytes >= w->bytes.call) break;
    } while ((size_t)it->n < most && lane_first(w, l));
    lane_call(l, parks ? NULL : g);
    lane_settled(l, false);
}

/* A call that is being made. */
struct making {
    struct lw_places places;
    size_t most, each, bytes; /* each: number of messages of a lane that may be granted */
    int64_t now;
};

static size_t granted_of(const struct shard *sh) {
    assert(sh->gate.n >= sh->gate.n_parks);
    return (size_t)(sh->gate.n - sh->gate.n_parks);
}

static bool fits(const struct lw_worker *w, const struct shard *sh, const struct making *k) {
    return sh->gate.n_msgs < BATCH && k->bytes < w->bytes.call &&
           lw_places_fit(&k->places, AHEAD_MAX);
}

/* Takes lanes of a group (NULL: of none), those that may be granted or, if `parks` is true, those
 * that park. Lanes that must not ask yet stay. */
static void take_lanes(struct lw_worker *w, struct shard *sh, struct group *g, bool parks,
                       struct making *k) {
    struct lane_list *from = g ? &g->shard[sh->index].lanes : &sh->gate.lanes;
    struct lane *again = NULL;
    while (from->head && fits(w, sh, k)) {
        if (parks ? !group_parks(w, g)
                  : granted_of(sh) >= k->most || (g && !limit_group_left(w, g)))
            break;
        struct lane *l = pop(w, sh, from);
        if (!lane_may_gate(w, l, k->now)) {
            /* one that claim has named since is listed again when the answer comes */
            if (l->head && !l->in_call && l->not_before_ms > k->now)
                l->gate_next = again, again = l;
            else
                lane_maybe_free(w, l);
        } else if (l->head->group != g) {
            gate_list(w, sh, l, k->now);
        } else {
            size_t left = (size_t)(BATCH - sh->gate.n_msgs), want = parks ? AHEAD_MAX : k->each;
            take(w, sh, l, parks, &k->places, lw_smaller(want, left), &k->bytes, k->now);
        }
    }
    for (struct lane *l = again, *next; l; l = next) {
        next = l->gate_next;
        gate_list(w, sh, l, k->now);
    }
}

size_t gate_build(struct lw_worker *w, struct shard *sh, size_t most) {
    assert(!sh->gate.n && sh->phase == READY);
    static _Thread_local struct making k;
    k.most = lw_smaller(most, BATCH), k.each = 1, k.bytes = 0, k.now = now_ms(w);
    if (lw_config_runs_ahead(w->c))
        k.each = (size_t)(w->c->lock.run_ahead < w->c->lock.max_run ? w->c->lock.run_ahead
                                                                    : w->c->lock.max_run);
    lw_places_clear(&k.places);
    take_lanes(w, sh, NULL, false, &k);
    for (struct group *g = w->groups.table; g; g = g->hh.next) take_lanes(w, sh, g, false, &k);
    for (struct group *g = w->groups.table; g; g = g->hh.next) take_lanes(w, sh, g, true, &k);
    /* what is left waits for its time, for permits, or for the turn of its group */
    if (fits(w, sh, &k) && granted_of(sh) < k.most) sh->gate.rest_ms = k.now + REST_MS;
    if (!sh->gate.n) return 0;
    sh->gate.token = token_new(w);
    pipe_call(sh, CALL_GATE);
    gate_encode(w, sh);
    return granted_of(sh);
}

/* Puts the messages that gate has not decided back to the front of their lane. */
static void put_back(struct lw_worker *w, struct shard *sh, const struct gate_item *it) {
    for (int k = it->n - 1; k >= 0; k--) {
        struct msg *m = sh->gate.msgs[it->first + k];
        if (!m) continue;
        if (msg_current(m))
            lane_push_front(w, it->lane, m);
        else
            msg_free(w, m);
    }
}

/* Puts the messages of a call back into their lanes. */
void gate_back(struct lw_worker *w, struct shard *sh) {
    for (int i = sh->gate.n - 1; i >= 0; i--) {
        lane_answered(sh->gate.item[i].lane);
        put_back(w, sh, &sh->gate.item[i]);
        lane_wake(w, sh->gate.item[i].lane);
    }
    sh->gate.n = sh->gate.n_msgs = sh->gate.n_parks = 0;
}

void gate_refused(struct lw_worker *w, struct shard *sh) {
    if (!sh->gate.oom_until_ms)
        lw_warn_some(
            3,
            "shard %d: Redis is at maxmemory; admitting nothing new until it has room; retrying "
            "every %d ms",
            sh->index, OOM_MS);
    sh->gate.oom_until_ms = now_ms(w) + OOM_MS;
    gate_back(w, sh);
}

bool gate_rests(const struct shard *sh, int64_t now) {
    return sh->gate.oom_until_ms && now < sh->gate.oom_until_ms;
}

/* Grants the messages of a lane whose lock this worker has now. Messages whose partition was
 * revoked while the call was in flight do not run. If all messages belong to such partitions, the
 * lock is released. */
static void granted(struct lw_worker *w, struct shard *sh, const struct gate_item *it,
                    const char *letters, struct grants *g) {
    assert(it->n > 0);
    struct lane *l = it->lane;
    struct hold *h = NULL;
    struct msg *gone = NULL;
    assert(!l->hold && !l->lost);
    uint64_t fence = g->fence;
    for (int k = 0; k < it->n; k++) {
        if (letters[k] != LW_GATED_RUN && letters[k] != LW_GATED_ALSO) continue;
        struct msg **at = &sh->gate.msgs[it->first + k], *m = *at;
        struct tried tried = grants_tries(g);
        uint64_t mine = fence++;
        /* if an earlier message of the hold has failed, this message goes back to its lane */
        if (h && h->failed) continue;
        if (!msg_current(m)) {
            if (!gone) gone = m, *at = NULL;
            continue;
        }
        if (!h)
            h = hold_new(w, l, FAST, sh->gate.token, g->fence,
                         sh->pipe.sent_ms + w->c->lock.ttl_ms);
        *at = NULL;
        hold_grant(w, h, m, mine, tried);
    }
    if (gone && !h) {
        h = hold_new(w, l, FAST, sh->gate.token, g->fence, INT64_MIN / 2);
        hold_grant(w, h, gone, g->fence, (struct tried){0});
    } else if (gone) {
        msg_free(w, gone);
    }
}

static void tell_bad(const struct lw_worker *w, const struct shard *sh, const struct lane *l) {
    char name[LW_KEY_TEXT];
    tell_key(w, l->id, name);
    lw_some(20, LW_LOG_ERROR, NULL, 0,
            "shard %d: a Redis key of lane %s holds another type; its messages wait; retrying "
            "every %d ms",
            sh->index, name, HOLD_BAD_MS);
}

/* Handles the answer for one lane. Returns true if some of its messages run. */
static bool answered(struct lw_worker *w, struct shard *sh, struct gate_item *it,
                     const char *letters, struct grants *g) {
    check_lane(it->lane);
    assert(it->n > 0 && it->first >= 0);
    struct lane *l = it->lane;
    bool runs = false;
    lane_answered(l);
    for (int k = 0; k < it->n; k++) {
        struct msg **at = &sh->gate.msgs[it->first + k], *m = *at;
        switch (letters[k]) {
        case LW_GATED_RUN:
        case LW_GATED_ALSO: runs = true; continue;
        case LW_GATED_UNDECIDED: continue;
        case LW_GATED_ENVELOPE: seen_busy(w, l); continue;
        case LW_GATED_FINISHED:
            part_mark(m->part, m->offset, LW_OFF_DONE);
            count(&w->counts->redelivered);
            break;
        case LW_GATED_WAITS:
            seen_busy(w, l);
            part_mark(m->part, m->offset, LW_OFF_WAITING);
            count(&w->counts->parked);
            break;
        case LW_GATED_DUPLICATE:
            part_mark(m->part, m->offset, LW_OFF_DONE);
            count(&w->counts->dropped);
            outcome_of_record(w, m->part, m->offset, m->key, LW_END_DROPPED,
                              "a message with the same id came before (dedup)");
            break;
        default:
            if (now_ms(w) >= l->not_before_ms) tell_bad(w, sh, l);
            lane_hold_off(l, now_ms(w) + HOLD_BAD_MS);
            continue;
        }
        msg_free(w, m);
        *at = NULL;
    }
    if (runs && l->hold) {
        /* The call executed after the lease of this worker's hold had ended. Two messages of a key
         * must not run in this worker at once, so the new grant is not used, and the lock that it
         * took is left to expire. */
        for (int k = 0; k < it->n; k++)
            if (letters[k] == LW_GATED_RUN || letters[k] == LW_GATED_ALSO) grants_tries(g);
    } else if (runs) {
        granted(w, sh, it, letters, g);
    }
    count_acquire(w, letters, it->n);
    put_back(w, sh, it);
    return runs;
}

/* Adapts the factor sh->gate.ask after a call. Messages that must wait, or were done before, occupy
 * no handler. So if at most half of the call's lanes may run, doubles the factor, up to ASK_MAX.
 * Otherwise halves the factor, down to 1. */
static void ask_for_more(struct shard *sh, int asked, int ran) {
    assert(ran >= 0 && ran <= asked);
    if (2 * ran <= asked)
        sh->gate.ask = sh->gate.ask * 2 < ASK_MAX ? sh->gate.ask * 2 : ASK_MAX;
    else if (sh->gate.ask > 1)
        sh->gate.ask /= 2;
    assert(sh->gate.ask >= 1 && sh->gate.ask <= ASK_MAX);
}

void gate_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    const redisReply *const *e = (const redisReply *const *)r->element;
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 3 || !e[0]->str || !e[1]->str ||
        e[1]->len != (size_t)sh->gate.n_msgs || e[2]->type != REDIS_REPLY_ARRAY) {
        pipe_malformed(w, sh, r, "gate.lua", "[string, string of %d bytes, array]",
                       sh->gate.n_msgs);
        return;
    }
    int n = sh->gate.n, ran = 0;
    if (sh->gate.n_parks) ready_look(w, sh);
    assert(n > 0 && n <= BATCH);
    struct grants g = {.fence = strtoull(e[0]->str, NULL, 10), .tries = e[2]};
    sh->gate.n = sh->gate.n_parks = 0;
    sh->gate.oom_until_ms = 0;
    for (int i = 0; i < n; i++) {
        struct lane *l = sh->gate.item[i].lane;
        ran += answered(w, sh, &sh->gate.item[i], e[1]->str + sh->gate.item[i].first, &g);
        lane_wake(w, l);
    }
    sh->gate.n_msgs = 0;
    ask_for_more(sh, n, ran);
}
