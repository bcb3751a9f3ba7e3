/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor tells its service manager (base/notify.h):
 *
 *     READY=1      once every worker is ready; after `ready_ms` in any case, because no restart mends a Redis or Kafka that is away
 *     RELOADING=1  at SIGHUP, then READY=1 when the last worker was replaced, or the new configuration has errors
 *     STOPPING=1   when the run is about to end; with the time that it may take, so that nobody has to repeat shutdown.grace_ms
 *     STATUS=…     how many workers are ready, why the first of the others is not, and what was done
 *     WATCHDOG=1   at each tick at which the main loop of every running worker has turned since the tick before
 *
 * So the manager restarts the whole run if the supervisor hangs, or if a worker hangs and killing it has not helped. It must not do so
 * before the supervisor had the time to replace the worker: a shorter watchdog is raised to that time and a minute. */
#ifndef LW_CONSUMER_FLEET_SERVICE_H
#define LW_CONSUMER_FLEET_SERVICE_H

#include "base/notify.h"
#include "consumer/fleet/table.h"

enum lw_service_state { LW_SERVICE_STARTING, LW_SERVICE_READY, LW_SERVICE_RELOADING, LW_SERVICE_STOPPING };

struct lw_service {
    struct lw_notify notify;
    enum lw_service_state state;
    int64_t ready_by_ms;  /* boot clock: READY=1 is sent then, whatever the workers are */
    int64_t status_ms;    /* boot clock: when the last STATUS was sent */
    int ready_workers;    /* as the last STATUS said; -1: none was sent */
    const char *reloaded; /* the end of a reload that the manager was not told of yet; NULL: none */
};

/* Call it before workers are forked. Close it with lw_notify_close(&v->notify). */
void lw_service_open(struct lw_service *v, const struct lw_sup *s);
/* Call it once per tick, after lw_sup_stands_still() was called for each worker. */
void lw_service_tick(struct lw_service *v, const struct lw_sup *s, int64_t now_ms);
void lw_service_reloading(struct lw_service *v);
/* `how` is a sentence for STATUS and must live for ever. */
void lw_service_reloaded(struct lw_service *v, const char *how);
void lw_service_stopping(struct lw_service *v, const struct lw_sup *s);

#endif
