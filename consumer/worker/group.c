/* SPDX-License-Identifier: Apache-2.0 */
/* group: who shares a limit (`group.from`), as far as this worker has messages of it, and the lanes
 * that wait for its permits. limit.c says how many messages of a group may start.
 *
 * A lane waits under the group of its first message. In memory it stays in the list of gate, which
 * passes over it. If there are more messages in memory than handlers, and the home has refused the
 * group more permits, gate parks it instead, so that the worker reads on. In Redis such a lane is
 * not in `ready`, but in ready:<group>: the script ready names groups that have lanes there, and
 * takes as many of a group's lanes as there are permits. claim then asks for them.
 *
 * A worker may learn only from a head that a lane belongs to another group than it was taken for,
 * because its key was seen with two groups or nobody has noted its group yet. The message then goes
 * back unstarted unless its own group has a permit, and settle notes the group. */
#include "consumer/worker/private.h"

#include "base/redis/reply.h"
#include "queue/lane.h"

#include <utlist.h>
#include <xxhash.h>

enum {
    NAMED_MAX = 64,  /* number of groups that a call of ready names */
    LOOK_MS = 50,    /* time between two looks for groups that have lanes */
    LOOK_ON_MS = 10, /* the same while there are more groups than one call names */
    TURNS_HELD = 16, /* records per handler that wait in memory for the turn of their group */
};

struct ready_lane {
    struct ready_lane *next, *prev;
    struct group *group;
    size_t bytes;
    char lane[];
};

/* --- the table -------------------------------------------------------------------------------- */

static struct group *get(struct lw_worker *w, struct lw_bytes id) {
    struct group *g;
    unsigned hash = (unsigned)XXH3_64bits_withSeed(id.p, id.n, w->lanes_seed);
    HASH_FIND_BYHASHVALUE(hh, w->groups.table, id.p, id.n, hash, g);
    if (g) return g;
    g = lw_alloc(sizeof *g + (size_t)w->n_shards * sizeof g->shard[0]);
    g->most = SIZE_MAX;
    g->id = lw_bytes(lw_memdup(id.p, id.n), id.n);
    g->weight = lw_group_weight(w->c, g->id);
    g->permits.most = *lw_limits_group(&w->limits.force, g->id);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, w->groups.table, g->id.p, g->id.n, hash, g);
    return g;
}

struct group *group_of(struct lw_worker *w, const struct lw_record *r) {
    struct lw_bytes name;
    char room[LW_LANE_ROOM];
    if (!w->c->group.on) return NULL;
    if (lw_key_find(&w->c->group.from, r, &w->scratch2, &name, NULL) != LW_KEY_OK)
        name = lw_bytes("", 0);
    name = lw_lane_id(name, room, sizeof room);
    return get(w, name);
}

/* The time of the turn is exact enough, and this is asked for each group. */
static bool admits(const struct lw_worker *w, const struct shard *sh) {
    int64_t now = w->limits.begun_ms;
    return !shard_silent(sh, now) && !shard_quarantined(sh, now) && !refusal_holds(sh, now);
}

/* Returns how many lanes of the group wait. If `admitted` is true, counts only those on shards that
 * admit messages now, and at maxmemory none that wait for gate: they would keep their turns from
 * lanes that make room in Redis. */
static size_t lanes(const struct lw_worker *w, const struct group *g, bool admitted) {
    size_t n = g->taken;
    for (int s = 0; s < w->n_shards; s++) {
        const struct shard *sh = &w->shards[s];
        size_t here = g->shard[s].listed + g->shard[s].ready;
        if (!here || (admitted && !admits(w, sh))) continue;
        n += admitted && gate_rests(sh, w->limits.begun_ms) ? g->shard[s].ready : here;
    }
    return n;
}

size_t group_waits(const struct lw_worker *w, const struct group *g) { return lanes(w, g, true); }

static void forget(struct lw_worker *w, struct group *g) {
    assert(!g->n_msgs);
    HASH_DELETE(hh, w->groups.table, g);
    free((void *)(uintptr_t)g->id.p);
    free(g);
}

void groups_sweep(struct lw_worker *w) {
    struct group *g, *tmp;
    fair_forget(w);
    HASH_ITER(hh, w->groups.table, g, tmp) {
        bool idle = !g->n_msgs && !group_used(g) && !limit_knows(g) && !lanes(w, g, false);
        if (idle && !fair_owes(w, g)) forget(w, g);
    }
}

void groups_free(struct lw_worker *w) {
    struct group *g, *tmp;
    HASH_ITER(hh, w->groups.table, g, tmp) forget(w, g);
}

/* --- what the worker has of a group ----------------------------------------------------------- */

void group_message(struct group *g, int by) { g->n_msgs += (size_t)by; }

void group_listed(struct lw_worker *w, struct group *g, int shard, int by) {
    g->shard[shard].listed += (size_t)by;
    w->groups.listed += (size_t)by;
}

void group_asked(struct group *g, int by) { g->asked += (size_t)by; }

void group_running(struct lw_worker *w, struct group *g, int by) {
    if (g) g->in_handler += (size_t)by;
    if (g && by < 0) limit_left_handler(g);
    tell_running(w, g, by);
}

bool group_parks(struct lw_worker *w, const struct group *g) {
    size_t most = (size_t)lw_config_at_once(w->c);
    bool much = g->n_msgs * HASH_COUNT(w->groups.table) >= w->held; /* not less than others */
    if (much && intake_crowded(w)) return true;
    if (limit_group_left(w, g)) return false;
    if (w->held > most && (g->permits.refused || g->permits.most.paused)) return true;
    return much && w->held > TURNS_HELD * most && w->fair.contended;
}

/* --- lanes that wait in Redis ----------------------------------------------------------------- */

void ready_look(struct lw_worker *w, struct shard *sh) {
    if (w->c->group.on) sh->ready.look_ms = 0;
}

void ready_forget(struct lw_worker *w, struct shard *sh) {
    struct ready_lane *r, *tmp;
    struct group *g, *next;
    DL_FOREACH_SAFE(sh->ready.lanes, r, tmp) {
        DL_DELETE(sh->ready.lanes, r);
        r->group->taken--;
        free(r);
    }
    HASH_ITER(hh, w->groups.table, g, next) g->shard[sh->index].ready = 0;
    sh->ready.n_asked = 0;
    sh->ready.look_ms = 0;
}

/* Returns how many lanes of a group that wait in a shard can be taken. */
static size_t takes(struct lw_worker *w, const struct shard *sh, const struct group *g) {
    size_t left = g->shard[sh->index].ready ? lw_smaller(limit_group_left(w, g), limit_room(w)) : 0;
    return left > g->taken ? lw_smaller(g->shard[sh->index].ready, left - g->taken) : 0;
}

void ready_build(struct lw_worker *w, struct shard *sh) {
    assert(sh->phase == READY);
    sh->ready.n_asked = 0;
    if (!w->c->group.on || !heads_fit(w)) return;
    /* Also while all handlers are busy: those whose messages need no permit would take each handler
     * that becomes free, and a group that waits only in Redis would never be asked for. */
    int64_t now = now_ms(w);
    size_t n[TAKEN_MAX];
    for (struct group *g = w->groups.table; g && sh->ready.n_asked < TAKEN_MAX; g = g->hh.next) {
        n[sh->ready.n_asked] = lw_smaller(takes(w, sh, g), CLAIM_BATCH);
        if (n[sh->ready.n_asked]) sh->ready.asked[sh->ready.n_asked++] = g;
    }
    sh->ready.looks = now >= sh->ready.look_ms;
    if (!sh->ready.n_asked && !sh->ready.looks) return;
    pipe_script(sh, CALL_READY, &lw_script_ready, 3);
    pipe_text(sh, sh->key_epoch), pipe_text(sh, sh->key_lanes), pipe_text(sh, sh->key_groups);
    pipe_text(sh, sh->epoch.id), pipe_number(sh, w->c->lock.ttl_ms / 2);
    pipe_number(sh, sh->ready.looks ? NAMED_MAX : 0);
    for (int i = 0; i < sh->ready.n_asked; i++)
        pipe_bytes(sh, sh->ready.asked[i]->id), pipe_number(sh, (int64_t)n[i]);
    if (sh->ready.looks) sh->ready.look_ms = now + LOOK_MS;
}

static void take(struct shard *sh, struct group *g, const redisReply *lane) {
    if (lane->len > LW_LANE_MAX) return; /* the id of no lane of this application */
    struct ready_lane *r = lw_alloc(sizeof *r + lane->len);
    r->group = g;
    r->bytes = lane->len;
    memcpy(r->lane, lane->str, lane->len);
    DL_APPEND(sh->ready.lanes, r);
    g->taken++;
}

/* Takes the lanes out of the reply. Returns false if the reply is malformed. */
static bool take_lanes(struct shard *sh, const redisReply *r) {
    for (size_t i = 0; i + 1 < r->elements; i += 2) {
        const redisReply *which = r->element[i], *lane = r->element[i + 1];
        if (which->type != REDIS_REPLY_INTEGER || which->integer < 0 ||
            which->integer >= sh->ready.n_asked || lane->type != REDIS_REPLY_STRING)
            return false;
        struct group *g = sh->ready.asked[which->integer];
        take(sh, g, lane);
        if (g->shard[sh->index].ready) g->shard[sh->index].ready--;
    }
    return true;
}

/* Takes over which groups have lanes in the shard. Of the others, only those are still believed to
 * have some for which there are permits already. */
static bool take_names(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    struct group *g, *tmp;
    HASH_ITER(hh, w->groups.table, g, tmp)
        if (!limit_group_permits(w, g)) g->shard[sh->index].ready = 0;
    for (size_t i = 0; i + 1 < r->elements; i += 2) {
        const redisReply *name = r->element[i], *n = r->element[i + 1];
        if (name->type != REDIS_REPLY_STRING || n->type != REDIS_REPLY_INTEGER || n->integer < 0)
            return false;
        struct lw_bytes id = lw_bytes(name->str, name->len);
        if (id.n > LW_LANE_MAX) continue;
        get(w, id)->shard[sh->index].ready = (size_t)n->integer;
    }
    if (r->elements >= 2 * (size_t)NAMED_MAX) sh->ready.look_ms = now_ms(w) + LOOK_ON_MS;
    return true;
}

void ready_reply(struct lw_worker *w, struct shard *sh, const redisReply *r) {
    bool ok = r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
              r->element[0]->type == REDIS_REPLY_ARRAY && r->element[1]->type == REDIS_REPLY_ARRAY;
    if (ok) {
        /* a group of which no lane came has none any more */
        size_t before[TAKEN_MAX] = {0};
        for (int i = 0; i < sh->ready.n_asked; i++) before[i] = sh->ready.asked[i]->taken;
        ok = take_lanes(sh, r->element[0]);
        for (int i = 0; i < sh->ready.n_asked; i++)
            if (sh->ready.asked[i]->taken == before[i])
                sh->ready.asked[i]->shard[sh->index].ready = 0;
        if (ok && sh->ready.looks) ok = take_names(w, sh, r->element[1]);
    }
    sh->ready.n_asked = 0;
    if (ok) return;
    pipe_malformed(w, sh, r, "ready.lua", "[array, array]");
}

bool ready_next(struct lw_worker *w, struct shard *sh, struct lw_bytes *lane,
                struct group **group) {
    struct ready_lane *r = sh->ready.lanes;
    while (r && !limit_group_left(w, r->group)) r = r->next;
    if (!r) return false;
    DL_DELETE(sh->ready.lanes, r);
    r->group->taken--;
    *group = r->group;
    *lane = lw_bytes(lw_memdup(r->lane, r->bytes), r->bytes);
    free(r);
    return true;
}

int64_t ready_due_ms(struct lw_worker *w, const struct shard *sh) {
    int64_t now = now_ms(w);
    if (!w->c->group.on || sh->phase != READY || shard_quarantined(sh, now) || w->stopping ||
        refusal_holds(sh, now) || !heads_fit(w) || !limit_room(w))
        return INT64_MAX;
    for (const struct ready_lane *r = sh->ready.lanes; r && limit_of(w, 1); r = r->next)
        if (limit_group_left(w, r->group)) return now;
    for (const struct group *g = w->groups.table; g; g = g->hh.next)
        if (takes(w, sh, g)) return now;
    return sh->ready.look_ms;
}
