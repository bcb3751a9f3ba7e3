/* SPDX-License-Identifier: Apache-2.0 */
/* limit: how many messages may start, if the configuration limits the fleet (`limits`). Shard 0 is
 * the home of the limits: its script limit deals out places and tokens to the workers.
 *
 * A message needs a permit before its lane is taken: a place among limits.running, a token of
 * limits.per_second, and a handler that is free. gate and claim ask for as many lanes as there are
 * permits, so nobody holds a lane while it waits for one. A message whose token has expired when
 * its lane is granted goes back unstarted.
 *
 * Places are a lease. The worker states how many it has in use, and the answer counts until the
 * statement expires. No lease of a lane lives longer (lw_leases_bound), so when shard 0 is away,
 * running handlers are cancelled before the home gives their places to others. Tokens are drawn for
 * messages in hand, and never given back. While other workers wait, a place is given up when its
 * message has ended: the home then deals it out, and the one that waits longest is first.
 *
 * A message of a group with limits needs a permit of the group besides (group.c). One statement
 * tells the home about the fleet and about groups, and the answer gives a group no more than the
 * fleet lets start. */
#include "consumer/worker/private.h"

#include "base/clock.h"
#include "base/redis/reply.h"

enum {
    TOKEN_MS = 100,    /* time for which a token is good */
    STATE_MS = 200,    /* longest time between two statements while places are held */
    GIVE_BACK_MS = 20, /* time after a statement before places that are not needed are given back */
    ASK_AGAIN_MS = 100, /* time before a statement that was not answered is made again */
    LOOK_MS = 500,      /* longest time between two statements, which bring changes of the limits */
    ASKS_MAX = 64,      /* number of groups that a statement asks more for */
};

static double now_us(struct lw_worker *w) { return 1000.0 * (double)now_ms(w); }

/* --- tokens ----------------------------------------------------------------------------------- */

/* Returns the time from which on the next token of a draw is no longer good. `next_us` was counted
 * from the answer, when the token may begin at the latest, and this time is counted from before the
 * call. */
static double over_us(const struct draw *d) {
    double begin = d->next_us - (double)d->trip_us;
    return (begin > (double)d->sent_us ? begin : (double)d->sent_us) + 1000.0 * TOKEN_MS;
}

static void drop_expired(struct permits *p, double now) {
    int n = 0;
    for (int i = 0; i < p->n_draws; i++) {
        struct draw d = p->draw[i];
        while (d.n > 0 && over_us(&d) <= now) d.n--, d.next_us += d.step_us;
        if (d.n > 0) p->draw[n++] = d;
    }
    p->n_draws = n;
}

/* Returns the number of tokens of a draw that may be used at a time. */
static size_t usable(const struct draw *d, double now) {
    if (d->next_us > now) return 0;
    double n = 1 + (now - d->next_us) / d->step_us;
    return n < d->n ? (size_t)n : (size_t)d->n;
}

static size_t tokens(const struct permits *p, bool also_later, double now) {
    size_t n = 0;
    for (int i = 0; i < p->n_draws; i++) {
        if (over_us(&p->draw[i]) <= now) continue;
        n += also_later ? (size_t)p->draw[i].n : usable(&p->draw[i], now);
    }
    return n;
}

static void take_token(struct permits *p, double now) {
    drop_expired(p, now);
    for (int i = 0; i < p->n_draws; i++) {
        if (!usable(&p->draw[i], now)) continue;
        p->draw[i].n--;
        p->draw[i].next_us += p->draw[i].step_us;
        return;
    }
}

/* --- permits ---------------------------------------------------------------------------------- */

static size_t places(struct lw_worker *w, const struct permits *p) {
    return now_ms(w) < w->limits.until_ms ? p->places : 0;
}

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

/* Returns how many more messages the permits allow, if `used` are in handlers or in calls that may
 * grant them, and `asked` of these in such calls. */
static size_t left(struct lw_worker *w, const struct permits *p, size_t used, size_t asked) {
    size_t n = p->most.paused ? 0 : SIZE_MAX;
    if (p->most.running) n = lw_smaller(n, less(places(w, p), used));
    if (p->most.per_second) n = lw_smaller(n, less(tokens(p, false, now_us(w)), asked));
    return n;
}

size_t limit_group_permits(struct lw_worker *w, const struct group *g) {
    return left(w, &g->permits, group_used(g), g->asked);
}

size_t limit_group_left(struct lw_worker *w, const struct group *g) {
    return lw_smaller(limit_group_permits(w, g), fair_left(g));
}

void limit_left_handler(struct group *g) {
    struct permits *p = &g->permits;
    if (p->others && p->places > 0) p->places--;
}

/* Returns how many messages calls that are not answered yet may grant. Only gate and claim grant
 * any, one of each lane. If nothing is limited, those of a shard that does not answer do not count:
 * the handlers are for others meanwhile. */
static size_t asked_for(const struct lw_worker *w) {
    size_t n = 0;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        assert(sh->gate.n >= sh->gate.n_parks);
        if (!w->limits.any && shard_silent(sh, w->limits.begun_ms)) continue;
        if (sh->pipe.open || sh->pipe.n_kept > 0)
            n += (size_t)(sh->gate.n - sh->gate.n_parks + sh->claim.n);
    }
    return n;
}

/* Returns how many messages may be in use. If nothing is limited, some wait for their handler, so
 * that it need not wait for them; not many, because they do not make way for other groups. */
static size_t at_once(const struct lw_worker *w) {
    size_t n = (size_t)lw_config_at_once(w->c);
    return w->limits.any ? n : n + n / 4 + 1;
}

void limit_begin(struct lw_worker *w) {
    if (!w->limits.on) return;
    struct limits *x = &w->limits;
    x->begun_ms = now_ms(w);
    size_t asked = asked_for(w), used = w->runs.in_handler + asked;
    drop_expired(&x->fleet, now_us(w));
    if (x->fleet.others) x->fleet.places = less(x->fleet.places, less(x->used, used));
    x->used = used;
    x->left = lw_smaller(less(at_once(w), used), left(w, &x->fleet, used, asked));
    if (w->c->group.on) fair_begin(w);
}

size_t limit_of(const struct lw_worker *w, size_t most) {
    return w->limits.on ? lw_smaller(most, w->limits.left) : most;
}

void limit_grants(struct lw_worker *w, size_t n) {
    if (!w->limits.on) return;
    assert(n <= w->limits.left);
    w->limits.left -= n;
    w->limits.used += n;
}

static bool may_start(struct lw_worker *w, const struct permits *p, size_t in_handler) {
    return left(w, p, in_handler, 0) > 0;
}

bool limit_start(struct lw_worker *w, struct group *g) {
    struct permits *fleet = &w->limits.fleet;
    if (!may_start(w, fleet, w->runs.in_handler)) return false;
    /* A message that was taken for another group must not have the place of a lane in a call. */
    if (g && !may_start(w, &g->permits, group_used(g))) return false;
    double now = now_us(w);
    if (fleet->most.per_second) take_token(fleet, now);
    if (g && g->permits.most.per_second) take_token(&g->permits, now);
    w->limits.started++;
    return true;
}

/* --- what is missing -------------------------------------------------------------------------- */

size_t limit_room(const struct lw_worker *w) {
    if (w->stopping) return 0;
    size_t n = less(at_once(w), w->limits.used) + w->limits.started;
    return lw_smaller(n, window_most(w));
}

/* Returns true if messages of the group need no permit but the fleet's. */
static bool group_free(const struct group *g) {
    return !g->permits.most.paused && !lw_limit_any(&g->permits.most);
}

/* Returns how many more messages could start soon that need no permit of a group: no more than
 * wait, and no more than there is room for. */
static size_t demand(struct lw_worker *w) {
    size_t wait = 0;
    if (w->limits.fleet.most.paused) return 0;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        if (sh->phase != READY) continue;
        wait += sh->gate.n_listed + sh->hints.n;
        /* the next message of a settled lane: of which group, nobody knows yet */
        if (!w->c->group.on) wait += sh->settle.n_listed;
    }
    wait = less(wait, w->groups.listed);
    for (const struct group *g = w->groups.table; g; g = g->hh.next)
        if (group_free(g)) wait += group_waits(w, g);
    return lw_smaller(wait, limit_room(w));
}

static size_t group_demand(struct lw_worker *w, const struct group *g) {
    if (w->limits.fleet.most.paused || g->permits.most.paused || group_free(g)) return 0;
    return lw_smaller(group_waits(w, g), limit_room(w));
}

/* Returns how much of the room is for messages that need a permit of a group, beside `more` that
 * need none. If both fill the room, each has half of it, and groups have an odd place in turn. */
static size_t room_of_groups(const struct lw_worker *w, size_t more) {
    size_t room = limit_room(w);
    return less(room, lw_smaller(more, (room + w->limits.odd) / 2));
}

/* Returns how many of `more` messages the permits in hand let start, now or soon. */
static size_t in_hand(struct lw_worker *w, const struct permits *p, size_t used, size_t more) {
    if (p->most.running) more = lw_smaller(more, less(places(w, p), used));
    if (p->most.per_second) more = lw_smaller(more, tokens(p, true, now_us(w)));
    return more;
}

/* What groups have and want. */
struct state_of_groups {
    size_t have;  /* number of messages that their permits let start, no more than there is room */
    bool lack;    /* true: permits are missing, and those in hand do not fill the free handlers */
    bool surplus; /* true: a group has places that it does not need */
};

static struct state_of_groups look_at_groups(struct lw_worker *w, size_t more) {
    struct state_of_groups all = {0};
    size_t fill = room_of_groups(w, more);
    for (const struct group *g = w->groups.table; g; g = g->hh.next) {
        const struct permits *p = &g->permits;
        size_t want = group_demand(w, g), used = group_used(g), n = in_hand(w, p, used, want);
        all.lack |= n < want;
        all.have += n;
        all.surplus |= p->most.running && places(w, p) > used + want;
    }
    all.lack &= all.have < fill;
    all.have = lw_smaller(all.have, fill);
    return all;
}

/* Returns the time of the next statement: places and tokens that are missing are asked for at
 * ask_ms, places that are not needed are given back, those that are held are stated from time to
 * time, and an idle worker learns of changes of the limits. */
static int64_t statement_ms(struct lw_worker *w, size_t more, size_t tokens_wanted) {
    const struct limits *x = &w->limits;
    struct state_of_groups all = look_at_groups(w, more);
    size_t had = places(w, &x->fleet);
    size_t need = x->used + lw_smaller(more + all.have, limit_room(w));
    bool bounded = x->fleet.most.running > 0;
    int64_t due = x->stated_ms + LOOK_MS;
    if (tokens_wanted || all.lack || (bounded && x->used + more > had))
        due = lw_earlier(due, x->ask_ms);
    if (!lw_limits_running(&x->force)) return due;
    int64_t period = w->c->lock.ttl_ms / 4 < STATE_MS ? w->c->lock.ttl_ms / 4 : STATE_MS;
    bool surplus = all.surplus || (bounded && need < had);
    int64_t ms = x->stated_ms + (surplus ? GIVE_BACK_MS : period);
    return x->used + had > 0 && ms < due ? ms : due;
}

static size_t tokens_wanted(struct lw_worker *w, size_t more) {
    const struct permits *p = &w->limits.fleet;
    if (!p->most.per_second || p->n_draws == DRAWS) return 0;
    return less(more, tokens(p, true, now_us(w)));
}

/* --- the call --------------------------------------------------------------------------------- */

static void pipe_limit(struct shard *sh, const char *kind, struct lw_bytes name,
                       const struct lw_limit *limit) {
    char text[LW_LIMIT_TEXT];
    lw_arg_join(&sh->pipe.commands, lw_bytes_of(kind), "", name);
    pipe_copy(sh, lw_limit_text(limit, text));
}

/* Adds what the file says to the statement, if this epoch may not know of it yet. */
static void pipe_file(const struct lw_worker *w, struct shard *sh) {
    const struct lw_limits *file = &w->c->limits;
    const struct lw_bytes none = lw_bytes("", 0);
    if (w->limits.version) {
        pipe_number(sh, 0);
        return;
    }
    pipe_number(sh, 2 + (int64_t)file->n_groups);
    pipe_limit(sh, "fleet", none, &file->fleet);
    pipe_limit(sh, "each", none, &file->group);
    for (size_t i = 0; i < file->n_groups; i++)
        pipe_limit(sh, "group:", file->groups[i].name, &file->groups[i].limit);
}

bool limit_knows(const struct group *g) { return g->permits.stated || g->permits.in_call; }

/* Adds a group to the statement. `want` is the number of messages that it needs permits for besides
 * those in use. It keeps those in hand, but no more than *keep, which is made smaller. */
static void state_group(struct lw_worker *w, struct shard *sh, struct group *g, size_t want,
                        size_t *keep) {
    struct permits *p = &g->permits;
    size_t used = group_used(g), kept = lw_smaller(*keep, in_hand(w, p, used, want));
    size_t more = want - kept, hand;
    *keep -= kept;
    used += kept;
    drop_expired(p, now_us(w));
    hand = p->n_draws == DRAWS ? more : less(tokens(p, true, now_us(w)), kept);
    pipe_bytes(sh, g->id);
    pipe_number(sh, (int64_t)used), pipe_number(sh, (int64_t)more);
    pipe_number(sh, (int64_t)hand), pipe_number(sh, (int64_t)g->in_handler);
    p->places = used; /* until the answer comes, only the places that are stated are sure */
    p->want = used + more;
    p->wanted = less(more, hand);
    p->stated = used + more > 0;
    p->in_call = true;
    w->limits.named = lw_more(w->limits.named, w->limits.n_named, &w->limits.cap_named,
                              sizeof w->limits.named[0]);
    w->limits.named[w->limits.n_named++] = g;
}

static void forget_call(struct lw_worker *w) {
    for (size_t i = 0; i < w->limits.n_named; i++) w->limits.named[i]->permits.in_call = false;
    w->limits.n_named = 0;
}

/* Adds the groups to the statement: those that wait, ASKS_MAX of them in turn, and those of which
 * the home knows or that have messages in handlers. */
static void state_groups(struct lw_worker *w, struct shard *sh, size_t keep) {
    size_t waiting = 0, at = 0;
    for (const struct group *g = w->groups.table; g; g = g->hh.next)
        waiting += group_demand(w, g) > 0;
    size_t from = waiting ? w->limits.from % waiting : 0;
    w->limits.from = from + ASKS_MAX < waiting ? from + ASKS_MAX : 0;
    /* those in turn first, since the home serves the groups in this order */
    for (int turn = 1; turn >= 0; turn--) {
        at = 0;
        for (struct group *g = w->groups.table; g; g = g->hh.next) {
            size_t more = group_demand(w, g);
            bool asks = more && (at + waiting - from) % waiting < ASKS_MAX;
            at += more > 0;
            if (asks != (turn == 1)) continue;
            if (!lw_limit_any(&g->permits.most) && !g->permits.stated) continue;
            if (!asks) more = in_hand(w, &g->permits, group_used(g), more);
            if (asks || group_used(g) || g->permits.stated) state_group(w, sh, g, more, &keep);
        }
    }
}

void limit_build(struct lw_worker *w, struct shard *sh) {
    if (!w->limits.on) return;
    assert(!sh->index && sh->phase == READY);
    struct limits *x = &w->limits;
    int64_t now = now_ms(w);
    size_t used = x->used, more = demand(w), want = tokens_wanted(w, more), room = limit_room(w);
    if (now < statement_ms(w, more, want)) return;
    forget_call(w);
    groups_sweep(w);
    /* Permits in hand for lanes of groups are kept, because it takes two more calls to make use of
     * them. */
    size_t keep = look_at_groups(w, more).have, fill = room_of_groups(w, more);
    keep = in_hand(w, &x->fleet, used, keep);
    size_t spare = less(tokens(&x->fleet, true, now_us(w)), more + keep);
    /* The places of an answer are kept for one more statement, because the connection to the shard
     * that needs them may be busy for as long as the answer took. */
    size_t own = x->fresh ? lw_smaller(more, less(places(w, &x->fleet), used + keep)) : 0;
    x->fresh = false;
    fill = less(fill, keep), room = less(room, keep); /* `own` needs no more places, but tokens */
    used += keep + own, more -= own;
    if (x->fleet.n_draws == DRAWS) fill = lw_smaller(fill, spare);
    /* Until the answer comes, only the places that are stated are sure. Calls to other shards in
     * this turn must not ask for more, because the home would learn of them too late. */
    x->fleet.places = used;
    if (x->fleet.most.running) x->left = lw_smaller(x->left, keep + own);
    x->fleet.wanted = want + fill;
    x->odd = !x->odd && lw_limit_any(&x->fleet.most);
    x->stated_ms = now;
    x->ask_ms = now + ASK_AGAIN_MS;
    pipe_script(sh, CALL_LIMIT, &lw_script_limit, 4);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_limit);
    pipe_text(sh, sh->key_limits), pipe_text(sh, sh->key_limited);
    pipe_text(sh, sh->epoch.id), pipe_text(sh, w->set.id);
    pipe_number(sh, (int64_t)token_new(w)), pipe_number(sh, w->c->lock.ttl_ms);
    pipe_number(sh, x->version);
    pipe_number(sh, (int64_t)used), pipe_number(sh, (int64_t)(used + more));
    pipe_number(sh, (int64_t)want), pipe_number(sh, (int64_t)spare), pipe_number(sh, (int64_t)fill);
    pipe_number(sh, (int64_t)room), pipe_number(sh, (int64_t)w->runs.in_handler);
    pipe_file(w, sh);
    if (w->c->group.on) state_groups(w, sh, keep);
    x->started = 0; /* the room for groups is counted with those that started */
}

/* Takes over a draw of n tokens. Times are counted from when the script ran, which is now at the
 * latest. */
static void take_draw(struct lw_worker *w, const struct shard *sh, struct permits *p,
                      const redisReply *const *e) {
    int64_t now = now_ms(w), sent = sh->pipe.sent_ms;
    double step = strtod(e[2]->str, NULL);
    if (!e[0]->integer || !(step > 0) || p->n_draws == DRAWS) return;
    p->draw[p->n_draws++] = (struct draw){.n = (int)e[0]->integer,
                                          .next_us = 1000.0 * (double)now + (double)e[1]->integer,
                                          .step_us = step,
                                          .trip_us = 1000 * (now - sent),
                                          .sent_us = 1000 * sent};
}

enum { FLEET_VALUES = 6, FORCE_VALUES = 2, GROUP_VALUES = 5 };

/* Returns true if these elements of a reply are integers, except the one of the step, and give no
 * more than was asked for. */
static bool permits_ok(const redisReply *const *e, size_t n, size_t wanted) {
    for (size_t i = 0; i < n; i++)
        if (e[i]->type != (i == 3 ? REDIS_REPLY_STRING : REDIS_REPLY_INTEGER)) return false;
    return e[0]->integer >= 0 && e[1]->integer >= 0 && (size_t)e[1]->integer <= wanted &&
           e[4]->integer >= 0;
}

static void take_group(struct lw_worker *w, const struct shard *sh, struct permits *p,
                       const redisReply *const *e) {
    p->places = (size_t)e[0]->integer;
    p->others = e[4]->integer > 0;
    p->refused = (p->most.running && p->places < p->want) ||
                 (p->most.per_second && (size_t)e[1]->integer < p->wanted);
    take_draw(w, sh, p, e + 1);
}

/* Takes over the version of the limits in force, and the limits if they have changed. Returns false
 * if the reply is malformed. */
static bool take_force(struct lw_worker *w, const redisReply *const *e) {
    struct limits *x = &w->limits;
    struct lw_limits force;
    if (e[0]->type != REDIS_REPLY_INTEGER || e[1]->type != REDIS_REPLY_ARRAY) return false;
    if (e[1]->elements) {
        if (!lw_limits_read(&force, e[1])) return false;
        lw_limits_free(&x->force);
        x->force = force;
        x->any = lw_limits_any(&force);
        x->fleet.most = force.fleet;
        for (struct group *g = w->groups.table; g; g = g->hh.next)
            g->permits.most = *lw_limits_group(&force, g->id);
    }
    x->version = e[0]->integer;
    return true;
}

void limit_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    const redisReply *const *e = (const redisReply *const *)r->element;
    struct limits *x = &w->limits;
    bool ok = r->type == REDIS_REPLY_ARRAY &&
              r->elements == FLEET_VALUES + FORCE_VALUES + GROUP_VALUES * x->n_named &&
              permits_ok(e, FLEET_VALUES, x->fleet.wanted);
    const redisReply *const *of_groups = e + FLEET_VALUES + FORCE_VALUES;
    for (size_t i = 0; ok && i < x->n_named; i++)
        ok = permits_ok(of_groups + GROUP_VALUES * i, GROUP_VALUES, x->named[i]->permits.wanted);
    ok = ok && take_force(w, e + FLEET_VALUES);
    if (!ok) {
        pipe_malformed(w, sh, r, "limit.lua",
                       "[integer, integer, integer, string, integer, integer, "
                       "integer, limits], and the first five for each group");
        return;
    }
    x->fleet.places = (size_t)e[0]->integer;
    x->fleet.others = e[5]->integer > 0;
    x->fresh = true;
    x->until_ms = sh->pipe.sent_ms + w->c->lock.ttl_ms;
    x->ask_ms = e[4]->integer ? now_ms(w) + e[4]->integer : 0;
    if (e[4]->integer) count(&w->counts->limited);
    lw_leases_bound(w->leases, lw_limits_running(&x->force) ? x->until_ms : INT64_MAX);
    take_draw(w, sh, &x->fleet, e + 1);
    for (size_t i = 0; i < x->n_named; i++)
        take_group(w, sh, &x->named[i]->permits, of_groups + GROUP_VALUES * i);
    forget_call(w);
    for (int s = 0; s < w->n_shards; s++) gate_urge(&w->shards[s]);
}

/* Until the home has answered once, nothing starts. */
void limit_open(struct lw_worker *w) {
    w->limits.on = w->limits.any = w->limits.fleet.most.paused = lw_config_limits(w->c);
}

void limit_close(struct lw_worker *w) {
    free(w->limits.named);
    lw_limits_free(&w->limits.force);
}

void limit_forget(struct lw_worker *w) {
    forget_call(w);
    w->limits.fleet.places = 0;
    w->limits.fleet.n_draws = 0;
    w->limits.ask_ms = w->limits.stated_ms = 0;
    w->limits.version = 0;
    for (struct group *g = w->groups.table; g; g = g->hh.next) {
        g->permits.places = 0;
        g->permits.n_draws = 0;
        g->permits.stated = false;
    }
}

/* Returns the time from now on at which a token that was drawn ahead becomes good, or INT64_MAX. */
static int64_t token_ms(const struct permits *p, int64_t now) {
    int64_t due = INT64_MAX;
    for (int i = 0; i < p->n_draws; i++) {
        int64_t ms = (int64_t)(p->draw[i].next_us / 1000) + 1;
        if (ms > now && ms < due) due = ms;
    }
    return due;
}

int64_t limit_due_ms(struct lw_worker *w, const struct shard *sh) {
    if (!w->limits.on) return INT64_MAX;
    int64_t due = INT64_MAX, now = now_ms(w);
    size_t more = demand(w);
    if (more || w->groups.table) due = token_ms(&w->limits.fleet, now);
    for (const struct group *g = w->groups.table; g; g = g->hh.next)
        if (g->permits.n_draws && group_waits(w, g))
            due = lw_earlier(due, token_ms(&g->permits, now));
    if (sh->index || sh->phase != READY) return due;
    return lw_earlier(due, statement_ms(w, more, tokens_wanted(w, more)));
}

bool limit_why(struct lw_worker *w, char *out, size_t size) {
    const struct lw_limit *most = &w->limits.fleet.most;
    if (!w->limits.on) return false;
    if (most->paused) {
        snprintf(out, size,
                 w->limits.version ? "the fleet is paused (latchwork group resume --fleet)"
                                   : "waiting for shard 0, the home of the limits");
        return true;
    }
    if (!lw_limit_any(most)) return false;
    limit_begin(w);
    size_t used = w->limits.used;
    if (limit_of(w, 1) || used >= (size_t)lw_config_at_once(w->c) || !demand(w)) return false;
    if (most->running && used >= places(w, &w->limits.fleet))
        snprintf(out, size,
                 "limits.running: all %d places of the fleet are taken, %zu of them by this worker",
                 most->running, places(w, &w->limits.fleet));
    else
        snprintf(out, size, "limits.per_second: the fleet starts no more than %d messages a second",
                 most->per_second);
    return true;
}
