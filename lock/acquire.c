/* SPDX-License-Identifier: Apache-2.0 */
/* Acquires a lock that is stored on one Redis. Waiting for the lock is a sequence of attempts:
 *
 *     one attempt → [stand in line → sleep until notified, or until the next attempt is due
 *     → attempt]… → leave the line */
#include "lock/one.h"

#include "base/clock.h"
#include "lock/waking.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    /* LOOK_MS is for mutexes and semaphores: the maximum time, in ms, between two attempts of the
     * first waiter in line. For each wait, this time is made up to 20 % shorter or longer at
     * random. */
    LOOK_MS = 5000,
    /* LOOK_QUEUE_MS replaces LOOK_MS for fair and read/write locks. It is shorter, because only the
     * attempts show Redis that the waiting client is alive. */
    LOOK_QUEUE_MS = 1000,
    /* POLL_MIN_MS and POLL_MAX_MS are the bounds, in ms, of the random pause between two attempts
     * if releases of the lock are not announced. */
    POLL_MIN_MS = 10,
    POLL_MAX_MS = 100,
    BACKOFF_MAX_MS = 1000,
};

static struct lw_waking *waking_of(struct latchwork_client *c, struct latchwork_error *error) {
    struct lw_waking *k = atomic_load(&c->waking);
    if (k) return k;
    pthread_mutex_lock(&c->start);
    k = atomic_load(&c->waking);
    if (!k) atomic_store(&c->waking, k = lw_waking_open(c, error));
    pthread_mutex_unlock(&c->start);
    return k;
}

/* Returns how long the first waiter in line may sleep, in ms, after its attempt found the lock
 * held. */
static int64_t look_after_ms(const struct lw_take *t, bool told) {
    int64_t left = t->left_ms;
    if (!told) {
        int64_t ms = POLL_MIN_MS + (int64_t)lw_random(POLL_MAX_MS - POLL_MIN_MS);
        return left > 0 && left + 1 < ms ? left + 1 : ms;
    }
    int64_t most = lw_one_queues(t->lock) ? LOOK_QUEUE_MS : LOOK_MS;
    most = most - most / 5 + (int64_t)lw_random((uint64_t)most * 2 / 5);
    if (left <= 0) return most;
    /* Add a random delay, so that the clients that wait for the same lease to expire do not all try
     * at the same moment. */
    int64_t spread = left / 8 < 50 ? left / 8 : 50;
    left += 1 + (int64_t)lw_random((uint64_t)spread + 1);
    return left < most ? left : most;
}

static enum latchwork_result is_held(const struct lw_take *t, struct latchwork_error *error) {
    const struct latchwork_lock *l = t->lock;
    struct lw_bytes key = l->key[LW_KEY_LOCK];
    if (t->left_ms != -1)
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY, "held by others");
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NO_TTL,
                        "the lock %.*s has no TTL and never ends by itself: give it one "
                        "(give_ttl_ms, latchwork_lock_give_ttl) or break it",
                        (int)(key.n < 300 ? key.n : 300), key.p);
}

/* Releases a lock that was granted so late that its lease had ended before the answer arrived. */
static enum lw_took give_back(struct lw_take *t, struct latchwork_error *error) {
    struct latchwork_error ignored;
    lw_one_release(t->hold, &ignored);
    /* The next attempt is a new acquisition, so it needs a token that was never used before. */
    if (!lw_hold_token(t->hold, error)) return LW_FAILED;
    atomic_store(&t->hold->loss, 0);
    t->left_ms = 1;
    return LW_HELD;
}

static enum lw_took try_once(struct lw_take *t, struct latchwork_error *error) {
    enum lw_took took = lw_one_take(t, error);
    return took == LW_TAKEN && lw_boot_ms() >= atomic_load(&t->hold->deadline_ms)
               ? give_back(t, error)
               : took;
}

struct wait {
    struct lw_take take;
    struct lw_waking *waking;
    struct lw_waiter waiter;
    int64_t deadline_ms;
    /* True if an attempt may have added this waiter (or, if the lock has no queues, this client) to
     * the lock's list in Redis. When the waiter then stops waiting without the lock, it must remove
     * itself, or remove the client if no other thread of the client waits. */
    bool known;
    int64_t backoff_ms;
};

/* Plans the next attempt after an error that may be temporary. Returns false if the error is
 * permanent. */
static bool after_failure(struct wait *w, const struct latchwork_error *error) {
    if (!lw_may_pass(error)) return false;
    w->backoff_ms = w->backoff_ms ? 2 * w->backoff_ms : POLL_MAX_MS / 2;
    if (w->backoff_ms > BACKOFF_MAX_MS) w->backoff_ms = BACKOFF_MAX_MS;
    lw_wait_look_at(w->waking, &w->waiter,
                    lw_boot_ms() + w->backoff_ms / 2 + (int64_t)lw_random((uint64_t)w->backoff_ms),
                    error);
    return true;
}

static enum lw_took try_in_line(struct wait *w, struct latchwork_error *error) {
    struct lw_take *t = &w->take;
    bool up = lw_waking_is_up(w->waking), queues = lw_one_queues(t->lock);
    t->client = t->lock->client->id;
    t->wait = queues || (up && t->lock->key[LW_KEY_WAIT].p);
    w->known = w->known || t->wait;
    enum lw_took took = try_once(t, error);
    if (took == LW_HELD) {
        w->backoff_ms = 0;
        bool told = up && lw_one_tells(t->lock);
        lw_wait_look_at(w->waking, &w->waiter, lw_boot_ms() + look_after_ms(t, told), NULL);
        if (queues && t->ticket[0]) lw_wait_place(w->waking, &w->waiter, strtod(t->ticket, NULL));
    }
    return took;
}

/* Called after this waiter has taken the lock. Returns the time at which the next waiter in line
 * tries to take the lock if no release is announced before. For a fair or read/write lock, this is
 * half of LOOK_QUEUE_MS from now. For other locks, it is shortly after the end of this waiter's
 * lease, or earlier, because LOOK_MS and POLL_MAX_MS limit the time between attempts. */
static int64_t next_look_ms(const struct wait *w) {
    const struct latchwork_lock *l = w->take.lock;
    if (lw_one_queues(l)) return lw_boot_ms() + LOOK_QUEUE_MS / 2;
    struct lw_take next = {.left_ms = l->o.ttl_ms};
    next.lock = w->take.lock;
    return lw_boot_ms() +
           look_after_ms(&next, w->take.more && lw_waking_is_up(w->waking) && lw_one_tells(l));
}

static enum latchwork_result stand_in_line(struct wait *w, enum lw_took took,
                                           struct latchwork_error *error) {
    struct lw_take *t = &w->take;
    struct latchwork_client *c = t->lock->client;
    bool queues = lw_one_queues(t->lock), shared = t->lock->o.kind == LATCHWORK_KIND_READ ||
                                                   t->lock->o.kind == LATCHWORK_KIND_SEMAPHORE;
    if (!lw_wait_join(w->waking, &w->waiter, lw_one_wait_name(t->lock)))
        return lw_lock_no_memory(error);
    bool fatal = took == LW_FAILED && !after_failure(w, error);
    /* The first attempt of a waiter for a fair or read/write lock is made without sleeping, because
     * it gets the waiter's ticket from Redis. */
    bool enqueue = queues && !fatal;
    while (!fatal && took != LW_TAKEN &&
           (enqueue || lw_wait_sleep(w->waking, &w->waiter, w->deadline_ms, &t->more))) {
        enqueue = false;
        took = try_in_line(w, error);
        fatal = took == LW_FAILED && !after_failure(w, error);
    }
    bool won = took == LW_TAKEN,
         unreachable = !won && took != LW_FAILED && lw_wait_failed(w->waking, &w->waiter, error);
    bool empty = lw_wait_leave(w->waking, &w->waiter, won, won && !shared ? next_look_ms(w) : 0);
    if (won) return LATCHWORK_LOCK_OK;
    if (w->known && (queues || empty)) lw_one_leave(t);
    if (atomic_load(&c->interrupted))
        return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_CLOSED,
                            "interrupted while waiting");
    return took == LW_FAILED || unreachable ? LATCHWORK_LOCK_ERROR : is_held(t, error);
}

enum latchwork_result lw_one_acquire(struct latchwork_lock *l, struct latchwork_hold *h,
                                     int64_t deadline_ms, struct latchwork_error *error) {
    static _Atomic uint64_t waiters;
    struct latchwork_client *c = l->client;
    struct latchwork_error why = {0};
    struct wait w = {.take = {.lock = l, .hold = h}, .deadline_ms = deadline_ms};
    if (deadline_ms && atomic_load(&c->interrupted))
        return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_CLOSED,
                            "the client is interrupted: it waits for nothing any more");
    enum lw_took took = LW_HELD;
    struct lw_waking *waking = atomic_load(&c->waking);
    bool line = deadline_ms && waking && lw_wait_has_line(waking, lw_one_wait_name(l));
    /* If no other thread of this client stands in line for the lock, try at once. */
    if (!line) took = try_once(&w.take, &why);
    enum latchwork_result result = LATCHWORK_LOCK_OK;
    if (took != LW_TAKEN && !deadline_ms) {
        result = took == LW_FAILED ? LATCHWORK_LOCK_ERROR : is_held(&w.take, &why);
    } else if (took != LW_TAKEN) {
        w.waking = waking_of(c, &why);
        if (w.waking)
            snprintf(w.take.waiter, sizeof w.take.waiter, "%s:%" PRIu64, c->id,
                     atomic_fetch_add(&waiters, 1));
        result = w.waking ? stand_in_line(&w, took, &why) : LATCHWORK_LOCK_ERROR;
    }
    if (result != LATCHWORK_LOCK_OK && error) *error = why;
    return result;
}
