/* SPDX-License-Identifier: Apache-2.0 */
/* The code that all kinds of locks share, and the public functions of locks and holds. */
#include "lock/hold.h"

#include "base/clock.h"
#include "base/thread.h"
#include "lock/renewer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A renewal by hand is sent again if an automatic renewal overlapped with it. RENEW_TRIES is the
 * maximum number of times that it is sent. */
enum { RENEW_TRIES = 3 };

/* --- locks ------------------------------------------------------------------------------------ */

static bool take_options(struct latchwork_lock *l, const struct latchwork_lock_options *given,
                         struct latchwork_error *error) {
    struct latchwork_lock_options *o = &l->o;
    if (given && (given->size < 8 || given->size > 4096)) {
        lw_lock_wrong(error, "options.size is not set: begin them with LATCHWORK_LOCK_INIT");
        return false;
    }
    if (given) memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    if (!o->ttl_ms) o->ttl_ms = LATCHWORK_DEFAULT_TTL_MS;
    if (!o->max_hold_ms) o->max_hold_ms = LATCHWORK_DEFAULT_MAX_HOLD_MS;
    const char *wrong = NULL;
    if (o->flags & ~(unsigned)(LATCHWORK_FLAG_RENEW | LATCHWORK_FLAG_PLAIN))
        wrong = "flags holds an unknown flag";
    if (o->ttl_ms < LATCHWORK_MIN_TTL_MS || o->ttl_ms > LATCHWORK_MAX_TTL_MS)
        wrong = "ttl_ms must be 10 to 86,400,000";
    if (o->max_hold_ms < -1 || (o->max_hold_ms > 0 && o->max_hold_ms < o->ttl_ms))
        wrong = "max_hold_ms must be at least ttl_ms, or -1";
    if (o->give_ttl_ms < 0 || o->give_ttl_ms > LATCHWORK_MAX_TTL_MS)
        wrong = "give_ttl_ms must be 0 to 86,400,000";
    if ((o->kind == LATCHWORK_KIND_SEMAPHORE) != (o->permits > 0) ||
        o->permits > LATCHWORK_MAX_PERMITS)
        wrong = "permits must be 1 to 1,000,000 for a semaphore, and 0 for others";
    if (wrong) lw_lock_wrong(error, "lock options: %s", wrong);
    return !wrong;
}

struct latchwork_lock *lw_lock_new(const struct lw_lock_ops *ops, const char *name,
                                   const struct latchwork_lock_options *options, const char *label,
                                   struct latchwork_error *error) {
    struct latchwork_lock *l = calloc(1, sizeof *l);
    size_t n = 0;
    if (!l) return lw_lock_no_memory(error), NULL;
    if (take_options(l, options, error)) {
        n = name ? (l->o.name_len ? l->o.name_len : strlen(name)) : 0;
        if (n < 1 || n > LATCHWORK_MAX_NAME || name[0] == '}') {
            lw_lock_wrong(error, "a lock's name has 1 to %d bytes and does not begin with }",
                          (int)LATCHWORK_MAX_NAME);
            n = 0;
        }
    }
    if (n && !(l->name = malloc(n))) {
        lw_lock_no_memory(error);
        n = 0;
    }
    if (!n) {
        free(l);
        return NULL;
    }
    atomic_init(&l->refs, 1);
    l->ops = ops;
    memcpy(l->name, name, n);
    l->n_name = n;
    snprintf(l->label, sizeof l->label, "%s", label);
    l->fence_keep_ms = LW_FENCE_KEEP_MS;
    l->slot = LW_ANY_SLOT;
    pthread_mutex_init(&l->mutex, NULL);
    lw_cond_init(&l->renewed);
    return l;
}

void lw_lock_unref(struct latchwork_lock *l) {
    if (atomic_fetch_sub(&l->refs, 1) > 1) return;
    if (l->ops->lock_fini) l->ops->lock_fini(l);
    pthread_cond_destroy(&l->renewed);
    pthread_mutex_destroy(&l->mutex);
    free(l->name);
    free(l);
}

void latchwork_lock_close(struct latchwork_lock *l) {
    if (l) lw_lock_unref(l);
}

struct lw_hold_renewer *lw_client_renewer(struct latchwork_lock *l, struct latchwork_error *error) {
    struct latchwork_client *c = l->client;
    struct lw_hold_renewer *k = atomic_load(&c->renewer);
    if (k) return k;
    pthread_mutex_lock(&c->start);
    k = atomic_load(&c->renewer);
    if (!k) atomic_store(&c->renewer, k = lw_hold_renewer_open(c, error));
    pthread_mutex_unlock(&c->start);
    return k;
}

uint64_t lw_lock_saw(struct latchwork_lock *l, uint64_t fence) {
    uint64_t before = atomic_load(&l->seen);
    while (before < fence && !atomic_compare_exchange_weak(&l->seen, &before, fence)) continue;
    return fence;
}

/* --- holds ------------------------------------------------------------------------------------ */

bool lw_hold_token(struct latchwork_hold *h, struct latchwork_error *error) {
    char hex[33];
    if (!lw_random_hex(hex, sizeof hex, error)) return false;
    if (h->lock->o.flags & LATCHWORK_FLAG_PLAIN)
        memcpy(h->token, hex, sizeof hex);
    else
        snprintf(h->token, sizeof h->token, "%s/%s", h->lock->label, hex);
    return true;
}

struct latchwork_hold *lw_hold_new(struct latchwork_lock *l, struct latchwork_error *error) {
    struct latchwork_hold *h = calloc(1, sizeof *h);
    if (!h) return lw_lock_no_memory(error), NULL;
    atomic_init(&h->refs, 1);
    atomic_fetch_add(&l->refs, 1);
    h->lock = l;
    h->count = 1;
    h->end_ms = INT64_MAX;
    return h;
}

void lw_hold_ref(struct latchwork_hold *h) { atomic_fetch_add(&h->refs, 1); }

void lw_hold_unref(struct latchwork_hold *h) {
    if (atomic_fetch_sub(&h->refs, 1) > 1) return;
    if (h->lock->ops->hold_fini) h->lock->ops->hold_fini(h);
    lw_lock_unref(h->lock);
    free(h);
}

void lw_hold_leased(struct latchwork_hold *h, int64_t sent_ms, int64_t ttl_ms) {
    int64_t deadline_ms = sent_ms + ttl_ms;
    pthread_mutex_lock(&h->lock->mutex);
    if (h->renewals && h->least_ms < deadline_ms) deadline_ms = h->least_ms;
    if (deadline_ms - sent_ms < ttl_ms) ttl_ms = deadline_ms > sent_ms ? deadline_ms - sent_ms : 1;
    atomic_store(&h->ttl_ms, ttl_ms);
    atomic_store(&h->deadline_ms, deadline_ms);
    pthread_mutex_unlock(&h->lock->mutex);
}

void lw_hold_renew_begin(struct latchwork_hold *h, int64_t now_ms, int64_t ttl_ms) {
    int64_t deadline_ms = now_ms + ttl_ms;
    pthread_mutex_lock(&h->lock->mutex);
    h->overlap = h->renewals > 0;
    if (!h->renewals++ || deadline_ms < h->least_ms) h->least_ms = deadline_ms;
    if (deadline_ms < atomic_load(&h->deadline_ms)) atomic_store(&h->deadline_ms, deadline_ms);
    pthread_mutex_unlock(&h->lock->mutex);
}

bool lw_hold_renew_end(struct latchwork_hold *h) {
    pthread_mutex_lock(&h->lock->mutex);
    assert(h->renewals > 0);
    bool overlap = h->overlap;
    if (!--h->renewals) pthread_cond_broadcast(&h->lock->renewed);
    pthread_mutex_unlock(&h->lock->mutex);
    return overlap;
}

/* Returns the TTL to request: ttl_ms, or less if the hold reaches max_hold_ms earlier. */
static int64_t ttl_of(const struct latchwork_hold *h, int64_t ttl_ms, int64_t now_ms) {
    int64_t left = h->end_ms == INT64_MAX ? ttl_ms : h->end_ms - now_ms;
    if (left < 1) left = 1;
    return ttl_ms < left ? ttl_ms : left;
}

int64_t lw_hold_keep_ttl(const struct latchwork_hold *h, int64_t now_ms) {
    int64_t left_ms = atomic_load(&h->deadline_ms) - now_ms, ttl_ms = h->lock->o.ttl_ms;
    return ttl_of(h, left_ms > ttl_ms ? left_ms : ttl_ms, now_ms);
}

void lw_hold_lose(struct latchwork_hold *h, enum latchwork_loss why) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&h->loss, &none, (int)why)) return;
    if (h->lock->o.lost) h->lock->o.lost(h->lock->o.lost_ctx, h, why);
}

enum latchwork_result lw_hold_not_ours(struct latchwork_hold *h, bool sent_again,
                                       struct latchwork_error *error) {
    lw_hold_lose(h, LATCHWORK_LOSS_NOT_OWNER);
    if (sent_again)
        return lw_lock_fail(error, LATCHWORK_LOCK_LOST, LATCHWORK_E_UNKNOWN,
                            "an answer was lost with its connection, and the lock is gone now: "
                            "perhaps freed by this very call, perhaps before");
    return lw_lock_fail(error, LATCHWORK_LOCK_LOST, LATCHWORK_E_NOT_OWNER,
                        "this hold no longer owns the lock; nothing was changed");
}

/* --- reentrant holds -------------------------------------------------------------------------- */

static uint64_t this_thread(void) {
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t me;
    if (!me) me = atomic_fetch_add(&threads, 1) + 1;
    return me;
}

/* Returns the hold that this owner of a reentrant lock already has, or NULL. Increments the count
 * of the hold unless the hold is lost. */
static struct latchwork_hold *find_owned(struct latchwork_lock *l, uint64_t owner, bool is_thread) {
    pthread_mutex_lock(&l->mutex);
    struct latchwork_hold *h = l->owned;
    while (h && (h->owner != owner || h->owner_is_thread != is_thread)) h = h->next;
    if (h && !latchwork_hold_lost(h)) h->count++;
    pthread_mutex_unlock(&l->mutex);
    return h;
}

static void add_owned(struct latchwork_lock *l, struct latchwork_hold *h, uint64_t owner,
                      bool is_thread) {
    h->owner = owner;
    h->owner_is_thread = is_thread;
    pthread_mutex_lock(&l->mutex);
    h->next = l->owned;
    l->owned = h;
    pthread_mutex_unlock(&l->mutex);
}

/* Decrements the count of a reentrant hold, or sets it to 0 if `all` is true. Returns true if the
 * hold has no owner any more. */
static bool count_down(struct latchwork_hold *h, bool all) {
    struct latchwork_lock *l = h->lock;
    if (l->o.kind != LATCHWORK_KIND_REENTRANT) return true;
    pthread_mutex_lock(&l->mutex);
    bool last = all || --h->count == 0;
    for (struct latchwork_hold **at = &l->owned; last && *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    pthread_mutex_unlock(&l->mutex);
    return last;
}

/* --- acquire ---------------------------------------------------------------------------------- */

static enum latchwork_result null_argument(const char *name, struct latchwork_error *error) {
    return lw_lock_wrong(error, "%s is NULL", name);
}

/* Begins a hold after its lock was taken. Sets the end of the hold if max_hold_ms is set, and
 * starts automatic renewal if the lock has it. Returns false with *error if automatic renewal
 * cannot be started. Then the caller has to release the lock. */
static bool begin_hold(struct latchwork_lock *l, struct latchwork_hold *h,
                       struct latchwork_error *error) {
    lw_lock_saw(l, h->fence);
    if (l->o.max_hold_ms > 0)
        h->end_ms = atomic_load(&h->deadline_ms) - atomic_load(&h->ttl_ms) + l->o.max_hold_ms;
    if (!(l->o.flags & LATCHWORK_FLAG_RENEW)) return true;
    struct lw_hold_renewer *renewer = l->renewer(l, error);
    return renewer && lw_hold_renewer_add(renewer, h, error);
}

static int64_t deadline_of(int64_t wait_ms) {
    int64_t now = lw_boot_ms();
    if (wait_ms == 0) return 0;
    return wait_ms < 0 || wait_ms > INT64_MAX - now ? INT64_MAX : now + wait_ms;
}

static enum latchwork_result acquire_new(struct latchwork_lock *l, int64_t wait_ms,
                                         struct latchwork_hold **out,
                                         struct latchwork_error *error) {
    struct latchwork_hold *h = lw_hold_new(l, error);
    if (!h) return LATCHWORK_LOCK_ERROR;
    enum latchwork_result result = LATCHWORK_LOCK_ERROR;
    if (lw_hold_token(h, error)) result = l->ops->acquire(l, h, deadline_of(wait_ms), error);
    if (result == LATCHWORK_LOCK_OK && !begin_hold(l, h, error)) {
        l->ops->release(h, NULL);
        result = LATCHWORK_LOCK_ERROR;
    }
    if (result == LATCHWORK_LOCK_OK)
        *out = h;
    else
        lw_hold_unref(h);
    return result;
}

static enum latchwork_result acquire(struct latchwork_lock *l, uint64_t owner, bool is_thread,
                                     int64_t wait_ms, struct latchwork_hold **out,
                                     struct latchwork_error *error) {
    if (!out) return null_argument("hold", error);
    *out = NULL;
    if (!l) return null_argument("lock", error);
    if (l->client && !lw_client_ok(l->client, error)) return LATCHWORK_LOCK_ERROR;
    bool reentrant = l->o.kind == LATCHWORK_KIND_REENTRANT;
    struct latchwork_hold *h = reentrant ? find_owned(l, owner, is_thread) : NULL;
    if (h && latchwork_hold_lost(h))
        return lw_lock_fail(error, LATCHWORK_LOCK_LOST, LATCHWORK_E_EXPIRED,
                            "this owner's lock was lost; release it as often as it was acquired, "
                            "then acquire it again");
    if (h) {
        *out = h;
        return LATCHWORK_LOCK_OK;
    }
    enum latchwork_result result = acquire_new(l, wait_ms, out, error);
    if (result == LATCHWORK_LOCK_OK && reentrant) add_owned(l, *out, owner, is_thread);
    return result;
}

enum latchwork_result latchwork_lock_acquire(struct latchwork_lock *l, int64_t wait_ms,
                                             struct latchwork_hold **hold,
                                             struct latchwork_error *error) {
    return acquire(l, l && l->o.kind == LATCHWORK_KIND_REENTRANT ? this_thread() : 0, true, wait_ms,
                   hold, error);
}

enum latchwork_result latchwork_lock_try(struct latchwork_lock *l, struct latchwork_hold **hold,
                                         struct latchwork_error *error) {
    return latchwork_lock_acquire(l, 0, hold, error);
}

enum latchwork_result latchwork_lock_acquire_as(struct latchwork_lock *l, uint64_t owner,
                                                int64_t wait_ms, struct latchwork_hold **hold,
                                                struct latchwork_error *error) {
    if (l && l->o.kind != LATCHWORK_KIND_REENTRANT) {
        if (hold) *hold = NULL;
        return lw_lock_wrong(error, "only a reentrant lock has owners");
    }
    return acquire(l, owner, false, wait_ms, hold, error);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void leave_renewer(struct latchwork_hold *h) {
    if (h->lock->o.flags & LATCHWORK_FLAG_RENEW) {
        struct lw_hold_renewer *renewer = h->lock->renewer(h->lock, NULL);
        if (renewer) lw_hold_renewer_remove(renewer, h);
    }
}

enum latchwork_result latchwork_hold_release(struct latchwork_hold *h,
                                             struct latchwork_error *error) {
    if (!h) return null_argument("hold", error);
    if (h->lock->client && !lw_client_ok(h->lock->client, error)) return LATCHWORK_LOCK_ERROR;
    if (!count_down(h, false)) {
        if (!latchwork_hold_lost(h)) return LATCHWORK_LOCK_OK;
        return lw_lock_fail(error, LATCHWORK_LOCK_LOST, LATCHWORK_E_EXPIRED,
                            "the lock is lost as a whole; release the outer holds too");
    }
    leave_renewer(h);
    enum latchwork_result result = h->lock->ops->release(h, error);
    lw_hold_unref(h);
    return result;
}

void latchwork_hold_forget(struct latchwork_hold *h) {
    if (!h || (h->lock->client && !lw_client_ok(h->lock->client, NULL))) return;
    count_down(h, true);
    leave_renewer(h);
    lw_hold_unref(h);
}

/* --- in between ------------------------------------------------------------------------------- */

/* Waits until no renewal of the hold is in flight, for limit_ms at most. Returns false if a renewal
 * is still in flight. */
static bool wait_renewed(struct latchwork_hold *h, int64_t limit_ms) {
    struct timespec until = lw_from_now(limit_ms);
    pthread_mutex_lock(&h->lock->mutex);
    int failed = 0;
    while (h->renewals && !failed)
        failed = pthread_cond_timedwait(&h->lock->renewed, &h->lock->mutex, &until);
    pthread_mutex_unlock(&h->lock->mutex);
    return !failed;
}

static enum latchwork_result renew_once(struct latchwork_hold *h, int64_t ttl_ms, bool *overlap,
                                        struct latchwork_error *error) {
    int64_t now = lw_boot_ms();
    if (latchwork_hold_lost(h) || now >= h->end_ms)
        return lw_lock_fail(error, LATCHWORK_LOCK_LOST, LATCHWORK_E_EXPIRED,
                            "the lease has ended, or max_hold_ms is reached");
    ttl_ms = ttl_of(h, ttl_ms, now);
    lw_hold_renew_begin(h, now, ttl_ms);
    enum latchwork_result result = h->lock->ops->keep(h, ttl_ms, error);
    *overlap = lw_hold_renew_end(h);
    return result;
}

enum latchwork_result latchwork_hold_renew(struct latchwork_hold *h, int64_t ttl_ms,
                                           struct latchwork_error *error) {
    if (!h) return null_argument("hold", error);
    if (h->lock->client && !lw_client_ok(h->lock->client, error)) return LATCHWORK_LOCK_ERROR;
    if (ttl_ms == 0) ttl_ms = h->lock->o.ttl_ms;
    if (ttl_ms < LATCHWORK_MIN_TTL_MS || ttl_ms > LATCHWORK_MAX_TTL_MS)
        return lw_lock_wrong(error, "ttl_ms must be 10 to 86,400,000");
    if (h->lock->o.flags & LATCHWORK_FLAG_RENEW && ttl_ms < h->lock->o.ttl_ms)
        return lw_lock_wrong(error, "a hold that is renewed by itself can't be shortened");
    for (int tries = 1;; tries++) {
        bool overlap = false;
        enum latchwork_result result = renew_once(h, ttl_ms, &overlap, error);
        bool by_itself = h->lock->o.flags & LATCHWORK_FLAG_RENEW;
        if (result != LATCHWORK_LOCK_OK || !by_itself || !overlap || tries == RENEW_TRIES)
            return result;
        /* Renew once more, because an automatic renewal was in flight at the same time. If Redis
         * executed the automatic renewal last, the lease has the wrong length. */
        if (!wait_renewed(h, h->lock->o.ttl_ms / 3)) return result;
    }
}

enum latchwork_result latchwork_hold_check(struct latchwork_hold *h,
                                           struct latchwork_error *error) {
    if (!h) return null_argument("hold", error);
    if (h->lock->client && !lw_client_ok(h->lock->client, error)) return LATCHWORK_LOCK_ERROR;
    return h->lock->ops->keep(h, 0, error);
}

/* The next functions treat a NULL hold as a lost hold with fence 0 and 0 ms left. */
uint64_t latchwork_hold_fence(const struct latchwork_hold *h) { return h ? h->fence : 0; }
uint64_t latchwork_hold_fence_at(const struct latchwork_hold *h, size_t i) {
    if (!h) return 0;
    return h->lock->ops->fence_at ? h->lock->ops->fence_at(h, i) : h->fence;
}
const char *latchwork_hold_token(const struct latchwork_hold *h) { return h ? h->value : ""; }
int64_t latchwork_hold_deadline_ms(const struct latchwork_hold *h) {
    return h ? atomic_load(&h->deadline_ms) : 0;
}
int latchwork_hold_lost(const struct latchwork_hold *h) {
    return !h || atomic_load(&h->loss) != 0 || lw_boot_ms() >= atomic_load(&h->deadline_ms);
}
int64_t latchwork_hold_left_ms(const struct latchwork_hold *h) {
    if (!h) return 0;
    int64_t left = atomic_load(&h->deadline_ms) - lw_boot_ms();
    return left > 0 && !atomic_load(&h->loss) ? left : 0;
}

enum latchwork_result latchwork_lock_show(struct latchwork_lock *l, latchwork_lock_seen *seen,
                                          void *ctx, struct latchwork_error *error) {
    if (!l || !seen) return null_argument(l ? "seen" : "lock", error);
    if (l->ops->show) return l->ops->show(l, seen, ctx, error);
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_UNSUPPORTED,
                        "this kind of lock can't be shown");
}
enum latchwork_result latchwork_lock_break(struct latchwork_lock *l, uint64_t *fence,
                                           struct latchwork_error *error) {
    if (!l) return null_argument("lock", error);
    if (l->ops->end) return l->ops->end(l, fence, error);
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_UNSUPPORTED,
                        "this kind of lock can't be broken");
}
enum latchwork_result latchwork_lock_give_ttl(struct latchwork_lock *l, int64_t ttl_ms,
                                              struct latchwork_error *error) {
    if (!l) return null_argument("lock", error);
    if (ttl_ms < LATCHWORK_MIN_TTL_MS || ttl_ms > LATCHWORK_MAX_TTL_MS)
        return lw_lock_wrong(error, "ttl_ms must be 10 to 86,400,000");
    if (l->ops->give_ttl) return l->ops->give_ttl(l, ttl_ms, error);
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_UNSUPPORTED,
                        "this kind of lock always has a TTL");
}
