/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/keeper.h"

#include "base/clock.h"
#include "base/thread.h"
#include "lock/hold.h"

#include <stdlib.h>
#include <time.h>

enum { TRY_AGAIN_MS = 100, CONNECT_AT_LEAST_MS = 5, SLEEP_MAX_MS = 60000 };

struct lw_keeper {
    struct latchwork_client *client;
    struct lw_redis *redis; /* used by the keeper's thread alone */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed, called_back;
    bool closing;
    struct latchwork_hold *calling; /* the hold whose callback runs or is about to run */
    struct latchwork_hold **hold;
    size_t n, cap;
};

/* --- the table; the mutex is held ----------------------------------------------------------------------------------------------- */

static void take_out(struct lw_keeper *k, struct latchwork_hold *h) {
    for (size_t i = 0; i < k->n; i++)
        if (k->hold[i] == h) {
            k->hold[i] = k->hold[--k->n];
            h->kept = false;
            lw_hold_unref(h); /* the caller has another reference */
            return;
        }
}

/* Returns the time at which the keeper gives up the hold: after two thirds of its lease. */
static int64_t give_up_ms(const struct latchwork_hold *h) { return atomic_load(&h->deadline_ms) - atomic_load(&h->ttl_ms) / 3; }
static bool at_its_end(const struct latchwork_hold *h) { return atomic_load(&h->deadline_ms) >= h->end_ms; }

static int64_t next_event_ms(struct lw_keeper *k, bool with_renewals) {
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < k->n; i++) {
        int64_t give_up = give_up_ms(k->hold[i]);
        if (give_up < at) at = give_up;
        if (with_renewals && k->hold[i]->renew_ms < at) at = k->hold[i]->renew_ms;
    }
    return at;
}

/* Calls the callback without holding the mutex, so that it may inspect locks and acquire others. */
static void give_up(struct lw_keeper *k, struct latchwork_hold *h, enum latchwork_loss why) {
    lw_hold_ref(h);
    take_out(k, h);
    k->calling = h;
    pthread_mutex_unlock(&k->mutex);
    lw_hold_lose(h, why);
    pthread_mutex_lock(&k->mutex);
    k->calling = NULL;
    pthread_cond_broadcast(&k->called_back);
    pthread_mutex_unlock(&k->mutex);
    lw_hold_unref(h);
    pthread_mutex_lock(&k->mutex);
}

static void give_up_what_is_late(struct lw_keeper *k) {
    int64_t now = lw_boot_ms();
    for (size_t i = 0; i < k->n;) {
        struct latchwork_hold *h = k->hold[i];
        if (atomic_load(&h->loss)) { /* another thread found the loss and has already called back */
            take_out(k, h);
            continue;
        }
        if (give_up_ms(h) > now) {
            i++;
            continue;
        }
        give_up(k, h, at_its_end(h) ? LATCHWORK_LOSS_MAX_HOLD : LATCHWORK_LOSS_UNCONFIRMED);
        i = 0; /* start over, because the table may have changed meanwhile */
    }
}

static size_t take_due(struct lw_keeper *k, struct latchwork_hold **due) {
    int64_t now = lw_boot_ms();
    size_t n = 0;
    for (size_t i = 0; i < k->n && n < LW_KEEP_BATCH; i++) {
        struct latchwork_hold *h = k->hold[i];
        int64_t slack = atomic_load(&h->ttl_ms) / 24; /* renews early what is due soon, so that it joins this pipeline */
        if (h->renew_ms > now + slack) continue;
        int64_t again = atomic_load(&h->ttl_ms) / 12;
        h->renew_ms = now + (again < TRY_AGAIN_MS ? again + 1 : TRY_AGAIN_MS); /* the time of the next try; an answer sets a later one */
        lw_hold_ref(h);
        due[n++] = h;
    }
    return n;
}

/* --- renewing; without the mutex, but for the answers --------------------------------------------------------------------------- */

static int64_t until_next_loss(struct lw_keeper *k) {
    pthread_mutex_lock(&k->mutex);
    int64_t left = next_event_ms(k, false) - lw_boot_ms();
    pthread_mutex_unlock(&k->mutex);
    return left > CONNECT_AT_LEAST_MS ? left : CONNECT_AT_LEAST_MS;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static bool connected(struct lw_keeper *k) {
    struct latchwork_error error;
    int64_t left = until_next_loss(k);
    if (!k->redis)
        k->redis = lw_client_connect(k->client, smaller(left, k->client->connect_ms), smaller(left, k->client->command_ms), &error);
    return k->redis != NULL;
}

static redisReply *reply_in_time(struct lw_keeper *k) {
    struct latchwork_error error;
    int64_t ms = smaller(until_next_loss(k), k->client->command_ms);
    lw_redis_set_answer_ms(k->redis, ms);
    return lw_next_reply(k->client, k->redis, &error);
}

static void answered(struct lw_keeper *k, struct latchwork_hold *h, bool ours, int64_t sent_ms, int64_t ttl_ms) {
    pthread_mutex_lock(&k->mutex);
    if (h->kept) { /* a hold that is not kept was released meanwhile */
        if (ours) {
            lw_hold_leased(h, sent_ms, ttl_ms);
            h->renew_ms = at_its_end(h) ? INT64_MAX : sent_ms + ttl_ms / 3;
        } else {
            give_up(k, h, LATCHWORK_LOSS_NOT_OWNER);
        }
    }
    pthread_mutex_unlock(&k->mutex);
}

struct renewal {
    struct latchwork_hold *hold;
    struct lw_call call;
    int64_t ttl_ms;
    bool unknown; /* the answer was NOSCRIPT, so the script's text has to be sent */
};

static void take_answer(struct lw_keeper *k, struct renewal *r, redisReply *reply, int64_t sent_ms) {
    r->unknown = lw_is_no_script(reply);
    if (reply->type == REDIS_REPLY_INTEGER) answered(k, r->hold, reply->integer == 1, sent_ms, r->ttl_ms);
    freeReplyObject(reply); /* an error is not reported here: the keeper tries again until it gives up the hold */
}

/* Sends all renewals at once. If an allocation failed, it sends nothing and returns false. */
static bool send_pipeline(struct lw_keeper *k, struct renewal *r, size_t n, int64_t sent_ms) {
    struct lw_text out = {0};
    for (size_t i = 0; i < n; i++) {
        r[i].hold->lock->ops->keep_call(r[i].hold, r[i].ttl_ms, &r[i].call);
        lw_call_encode(&r[i].call, &out);
    }
    for (size_t i = 0; i < n && !out.failed; i++) lw_hold_renew_begin(r[i].hold, sent_ms, r[i].ttl_ms);
    bool whole = !out.failed;
    if (whole) lw_redis_send(k->redis, out.p, out.n);
    lw_text_free(&out);
    return whole;
}

static void renew_in_pipeline(struct lw_keeper *k, struct renewal *r, size_t n) {
    if (!connected(k)) return;
    int64_t sent_ms = lw_boot_ms();
    for (size_t i = 0; i < n; i++) r[i].ttl_ms = lw_lock_ttl(r[i].hold, r[i].hold->lock->o.ttl_ms, sent_ms);
    if (!send_pipeline(k, r, n, sent_ms)) return; /* the keeper tries again until it gives up the holds, as after any error */
    for (size_t i = 0; i < n; i++) {
        redisReply *reply = reply_in_time(k);
        if (!reply) break;
        take_answer(k, &r[i], reply, sent_ms);
    }
    for (size_t i = 0; i < n && !k->redis->err; i++) {
        if (!r[i].unknown) continue;
        struct latchwork_error error;
        redisReply *reply = lw_call_on(k->client, k->redis, &r[i].call, &error);
        if (!reply) break;
        take_answer(k, &r[i], reply, r[i].call.sent_ms);
    }
    for (size_t i = 0; i < n; i++) lw_hold_renew_end(r[i].hold);
    if (!k->redis->err) return;
    lw_redis_close(k->redis);
    k->redis = NULL;
}

static bool begin_calling(struct lw_keeper *k, struct latchwork_hold *h) {
    pthread_mutex_lock(&k->mutex);
    bool kept = h->kept; /* a hold that is not kept was released meanwhile */
    if (kept) k->calling = h;
    pthread_mutex_unlock(&k->mutex);
    return kept;
}
static void end_calling(struct lw_keeper *k) {
    pthread_mutex_lock(&k->mutex);
    k->calling = NULL;
    pthread_cond_broadcast(&k->called_back);
    pthread_mutex_unlock(&k->mutex);
}

/* Renews one hold by `keep`, which itself calls the callback if it finds the hold lost. */
static void renew_one(struct lw_keeper *k, struct latchwork_hold *h) {
    struct latchwork_error error = {0};
    if (!begin_calling(k, h)) return;
    int64_t sent_ms = lw_boot_ms();
    int64_t ttl_ms = lw_lock_ttl(h, h->lock->o.ttl_ms, sent_ms);
    lw_hold_renew_begin(h, sent_ms, ttl_ms);
    enum latchwork_result result = h->lock->ops->keep(h, ttl_ms, &error);
    lw_hold_renew_end(h);
    end_calling(k);
    if (result == LATCHWORK_LOCK_ERROR) return;
    if (result == LATCHWORK_LOCK_OK) { /* use the lease that keep set: for Redlock it is shorter than requested */
        ttl_ms = atomic_load(&h->ttl_ms);
        sent_ms = atomic_load(&h->deadline_ms) - ttl_ms;
    }
    answered(k, h, result == LATCHWORK_LOCK_OK, sent_ms, ttl_ms);
}

static void renew(struct lw_keeper *k, struct latchwork_hold **due, size_t n) {
    static const struct renewal none;
    struct renewal *r = malloc(n * sizeof *r);
    size_t piped = 0;
    for (size_t i = 0; r && i < n; i++) { /* if memory is short, the keeper tries again later, as after any error */
        if (due[i]->lock->ops->keep_call && !(due[i]->lock->client->flags & LATCHWORK_FLAG_NO_SCRIPTS)) {
            r[piped] = none;
            r[piped++].hold = due[i];
        } else {
            renew_one(k, due[i]);
        }
    }
    if (piped) renew_in_pipeline(k, r, piped);
    free(r);
    for (size_t i = 0; i < n; i++) lw_hold_unref(due[i]);
}

/* --- the thread ----------------------------------------------------------------------------------------------------------------- */

static void sleep_until(struct lw_keeper *k, int64_t at_ms) {
    int64_t left = at_ms - lw_boot_ms();
    if (left <= 0) return;
    if (left > SLEEP_MAX_MS) left = SLEEP_MAX_MS;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += left / 1000;
    t.tv_nsec += left % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
    pthread_cond_timedwait(&k->changed, &k->mutex, &t);
}

static void *keep(void *arg) {
    struct lw_keeper *k = arg;
    struct latchwork_hold *due[LW_KEEP_BATCH];
    pthread_mutex_lock(&k->mutex);
    while (!k->closing) {
        give_up_what_is_late(k);
        size_t n = take_due(k, due);
        if (n) {
            pthread_mutex_unlock(&k->mutex);
            renew(k, due, n);
            pthread_mutex_lock(&k->mutex);
        } else {
            sleep_until(k, next_event_ms(k, true));
        }
    }
    pthread_mutex_unlock(&k->mutex);
    return NULL;
}

static void free_keeper(struct lw_keeper *k) {
    pthread_cond_destroy(&k->changed);
    pthread_cond_destroy(&k->called_back);
    pthread_mutex_destroy(&k->mutex);
    free(k->hold);
    free(k);
}

struct lw_keeper *lw_keeper_open(struct latchwork_client *client, struct latchwork_error *error) {
    struct lw_keeper *k = calloc(1, sizeof *k);
    if (!k) return lw_lock_no_memory(error), NULL;
    k->client = client;
    pthread_mutex_init(&k->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &monotonic);
    pthread_cond_init(&k->called_back, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failed = lw_thread_start(&k->thread, keep, k);
    if (!failed) return k;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_SYSTEM, "the system gives no thread for renewals: %s", strerror(failed));
    free_keeper(k);
    return NULL;
}

void lw_keeper_close(struct lw_keeper *k) {
    if (!k) return;
    pthread_mutex_lock(&k->mutex);
    k->closing = true;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    pthread_join(k->thread, NULL);
    while (k->n) take_out(k, k->hold[0]);
    if (k->redis) lw_redis_close(k->redis);
    free_keeper(k);
}

/* Makes room for one more hold. The caller holds the mutex. */
static bool make_room(struct lw_keeper *k) {
    if (k->n < k->cap) return true;
    size_t cap = k->cap ? 2 * k->cap : 16;
    struct latchwork_hold **hold = realloc(k->hold, cap * sizeof(struct latchwork_hold *));
    if (!hold) return false;
    k->hold = hold;
    k->cap = cap;
    return true;
}

bool lw_keeper_add(struct lw_keeper *k, struct latchwork_hold *h, struct latchwork_error *error) {
    pthread_mutex_lock(&k->mutex);
    if (!make_room(k)) {
        pthread_mutex_unlock(&k->mutex);
        return lw_lock_no_memory(error), false;
    }
    lw_hold_ref(h);
    h->kept = true;
    int64_t ttl_ms = atomic_load(&h->ttl_ms);
    h->renew_ms = at_its_end(h) ? INT64_MAX : atomic_load(&h->deadline_ms) - ttl_ms + ttl_ms / 3;
    k->hold[k->n++] = h;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    return true;
}

void lw_keeper_remove(struct lw_keeper *k, struct latchwork_hold *h) {
    pthread_mutex_lock(&k->mutex);
    take_out(k, h);
    while (k->calling == h && !pthread_equal(pthread_self(), k->thread)) pthread_cond_wait(&k->called_back, &k->mutex);
    pthread_mutex_unlock(&k->mutex);
}
