/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/renewer.h"

#include "base/clock.h"
#include "base/thread.h"
#include "lock/hold.h"

#include <stdlib.h>
#include <time.h>

enum {
    TRY_AGAIN_MS = 100,
    CONNECT_AT_LEAST_MS = 5,
    SLEEP_MAX_MS = 60000,
    /* maximum number of cluster nodes to which the renewer has connections at the same time */
    LINKS_MAX = 64,
    /* If the locks of the holds are in several slots of a cluster, the renewer waits for one node
     * for at most 1/SHARE of the time until it must give up the next hold. */
    SHARE = 4,
    /* If the locks of the holds are in several slots of a cluster, the renewer leaves a node alone
     * after it has waited for the node in vain: it sends nothing to the node for REST times the
     * time that it has waited. */
    REST = 1,
};

/* The renewer's connection to one server. */
struct link {
    uint64_t peer;
    struct lw_redis *redis; /* connection to the server; NULL: not connected */
    int64_t not_before_ms;  /* earliest time (boot clock) to connect again */
    int64_t used_ms;
};

struct lw_hold_renewer {
    struct latchwork_client *client;
    struct link link[LINKS_MAX]; /* used only by the renewer's thread */
    size_t n_links;
    /* True if the locks of all holds are in one slot, so the renewer does not have to leave
     * time for renewals on other nodes. Only the renewer's thread uses this field. */
    bool alone;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed, called_back;
    bool closing;
    struct latchwork_hold *calling; /* the hold whose callback runs or is about to run */
    struct latchwork_hold **hold;
    size_t n, cap;
};

/* --- the table; the mutex is held ------------------------------------------------------------- */

static void take_out(struct lw_hold_renewer *k, struct latchwork_hold *h) {
    for (size_t i = 0; i < k->n; i++)
        if (k->hold[i] == h) {
            k->hold[i] = k->hold[--k->n];
            h->kept = false;
            lw_hold_unref(h); /* does not free the hold, because the caller has another reference */
            return;
        }
}

/* Returns the time at which two thirds of the hold's lease are over. The renewer then gives up the
 * hold. */
static int64_t give_up_ms(const struct latchwork_hold *h) {
    return atomic_load(&h->deadline_ms) - atomic_load(&h->ttl_ms) / 3;
}
static bool at_its_end(const struct latchwork_hold *h) {
    return atomic_load(&h->deadline_ms) >= h->end_ms;
}

/* Returns the time at which a third of the hold's lease is over. The renewer then renews the hold.
 * Returns INT64_MAX if the lease already lasts until max_hold_ms ends the hold. */
static int64_t next_renewal_ms(const struct latchwork_hold *h) {
    int64_t ttl_ms = atomic_load(&h->ttl_ms);
    return at_its_end(h) ? INT64_MAX : atomic_load(&h->deadline_ms) - ttl_ms + ttl_ms / 3;
}

static int64_t next_event_ms(struct lw_hold_renewer *k, bool with_renewals) {
    int64_t at = INT64_MAX;
    for (size_t i = 0; i < k->n; i++) {
        int64_t give_up = give_up_ms(k->hold[i]);
        if (give_up < at) at = give_up;
        if (with_renewals && k->hold[i]->renew_ms < at) at = k->hold[i]->renew_ms;
    }
    return at;
}

/* Stops renewing the hold, and calls its callback. Releases the mutex during the callback,
 * because the callback may inspect or acquire locks. */
static void give_up(struct lw_hold_renewer *k, struct latchwork_hold *h, enum latchwork_loss why) {
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

static void give_up_what_is_late(struct lw_hold_renewer *k) {
    int64_t now = lw_boot_ms();
    for (size_t i = 0; i < k->n;) {
        struct latchwork_hold *h = k->hold[i];
        if (atomic_load(&h->loss)) {
            /* Another thread noticed that the hold is lost, and has called the hold's callback. */
            take_out(k, h);
            continue;
        }
        if (give_up_ms(h) > now) {
            i++;
            continue;
        }
        give_up(k, h, at_its_end(h) ? LATCHWORK_LOSS_MAX_HOLD : LATCHWORK_LOSS_UNCONFIRMED);
        i = 0; /* start over, because other threads may have changed the table */
    }
}

static size_t take_due(struct lw_hold_renewer *k, struct latchwork_hold **due) {
    int64_t now = lw_boot_ms();
    size_t n = 0;
    for (size_t i = 0; i < k->n && n < LW_KEEP_BATCH; i++) {
        struct latchwork_hold *h = k->hold[i];
        /* A hold whose renewal is due soon is renewed early, so that it needs no pipeline of its
         * own. */
        int64_t slack = atomic_load(&h->ttl_ms) / 24;
        if (h->renew_ms > now + slack) continue;
        int64_t again = atomic_load(&h->ttl_ms) / 12;
        /* Set the time of the next try, in case this renewal fails. A successful renewal sets a
         * later time. */
        h->renew_ms = now + (again < TRY_AGAIN_MS ? again + 1 : TRY_AGAIN_MS);
        lw_hold_ref(h);
        due[n++] = h;
    }
    return n;
}

/* --- renewing; without the mutex, but for the answers ----------------------------------------- */

static int64_t until_next_loss(struct lw_hold_renewer *k) {
    pthread_mutex_lock(&k->mutex);
    int64_t left = next_event_ms(k, false) - lw_boot_ms();
    k->alone = true;
    for (size_t i = 1; i < k->n; i++)
        k->alone = k->alone && k->hold[i]->lock->slot == k->hold[0]->lock->slot;
    pthread_mutex_unlock(&k->mutex);
    return left > CONNECT_AT_LEAST_MS ? left : CONNECT_AT_LEAST_MS;
}

/* Returns how long the renewer may wait for a server: limit_ms, or less if a hold must be given up
 * earlier. If the locks of the holds are in several slots of a cluster, one node gets only a part
 * of that time, so that enough is left for the other nodes. */
static int64_t patience_ms(struct lw_hold_renewer *k, int64_t limit_ms) {
    int64_t left = until_next_loss(k);
    if (k->client->table && !k->alone)
        left = left / SHARE > CONNECT_AT_LEAST_MS ? left / SHARE : CONNECT_AT_LEAST_MS;
    return lw_earlier(left, limit_ms);
}

static void hang_up(struct link *link) {
    if (link->redis) lw_redis_close(link->redis);
    link->redis = NULL;
}

/* Returns the link to a server, and creates it if there is none. If all links are in use, the new
 * link replaces the least recently used one. */
static struct link *link_to(struct lw_hold_renewer *k, uint64_t peer) {
    struct link *oldest = &k->link[0];
    for (size_t i = 0; i < k->n_links; i++) {
        if (k->link[i].peer == peer) return &k->link[i];
        if (k->link[i].used_ms < oldest->used_ms) oldest = &k->link[i];
    }
    struct link *link = k->n_links < LINKS_MAX ? &k->link[k->n_links++] : oldest;
    hang_up(link);
    *link = (struct link){.peer = peer};
    return link;
}

/* Closes the link to a server that has not answered since since_ms (boot clock). If the locks of
 * the holds are in several slots of a cluster, the renewer then sends nothing to that server for a
 * while. */
static void give_rest(struct lw_hold_renewer *k, struct link *link, int64_t since_ms) {
    int64_t now = lw_boot_ms();
    hang_up(link);
    link->not_before_ms = k->client->table && !k->alone ? now + REST * (now - since_ms) : now;
    lw_peer_doubt(k->client, link->peer);
}

/* Returns the link to a server, and connects it if necessary. Returns NULL if no connection can be
 * made now. */
static struct link *connected(struct lw_hold_renewer *k, uint64_t peer) {
    struct latchwork_error error;
    struct link *link = link_to(k, peer);
    int64_t now = lw_boot_ms();
    link->used_ms = now;
    if (link->redis) return link;
    if (now < link->not_before_ms) return NULL;
    link->redis = lw_client_connect(k->client, peer, patience_ms(k, k->client->connect_ms),
                                    patience_ms(k, k->client->command_ms), &error);
    if (!link->redis) give_rest(k, link, now);
    return link->redis ? link : NULL;
}

static redisReply *reply_in_time(struct lw_hold_renewer *k, struct lw_redis *redis) {
    struct latchwork_error error;
    lw_redis_set_answer_ms(redis, patience_ms(k, k->client->command_ms));
    return lw_next_reply(k->client, redis, &error);
}

/* Handles the answer to a renewal. If the lease was extended, plans the next renewal of the hold.
 * If the hold no longer has the lock, gives the hold up. */
static void answered(struct lw_hold_renewer *k, struct latchwork_hold *h, bool ours) {
    pthread_mutex_lock(&k->mutex);
    /* If `kept` is false, the hold was released while its renewal was in flight. */
    if (h->kept && ours) h->renew_ms = next_renewal_ms(h);
    if (h->kept && !ours) give_up(k, h, LATCHWORK_LOSS_NOT_OWNER);
    pthread_mutex_unlock(&k->mutex);
}

struct renewal {
    struct latchwork_hold *hold;
    struct lw_call call;
    int64_t ttl_ms;
    uint64_t peer; /* id of the server that owns the lock's slot; 0: unknown */
    bool connected;
    bool unknown; /* true if the answer was NOSCRIPT, so the script's text must be sent */
    /* The id of the node named by an ASK reply, to which the slot is being moved. 0: the reply was
     * not ASK. */
    uint64_t ask;
};

static void take_answer(struct lw_hold_renewer *k, const struct lw_redis *redis, struct renewal *r,
                        redisReply *reply, int64_t sent_ms) {
    struct lw_turn turn = {0};
    r->unknown = lw_is_no_script(reply);
    if (reply->type == REDIS_REPLY_INTEGER) {
        if (reply->integer == 1) lw_hold_leased(r->hold, sent_ms, r->ttl_ms);
        answered(k, r->hold, reply->integer == 1);
    }
    if (reply->type == REDIS_REPLY_ERROR)
        lw_peer_turned(k->client, redis, reply->str, r->hold->lock->slot, &turn);
    r->ask = turn.ask;
    /* An error reply does not end the hold. The renewer tries again later, until it has to give the
     * hold up. */
    freeReplyObject(reply);
}

/* Sends the renewals as one pipeline. If an allocation failed, sends nothing and returns false. */
static bool send_pipeline(struct lw_redis *redis, struct renewal *r, size_t n, int64_t sent_ms) {
    struct lw_buf out = {0};
    for (size_t i = 0; i < n; i++) {
        r[i].hold->lock->ops->keep_call(r[i].hold, r[i].ttl_ms, &r[i].call);
        lw_call_encode(&r[i].call, &out);
    }
    for (size_t i = 0; i < n && !out.failed; i++)
        lw_hold_renew_begin(r[i].hold, sent_ms, r[i].ttl_ms);
    bool whole = !out.failed;
    if (whole) lw_redis_send(redis, out.p, out.n);
    lw_buf_free(&out);
    return whole;
}

/* Sends a renewal again with the script's text, because the server does not know the script. */
static void send_whole(struct lw_hold_renewer *k, struct lw_redis *redis, struct renewal *r) {
    struct latchwork_error error;
    redisReply *reply = redis->err ? NULL : lw_call_on(k->client, redis, &r->call, &error);
    if (reply) take_answer(k, redis, r, reply, r->call.sent_ms);
}

/* Sends a renewal to the node to which the slot of the lock is being moved. */
static void send_asking(struct lw_hold_renewer *k, struct renewal *r) {
    struct latchwork_error error;
    int64_t since_ms = lw_boot_ms();
    struct link *link = connected(k, r->ask);
    redisReply *reply = link ? lw_call_asking(k->client, link->redis, &r->call, &error) : NULL;
    if (reply) take_answer(k, link->redis, r, reply, r->call.sent_ms);
    if (link && link->redis->err) give_rest(k, link, since_ms);
}

/* Renews the holds whose locks are on one server. */
static void renew_at(struct lw_hold_renewer *k, uint64_t peer, struct renewal *r, size_t n) {
    struct link *link = peer ? connected(k, peer) : NULL;
    if (!link) return;
    struct lw_redis *redis = link->redis;
    int64_t sent_ms = lw_boot_ms();
    for (size_t i = 0; i < n; i++) r[i].ttl_ms = lw_hold_keep_ttl(r[i].hold, sent_ms);
    /* After any error the renewer renews the holds again later, until it has to give them up. */
    if (!send_pipeline(redis, r, n, sent_ms)) return;
    for (size_t i = 0; i < n; i++) {
        redisReply *reply = reply_in_time(k, redis);
        if (!reply) break;
        take_answer(k, redis, &r[i], reply, sent_ms);
    }
    for (size_t i = 0; i < n; i++)
        if (r[i].unknown) send_whole(k, redis, &r[i]);
    if (redis->err) give_rest(k, link, sent_ms);
    for (size_t i = 0; i < n; i++)
        if (r[i].ask) send_asking(k, &r[i]);
    for (size_t i = 0; i < n; i++) lw_hold_renew_end(r[i].hold);
}

/* Finds the server of each renewal. If one search for the owner of a slot fails, searches for no
 * further owners, so that the remaining renewals are not delayed: they use only owners that the
 * client knows already. */
static void find_peers(struct lw_hold_renewer *k, struct renewal *r, size_t n) {
    struct latchwork_error error;
    bool searches = true;
    for (size_t i = 0; i < n; i++) {
        int slot = r[i].hold->lock->slot;
        r[i].peer = searches
                        ? lw_peer_of(k->client, slot, patience_ms(k, k->client->connect_ms), &error)
                        : lw_peer_known(k->client, slot);
        searches = searches && r[i].peer;
        r[i].connected = r[i].peer && link_to(k, r[i].peer)->redis;
    }
}

/* Orders renewals by server. Servers with a connection come first, because connecting to the other
 * servers may take time. */
static int by_peer(const void *a, const void *b) {
    const struct renewal *x = a, *y = b;
    if (x->connected != y->connected) return x->connected ? -1 : 1;
    return (x->peer > y->peer) - (x->peer < y->peer);
}

static void renew_in_pipelines(struct lw_hold_renewer *k, struct renewal *r, size_t n) {
    find_peers(k, r, n);
    if (k->client->table) qsort(r, n, sizeof *r, by_peer);
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from; to < n && r[to].peer == r[from].peer; to++) continue;
        renew_at(k, r[from].peer, r + from, to - from);
    }
}

static bool begin_calling(struct lw_hold_renewer *k, struct latchwork_hold *h) {
    pthread_mutex_lock(&k->mutex);
    bool kept = h->kept; /* false if another thread has released the hold */
    if (kept) k->calling = h;
    pthread_mutex_unlock(&k->mutex);
    return kept;
}
static void end_calling(struct lw_hold_renewer *k) {
    pthread_mutex_lock(&k->mutex);
    k->calling = NULL;
    pthread_cond_broadcast(&k->called_back);
    pthread_mutex_unlock(&k->mutex);
}

/* Renews one hold with the function `keep` of its kind. That function itself calls the hold's
 * callback if it finds that the hold is lost. */
static void renew_one(struct lw_hold_renewer *k, struct latchwork_hold *h) {
    struct latchwork_error error = {0};
    if (!begin_calling(k, h)) return;
    int64_t sent_ms = lw_boot_ms();
    int64_t ttl_ms = lw_hold_keep_ttl(h, sent_ms);
    lw_hold_renew_begin(h, sent_ms, ttl_ms);
    enum latchwork_result result = h->lock->ops->keep(h, ttl_ms, &error);
    lw_hold_renew_end(h);
    end_calling(k);
    if (result != LATCHWORK_LOCK_ERROR) answered(k, h, result == LATCHWORK_LOCK_OK);
}

static void renew(struct lw_hold_renewer *k, struct latchwork_hold **due, size_t n) {
    static const struct renewal none;
    struct renewal *r = malloc(n * sizeof *r);
    size_t piped = 0;
    /* If the allocation failed, renew no hold now. As after any error, the renewer tries again
     * later. */
    for (size_t i = 0; r && i < n; i++) {
        if (due[i]->lock->ops->keep_call &&
            !(due[i]->lock->client->flags & LATCHWORK_FLAG_NO_SCRIPTS)) {
            r[piped] = none;
            r[piped++].hold = due[i];
        } else {
            renew_one(k, due[i]);
        }
    }
    if (piped) renew_in_pipelines(k, r, piped);
    free(r);
    for (size_t i = 0; i < n; i++) lw_hold_unref(due[i]);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void sleep_until(struct lw_hold_renewer *k, int64_t at_ms) {
    int64_t left = at_ms - lw_boot_ms();
    if (left <= 0) return;
    if (left > SLEEP_MAX_MS) left = SLEEP_MAX_MS;
    lw_cond_wait_ms(&k->changed, &k->mutex, left);
}

static void *keep(void *arg) {
    struct lw_hold_renewer *k = arg;
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

static void free_renewer(struct lw_hold_renewer *k) {
    pthread_cond_destroy(&k->changed);
    pthread_cond_destroy(&k->called_back);
    pthread_mutex_destroy(&k->mutex);
    free(k->hold);
    free(k);
}

struct lw_hold_renewer *lw_hold_renewer_open(struct latchwork_client *client,
                                             struct latchwork_error *error) {
    struct lw_hold_renewer *k = calloc(1, sizeof *k);
    if (!k) return lw_lock_no_memory(error), NULL;
    k->client = client;
    pthread_mutex_init(&k->mutex, NULL);
    lw_cond_init(&k->changed);
    lw_cond_init(&k->called_back);
    int failed = lw_thread_start(&k->thread, keep, k);
    if (!failed) return k;
    lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_SYSTEM,
                 "cannot start the thread for renewals: %s", strerror(failed));
    free_renewer(k);
    return NULL;
}

void lw_hold_renewer_close(struct lw_hold_renewer *k) {
    if (!k) return;
    pthread_mutex_lock(&k->mutex);
    k->closing = true;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    pthread_join(k->thread, NULL);
    while (k->n) take_out(k, k->hold[0]);
    for (size_t i = 0; i < k->n_links; i++) hang_up(&k->link[i]);
    free_renewer(k);
}

/* Makes room in the table for one more hold. The caller holds the renewer's mutex. */
static bool make_room(struct lw_hold_renewer *k) {
    if (k->n < k->cap) return true;
    size_t cap = k->cap ? 2 * k->cap : 16;
    struct latchwork_hold **hold = realloc(k->hold, cap * sizeof(struct latchwork_hold *));
    if (!hold) return false;
    k->hold = hold;
    k->cap = cap;
    return true;
}

bool lw_hold_renewer_add(struct lw_hold_renewer *k, struct latchwork_hold *h,
                         struct latchwork_error *error) {
    pthread_mutex_lock(&k->mutex);
    if (!make_room(k)) {
        pthread_mutex_unlock(&k->mutex);
        return lw_lock_no_memory(error), false;
    }
    lw_hold_ref(h);
    h->kept = true;
    h->renew_ms = next_renewal_ms(h);
    k->hold[k->n++] = h;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    return true;
}

void lw_hold_renewer_remove(struct lw_hold_renewer *k, struct latchwork_hold *h) {
    pthread_mutex_lock(&k->mutex);
    take_out(k, h);
    while (k->calling == h && !pthread_equal(pthread_self(), k->thread))
        pthread_cond_wait(&k->called_back, &k->mutex);
    pthread_mutex_unlock(&k->mutex);
}
