/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer/fleet/service.h"

#include "base/log.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    /* STATUS_EVERY_MS is the minimum time between two STATUS messages. The counts in the text
     * change all the time, and each message wakes the service manager and every program that
     * watches it. */
    STATUS_EVERY_MS = 5000,
    /* WATCHDOG_MARGIN_MS is added to the time after which the supervisor replaces a hung worker.
     * The sum is the shortest watchdog that the service manager may use. */
    WATCHDOG_MARGIN_MS = 60000,
    /* STOP_MARGIN_MS is added to the time after which the supervisor kills a worker that does not
     * end. The sum is the time within which the supervisor and all workers must have ended. */
    STOP_MARGIN_MS = 10000,
    /* RELOAD_STEP_MS: at each tick of a reload, the supervisor asks the service manager to extend
     * the timeout of the reload by at least this time */
    RELOAD_STEP_MS = 30000
};

void lw_service_open(struct lw_service *v, const struct lw_sup *s) {
    *v = (struct lw_service){.ready_by_ms = s->now() + s->times.ready_ms, .ready_workers = -1};
    lw_notify_open(&v->notify);
    int64_t least = s->times.heartbeat_ms + WATCHDOG_MARGIN_MS;
    if (!v->notify.watchdog_ms || v->notify.watchdog_ms >= least) return;
    lw_info("service manager: its watchdog of %" PRId64 " ms is raised to %" PRId64
            " ms, so that a hung worker is replaced first",
            v->notify.watchdog_ms, least);
    if (lw_notify_send(&v->notify, "WATCHDOG_USEC=%" PRId64, least * 1000))
        v->notify.watchdog_ms = least;
}

/* --- how the workers stand -------------------------------------------------------------------- */

static bool is_ready(const struct lw_sup *s, int worker) {
    return s->workers[worker].state == LW_SUP_RUNNING &&
           atomic_load(&s->board->workers[worker].ready);
}

static int count_ready(const struct lw_sup *s) {
    int n = 0;
    for (int i = 0; i < s->board->n_wanted; i++) n += is_ready(s, i);
    return n;
}

/* Returns false if the main loop of a running worker has not turned since the previous tick. */
static bool all_turn(const struct lw_sup *s) {
    for (int i = 0; i < s->board->n_workers; i++) {
        const struct lw_sup_worker *w = &s->workers[i];
        if ((w->state == LW_SUP_RUNNING || w->state == LW_SUP_ROLLING) && w->beat.for_ms > 0)
            return false;
    }
    return true;
}

/* Writes the number of the first worker that is not ready and its reason to `out`. Writes "" if all
 * workers are ready, or if that worker has given no reason. */
static void reason(const struct lw_sup *s, char *out, size_t size) {
    char why[320];
    int worker = 0;
    *out = '\0';
    while (worker < s->board->n_wanted && is_ready(s, worker)) worker++;
    if (worker == s->board->n_wanted ||
        !lw_note_get(&s->board->workers[worker].why, why, sizeof why) || !*why)
        return;
    /* line breaks are replaced by blanks, because a line break would begin another NAME=VALUE pair
     * of the message to the service manager */
    for (char *p = why; *p; p++)
        if (iscntrl((unsigned char)*p)) *p = ' ';
    snprintf(out, size, "; worker %d: %s", worker, why);
}

static bool send_status(struct lw_service *v, const struct lw_sup *s, const char *before) {
    char why[400];
    struct lw_sup_totals t = lw_sup_totals(s->board);
    int ready = count_ready(s);
    reason(s, why, sizeof why);
    bool sent = lw_notify_send(&v->notify,
                               "%sSTATUS=%d of %d workers are ready%s; done %" PRIu64
                               ", dead %" PRIu64 ", waiting %" PRIu64,
                               before, ready, s->board->n_wanted, why, t.done, t.dead, t.waiting);
    if (sent) v->ready_workers = ready, v->status_ms = s->now();
    return sent;
}

/* --- the life of the run ---------------------------------------------------------------------- */

static void become_ready(struct lw_service *v, const struct lw_sup *s, int64_t now_ms) {
    if (v->state != LW_SERVICE_STARTING ||
        (count_ready(s) < s->board->n_wanted && now_ms < v->ready_by_ms))
        return;
    if (send_status(v, s, "READY=1\n")) v->state = LW_SERVICE_READY;
}

static void end_reload(struct lw_service *v) {
    if (v->state != LW_SERVICE_RELOADING || !v->reloaded) return;
    if (!lw_notify_send(&v->notify, "READY=1\nSTATUS=%s", v->reloaded)) return;
    v->state = LW_SERVICE_READY;
    v->reloaded = NULL;
}

void lw_service_tick(struct lw_service *v, const struct lw_sup *s, int64_t now_ms) {
    if (v->notify.fd == -1) return;
    become_ready(v, s, now_ms);
    end_reload(v);
    if (v->state == LW_SERVICE_RELOADING)
        lw_notify_send(&v->notify, "EXTEND_TIMEOUT_USEC=%d", RELOAD_STEP_MS * 1000);
    bool due = now_ms - v->status_ms >= STATUS_EVERY_MS || count_ready(s) != v->ready_workers;
    if (due && v->state != LW_SERVICE_STOPPING) send_status(v, s, "");
    if (v->notify.watchdog_ms && all_turn(s)) lw_notify_send(&v->notify, "WATCHDOG=1");
}

void lw_service_reloading(struct lw_service *v) {
    struct timespec t;
    if (v->state == LW_SERVICE_STOPPING) return;
    /* The message contains a time of CLOCK_MONOTONIC, the clock that the service manager uses as
     * well. From the time, the manager can tell this reload from one that it asks for later. */
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    lw_notify_send(&v->notify,
                   "RELOADING=1\nMONOTONIC_USEC=%" PRId64
                   "\nSTATUS=reloading: reading the configuration, then replacing worker by worker",
                   us);
    v->state = LW_SERVICE_RELOADING;
    v->reloaded = NULL;
}

void lw_service_reloaded(struct lw_service *v, const char *how) {
    v->reloaded = how;
    end_reload(v);
}

void lw_service_stopping(struct lw_service *v, const struct lw_sup *s) {
    int64_t ms = s->c->shutdown.grace_ms + s->times.margin_ms + STOP_MARGIN_MS;
    if (v->state == LW_SERVICE_STOPPING) return;
    v->state = LW_SERVICE_STOPPING;
    lw_notify_send(&v->notify,
                   "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRId64
                   "\nSTATUS=stopping: finishing what is in a handler",
                   ms * 1000);
}
