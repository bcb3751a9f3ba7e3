/* SPDX-License-Identifier: Apache-2.0 */
/* Handles leases, which are the locks that this worker holds, and keeps them alive.
 *
 * A lease is a lock with a deadline. The holder counts the deadline from *before* it sent the
 * request that got or extended the lock, on the boot clock, so that its own idea of the deadline is
 * never later than that of Redis. A renewer, which is a thread in the program and a step in the
 * simulation, extends the leases that are older than a third of the TTL. It never takes a lock
 * again. A lease that has not been extended when two thirds of its TTL are over is cancelled: the
 * handler is asked to stop while the lease is still live (self-fence).
 *
 *     lw_leases_add()  →  [lw_leases_due() → renew.lua → lw_leases_renewed()]…
 *     →  lw_leases_remove()
 *
 * After a crash nothing has to be cleaned up, because the locks expire. All functions are
 * thread-safe. The memory of a lease belongs to the caller and must stay readable as long as the
 * table exists, because the answer to a renewal may come after the lease was removed. */
#ifndef LW_LOCK_LANE_LEASE_H
#define LW_LOCK_LANE_LEASE_H

#include "base/bytes.h"
#include "queue/lane.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LW_RENEW_BATCH = 128, LW_LEASE_RUN = 368 };

/* The part of a lease that jobs and handlers see. Any thread may read it. */
struct lw_job_lease {
    /* `deadline_ms` is the time at which the lease ends. Each renewal of the lease makes it
     * later. Boot clock. */
    _Atomic int64_t deadline_ms;
    /* `cancelled` becomes true when the handler must stop, because the lease is lost or about to be
     * lost. */
    atomic_bool cancelled;
};

struct lw_lease {
    struct lw_job_lease held;
    uint64_t token; /* number of the acquisition, unique within the worker */
    int shard;
    struct lw_bytes lane; /* id of the lane; the caller owns it while the lease is in the table */
    uint64_t id;          /* number of the lease in the table; 0: the lease is not in the table */
    /* `lost` is true if a renewal found that the lease is lost, so the lease is not renewed
     * again */
    bool lost;
    /* `run` says which message runs under the lease, as "IDENTITY ATTEMPT SINCE_MS" (wall clock),
     * if it has run for some time; otherwise it is empty. A renewal writes it to Redis, where
     * operators read it. */
    char run[LW_LEASE_RUN];
    struct lw_lease *prev, *next;
};

struct lw_leases; /* the table of leases */

/* Describes one lease to renew. The struct is a copy, so that no mutex is held while the request is
 * in flight. */
struct lw_due {
    struct lw_lease *lease;
    uint64_t id, token;
    size_t n_lane;
    char lane[LW_LANE_MAX];
    char run[LW_LEASE_RUN];
};

struct lw_leases *lw_leases_open(int shards, int64_t ttl_ms);
void lw_leases_close(struct lw_leases *t);
void lw_leases_add(struct lw_leases *t, struct lw_lease *l, int64_t deadline_ms);
/* Sets a new deadline of the lease, and clears its cancellation. Call this function when settle has
 * answered that this worker keeps the lock: either more messages of the hold may run, or settle has
 * granted the lane's next heads. */
void lw_leases_extend(struct lw_leases *t, struct lw_lease *l, int64_t deadline_ms);
/* Sets a time after which no lease is live, whatever Redis answers, because what else the messages
 * need to run ends then (consumer/worker/limit.c). Deadlines that were set before stay as they
 * are. */
void lw_leases_bound(struct lw_leases *t, int64_t until_ms);
/* Notes which message runs under the lease (`run` of struct lw_lease); "": none that has run for
 * long. */
void lw_leases_note(struct lw_leases *t, struct lw_lease *l, const char *run);
/* Removes a lease from the table. Does nothing if the lease is not there. */
void lw_leases_remove(struct lw_leases *t, struct lw_lease *l);
/* Cancels all leases of a shard whose epoch is lost. */
void lw_leases_cancel_shard(struct lw_leases *t, int shard);

/* Copies the leases of a shard that are due for renewal to `out`, earliest deadline first, at most
 * max. Returns their number. */
size_t lw_leases_due(struct lw_leases *t, int shard, int64_t now_ms, struct lw_due *out,
                     size_t max);
/* Applies the answer of renew.lua, which has one character per lease. sent_ms is a time before the
 * request was sent. Returns how many leases turned out to be lost. */
size_t lw_leases_renewed(struct lw_leases *t, const struct lw_due *due, size_t n,
                         const char *answers, int64_t sent_ms);
/* Cancels leases that could not be renewed in time, and returns their number. */
size_t lw_leases_fence(struct lw_leases *t, int64_t now_ms);

#endif
