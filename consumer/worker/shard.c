/* SPDX-License-Identifier: Apache-2.0 */
/* shard: the part of the worker that handles one shard, and the phases of its connection.
 *
 *     DOWN --connected--> HELLO --same life--> READY <-------------------.
 *                           '--new or none--> ENTERING --OK--> REPAIRING-'
 *       any --LOST, other life, clock jumped--> DOWN
 *
 * If the life is the same, but the connection broke during the repair, HELLO leads to REPAIRING. On
 * a Redis Cluster each new connection goes through ENTERING. If the server of the
 * new connection has the id of this worker's epoch, the epoch goes on (move.c).
 *
 * connection.c sends HELLO, epoch.c sends enter, and repair.c sends repair. The calls gate, settle,
 * claim and watch are sent only in phase READY. */
#include "consumer/worker/private.h"

void shard_to(struct shard *sh, enum phase to) {
    assert(sh->phase <= READY && to <= READY);
    static const bool legal[5][5] = {
        [DOWN] = {[HELLO] = true},
        [HELLO] =
            {[DOWN] = true, [HELLO] = true, [ENTERING] = true, [REPAIRING] = true, [READY] = true},
        [ENTERING] = {[DOWN] = true, [HELLO] = true, [REPAIRING] = true, [READY] = true},
        [REPAIRING] = {[DOWN] = true, [HELLO] = true, [READY] = true},
        [READY] = {[DOWN] = true, [HELLO] = true},
    };
    assert(legal[sh->phase][to]);
    sh->phase = to;
}

static char *key_of(struct shard *sh, const char *name, const char *more) {
    assert(*sh->prefix && name);
    struct lw_buf b = {0};
    lw_buf_addf(&b, "%s%s%s%c", sh->prefix, name, more, 0);
    return b.p;
}

void shard_init(struct lw_worker *w, struct shard *sh, int index) {
    assert(index >= 0 && index < w->n_shards && !*sh->prefix);
    sh->index = index;
    sh->n_prefix = lw_shard_prefix(w->c, index, sh->prefix);
    sh->key_epoch = key_of(sh, "epoch", "");
    sh->key_lanes = key_of(sh, "lanes", "");
    sh->key_floor = key_of(sh, "floor", "");
    sh->key_fence = key_of(sh, "fence", "");
    sh->key_ready = key_of(sh, "ready", "");
    sh->key_dead = key_of(sh, "dead", "");
    sh->key_workers = key_of(sh, "workers", "");
    sh->key_vanished = key_of(sh, "vanished", "");
    sh->key_claimed = key_of(sh, "claimed:", w->set.id);
    gate_open(sh);
    settle_open(sh);
    check_shard(sh);
}

void shard_free(struct lw_worker *w, struct shard *sh) {
    assert(*sh->prefix && !sh->lanes);
    (void)w;
    char *names[] = {sh->key_epoch,   sh->key_lanes,   sh->key_floor,
                     sh->key_fence,   sh->key_ready,   sh->key_dead,
                     sh->key_workers, sh->key_claimed, sh->key_vanished};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) free(names[i]);
    pipe_free(sh);
    hints_free(sh);
    repair_free(sh);
}
