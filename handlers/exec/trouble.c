/* SPDX-License-Identifier: Apache-2.0 */
#include "handlers/exec/trouble.h"

#include "base/clock.h"
#include "base/log.h"
#include "handlers/trial.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    PAUSE_MS = 500,
    PAUSE_MAX_MS = 30000,
    /* `doubt` is set to UNPROVEN at the start, and when a process ends without having read a
     * request. It then stays at or above UNPROVEN until a process answers. */
    UNPROVEN = 1 << 20,
};

void trouble_open(struct trouble *t, int doubt_max) {
    pthread_mutex_init(&t->lock, NULL);
    t->doubt = UNPROVEN;
    t->doubt_max = doubt_max;
    t->pause_max_ms = PAUSE_MAX_MS;
}

void trouble_close(struct trouble *t) { pthread_mutex_destroy(&t->lock); }

bool trouble_innocent(struct trouble *t, bool has_read) {
    if (!has_read) t->doubt = UNPROVEN;
    return t->doubt++ >= t->doubt_max;
}

/* Starts a pause, in which the handler gets no messages. Processes that fail during the pause do
 * not extend it. */
void trouble_unable(struct trouble *t, const char *why) {
    int64_t now = lw_boot_ms();
    pthread_mutex_lock(&t->lock);
    snprintf(t->why, sizeof t->why, "%s", why);
    if (!t->unable || now >= t->until_ms) {
        t->pause_ms = !t->unable ? lw_trial_first_pause_ms(PAUSE_MS, t->pause_max_ms)
                      : 2 * t->pause_ms < PAUSE_MAX_MS ? 2 * t->pause_ms
                                                       : PAUSE_MAX_MS;
        if (t->pause_ms > t->pause_max_ms) t->pause_ms = t->pause_max_ms;
        t->until_ms = now + t->pause_ms;
        t->unable = true;
        lw_warn("handler: %s; pausing for %" PRId64 " ms, then a few messages test it", why,
                t->pause_ms);
    }
    pthread_mutex_unlock(&t->lock);
}

void trouble_answered(struct trouble *t) {
    t->doubt = 0;
    if (!atomic_load(&t->unable)) return;
    pthread_mutex_lock(&t->lock);
    if (t->unable) lw_info("handler: a process has answered; resuming");
    t->unable = false;
    pthread_mutex_unlock(&t->lock);
}

bool trouble_pauses(struct trouble *t, int64_t now_ms) {
    return atomic_load(&t->unable) && now_ms < atomic_load(&t->until_ms);
}

bool trouble_on_trial(struct trouble *t, int64_t now_ms) {
    return atomic_load(&t->unable) && now_ms >= atomic_load(&t->until_ms);
}

enum lw_health trouble_health(struct trouble *t, char *why, size_t size) {
    if (!atomic_load(&t->unable)) return LW_WELL;
    int64_t left = atomic_load(&t->until_ms) - lw_boot_ms();
    if (why) {
        pthread_mutex_lock(&t->lock);
        snprintf(why, size, "handler: %s", t->why);
        pthread_mutex_unlock(&t->lock);
    }
    return left > 0 ? LW_UNABLE : LW_ON_TRIAL;
}
