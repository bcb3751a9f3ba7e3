/* SPDX-License-Identifier: Apache-2.0 */
/* The renewer is the thread that keeps leases alive. It has connections of its own, so that neither
 * a slow turn of the main loop nor a long pipeline lets a lease run out. The renewer also applies
 * the self-fence, which cancels leases that could not be renewed in time.
 *
 * The time between two ticks is a twelfth of the TTL, limited to the range from 5 to 200 ms. Each
 * tick applies the self-fence. Then, for each shard, it sends the leases that are older than a
 * third of the TTL to renew.lua, at most LW_RENEW_BATCH at once. A shard has one unanswered request
 * at a time. A request may take a quarter of the TTL, so that two requests fit in before the
 * self-fence. */
#ifndef LW_LOCK_LANE_RENEWER_H
#define LW_LOCK_LANE_RENEWER_H

#include "base/redis/finder.h"
#include "lock/lane/lease.h"

struct lw_renewer;

struct lw_renewer_setup {
    struct lw_finder *finder; /* finds the servers of the shards; borrowed */
    int shards;
    int64_t ttl_ms;
    /* `worker_id` is the id of this worker, to which a number is added to form a token; borrowed */
    const char *worker_id;
    struct lw_leases *leases;
    _Atomic uint64_t *lost; /* the renewer adds the number of lost leases; NULL: does not count */
    /* `epoch` copies the id of a shard's epoch; this function must be thread-safe */
    bool (*epoch)(void *ctx, int shard, char *epoch, size_t size);
    /* `prefix` returns the prefix of a shard's names in Redis. The prefix never changes. This
     * function must be thread-safe. */
    const char *(*prefix)(void *ctx, int shard);
    void *ctx;
};

struct lw_renewer *lw_renewer_open(const struct lw_renewer_setup *setup, struct lw_err *err);
/* Ends the thread of the renewer. Afterwards no lease is renewed, and the self-fence cancels no
 * handler. */
void lw_renewer_close(struct lw_renewer *r);

#endif
