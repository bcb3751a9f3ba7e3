/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a shard after a script failed in the middle. The checks must hold at once, because the
 * call may never be sent again. The lane of each waiting list must be in the Redis zset `lanes`;
 * otherwise the lane would never be looked at again. Each message that is marked as waiting must be
 * in the waiting list of its lane; otherwise the message would never run. No mode of the simulation
 * combines scripts that fail with waiting lists that vanish. */
#include "tests/sim/world/world.h"

#include <inttypes.h>
#include <stdio.h>

struct list {
    char name[40];
    size_t n_name;
};

static struct list list_of(int shard, int key) {
    struct list l;
    l.n_name = (size_t)snprintf(l.name, sizeof l.name, "lw:{t.%d}:wait:k%d", shard, key);
    return l;
}

static bool stands_in_lanes(const struct server *s, int key) {
    char lanes[40], lane[8];
    double score;
    int n = snprintf(lanes, sizeof lanes, "lw:{t.%d}:lanes", s->shard),
        n_lane = snprintf(lane, sizeof lane, "k%d", key);
    return store_peek_score(s->store, lanes, (size_t)n, lane, (size_t)n_lane, &score);
}

static bool stands_in_list(const struct server *s, int key, int part, int64_t offset) {
    struct list l = list_of(s->shard, key);
    const char *value;
    size_t size;
    for (size_t at = 0; store_peek_list(s->store, l.name, l.n_name, at, &value, &size); at++) {
        int64_t its_offset = -1;
        int its_part = -1;
        sscanf(value, "1 t %d %" SCNd64, &its_part, &its_offset);
        if (its_part == part && its_offset == offset) return true;
    }
    return false;
}

static void look_at_record(struct world *w, const struct server *s, int part, int index) {
    const struct sim_part *p = &w->part[part];
    char tp[16];
    snprintf(tp, sizeof tp, "t:%d", part);
    if (finished_in(s, tp, p->offset[index]) || state_in(s, tp, p->offset[index]) != 1) return;
    if (!stands_in_list(s, p->key[index], part, p->offset[index]))
        world_bad(w, "torn: t/%d/%" PRId64 " is said to wait, and stands in no list", part,
                  p->offset[index]);
}

void torn_look(struct world *w, const struct server *s) {
    for (int key = 0; key < KEYS; key++) {
        struct list l = list_of(s->shard, key);
        if (store_length(s->store, l.name, l.n_name) && !stands_in_lanes(s, key))
            world_bad(w, "torn: the list of key %d does not stand in lanes", key);
    }
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < w->part[part].n; i++) look_at_record(w, s, part, i);
}
