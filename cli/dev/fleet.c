/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the workers of `latchwork dev` and their supervisor in the same way as the command `run`.
 * The supervisor copies figures from the board into struct dev_shared, from which the coordinator
 * reads them. */
#include "cli/dev/private.h"

#include "base/log.h"
#include "api/api.h"
#include "config/config.h"
#include "consumer/fleet/supervisor.h"
#include "consumer/process/member.h"
#include "kafka/source.h"
#include "monitor/tracing/tracing.h"

#include <stdlib.h>

enum { TICK_MS = 10 };

struct fleet {
    const struct dev_home *home;
    struct dev_shared *shared;
};

static void watch(void *ctx, const struct lw_board *b) {
    struct dev_shared *s = ((struct fleet *)ctx)->shared;
    uint64_t done = 0, dead = 0, parked = 0, drained = 0;
    for (int i = 0; i < b->n_workers && i < DEV_WORKERS; i++) {
        const struct lw_board_worker *w = &b->workers[i];
        done += atomic_load(&w->counts.done);
        dead += atomic_load(&w->counts.dead);
        parked += atomic_load(&w->counts.parked);
        drained += atomic_load(&w->counts.drained);
        atomic_store(&s->workers[i].pid, atomic_load(&w->pid));
        atomic_store(&s->workers[i].ready, atomic_load(&w->ready));
    }
    atomic_store(&s->done, done);
    atomic_store(&s->dead, dead);
    atomic_store(&s->parked, parked);
    atomic_store(&s->drained, drained);
}

static int fleet_main(void *ctx, int ready_fd) {
    struct fleet *f = ctx;
    struct lw_problems problems = {0};
    struct lw_config *c = lw_config_load(f->home->config, NULL, 0, &problems);
    if (!c) {
        dev_child_ready(ready_fd,
                        problems.errors.n ? problems.errors.p : "cannot read the configuration");
        return 2;
    }
    lw_problems_free(&problems);
    dev_child_ready(ready_fd, NULL);
    struct lw_supervise_options o = {
        .worker_main = lw_worker_main,
        .ends = lw_source_ends,
        .watch = watch,
        .exporter_main = lw_api_exporter_main,
        .tracer_main = lw_tracing_main,
        .member_claim = lw_member_claim,
        .ctx = f,
        .runs_in_worker = false,
        .times.tick_ms = TICK_MS,
    };
    int status = lw_supervise(c, &o);
    lw_config_free(c);
    return status;
}

int dev_fleet_start(struct dev_child *c, const struct dev_home *h, struct dev_shared *shared,
                    struct lw_err *err) {
    /* `f` is on the stack, which is safe because the child process has its own copy of it */
    struct fleet f = {h, shared};
    return dev_child_start(c, "supervisor", h->log, fleet_main, &f, err);
}
