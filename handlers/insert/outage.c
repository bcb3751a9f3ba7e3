/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/insert/insert.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

enum { PAUSE_MS = 250, PAUSE_MAX_MS = 10000 };

void lw_outage_init(struct lw_outage *o, const char *name) {
    *o = (struct lw_outage){.name = name};
    pthread_mutex_init(&o->lock, NULL);
    lw_trial_open(&o->trial, 1);
}

void lw_outage_free(struct lw_outage *o) {
    pthread_mutex_destroy(&o->lock);
    lw_trial_close(&o->trial);
}

/* The caller holds the mutex. */
static void begin(struct lw_outage *o, const char *why) {
    int64_t now = lw_boot_ms();
    snprintf(o->why, sizeof o->why, "%s", why);
    if (!o->away || now >= o->until_ms) { /* failures during a pause do not extend it */
        if (!o->away) o->since_ms = now;
        o->pause_ms = !o->away                         ? PAUSE_MS
                      : 2 * o->pause_ms < PAUSE_MAX_MS ? 2 * o->pause_ms
                                                       : PAUSE_MAX_MS;
        o->until_ms = now + o->pause_ms;
        o->away = true;
        lw_warn("insert: %s: %s; pausing for %" PRId64
                " ms, then a few messages test it; no attempt is counted",
                o->name, why, o->pause_ms);
    }
}

void lw_outage_begin(struct lw_outage *o, const char *why) {
    pthread_mutex_lock(&o->lock);
    begin(o, why);
    pthread_mutex_unlock(&o->lock);
}

bool lw_outage_failed(struct lw_outage *o, const char *identity, const char *why,
                      int64_t *rest_ms) {
    pthread_mutex_lock(&o->lock);
    bool own = lw_trial_failed(&o->trial, identity);
    if (!own) begin(o, why);
    *rest_ms = own ? 0 : lw_trial_rest_ms(o->pause_ms);
    pthread_mutex_unlock(&o->lock);
    return own;
}

void lw_outage_answered(struct lw_outage *o, const char *identity) {
    pthread_mutex_lock(&o->lock);
    lw_trial_succeeded(&o->trial, identity);
    pthread_mutex_unlock(&o->lock);
    lw_outage_end(o);
}

void lw_outage_end(struct lw_outage *o) {
    if (!atomic_load(&o->away)) return;
    pthread_mutex_lock(&o->lock);
    if (o->away)
        lw_info("insert: %s: it answers again after %" PRId64 " ms; resuming", o->name,
                lw_boot_ms() - o->since_ms);
    o->away = false;
    pthread_mutex_unlock(&o->lock);
}

bool lw_outage_pauses(struct lw_outage *o, int64_t now_ms) {
    return atomic_load(&o->away) && now_ms < atomic_load(&o->until_ms);
}

enum lw_health lw_outage_health(struct lw_outage *o, char *why, size_t size) {
    if (!atomic_load(&o->away)) return LW_WELL;
    if (why) {
        pthread_mutex_lock(&o->lock);
        snprintf(why, size, "insert: %s: %s", o->name, o->why);
        pthread_mutex_unlock(&o->lock);
    }
    return lw_outage_pauses(o, lw_boot_ms()) ? LW_UNABLE : LW_ON_TRIAL;
}
