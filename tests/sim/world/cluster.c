/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a Redis Cluster. The slot of each shard is on one of a few masters, and moves between
 * them key by key. While a slot moves, a script fails if it touches a key that has already left the
 * old owner or has not yet reached the new one. A node may restart with less data than it had, and
 * a replica that lacks the last writes may take the place of its master. */
#include "tests/sim/world/world.h"

#include "tests/sim/world/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONG_AGO_MS = 3600000 };

static void set_clock(struct world *w, struct server *s) {
    store_set_time_us(s->store, (w->now_ms + s->skew_ms + 1000000000) * 1000 + 123);
}

void cluster_open(struct world *w) {
    for (int s = 0; s < SHARDS; s++) {
        struct slot *slot = &w->slot[s];
        for (int k = 0; k < NODES; k++) {
            struct server *node = k ? server_new(w, store_open(rnd(w)), s) : w->master[s];
            slot->node[k] = node;
            set_clock(w, node);
            store_set_cluster(node->store,
                              store_time_us(node->store) - LONG_AGO_MS * INT64_C(1000));
            store_set_slot(node->store, k ? STORE_ELSEWHERE : STORE_OWNED);
        }
    }
}

bool cluster_meant(const char *text) {
    return !strncmp(text, "MOVED ", 6) || !strncmp(text, "ASK ", 4) ||
           !strncmp(text, "TRYAGAIN ", 9) || strstr(text, "access a non local key");
}

static size_t move_keys(struct world *w, struct server *from, struct server *to, size_t most) {
    set_clock(w, from), set_clock(w, to);
    return store_move(from->store, to->store, "", most);
}

static void begin(struct world *w, struct slot *slot) {
    slot->to = (slot->at + 1 + rnd_below(w, NODES - 1)) % NODES;
    slot->moving = true;
    store_set_slot(slot->node[slot->at]->store, STORE_LEAVING);
    trace(w, "shard %d: its slot begins to move from node %d to %d", slot->node[slot->at]->shard,
          slot->at, slot->to);
}

static void end(struct world *w, struct slot *slot) {
    struct server *from = slot->node[slot->at], *to = slot->node[slot->to];
    slot->moving = false;
    slot->at = slot->to;
    slot->came_ms = w->now_ms;
    store_set_slot(from->store, STORE_ELSEWHERE);
    store_set_slot(to->store, STORE_OWNED);
    w->master[to->shard] = to;
    w->moves++;
    world_snapshot(w, to->shard);
    trace(w, "shard %d: its slot is node %d's", to->shard, slot->at);
}

/* Cancels the migration of a slot: the keys that have moved return to the old owner. */
static void give_up(struct world *w, struct slot *slot) {
    if (!slot->moving) return;
    move_keys(w, slot->node[slot->to], slot->node[slot->at], SIZE_MAX);
    slot->moving = false;
    store_set_slot(slot->node[slot->at]->store, STORE_OWNED);
    trace(w, "shard %d: its slot stays", slot->node[slot->at]->shard);
}

static void cut_all(struct world *w, const struct server *s) {
    for (int i = 0; i < WORKERS; i++)
        if (w->w[i].lw && w->w[i].conn[s->shard] && w->w[i].srv[s->shard] == s &&
            w->w[i].dead_until_ms <= w->now_ms)
            wire_cut(w, &w->w[i], s->shard);
    wire_refuse(w, s);
}

/* Restarts the target of a migration while the slot moves. The node loses its locks and keeps all
 * other data. */
static void target_restarts(struct world *w, struct server *s) {
    char locks[32];
    struct store *lost = store_open(1);
    snprintf(locks, sizeof locks, "lw:{t.%d}:lock:", s->shard);
    set_clock(w, s);
    size_t n = store_move(s->store, lost, locks, SIZE_MAX);
    trace(w, "shard %d: the target restarts in the middle, and has lost %zu locks", s->shard, n);
    store_close(lost);
    store_restart(s->store, true);
}

static void owner_restarts(struct world *w, struct slot *slot) {
    struct server *s = slot->node[slot->at];
    give_up(w, slot);
    trace(w, "shard %d: the owner of the slot restarts with older data", s->shard);
    store_close(s->store);
    s->store = store_copy(w->snap[s->shard]);
    set_clock(w, s);
    store_set_slot(s->store, STORE_OWNED);
    store_restart(s->store, true);
    cut_all(w, s);
}

static void restart(struct world *w, struct slot *slot) {
    rules_lost_data(w);
    if (slot->moving && rnd_unit(w) < 0.7)
        target_restarts(w, slot->node[slot->to]);
    else
        owner_restarts(w, slot);
}

/* Makes the promoted replica `fresh` the new owner of the slot. In half of the
 * cases the old master becomes a replica of `fresh` at once. Otherwise the old master still serves
 * clients for a while. */
void cluster_failed_over(struct world *w, struct server *old, struct server *fresh) {
    struct slot *slot = &w->slot[fresh->shard];
    set_clock(w, fresh);
    store_set_cluster(fresh->store, store_time_us(fresh->store) - LONG_AGO_MS * INT64_C(1000));
    store_set_slot(fresh->store, STORE_OWNED);
    if (slot->moving) {
        /* Delete the keys that have already moved, because the protocol does not promise to survive
         * a mixture of keys from two moments. */
        store_flushall(slot->node[slot->to]->store);
        slot->moving = false;
        store_set_slot(old->store, STORE_OWNED);
    }
    slot->node[slot->at] = fresh;
    if (rnd_unit(w) < 0.5) return;
    old->until_ms = -1;
    store_set_slot(old->store, STORE_ELSEWHERE);
    store_set_role(old->store, "slave");
}

/* Sometimes moves some keys, restarts a node, or begins or ends a migration. Returns true if it did
 * one of these things. The world then makes no other fault in this step. */
bool cluster_fault(struct world *w) {
    struct slot *slot = &w->slot[rnd_below(w, SHARDS)];
    if (rnd_unit(w) < 0.002 * w->f->restart) return restart(w, slot), true;
    if (!slot->moving && w->f->planned && w->now_ms < slot->came_ms + w->config.lock.ttl_ms)
        return false;
    if (!slot->moving) return rnd_unit(w) < 0.004 * w->f->move && (begin(w, slot), true);
    double v = rnd_unit(w);
    if (v >= 0.1) return false;
    if (v < 0.002) return give_up(w, slot), true;
    struct server *from = slot->node[slot->at];
    move_keys(w, from, slot->node[slot->to], 1 + (size_t)rnd_below(w, 4));
    if (!store_dbsize(from->store)) end(w, slot);
    return true;
}

/* Completes all migrations. The world calls this function when faults stop. */
void cluster_rest(struct world *w) {
    for (int s = 0; s < SHARDS; s++) {
        if (!w->slot[s].moving) continue;
        move_keys(w, w->slot[s].node[w->slot[s].at], w->slot[s].node[w->slot[s].to], SIZE_MAX);
        end(w, &w->slot[s]);
    }
}

void cluster_judge(struct world *w) {
    if (!w->moves) world_bad(w, "no slot was moved");
    if (w->f->planned && !w->counts.epochs_lost) world_bad(w, "no epoch ended, though slots moved");
}

/* Returns the node that a client believes to be the owner of the slot. Sometimes this is a wrong
 * node, as if the client had an outdated map of the slots. */
struct server *cluster_find(struct world *w, int shard) {
    if (w->f->move > 0 && rnd_unit(w) < 0.1) return w->slot[shard].node[rnd_below(w, NODES)];
    return w->master[shard];
}
