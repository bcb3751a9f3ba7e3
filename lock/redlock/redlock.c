/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock: a lock that needs the votes of a majority of several servers. These are the steps of an
 * attempt:
 *
 *     1. ask all servers for the lock
 *     2. if a majority granted the lock, send the largest fence of these grants to all servers
 *     3. if a majority stored that fence, and the lease has not ended meanwhile, the lock is held
 *     4. otherwise release the lock on all servers, and try again after a random pause */
#include "lock/redlock/redlock.h"

#include "base/clock.h"
#include "base/thread.h"
#include "lock/renewer.h"
#include "lock/one.h"

#include <stdio.h>
#include <stdlib.h>

/* A constant part of the clock drift, as in the Redlock algorithm: 1 ms for the precision of Redis'
 * expiry, and 1 ms as the minimum drift for small TTLs. */
enum { DRIFT_MORE_MS = 2 };

/* The data of a lock of the kind Redlock. The field `more` of struct latchwork_lock points to
 * it. */
struct votes_lock {
    struct latchwork_redlock *redlock;
    /* A lock on one server. It gives the names of the keys, which are the same on all servers. */
    struct latchwork_lock *one;
};

static struct latchwork_redlock *redlock_of(const struct latchwork_lock *l) {
    return ((struct votes_lock *)l->more)->redlock;
}
static struct lw_bytes key_of(const struct latchwork_lock *l, int key) {
    return ((struct votes_lock *)l->more)->one->key[key];
}

static void add_key(struct lw_call *c, const struct latchwork_lock *l, int key) {
    struct lw_bytes b = key_of(l, key);
    lw_call_add(c, b.p, b.n);
}

/* Returns the number of the bundle over which the lock was acquired. The release uses the same
 * bundle, so that even a slow server is asked for the lock before it is asked to release it. */
static int bundle_of(const struct latchwork_hold *h) { return (int)(intptr_t)h->more - 1; }
static void remember_bundle(struct latchwork_hold *h, int bundle) {
    h->more = (void *)(intptr_t)(bundle + 1);
}

static int64_t drift_ms(const struct latchwork_redlock *r, int64_t ttl_ms) {
    return ttl_ms * r->drift_per_mille / 1000 + DRIFT_MORE_MS;
}

static enum latchwork_result no_majority(const struct lw_ask *a, struct latchwork_error *error) {
    const struct latchwork_redlock *r = a->redlock;
    int code = a->why.code == LATCHWORK_E_MEMORY ? LATCHWORK_E_MEMORY : LATCHWORK_E_MAJORITY;
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, code,
                        "Redlock: %d of %d servers answered, %d are needed; %.350s", a->yes + a->no,
                        r->n, r->majority, a->why.code ? a->why.text : "the rest is late");
}

/* --- giving back and keeping ------------------------------------------------------------------ */

static bool drop(struct latchwork_hold *h, struct lw_ask *a, struct latchwork_error *error) {
    struct latchwork_lock *l = h->lock;
    struct lw_call c;
    lw_call_script(&c, &lw_lock_script_redlock_drop, 1);
    add_key(&c, l, LW_KEY_LOCK);
    lw_call_text(&c, h->token);
    *a = (struct lw_ask){
        .redlock = redlock_of(l), .bundle = bundle_of(h), .call = &c, .dropping = true};
    bool asked = lw_redlock_ask(a, error);
    a->call = NULL;
    return asked;
}

static enum latchwork_result release(struct latchwork_hold *h, struct latchwork_error *error) {
    struct lw_ask a;
    if (!drop(h, &a, error)) return LATCHWORK_LOCK_ERROR;
    if (a.yes >= a.redlock->majority) return LATCHWORK_LOCK_OK;
    if (a.no > a.redlock->n - a.redlock->majority) return lw_hold_not_ours(h, false, error);
    return no_majority(&a, error);
}

static enum latchwork_result keep(struct latchwork_hold *h, int64_t ttl_ms,
                                  struct latchwork_error *error) {
    struct latchwork_lock *l = h->lock;
    struct latchwork_redlock *r = redlock_of(l);
    int64_t drift = drift_ms(r, ttl_ms), px = ttl_ms;
    /* If the lease is extended up to the limit max_hold_ms, request a TTL that is longer by the
     * clock drift. Otherwise the hold would end earlier than max_hold_ms allows, because the drift
     * is subtracted from the TTL. */
    if (ttl_ms && lw_boot_ms() + ttl_ms >= h->end_ms) px += drift;
    struct lw_call c;
    lw_call_script(&c, &lw_lock_script_string_keep, 1);
    add_key(&c, l, LW_KEY_LOCK);
    lw_call_text(&c, h->token);
    lw_call_number(&c, px);
    struct lw_ask a = {.redlock = r, .call = &c, .keeping = true};
    if (!lw_redlock_ask(&a, error)) return LATCHWORK_LOCK_ERROR;
    if (a.no > r->n - r->majority) return lw_hold_not_ours(h, false, error);
    if (a.yes < r->majority) return no_majority(&a, error);
    if (!ttl_ms) return LATCHWORK_LOCK_OK;
    int64_t left_ms = px - drift;
    if (left_ms > h->end_ms - c.sent_ms) left_ms = h->end_ms - c.sent_ms;
    if (lw_boot_ms() >= c.sent_ms + left_ms)
        return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_TIMEOUT,
                            "Redlock: the servers took longer than the TTL");
    lw_hold_leased(h, c.sent_ms, left_ms);
    return LATCHWORK_LOCK_OK;
}

/* --- taking ----------------------------------------------------------------------------------- */

static bool ask_to_take(struct latchwork_hold *h, struct lw_ask *a, int64_t *sent_ms,
                        struct latchwork_error *error) {
    struct latchwork_lock *l = h->lock;
    struct latchwork_redlock *r = redlock_of(l);
    struct lw_call c;
    lw_call_script(&c, &lw_lock_script_redlock_take, 2);
    add_key(&c, l, LW_KEY_LOCK);
    add_key(&c, l, LW_KEY_FENCE);
    lw_call_text(&c, h->token);
    lw_call_number(&c, l->o.ttl_ms);
    lw_call_number(&c, (int64_t)atomic_load(&l->seen));
    lw_call_number(&c, l->fence_keep_ms);
    lw_call_number(&c, l->o.give_ttl_ms);
    *a = (struct lw_ask){.redlock = r, .bundle = -1, .call = &c, .taking = true};
    a->restart_ms = r->restart_ms ? r->restart_ms : l->o.ttl_ms;
    bool asked = lw_redlock_ask(a, error);
    a->call = NULL;
    *sent_ms = c.sent_ms;
    if (asked) remember_bundle(h, a->bundle);
    return asked;
}

/* Sends the hold's fence, the largest that a server has granted, to all servers. Each server counts
 * fences independently, but any two majorities share at least one server, so the fence of the next
 * hold will be larger. */
static bool raise_fence(struct latchwork_hold *h, struct lw_ask *a, struct latchwork_error *error) {
    struct latchwork_lock *l = h->lock;
    struct lw_call c;
    lw_call_script(&c, &lw_lock_script_redlock_raise, 2);
    add_key(&c, l, LW_KEY_LOCK);
    add_key(&c, l, LW_KEY_FENCE);
    lw_call_text(&c, h->token);
    lw_call_number(&c, (int64_t)h->fence);
    lw_call_number(&c, l->fence_keep_ms);
    *a = (struct lw_ask){.redlock = redlock_of(l), .bundle = bundle_of(h), .call = &c};
    bool asked = lw_redlock_ask(a, error);
    a->call = NULL;
    return asked;
}

/* Reports why no majority granted the lock: because other clients hold it, or because servers did
 * not answer. */
static enum latchwork_result not_given(const struct lw_ask *a, struct latchwork_error *error) {
    if (a->no == 0 || a->yes + a->no + a->open < a->redlock->majority) return no_majority(a, error);
    if (a->no_ttl)
        return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_NO_TTL,
                            "a server holds this lock without TTL, and it never ends by itself: "
                            "give it one (give_ttl_ms), or delete it");
    return lw_lock_fail(error, LATCHWORK_LOCK_BUSY, LATCHWORK_E_BUSY,
                        "held by others on %d of %d servers", a->no, a->redlock->n);
}

static enum latchwork_result try_once(struct latchwork_hold *h, struct latchwork_error *error) {
    struct latchwork_redlock *r = redlock_of(h->lock);
    struct lw_ask a;
    int64_t sent_ms, ttl_ms = h->lock->o.ttl_ms, left_ms = ttl_ms - drift_ms(r, ttl_ms);
    if (!ask_to_take(h, &a, &sent_ms, error)) return LATCHWORK_LOCK_ERROR;
    if (a.yes < r->majority) return not_given(&a, error);
    h->fence = a.fence;
    if (r->n > 1) {
        if (!raise_fence(h, &a, error)) return LATCHWORK_LOCK_ERROR;
        if (a.yes < r->majority) return no_majority(&a, error);
    }
    if (lw_boot_ms() >= sent_ms + left_ms)
        return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_TIMEOUT,
                            "Redlock: the servers took longer than the TTL");
    memcpy(h->value, h->token, sizeof h->token);
    lw_hold_leased(h, sent_ms, left_ms);
    return LATCHWORK_LOCK_OK;
}

/* Sleeps for a random time. Returns false if the wait was interrupted or the deadline has
 * passed. */
static bool pause_until_next(struct latchwork_redlock *r, int64_t deadline_ms) {
    int64_t now = lw_boot_ms();
    int64_t until = now + r->retry_min_ms +
                    (int64_t)lw_random((uint64_t)(r->retry_max_ms - r->retry_min_ms) + 1);
    if (until > deadline_ms) until = deadline_ms;
    pthread_mutex_lock(&r->mutex);
    while (!atomic_load(&r->interrupted) && lw_boot_ms() < until)
        lw_redlock_wait(r, &r->roused, until);
    pthread_mutex_unlock(&r->mutex);
    return !atomic_load(&r->interrupted) && until < deadline_ms;
}

static enum latchwork_result acquire(struct latchwork_lock *l, struct latchwork_hold *h,
                                     int64_t deadline_ms, struct latchwork_error *error) {
    struct latchwork_redlock *r = redlock_of(l);
    struct latchwork_error why = {0};
    enum latchwork_result result;
    do {
        if (deadline_ms && atomic_load(&r->interrupted)) break;
        result = try_once(h, &why);
        if (result == LATCHWORK_LOCK_OK) return result;
        /* Release the lock on all servers, because a server may have granted it although its answer
         * came late or was an error. */
        struct lw_ask a;
        struct latchwork_error ignored;
        drop(h, &a, &ignored);
        /* The next attempt is a new acquisition, so it needs a token that was never used before. */
        if (!lw_hold_token(h, error)) return LATCHWORK_LOCK_ERROR;
        bool passes = result == LATCHWORK_LOCK_BUSY || lw_may_pass(&why);
        if (!deadline_ms || !passes ||
            (!pause_until_next(r, deadline_ms) && !atomic_load(&r->interrupted))) {
            if (error) *error = why;
            return result;
        }
    } while (true);
    return lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_CLOSED,
                        "interrupted while waiting");
}

/* --- locks ------------------------------------------------------------------------------------ */

static struct lw_hold_renewer *renewer_of(struct latchwork_lock *l, struct latchwork_error *error) {
    struct latchwork_redlock *r = redlock_of(l);
    struct lw_hold_renewer *k = atomic_load(&r->renewer);
    if (k) return k;
    pthread_mutex_lock(&r->start);
    k = atomic_load(&r->renewer);
    if (!k) atomic_store(&r->renewer, k = lw_hold_renewer_open(NULL, error));
    pthread_mutex_unlock(&r->start);
    return k;
}

static void close_lock(struct latchwork_lock *l) {
    struct votes_lock *v = l->more;
    if (v) latchwork_lock_close(v->one);
    free(v);
}

static const struct lw_lock_ops ops = {
    .acquire = acquire, .release = release, .keep = keep, .lock_fini = close_lock};

struct latchwork_lock *latchwork_redlock_lock_open(struct latchwork_redlock *r, const char *name,
                                                   const struct latchwork_lock_options *options,
                                                   struct latchwork_error *error) {
    struct latchwork_client *c = r ? r->node[0].client : NULL;
    if (!lw_client_ok(c, error)) return NULL;
    struct latchwork_lock *l = lw_lock_new(&ops, name, options, c->label, error);
    if (!l) return NULL;
    if (l->o.names ||
        (l->o.kind != LATCHWORK_KIND_MUTEX && l->o.kind != LATCHWORK_KIND_REENTRANT)) {
        lw_lock_wrong(error, "Redlock has mutex and reentrant locks, without custom names");
        lw_lock_unref(l);
        return NULL;
    }
    struct votes_lock *v = l->more = calloc(1, sizeof *v);
    l->client = c;
    l->renewer = renewer_of;
    if (v) {
        v->redlock = r;
        v->one = latchwork_lock_open(c, name, options, error);
    } else {
        lw_lock_no_memory(error);
    }
    if (v && v->one) return l;
    lw_lock_unref(l);
    return NULL;
}

/* --- the servers ------------------------------------------------------------------------------ */

static const char *take_options(struct latchwork_redlock *r,
                                const struct latchwork_redlock_options *o) {
    r->bundles = o->connections ? o->connections : LATCHWORK_DEFAULT_CONNECTIONS;
    r->node_ms = o->node_ms ? o->node_ms : LATCHWORK_DEFAULT_NODE_MS;
    r->retry_min_ms = o->retry_min_ms ? o->retry_min_ms : LATCHWORK_DEFAULT_RETRY_MIN_MS;
    r->retry_max_ms = o->retry_max_ms ? o->retry_max_ms : LATCHWORK_DEFAULT_RETRY_MAX_MS;
    if (!o->retry_max_ms && r->retry_max_ms < r->retry_min_ms)
        r->retry_max_ms = 2 * r->retry_min_ms;
    r->drift_per_mille =
        o->drift_per_mille ? o->drift_per_mille : LATCHWORK_DEFAULT_DRIFT_PER_MILLE;
    r->restart_ms = o->restart_ms;
    if (o->flags) return "flags must be 0: Redlock needs scripts";
    if (r->bundles < 1 || r->bundles > LATCHWORK_MAX_CONNECTIONS)
        return "connections must be 1 to 1,024";
    if (r->node_ms < 1 || r->node_ms > LATCHWORK_MAX_WAIT_MS) return "node_ms must be 1 to 600,000";
    if (r->retry_min_ms < 1 || r->retry_max_ms < r->retry_min_ms ||
        r->retry_max_ms > LATCHWORK_MAX_WAIT_MS)
        return "retry_min_ms and retry_max_ms must be 1 to 600,000, the smaller first";
    if (r->drift_per_mille < 1 || r->drift_per_mille > LATCHWORK_MAX_DRIFT_PER_MILLE)
        return "drift_per_mille must be 1 to 500";
    if (r->restart_ms < -1) return "restart_ms must be -1 or more";
    return NULL;
}

static bool open_nodes(struct latchwork_redlock *r, const char *const *urls, size_t n,
                       const char *label, struct latchwork_error *error) {
    struct latchwork_client_options o = {LATCHWORK_CLIENT_INIT, .connections = 1, .label = label};
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++)
            if (urls[i] && strcmp(urls[i], urls[j]) == 0) {
                lw_lock_wrong(error, "Redlock: the servers must differ, but two urls are the same");
                return false;
            }
        struct lw_node *node = &r->node[r->n];
        node->started_ms = INT64_MIN;
        node->client = latchwork_client_open(urls[i], &o, error);
        if (!node->client) return false;
        r->n++;
    }
    r->majority = r->n / 2 + 1;
    return true;
}

struct latchwork_redlock *latchwork_redlock_open(const char *const *urls, size_t n,
                                                 const struct latchwork_redlock_options *options,
                                                 struct latchwork_error *error) {
    struct latchwork_redlock_options o = {LATCHWORK_REDLOCK_INIT};
    const char *wrong = !urls || n < 1 || n > LATCHWORK_MAX_NODES ? "1 to 15 urls" : NULL;
    if (options && (options->size < 8 || options->size > 4096))
        wrong = "options.size is not set: begin them with LATCHWORK_REDLOCK_INIT";
    if (options && !wrong) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    struct latchwork_redlock *r = calloc(1, sizeof *r);
    if (!r) return lw_lock_no_memory(error), NULL;
    if (!wrong) wrong = take_options(r, &o);
    if (wrong) lw_lock_wrong(error, "Redlock: %s", wrong);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_mutex_init(&r->start, NULL);
    lw_cond_init(&r->freed);
    lw_cond_init(&r->roused);
    if (!wrong && open_nodes(r, urls, n, o.label, error)) {
        r->bundle = calloc((size_t)r->bundles + 1, sizeof *r->bundle);
        if (r->bundle) return r;
        lw_lock_no_memory(error);
    }
    latchwork_redlock_close(r);
    return NULL;
}

void latchwork_redlock_interrupt(struct latchwork_redlock *r) {
    if (!r) return;
    atomic_store(&r->interrupted, true);
    if (!lw_client_ok(r->node[0].client, NULL)) return;
    pthread_mutex_lock(&r->mutex);
    pthread_cond_broadcast(&r->roused);
    pthread_mutex_unlock(&r->mutex);
}

void latchwork_redlock_close(struct latchwork_redlock *r) {
    if (!r) return;
    /* In a child of fork() the client's threads do not exist, and a thread of the parent may have
     * held a mutex when the process forked. So the child neither joins the threads nor destroys the
     * mutexes. */
    if (!r->n || lw_client_ok(r->node[0].client, NULL)) {
        lw_hold_renewer_close(atomic_load(&r->renewer));
        pthread_cond_destroy(&r->freed);
        pthread_cond_destroy(&r->roused);
        pthread_mutex_destroy(&r->mutex);
        pthread_mutex_destroy(&r->start);
    }
    lw_redlock_hang_up(r);
    for (int i = 0; i < r->n; i++) latchwork_client_close(r->node[i].client);
    free(r);
}
