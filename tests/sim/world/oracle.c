/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the promises that hold in every run of the simulation: oracles O1 to O6 of
 * doc/design/faults.md, except for what only real processes can show. */
#include "tests/sim/world/world.h"

#include "tests/sim/world/inside.h"
#include "tests/sim/world/operator.h"
#include "tests/sim/world/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int record_at(const struct sim_part *p, int64_t offset) {
    for (int i = 0; i < p->n; i++)
        if (p->offset[i] == offset) return i;
    return -1;
}

static int64_t deadline(const struct exec *x) { return atomic_load(&x->job->lease->deadline_ms); }

void oracle_start(struct world *w, struct exec *x) {
    for (int i = 0; i < w->n_exec; i++) {
        struct exec *y = &w->exec[i];
        if (y->key != x->key || y->queued) continue;
        if (y->worker == x->worker)
            world_bad(w, "local2: worker %d runs key %d twice: %s and %s", x->worker, x->key,
                      y->job->identity, x->job->identity);
        if (deadline(y) > w->now_ms && deadline(x) > w->now_ms && !operator_broke(w, x) &&
            !operator_broke(w, y))
            world_bad(w, "overlap on key %d: %s by %d and %s by %d", x->key, y->job->identity,
                      y->worker, x->job->identity, x->worker);
    }
    if (deadline(x) <= w->now_ms)
        world_bad(w, "%s starts on worker %d past its lease", x->job->identity, x->worker);
    uint64_t fence = x->job->fence;
    if (fence <= w->fence_seen[x->key] && deadline(x) > w->now_ms && !operator_broke(w, x))
        world_bad(w, "fence of key %d not monotonic: %" PRIu64 " after %" PRIu64, x->key, fence,
                  w->fence_seen[x->key]);
    if (fence > w->fence_seen[x->key]) w->fence_seen[x->key] = fence;
    operator_start(w, x);
    int index = record_at(&w->part[x->job->partition], x->job->offset);
    if (index < 0) world_bad(w, "a handler got %s, which was never produced", x->job->identity);
    limits_start(w, x);
    rules_start(w, x, index);
    w->runs++;
}

void oracle_fenced(struct world *w, const struct sim_worker *me) {
    for (int i = 0; i < w->n_exec; i++) {
        const struct exec *x = &w->exec[i];
        if (x->worker == me->index && deadline(x) - w->now_ms <= TTL_MS / 3 &&
            !atomic_load(&x->job->lease->cancelled))
            world_bad(w, "%s on worker %d is not cancelled, %" PRId64 " ms before its lease ends",
                      x->job->identity, me->index, deadline(x) - w->now_ms);
    }
}

static void effect(struct world *w, int part, int index) {
    if (w->n_effects == w->cap_effects) {
        w->cap_effects = w->cap_effects ? 2 * w->cap_effects : 1024;
        w->effects = lw_realloc(w->effects, (size_t)w->cap_effects * sizeof *w->effects);
    }
    const struct sim_part *p = &w->part[part];
    w->effects[w->n_effects++] =
        (struct effect){part, index, p->offset[index] < p->committed, w->losses};
}

static void first(struct world *w, int part, int index) {
    struct sim_part *p = &w->part[part];
    if (p->done[index]) return;
    p->done[index] = true;
    w->order[w->n_order].part = part;
    w->order[w->n_order++].index = index;
}

enum lw_outcome oracle_finish(struct world *w, struct exec *x, enum lw_outcome wish) {
    int part = x->job->partition, index = record_at(&w->part[part], x->job->offset);
    if (index < 0) world_bad(w, "a handler got %s, which was never produced", x->job->identity);
    wish = rules_finish(w, x, index, wish);
    if (wish != LW_DONE) return wish;
    struct sim_part *p = &w->part[part];
    if (operator_replay(x->job)) return operator_finish(w, x, index);
    if (deadline(x) <= w->now_ms) w->taint[x->key] = true;
    if (p->stored[index]) {
        w->dups++;
        /* The store already knows the message, so this run has no second effect. */
        if (operator_broke(w, x)) return LW_DONE;
    } else if (x->job->fence < w->store_fence[x->key]) {
        return LW_BACK; /* the store refuses an outdated fence */
    } else {
        p->stored[index] = true;
        w->store_fence[x->key] = x->job->fence;
    }
    effect(w, part, index);
    first(w, part, index);
    return LW_DONE;
}

void oracle_died(struct world *w, int part, int64_t offset) {
    int index = record_at(&w->part[part], offset);
    if (index < 0)
        world_bad(w, "a dead letter of %d:%" PRId64 ", which was never produced", part, offset);
    rules_died(w, part, index);
    w->part[part].dead[index] = true;
    effect(w, part, index);
    first(w, part, index);
}

void oracle_commit(struct world *w, int part, int64_t offset) {
    struct sim_part *p = &w->part[part];
    for (int i = 0; i < p->n && p->offset[i] < offset; i++) {
        if (p->offset[i] < p->committed || rules_gone(w, part, i)) continue;
        if (!p->done[i])
            world_bad(w, "watermark %" PRId64 " passed unfinished %d:%" PRId64, offset, part,
                      p->offset[i]);
        if (!p->stored[i] && !p->dead[i])
            world_bad(w, "%d:%" PRId64 " committed, the store never took it", part, p->offset[i]);
    }
    if (offset < p->committed)
        world_bad(w, "commit of partition %d moved back: %" PRId64 " to %" PRId64, part,
                  p->committed, offset);
    p->committed = offset;
}

static void check_order(struct world *w) {
    for (int part = 0; part < PARTS; part++)
        for (int key = 0; key < KEYS; key++) {
            if (w->vanished[key]) continue;
            int last = -1;
            for (int i = 0; i < w->n_order; i++) {
                if (w->order[i].part != part || w->part[part].key[w->order[i].index] != key)
                    continue;
                if (w->order[i].index < last)
                    world_bad(w,
                              "order broken on key %d of partition %d: offset %" PRId64
                              " after %" PRId64,
                              key, part, w->part[part].offset[w->order[i].index],
                              w->part[part].offset[last]);
                last = w->order[i].index;
            }
        }
}

/* Checks for each key and partition that the last effects of the messages happened in the order of
 * offsets. If a message takes effect again after a later message, the later message must take
 * effect once more. An effect below the group's commit does not count if data was lost after it:
 * Redis listed the message again after a failover, and then lost what it had still to repeat. No
 * order is promised there (guarantees.md, not promised, 1). If queue.on_busy is latest, only the
 * newest of these messages must have had the last effect. */
static void check_convergence(struct world *w) {
    bool latest = w->config.queue.on_busy == LW_BUSY_LATEST;
    for (int part = 0; part < PARTS; part++)
        for (int key = 0; key < KEYS; key++) {
            if (w->taint[key] || w->vanished[key]) continue;
            bool seen[MAX_RECORDS] = {false};
            int next = MAX_RECORDS;
            for (int i = w->n_effects - 1; i >= 0; i--) {
                struct effect e = w->effects[i];
                if (e.part != part || w->part[part].key[e.index] != key || seen[e.index] ||
                    operator_dropped(w, part, e.index) || rules_twin_forgot(w, part, e.index) ||
                    (e.below_commit && w->losses > e.losses))
                    continue;
                seen[e.index] = true;
                if (e.index > next)
                    world_bad(w,
                              "converge: key %d of partition %d: effect of %" PRId64
                              " is older than that of %" PRId64 ", which came later",
                              key, part, w->part[part].offset[e.index], w->part[part].offset[next]);
                if (!latest || next == MAX_RECORDS) next = e.index;
            }
        }
}

struct leak {
    struct world *w;
    struct server *srv;
};

static void check_key(void *ctx, const char *key, size_t n, enum store_type type) {
    struct leak *x = ctx;
    char name[700];
    (void)type;
    snprintf(name, sizeof name, "%.*s", (int)n, key);
    const char *what = strstr(name, "}:");
    if (!what) world_bad(x->w, "leak: a key without the shard's tag: %s", name);
    what += 2;
    if (!strncmp(what, "wait:", 5) || !strcmp(what, "lanes") || !strncmp(what, "lock:", 5))
        world_bad(x->w, "leak: %s is still there", name);
    if (!strncmp(what, "state:", 6) || !strncmp(what, "tries:", 6)) {
        /* The marks of a replay must expire. Other marks and counts of attempts may exist only in
         * segments at or above the one with the committed offset. */
        int part;
        int64_t segment;
        int64_t number;
        if (what[0] == 's' &&
            sscanf(what + 6, "t:%d#%" SCNd64 ":%" SCNd64, &part, &number, &segment) == 3) {
            if (store_expires_ms(x->srv->store, key, n) < 0)
                world_bad(x->w, "leak: marks of a replay that stay for ever: %s", name);
            return;
        }
        if (sscanf(what + 6, "t:%d:%" SCNd64, &part, &segment) != 2)
            world_bad(x->w, "leak: odd name %s", name);
        if (segment < x->w->part[part].committed / LW_SEGMENT)
            world_bad(x->w, "leak: segment %s below the floor", name);
    }
}

static void check_memory(struct world *w) {
    for (int i = 0; i < WORKERS; i++) {
        const char *part = w->w[i].lw ? inside_idle_replay(w->w[i].lw) : NULL;
        if (part) world_bad(w, "worker %d remembers %s, of which nothing is left", i, part);
    }
}

void oracle_end(struct world *w) {
    const struct faults *f = w->f;
    bool harmless = f->wipe <= 0 && f->failover <= 0 && f->failback <= 0 && f->clock <= 0;
    if (f->attach > 0 && harmless && w->counts.epochs_lost)
        world_bad(w, "an epoch was lost though nothing was lost but connections");
    check_memory(w);
    if (!w->o->skip_order) {
        if (!rules_forgot(w) && !w->f->latest) check_order(w);
        check_convergence(w);
    }
    operator_end(w);
    limits_end(w);
    for (int s = 0; s < SHARDS; s++) {
        struct leak x = {w, w->master[s]};
        store_each_key(w->master[s]->store, check_key, &x);
    }
}
