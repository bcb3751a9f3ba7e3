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
 * message has ended: the home then deals it out, and the one that waits longest is first. */
#include "consumer/worker/private.h"

#include "base/redis/reply.h"

enum {
    TOKEN_MS = 100,    /* time for which a token is good */
    STATE_MS = 200,    /* longest time between two statements while places are held */
    GIVE_BACK_MS = 20, /* time after a statement before places that are not needed are given back */
    ASK_AGAIN_MS = 100, /* time before a statement that was not answered is made again */
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

static void drop_expired(struct lw_worker *w, double now) {
    struct limits *x = &w->limits;
    int n = 0;
    for (int i = 0; i < x->n_draws; i++) {
        struct draw d = x->draw[i];
        while (d.n > 0 && over_us(&d) <= now) d.n--, d.next_us += d.step_us;
        if (d.n > 0) w->limits.draw[n++] = d;
    }
    w->limits.n_draws = n;
}

/* Returns the number of tokens of a draw that may be used at a time. */
static size_t usable(const struct draw *d, double now) {
    if (d->next_us > now) return 0;
    double n = 1 + (now - d->next_us) / d->step_us;
    return n < d->n ? (size_t)n : (size_t)d->n;
}

static size_t tokens(const struct lw_worker *w, bool also_later, double now) {
    size_t n = 0;
    for (int i = 0; i < w->limits.n_draws; i++)
        n += also_later ? (size_t)w->limits.draw[i].n : usable(&w->limits.draw[i], now);
    return n;
}

static bool take_token(struct lw_worker *w) {
    double now = now_us(w);
    drop_expired(w, now);
    for (int i = 0; i < w->limits.n_draws; i++) {
        if (!usable(&w->limits.draw[i], now)) continue;
        w->limits.draw[i].n--;
        w->limits.draw[i].next_us += w->limits.draw[i].step_us;
        return true;
    }
    return false;
}

/* --- permits ---------------------------------------------------------------------------------- */

static size_t places(struct lw_worker *w) {
    return now_ms(w) < w->limits.until_ms ? w->limits.places : 0;
}

/* Returns how many messages calls that are not answered yet may grant. Only gate and claim grant
 * any, one of each lane. */
static size_t asked_for(const struct lw_worker *w) {
    size_t n = 0;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        if (sh->pipe.open || sh->pipe.n_kept > 0) n += (size_t)(sh->gate.n + sh->claim.n);
    }
    return n;
}

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

void limit_begin(struct lw_worker *w) {
    if (!lw_config_limits(w->c)) return;
    double now = now_us(w);
    size_t asked = asked_for(w), used = w->runs.in_handler + asked;
    drop_expired(w, now);
    if (w->limits.others) w->limits.places = less(w->limits.places, less(w->limits.used, used));
    size_t left = less((size_t)lw_config_at_once(w->c), used);
    if (w->c->limits.running) left = lw_smaller(left, less(places(w), used));
    if (w->c->limits.per_second) left = lw_smaller(left, less(tokens(w, false, now), asked));
    w->limits.used = used;
    w->limits.left = left;
}

size_t limit_of(const struct lw_worker *w, size_t most) {
    return lw_config_limits(w->c) ? lw_smaller(most, w->limits.left) : most;
}

void limit_grants(struct lw_worker *w, size_t n) {
    if (!lw_config_limits(w->c)) return;
    assert(n <= w->limits.left);
    w->limits.left -= n;
    w->limits.used += n;
}

bool limit_start(struct lw_worker *w) {
    if (!lw_config_limits(w->c)) return true;
    if (w->c->limits.running && w->runs.in_handler >= places(w)) return false;
    if (w->c->limits.per_second && !take_token(w)) return false;
    w->limits.started++;
    return true;
}

/* --- the call --------------------------------------------------------------------------------- */

/* Returns how many more messages could start soon: no more than wait, and no more than there are
 * handlers that are free or, to judge by the starts since the last statement, become free. */
static size_t demand(const struct lw_worker *w) {
    if (w->stopping) return 0;
    size_t wait = 0;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        if (sh->phase == READY) wait += sh->gate.n_listed + sh->hints.n + sh->settle.n_listed;
    }
    size_t room = less((size_t)lw_config_at_once(w->c), w->limits.used) + w->limits.started;
    return lw_smaller(wait, lw_smaller(room, window_most(w)));
}

/* Returns the time of the next statement: places and tokens that are missing are asked for at
 * ask_ms, places that are not needed are given back, and those that are held are stated from time
 * to time. */
static int64_t statement_ms(struct lw_worker *w, size_t more, size_t tokens_wanted) {
    const struct limits *x = &w->limits;
    size_t had = places(w);
    int64_t due = tokens_wanted ? x->ask_ms : INT64_MAX;
    if (!w->c->limits.running) return due;
    if (x->used + more > had) due = x->ask_ms;
    int64_t period = w->c->lock.ttl_ms / 4 < STATE_MS ? w->c->lock.ttl_ms / 4 : STATE_MS,
            ms = x->stated_ms + (x->used + more < had ? GIVE_BACK_MS : period);
    return x->used + had > 0 && ms < due ? ms : due;
}

static size_t tokens_wanted(struct lw_worker *w, size_t more) {
    if (!w->c->limits.per_second || w->limits.n_draws == DRAWS) return 0;
    return less(more, tokens(w, true, now_us(w)));
}

void limit_build(struct lw_worker *w, struct shard *sh) {
    if (!lw_config_limits(w->c)) return;
    assert(!sh->index && sh->phase == READY);
    int64_t now = now_ms(w);
    size_t used = w->limits.used, more = demand(w), want = tokens_wanted(w, more);
    if (now < statement_ms(w, more, want)) return;
    /* Until the answer comes, only the places in use are sure. Calls to other shards in this turn
     * must not ask for more, because the home would learn of them too late. */
    w->limits.places = used;
    if (w->c->limits.running) w->limits.left = 0;
    w->limits.wanted = want;
    w->limits.started = 0;
    w->limits.stated_ms = now;
    w->limits.ask_ms = now + ASK_AGAIN_MS;
    pipe_script(sh, CALL_LIMIT, &lw_script_limit, 2);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_limit);
    pipe_text(sh, sh->epoch.id), pipe_text(sh, w->set.id);
    pipe_number(sh, (int64_t)token_new(w)), pipe_number(sh, w->c->lock.ttl_ms);
    pipe_number(sh, w->c->limits.running), pipe_number(sh, w->c->limits.per_second);
    pipe_number(sh, w->c->limits.burst), pipe_number(sh, (int64_t)used);
    pipe_number(sh, (int64_t)(used + more)), pipe_number(sh, (int64_t)want);
}

void limit_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    const redisReply *const *e = (const redisReply *const *)r->element;
    bool ok = r->type == REDIS_REPLY_ARRAY && r->elements == 6;
    for (size_t i = 0; ok && i < 6; i++)
        ok = e[i]->type == (i == 3 ? REDIS_REPLY_STRING : REDIS_REPLY_INTEGER);
    if (!ok || e[0]->integer < 0 || e[1]->integer < 0 || (size_t)e[1]->integer > w->limits.wanted ||
        e[4]->integer < 0) {
        char why[LW_REPLY_TEXT];
        pipe_malformed(w, sh,
                       lw_malformed(why, r, "limit.lua",
                                    "[integer, integer, integer, string, integer, integer]"));
        return;
    }
    int64_t now = now_ms(w), sent = sh->pipe.sent_ms;
    w->limits.places = (size_t)e[0]->integer;
    w->limits.others = e[5]->integer > 0;
    w->limits.until_ms = sent + w->c->lock.ttl_ms;
    w->limits.ask_ms = e[4]->integer ? now + e[4]->integer : 0;
    if (w->c->limits.running) lw_leases_bound(w->leases, w->limits.until_ms);
    double step = strtod(e[3]->str, NULL);
    if (!e[1]->integer || !(step > 0)) return;
    /* the token's time was counted from when the script ran, which is now at the latest */
    w->limits.draw[w->limits.n_draws++] =
        (struct draw){.n = (int)e[1]->integer,
                      .next_us = 1000.0 * (double)now + (double)e[2]->integer,
                      .step_us = step,
                      .trip_us = 1000 * (now - sent),
                      .sent_us = 1000 * sent};
}

void limit_forget(struct lw_worker *w) {
    w->limits.places = 0;
    w->limits.n_draws = 0;
    w->limits.ask_ms = 0;
}

int64_t limit_due_ms(struct lw_worker *w, const struct shard *sh) {
    if (!lw_config_limits(w->c)) return INT64_MAX;
    int64_t due = INT64_MAX;
    size_t more = demand(w);
    for (int i = 0; more && i < w->limits.n_draws; i++) {
        int64_t ms = (int64_t)(w->limits.draw[i].next_us / 1000) + 1;
        if (ms > now_ms(w) && ms < due) due = ms;
    }
    int64_t ms = statement_ms(w, more, tokens_wanted(w, more));
    return !sh->index && sh->phase == READY && ms < due ? ms : due;
}

bool limit_why(struct lw_worker *w, char *out, size_t size) {
    if (!lw_config_limits(w->c)) return false;
    limit_begin(w);
    size_t used = w->limits.used;
    if (limit_of(w, 1) || used >= (size_t)lw_config_at_once(w->c) || !demand(w)) return false;
    if (w->c->limits.running && used >= places(w))
        snprintf(out, size,
                 "limits.running: all %d places of the fleet are taken, %zu of them by this worker",
                 w->c->limits.running, places(w));
    else
        snprintf(out, size, "limits.per_second: the fleet starts no more than %d messages a second",
                 w->c->limits.per_second);
    return true;
}
