/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork lock exec KEY -- CMD…`, which runs a command under a lock. */
#include "cli/lock/lock.h"

#include "cli/lock/run.h"

#include <errno.h>
#include <string.h>

enum { SIGNAL_STATUS = 128 };

static int first_holder(void *ctx, const struct latchwork_lock_info *info) {
    struct lock_row row = lock_row_of(info, 0, false, ctx, -1);
    char who[200], text[300];
    struct lw_bytes holder = row.holder.p ? row.holder : row.token;
    lock_text(holder, who, sizeof who);
    if (info->left_ms < 0)
        snprintf(text, sizeof text, "without a TTL; use lock show --set-ttl to give it one");
    else
        snprintf(text, sizeof text, "%lld ms of its lease left", (long long)info->left_ms);
    fprintf(stderr, "  held by %s, %s\n", who, text);
    return 1;
}

static int not_had(const struct lock_args *a, struct lock_target *t, enum latchwork_result result,
                   const struct latchwork_error *error) {
    if (result != LATCHWORK_LOCK_BUSY) return lock_failed(a, error);
    char key[600];
    lock_say(a, "%s could not be locked within %lld ms: %s",
             lock_text(lw_bytes_of(a->key), key, sizeof key), (long long)a->wait_ms,
             error->code == LATCHWORK_E_NO_TTL
                 ? "held by a lock without a TTL, which never ends by itself"
                 : error->text);
    latchwork_lock_show(t->lock, first_holder, t->lane ? "" : NULL, NULL);
    return LOCK_EXIT_BUSY;
}

static int run(const struct lock_args *a, struct lock_signals *s, struct latchwork_hold *hold) {
    struct latchwork_error error = {0};
    struct lock_ran ran = lock_run(s, hold, a->cli.tail, a->kill_after_ms);
    enum latchwork_result released = latchwork_hold_release(hold, &error);
    if (released == LATCHWORK_LOCK_ERROR)
        lock_say(a, "the lock was not released and expires by itself: %s", error.text);
    bool gone = released == LATCHWORK_LOCK_LOST && error.code != LATCHWORK_E_UNKNOWN;
    if (gone && !ran.lost && !ran.not_begun)
        lock_say(a, "the lock was lost before the command ended");
    if (ran.status == 0 && (ran.lost || gone)) return LOCK_EXIT_FAILED;
    return ran.status;
}

static int wait_and_run(const struct lock_args *a, struct lock_signals *s, struct lock_target *t) {
    struct latchwork_error error = {0};
    struct latchwork_hold *hold = NULL;
    if (!lock_wait_begin(s, t->client)) {
        lock_say(a, "cannot start the thread that watches signals");
        return LOCK_EXIT_FAILED;
    }
    enum latchwork_result result = latchwork_lock_acquire(t->lock, a->wait_ms, &hold, &error);
    int sig = lock_wait_end(s);
    if (sig) {
        if (hold) latchwork_hold_release(hold, NULL);
        return SIGNAL_STATUS + sig;
    }
    return result == LATCHWORK_LOCK_OK ? run(a, s, hold) : not_had(a, t, result, &error);
}

int lock_exec(const struct lock_args *a) {
    struct lock_signals s;
    struct lock_target t = {0};
    if (!lock_signals_begin(&s)) {
        lock_say(a, "signals: %s", strerror(errno));
        lock_signals_end(&s);
        return LOCK_EXIT_FAILED;
    }
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .flags = LATCHWORK_FLAG_RENEW,
                                       .ttl_ms = a->ttl_ms, .max_hold_ms = -1,
                                       .lost = lock_lost,   .lost_ctx = &s};
    int status = lock_target_open(&t, a, &o);
    if (!status && t.lane && a->paused) lw_lane_lock_take_paused(t.lane);
    if (!status) status = wait_and_run(a, &s, &t);
    lock_target_close(&t);
    lock_signals_end(&s);
    return status;
}
