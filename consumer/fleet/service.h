/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the supervisor sends to its service manager (base/notify.h):
 *
 *     READY=1      as soon as every worker is ready; after a limited time (`ready_by_ms`)
 *                  in any case, because a restart does not help when Redis or Kafka is down
 *     RELOADING=1  at SIGHUP; READY=1 follows when the last worker was replaced, or if the new
 *                  configuration has errors
 *     STOPPING=1   when the supervisor begins to stop its workers; the message contains the time
 *                  that this may take, so that no unit file has to repeat shutdown.grace_ms
 *     STATUS=…     how many workers are ready, why a worker is not ready (the first such worker),
 *                  and how many messages are done, dead and waiting
 *     WATCHDOG=1   at each tick at which the main loop of every running worker has turned since the
 *                  tick before
 *
 * So the manager restarts the supervisor with all its workers if the supervisor hangs, or if a
 * worker still hangs after the supervisor tried to kill it. The supervisor needs time to replace a
 * hung worker before the manager does that. So if the manager's watchdog is shorter than the
 * supervisor's `heartbeat_ms` plus a minute, the supervisor raises the watchdog to this sum. */
#ifndef LW_CONSUMER_FLEET_SERVICE_H
#define LW_CONSUMER_FLEET_SERVICE_H

#include "base/notify.h"
#include "consumer/fleet/table.h"

enum lw_service_state {
    LW_SERVICE_STARTING,
    LW_SERVICE_READY,
    LW_SERVICE_RELOADING,
    LW_SERVICE_STOPPING
};

struct lw_service {
    struct lw_notify notify;
    enum lw_service_state state;
    /* `ready_by_ms` is the time on the boot clock at which READY=1 is sent even if some workers are
     * not ready */
    int64_t ready_by_ms;
    int64_t status_ms; /* time on the boot clock at which the last STATUS was sent */
    int ready_workers; /* number of ready workers in the last STATUS; -1: no STATUS was sent */
    /* `reloaded` says how the last reload ended, until the next STATUS has told the service
     * manager; NULL: there is nothing to tell */
    const char *reloaded;
};

/* Opens the connection to the service manager. Call this function before workers are forked. Close
 * the connection with lw_notify_close(&v->notify). */
void lw_service_open(struct lw_service *v, const struct lw_sup *s);
/* Sends what the service manager must learn now, such as READY=1, STATUS and WATCHDOG=1. Call this
 * function once per tick, after lw_sup_stands_still() was called for each worker. */
void lw_service_tick(struct lw_service *v, const struct lw_sup *s, int64_t now_ms);
void lw_service_reloading(struct lw_service *v);
/* Notes that a reload has ended. `how` is a sentence for STATUS; its text must stay valid until the
 * process ends. */
void lw_service_reloaded(struct lw_service *v, const char *how);
void lw_service_stopping(struct lw_service *v, const struct lw_sup *s);

#endif
