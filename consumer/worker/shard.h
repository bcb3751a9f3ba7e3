/* SPDX-License-Identifier: Apache-2.0 */
/* shard: the part of the worker that handles one shard: the connection to its Redis server, and the
 * shard's lanes in memory. Each step has a struct of its own in `struct shard`, and only the step's
 * own file changes that struct (tests/cli/test_owners.py). */
#ifndef LW_CONSUMER_WORKER_SHARD_H
#define LW_CONSUMER_WORKER_SHARD_H

#include "config/shard.h"
#include "consumer/worker/claim.h"
#include "consumer/worker/commit.h"
#include "consumer/worker/connection.h"
#include "consumer/worker/epoch.h"
#include "consumer/worker/gate.h"
#include "consumer/worker/pipe.h"
#include "consumer/worker/settle.h"
#include "consumer/worker/watch.h"

#include <assert.h>

struct lane;
struct lw_worker;

enum phase { DOWN, HELLO, ENTERING, REPAIRING, READY };

struct shard {
    int index;
    char prefix[LW_SHARD_PREFIX]; /* prefix of the names of the shard's keys in Redis */
    size_t n_prefix;
    char *key_epoch, *key_lanes, *key_floor, *key_fence, *key_ready, *key_dead, *key_claimed,
        *key_workers, *key_vanished;
    enum phase phase;
    struct connection server;
    struct epoch epoch;
    struct repair repair;
    struct tend tend;
    struct pipeline pipe;
    struct gate gate;
    struct settle settle;
    struct claim claim;
    struct hints hints;
    struct watch watch;
    struct floors floors;
    struct vanished vanished;
    struct first first;
    struct refusal refusal;

    struct lane *lanes; /* hash table of the known lanes, by id (lane.c) */
};

void shard_to(struct shard *sh, enum phase to);

/* Asserts the shard's invariants at the beginning and the end of its turn. A shard that is
 * REPAIRING or READY has an epoch, and one that is ENTERING has none. A pipeline is in flight only
 * while there is a connection. */
static inline void check_shard(const struct shard *sh) {
    assert(sh->prefix[0] && sh->index >= 0);
    assert(epoch_joined(sh) ? sh->phase != ENTERING : sh->phase < REPAIRING);
    assert(!pipe_in_flight(sh) || sh->phase != DOWN);
    check_pipe(&sh->pipe);
}

#endif
