/* SPDX-License-Identifier: Apache-2.0 */
/* The fake Kafka of the simulation. It assigns partitions to workers, delivers records, and accepts
 * commits. A partition can get a new owner before the old owner learns that it has lost the
 * partition. */
#include "tests/sim/world/rules.h"

#include "tests/sim/world/bytes.h"

#include <inttypes.h>
#include <stdio.h>

int key_of_name(struct lw_bytes key) { return key.n == 2 ? key.p[1] - '0' : -1; }
static const char *const key_names[KEYS] = {"k0", "k1", "k2", "k3"};

static bool owns(const struct world *w, const struct sim_worker *me, int p) {
    return me->gen[p] && w->part[p].owner == me->index && w->part[p].gen == me->gen[p];
}

static int part_of(const struct sim_worker *me, uint32_t gen) {
    for (int p = 0; p < PARTS; p++)
        if (me->gen[p] == gen) return p;
    return -1;
}

static int first_at(const struct sim_part *p, int64_t offset) {
    int i = 0;
    while (i < p->n && p->offset[i] < offset) i++;
    return i;
}

static void let_go(struct world *w, struct sim_worker *me, int p, bool lost) {
    if (!me->gen[p]) return;
    trace(w, "worker %d lets partition %d go%s", me->index, p, lost ? " (lost)" : "");
    uint32_t gen = me->gen[p];
    lw_worker_revoke(me->lw, &gen, 1, lost);
    me->gen[p] = 0;
}

/* The log of partition p ends with p transaction markers, so that the simulation has logs with and
 * without markers at their end. */
static int64_t log_end(const struct sim_part *part, int p) {
    return part->offset[part->n - 1] + 1 + p;
}

void kafka_assign(struct world *w, struct sim_worker *me, int p) {
    struct sim_part *part = &w->part[p];
    /* The worker first loses its earlier assignment of the partition, if it had one, so that no old
     * state remains. */
    let_go(w, me, p, true);
    part->owner = me->index;
    part->gen = me->gen[p] = ++w->gens;
    me->paused[p] = me->was_read[p] = false;
    me->begun[p] = part->committed;
    int64_t begin = part->committed >= 0 ? part->committed : part->offset[0];
    me->pos[p] = first_at(part, begin);
    trace(w, "worker %d gets partition %d at %" PRId64 " (generation %u)", me->index, p, begin,
          part->gen);
    rules_assigned(w, p);
    lw_worker_assign(me->lw, &(struct lw_assigned){.topic = "t",
                                                   .partition = p,
                                                   .gen = part->gen,
                                                   .committed = part->committed,
                                                   .begin = begin,
                                                   .log_begin = part->offset[0],
                                                   .log_end = log_end(part, p)});
}

/* Makes a rebalance. First takes partitions away from one worker after another, while the rest of
 * the world continues. Then assigns the partitions to their new owners. A worker that sleeps learns
 * only when it wakes which partitions it has lost. */
void kafka_rebalance(struct world *w) {
    int live[WORKERS], n = 0, from[PARTS], to[PARTS];
    for (int i = 0; i < WORKERS; i++)
        if (w->w[i].joined && w->w[i].lw) live[n++] = i;
    if (!n) return;
    for (int p = 0; p < PARTS; p++) {
        to[p] = live[rnd_below(w, n)], from[p] = w->part[p].owner;
        if (from[p] == to[p] && rnd_unit(w) < 0.7) to[p] = -1; /* the owner keeps the partition */
    }
    for (int i = 0; i < WORKERS; i++) {
        struct sim_worker *me = &w->w[i];
        bool part[PARTS], lost = rnd_unit(w) < 0.3;
        /* Skip a partition if it got another owner while other workers were giving up theirs. */
        for (int p = 0; p < PARTS; p++)
            part[p] = to[p] >= 0 && w->part[p].owner == from[p] && me->lw &&
                      me->dead_until_ms <= w->now_ms && owns(w, me, p);
        revoke_parts(w, me, part, lost);
    }
    for (int p = 0; p < PARTS; p++) {
        int owner = w->part[p].owner;
        /* Another worker may have got the partition since this rebalance began. */
        bool taken = owner >= 0 && owner != from[p] && owns(w, &w->w[owner], p);
        if (to[p] < 0 || taken) continue;
        struct sim_worker *me = &w->w[to[p]];
        if (!me->lw || me->dead_until_ms > w->now_ms)
            w->part[p].owner = -1;
        else
            kafka_assign(w, me, p);
    }
}

static void learn(struct world *w, struct sim_worker *me) {
    /* A worker that slept through a rebalance learns which partitions it has lost when it polls
     * again. */
    for (int p = 0; p < PARTS; p++)
        if (me->gen[p] && !owns(w, me, p)) let_go(w, me, p, true);
}

void kafka_pause(void *ctx, uint32_t gen, bool pause) {
    struct sim_worker *me = ctx;
    int p = part_of(me, gen);
    if (p < 0) return;
    me->paused[p] = pause;
    me->was_read[p] |= !pause;
}

int kafka_seek(void *ctx, uint32_t gen, int64_t offset, struct lw_err *err) {
    struct sim_worker *me = ctx;
    int p = part_of(me, gen);
    if (p < 0) return lw_fail(err, "not assigned");
    if (trouble_seek(me->world, me)) return lw_fail(err, "refused by chance");
    me->pos[p] = first_at(&me->world->part[p], offset);
    trace(me->world, "worker %d partition %d: back to %" PRId64, me->index, p, offset);
    return 0;
}

static bool take_commit(struct world *w, struct sim_worker *me, const struct lw_commit *c) {
    int p = part_of(me, c->gen);
    if (p < 0 || !owns(w, me, p)) return false;
    trace(w, "commit %d: %" PRId64 " by %d", p, c->offset, me->index);
    oracle_commit(w, p, c->offset);
    return true;
}

int kafka_commit(void *ctx, const struct lw_commit *c, size_t n, struct lw_err *err) {
    struct sim_worker *me = ctx;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        int p = part_of(me, c[i].gen);
        /* a worker must read the states recorded in Redis for a partition before it commits a new
         * offset for the partition */
        if (p >= 0 && !me->was_read[p] && c[i].offset != me->begun[p])
            world_bad(me->world, "commit of partition %d before its states were read", p);
        me->commit[me->n_commit].gen = c[i].gen;
        me->commit[me->n_commit++].offset = c[i].offset;
    }
    return 0;
}

void step_commits(struct world *w, struct sim_worker *me) {
    int n = me->n_commit;
    for (int i = 0; i < n; i++) {
        struct lw_commit c = {me->commit[i].gen, me->commit[i].offset, ""};
        bool taken, wrong = trouble_commit(w, &taken);
        bool ok = (!wrong || taken) && take_commit(w, me, &c) && !wrong;
        lw_worker_committed(me->lw, c.gen, c.offset, ok);
    }
    me->n_commit = 0;
}

bool kafka_look(void *ctx) {
    struct sim_worker *me = ctx;
    if (me->look != NO_LOOK) return false;
    me->look = LOOK_SENT;
    return true;
}

void step_look(struct world *w, struct sim_worker *me) {
    if (me->look == LOOK_SENT) {
        me->look = LOOK_READ;
        me->look_known = !trouble_look(w);
        me->listed = 0;
        for (int p = 0; p < PARTS; p++) me->listed += w->part[p].committed >= 0;
    } else if (me->look == LOOK_READ) {
        me->look = NO_LOOK;
        trace(w, "worker %d: the group has %zu commits%s", me->index, me->listed,
              me->look_known ? "" : " (not told)");
        lw_worker_listed(me->lw, me->look_known, me->listed);
    }
}

bool kafka_commit_busy(void *ctx) { return ((struct sim_worker *)ctx)->n_commit > 0; }

int kafka_commit_sync(void *ctx, const struct lw_commit *c, size_t n, bool *ok,
                      struct lw_err *err) {
    struct sim_worker *me = ctx;
    /* The broker answers a worker's earlier commits before the worker's synchronous commit. */
    step_commits(me->world, me);
    bool took;
    if (trouble_commit(me->world, &took)) {
        for (size_t i = 0; took && i < n; i++) take_commit(me->world, me, &c[i]);
        return lw_fail(err, "no answer");
    }
    for (size_t i = 0; i < n; i++) {
        bool taken = take_commit(me->world, me, &c[i]);
        if (ok) ok[i] = taken;
        lw_worker_committed(me->lw, c[i].gen, c[i].offset, taken);
    }
    return 0;
}

int kafka_committed(void *ctx, const char *topic, int32_t partition, int64_t *offset,
                    struct lw_err *err) {
    (void)topic, (void)err;
    *offset = ((struct sim_worker *)ctx)->world->part[partition].committed;
    return 0;
}

void step_poll(struct world *w, struct sim_worker *me) {
    if (rnd_unit(w) < (w->f->deaf ? 0.01 : 0.3)) learn(w, me);
    int p = rnd_below(w, PARTS);
    struct sim_part *part = &w->part[p];
    if (!me->gen[p] || me->paused[p] || lw_worker_wants(me->lw) == 0) return;
    int wanted = (int)lw_worker_wants(me->lw), n = 1 + rnd_below(w, 3 + w->f->burst);
    for (int i = 0; i < n && i < wanted && me->gen[p]; i++) {
        if (me->pos[p] >= part->n) {
            lw_worker_end(me->lw, me->gen[p], log_end(part, p));
            return;
        }
        int at = me->pos[p]++;
        struct lw_arrival a = {.record =
                                   {
                                       .key = lw_bytes_of(key_names[part->key[at]]),
                                   },
                               .offset = part->offset[at],
                               .timestamp_ms = 1};
        bytes_arrival(me, p, at, &a);
        rules_arrives(w, p, at, &a.record);
        lw_worker_arrived(me->lw, me->gen[p], &a);
    }
}
