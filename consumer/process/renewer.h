/* SPDX-License-Identifier: Apache-2.0 */
/* The renewer: the thread that keeps leases alive, with connections of its own, so that neither a slow turn of the main loop nor a long
 * pipeline lets a lease run out; and the self-fence, which cancels what could not be renewed in time.
 *
 * Each tick (a twelfth of the TTL, 5 to 200 ms): fence; then, shard by shard, what is older than a third of the TTL goes to renew.lua,
 * at most LW_RENEW_BATCH at once, one unanswered request a shard. A request has a quarter of the TTL; there are two such tries before the
 * fence. */
#ifndef LW_CONSUMER_PROCESS_RENEWER_H
#define LW_CONSUMER_PROCESS_RENEWER_H

#include "base/redis/finder.h"
#include "consumer/board.h"
#include "consumer/worker/lease.h"

struct lw_renewer;

struct lw_renewer_setup {
    struct lw_finder *finder; /* borrowed */
    int shards;
    int64_t ttl_ms;
    const char *worker_id; /* tokens are worker_id "." number; borrowed */
    struct lw_leases *leases;
    struct lw_counts *counts;                                      /* where lost leases are counted; may be NULL */
    bool (*epoch)(void *ctx, int shard, char *epoch, size_t size); /* thread-safe */
    const char *(*prefix)(void *ctx, int shard);                   /* constant, thread-safe */
    void *ctx;
};

struct lw_renewer *lw_renewer_open(const struct lw_renewer_setup *setup, struct lw_err *err);
void lw_renewer_close(struct lw_renewer *r); /* ends the thread; after that no lease is fenced */

#endif
