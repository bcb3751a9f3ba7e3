/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the limits of the fleet and of its groups (`limits`), as a service behind the handlers
 * would count. */
#include "ops/script.h"
#include "tests/sim/world/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double TOKEN_S = 0.1; /* time in s for which tokens are good */
enum {
    JUMP_MS = 1000, /* time after a jump of a clock in which starts are not counted */
    /* Time after the faults have stopped at which whatever they left behind has ended: leases,
     * quarantines, handlers that nobody waits for. */
    SETTLED_MS = 10 * TTL_MS,
    /* Time for which messages of a group may wait although they could start: the longest backoff,
     * and what a hint that was lost takes to be made again. */
    IDLE_MS = 4 * TTL_MS,
    COARSE = 10, /* how much faster the clock is, compared with all actions, if it is not `fine` */
};

/* --- groups ----------------------------------------------------------------------------------- */

/* Numbers of limits: 0 is the fleet, and 1 + g is group g. NONE has no limit of a group. */
enum { FLEET, NONE = -1, NO_LIMIT = 1000 };

static bool groups_on(const struct faults *f) {
    return f->groups || f->group_running || f->group_per_second;
}

static const char *const payloads[GROUPS] = {"\"a\"", "\"b\""};

const char *limits_payload(const struct world *w, int part, int index) {
    if (!groups_on(w->f)) return NULL;
    bool other = (index + part) % 16 == 15;
    return payloads[(w->part[part].key[index] + other) % GROUPS];
}

static int limit_of(const struct lw_job *job) {
    for (int g = 0; g < GROUPS; g++)
        if (lw_bytes_eq(job->payload, lw_bytes_of(payloads[g]))) return 1 + g;
    return NONE;
}

static bool free_group(const struct world *w, int limit) {
    return w->f->one_free && limit == GROUPS;
}

void limits_configure(struct world *w) {
    static char whole[] = "";
    struct lw_config *c = &w->config;
    static struct lw_group_limit second = {.limit.burst = 1};
    for (int limit = FLEET; limit <= GROUPS; limit++)
        w->force[limit].running = limit == FLEET         ? w->f->running
                                  : free_group(w, limit) ? 0
                                                         : w->f->group_running;
    if (!groups_on(w->f)) return;
    c->group.on = true;
    c->group.from = (struct lw_rule){LW_KEY_JSON, whole};
    c->limits.group = (struct lw_limit){
        .running = w->f->group_running, .per_second = w->f->group_per_second, .burst = LIMIT_BURST};
    second.name = lw_bytes_of("b");
    if (w->f->one_free) c->limits.groups = &second, c->limits.n_groups = 1;
}

/* Returns how many messages may run, or NO_LIMIT. */
static int running_of(const struct world *w, int limit) {
    const struct force *x = &w->force[limit];
    int n = x->paused ? 0 : x->running ? x->running : NO_LIMIT;
    return x->was > n && w->now_ms <= x->was_ms ? x->was : n;
}

static int rate_of(const struct world *w, int limit) {
    return limit == FLEET ? w->f->per_second : free_group(w, limit) ? 0 : w->f->group_per_second;
}

/* --- places ----------------------------------------------------------------------------------- */

/* Returns the number of messages that run under a live lease. */
static int running(const struct world *w, int limit) {
    int n = 0;
    for (int i = 0; i < w->n_exec; i++) {
        const struct exec *x = &w->exec[i];
        n += !x->queued && (limit == FLEET || limit_of(x->job) == limit) &&
             atomic_load(&x->job->lease->deadline_ms) > w->now_ms;
    }
    return n;
}

/* Returns the number of places in use in the statements of the home shard that have not expired. */
static int stated(struct world *w, int limit) {
    static const char *const names[1 + GROUPS] = {"lw:{t.0}:limit", "lw:{t.0}:limit:a",
                                                  "lw:{t.0}:limit:b"};
    struct server *home = w->master[0];
    const char *words[] = {"HGETALL", names[limit]};
    int64_t now = w->now_ms + home->skew_ms + 1000000000;
    redisReply *r = server_call(w, home, 2, words, (size_t[]){7, strlen(names[limit])});
    int n = 0, places;
    for (size_t i = 0; r && i + 1 < r->elements; i += 2) {
        int64_t ends;
        if (sscanf(r->element[i + 1]->str, "%*d %d %*d %*d %" SCNd64, &places, &ends) == 2 &&
            ends > now)
            n += places;
    }
    freeReplyObject(r);
    return n;
}

static void check_places(struct world *w, const struct exec *x, int limit) {
    if (running_of(w, limit) == NO_LIMIT) return;
    int n = running(w, limit) + 1;
    if (n > running_of(w, limit))
        world_bad(w, "limit %d: %s starts on worker %d as number %d of %d", limit, x->job->identity,
                  x->worker, n, running_of(w, limit));
    if (!w->losses && stated(w, limit) < n)
        world_bad(w, "limit %d: %d messages run, but the home knows of %d", limit, n,
                  stated(w, limit));
}

/* Calls the script by which operators change limits. With `running` NO_LIMIT, lifts one. */
static void change(struct world *w, int limit, const char *what, int running) {
    static const char *const names[1 + GROUPS] = {"", ":a", ":b"};
    struct force *x = &w->force[limit];
    char n[12] = "";
    if (running) snprintf(n, sizeof n, "%d", running == NO_LIMIT ? 0 : running);
    const char *words[] = {"EVAL",
                           wire_mutated(w, lw_op_limits.text),
                           "2",
                           "lw:{t.0}:epoch",
                           "lw:{t.0}:limits",
                           what,
                           names[limit],
                           n,
                           "",
                           "",
                           "100"};
    enum { WORDS = sizeof words / sizeof *words };
    size_t len[WORDS];
    for (int i = 0; i < WORDS; i++) len[i] = strlen(words[i]);
    redisReply *r = server_call(w, w->master[0], WORDS, words, len);
    if (!r || r->type != REDIS_REPLY_ARRAY || r->elements != 3)
        world_bad(w, "limits.lua: %s", r && r->str ? r->str : "no array");
    const char *word = r->element[0]->str;
    bool done = !strcmp(word, "OK"), none = !strcmp(word, "NONE") || !strcmp(word, "SAME");
    if (!done && !none) world_bad(w, "limits.lua: %s", word);
    trace(w, "operator: limit %d: %s %s: %s", limit, what, n, word);
    freeReplyObject(r);
    if (!done) return;
    int before = running_of(w, limit);
    x->was = w->now_ms <= x->was_ms && x->was > before ? x->was : before;
    x->was_ms = w->now_ms + 2 * TTL_MS;
    if (running) x->running = running;
    if (!running) x->paused = !strcmp(what, "pause");
}

void limits_retune(struct world *w) {
    int limit = rnd_below(w, groups_on(w->f) ? 1 + GROUPS : 1);
    if (w->force[limit].paused)
        change(w, limit, "resume", 0);
    else if (!w->force[limit].running || !rnd_below(w, 3))
        change(w, limit, "pause", 0);
    else
        change(w, limit, "set", rnd_below(w, 4) ? 1 + rnd_below(w, 4) : NO_LIMIT);
}

void limits_resume(struct world *w) {
    for (int limit = FLEET; limit <= GROUPS; limit++)
        if (w->force[limit].paused) change(w, limit, "resume", 0);
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void leak(const struct world *w, struct starts *s, double rate) {
    s->n -= rate * (double)(w->now_ms - s->ms) / 1000;
    if (s->n < 0) s->n = 0;
    s->ms = w->now_ms;
}

/* Counts a start in a bucket that loses per_second starts in a second. If it never holds more than
 * the burst and what a token's time allows, no time of W seconds has more starts than
 * burst + per_second * (W + TOKEN_S). */
static void count_start(struct world *w, const struct exec *x, int limit) {
    double rate = rate_of(w, limit);
    struct starts *s = &w->starts[limit];
    s->idle_ms = 0;
    if (!rate_of(w, limit)) return;
    leak(w, s, rate);
    if (w->now_ms < w->jumped_ms + JUMP_MS) return;
    s->n++;
    if (s->n > LIMIT_BURST + rate * TOKEN_S + 1e-6)
        world_bad(w, "limit %d: %s starts above per_second, by %.2f", limit, x->job->identity,
                  s->n - LIMIT_BURST - rate * TOKEN_S);
}

void limits_start(struct world *w, const struct exec *x) {
    int group = groups_on(w->f) ? limit_of(x->job) : NONE;
    count_start(w, x, FLEET);
    check_places(w, x, FLEET);
    if (group == NONE) return;
    count_start(w, x, group);
    check_places(w, x, group);
}

void limits_jump(struct world *w, int shard) {
    if (shard == 0) w->jumped_ms = w->now_ms;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Returns true if the limit lets another message start now. */
static bool lets(struct world *w, int limit) {
    leak(w, &w->starts[limit], rate_of(w, limit));
    return (running_of(w, limit) == NO_LIMIT || running(w, limit) < running_of(w, limit)) &&
           (!rate_of(w, limit) || w->starts[limit].n + 1 <= LIMIT_BURST);
}

static bool key_runs(const struct world *w, int key) {
    for (int i = 0; i < w->n_exec; i++)
        if (w->exec[i].key == key) return true;
    return false;
}

/* Returns true if a worker has no message in its handlers. */
static bool any_idle(const struct world *w) {
    bool busy[WORKERS] = {0};
    for (int i = 0; i < w->n_exec; i++) busy[w->exec[i].worker] = true;
    for (int i = 0; i < WORKERS; i++)
        if (!busy[i] && w->w[i].lw && w->w[i].dead_until_ms <= w->now_ms) return true;
    return false;
}

/* Returns true if a key waits whose head is of the group, whatever partition it comes from: in each
 * partition the next record of the key names the group. No record of the key may run. */
static bool waits(const struct world *w, int limit) {
    int mine[KEYS] = {0}, others[KEYS] = {0};
    for (int p = 0; p < PARTS; p++) {
        const struct sim_part *part = &w->part[p];
        bool seen[KEYS] = {0};
        for (int i = 0; i < part->n; i++) {
            int key = part->key[i];
            if (part->done[i] || part->offset[i] < part->committed || seen[key]) continue;
            seen[key] = true;
            *(limits_payload(w, p, i) == payloads[limit - 1] ? &mine[key] : &others[key]) += 1;
        }
    }
    for (int key = 0; key < KEYS; key++)
        if (mine[key] && !others[key] && !key_runs(w, key)) return true;
    return false;
}

void limits_idle(struct world *w) {
    if (!groups_on(w->f) || w->now_ms < w->calm_ms + SETTLED_MS) return;
    bool may = lets(w, FLEET) && any_idle(w);
    int64_t most_ms = IDLE_MS * (w->f->fine ? 1 : COARSE);
    for (int limit = 1; limit <= GROUPS; limit++) {
        struct starts *s = &w->starts[limit];
        if (!may || !lets(w, limit) || !waits(w, limit))
            s->idle_ms = 0;
        else if (!s->idle_ms)
            s->idle_ms = w->now_ms;
        else if (w->now_ms > s->idle_ms + most_ms)
            world_bad(w, "limit %d: nothing has started for %d ms, although it may", limit,
                      (int)(w->now_ms - s->idle_ms));
    }
}

void limits_end(struct world *w) {
    /* Lanes are taken only with a permit. Some go back unstarted, because their permit ended on the
     * way, or because their head is of another group. */
    uint64_t taken = w->counts.locks_granted;
    if (groups_on(w->f) && !w->losses && taken > 2 * w->runs)
        world_bad(w, "limit: %" PRIu64 " lanes were taken for %" PRIu64 " starts", taken, w->runs);
    for (int limit = FLEET; limit <= (groups_on(w->f) ? GROUPS : 0); limit++) {
        int n = running_of(w, limit) < NO_LIMIT ? stated(w, limit) : 0;
        if (n) world_bad(w, "limit %d: nothing runs, but the home knows of %d messages", limit, n);
    }
}
