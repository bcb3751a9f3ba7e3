/* SPDX-License-Identifier: Apache-2.0 */
#include "lock/lane/lease.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Lists the leases of a shard by their deadline, because the first to end is the first to be
 * renewed or cancelled. */
struct list {
    /* This element joins the two ends of a circular list, and is no lease. */
    struct lw_lease head;
};

struct lw_leases {
    pthread_mutex_t mutex;
    int64_t ttl_ms;
    int64_t bound_ms; /* no lease is given a later deadline */
    uint64_t next_id;
    int shards;
    struct list list[];
};

struct lw_leases *lw_leases_open(int shards, int64_t ttl_ms) {
    assert(shards > 0 && ttl_ms > 0);
    struct lw_leases *t = lw_alloc(sizeof *t + (size_t)shards * sizeof t->list[0]);
    pthread_mutex_init(&t->mutex, NULL);
    t->ttl_ms = ttl_ms;
    t->bound_ms = INT64_MAX;
    t->shards = shards;
    t->next_id = 1;
    for (int s = 0; s < shards; s++) t->list[s].head.prev = t->list[s].head.next = &t->list[s].head;
    return t;
}

void lw_leases_close(struct lw_leases *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

static int64_t bounded(const struct lw_leases *t, int64_t deadline_ms) {
    return deadline_ms < t->bound_ms ? deadline_ms : t->bound_ms;
}

void lw_leases_bound(struct lw_leases *t, int64_t until_ms) {
    pthread_mutex_lock(&t->mutex);
    t->bound_ms = until_ms;
    pthread_mutex_unlock(&t->mutex);
}

/* Asserts that both neighbours of a lease in the list point to it. */
static inline void check_linked(const struct lw_lease *l) {
    assert(l->id);
    assert(l->prev->next == l && l->next->prev == l);
}

static void unlink_lease(struct lw_lease *l) {
    check_linked(l);
    l->prev->next = l->next;
    l->next->prev = l->prev;
}

/* Inserts a lease in the order of deadlines. A new lease nearly always belongs at the end, because
 * all leases have the same TTL. But if the reply that granted the lease was read late, other leases
 * may have been renewed since the request was sent, and the new lease belongs in front of them. */
static void insert(struct lw_leases *t, struct lw_lease *l) {
    assert(l->shard >= 0 && l->shard < t->shards);
    struct lw_lease *head = &t->list[l->shard].head, *before = head->prev;
    int64_t deadline_ms = atomic_load(&l->held.deadline_ms);
    while (before != head && atomic_load(&before->held.deadline_ms) > deadline_ms)
        before = before->prev;
    l->prev = before;
    l->next = before->next;
    before->next->prev = l;
    before->next = l;
    check_linked(l);
}

void lw_leases_add(struct lw_leases *t, struct lw_lease *l, int64_t deadline_ms) {
    assert(!l->id);
    assert(l->lane.n <= LW_LANE_MAX);
    pthread_mutex_lock(&t->mutex);
    l->id = t->next_id++;
    l->lost = false;
    l->run[0] = '\0';
    atomic_store(&l->held.deadline_ms, bounded(t, deadline_ms));
    atomic_store(&l->held.cancelled, false);
    insert(t, l);
    pthread_mutex_unlock(&t->mutex);
}

void lw_leases_extend(struct lw_leases *t, struct lw_lease *l, int64_t deadline_ms) {
    assert(l->shard >= 0 && l->shard < t->shards);
    pthread_mutex_lock(&t->mutex);
    l->lost = false;
    atomic_store(&l->held.deadline_ms, bounded(t, deadline_ms));
    atomic_store(&l->held.cancelled, false);
    if (l->id) {
        unlink_lease(l);
        insert(t, l);
    }
    pthread_mutex_unlock(&t->mutex);
}

void lw_leases_note(struct lw_leases *t, struct lw_lease *l, const char *run) {
    assert(strlen(run) < sizeof l->run);
    pthread_mutex_lock(&t->mutex);
    strcpy(l->run, run);
    pthread_mutex_unlock(&t->mutex);
}

void lw_leases_remove(struct lw_leases *t, struct lw_lease *l) {
    assert(l->shard >= 0 && l->shard < t->shards);
    pthread_mutex_lock(&t->mutex);
    if (l->id) {
        unlink_lease(l);
        l->id = 0;
    }
    pthread_mutex_unlock(&t->mutex);
}

void lw_leases_cancel_shard(struct lw_leases *t, int shard) {
    assert(shard >= 0 && shard < t->shards);
    pthread_mutex_lock(&t->mutex);
    struct lw_lease *head = &t->list[shard].head;
    for (struct lw_lease *l = head->next; l != head; l = l->next)
        atomic_store(&l->held.cancelled, true);
    pthread_mutex_unlock(&t->mutex);
}

size_t lw_leases_due(struct lw_leases *t, int shard, int64_t now_ms, struct lw_due *out,
                     size_t max) {
    assert(shard >= 0 && shard < t->shards);
    size_t n = 0;
    pthread_mutex_lock(&t->mutex);
    struct lw_lease *head = &t->list[shard].head;
    for (struct lw_lease *l = head->next; l != head && n < max; l = l->next) {
        int64_t left = atomic_load(&l->held.deadline_ms) - now_ms;
        if (left > t->ttl_ms - t->ttl_ms / 3) break;
        /* a lease that is lost or over is not renewed, because the lock may have another holder by
         * now */
        if (left <= 0 || l->lost) continue;
        struct lw_due *d = &out[n++];
        d->lease = l;
        d->id = l->id;
        d->token = l->token;
        d->n_lane = l->lane.n;
        memcpy(d->lane, l->lane.p, l->lane.n);
        strcpy(d->run, l->run);
    }
    pthread_mutex_unlock(&t->mutex);
    return n;
}

size_t lw_leases_renewed(struct lw_leases *t, const struct lw_due *due, size_t n,
                         const char *answers, int64_t sent_ms) {
    assert(n == 0 || (due && answers));
    size_t lost = 0;
    pthread_mutex_lock(&t->mutex);
    for (size_t i = 0; i < n; i++) {
        struct lw_lease *l = due[i].lease;
        /* a lease that is not found was settled while the renewal was in flight */
        if (l->id != due[i].id || l->token != due[i].token) continue;
        if (answers[i] != '1') {
            l->lost = true;
            if (!atomic_exchange(&l->held.cancelled, true)) lost++;
            continue;
        }
        int64_t deadline_ms = bounded(t, sent_ms + t->ttl_ms);
        if (deadline_ms <= atomic_load(&l->held.deadline_ms)) continue;
        atomic_store(&l->held.deadline_ms, deadline_ms);
        unlink_lease(l);
        insert(t, l);
    }
    pthread_mutex_unlock(&t->mutex);
    return lost;
}

size_t lw_leases_fence(struct lw_leases *t, int64_t now_ms) {
    assert(t->ttl_ms > 0);
    size_t n = 0;
    pthread_mutex_lock(&t->mutex);
    for (int s = 0; s < t->shards; s++) {
        struct lw_lease *head = &t->list[s].head;
        for (struct lw_lease *l = head->next; l != head; l = l->next) {
            if (atomic_load(&l->held.deadline_ms) - now_ms > t->ttl_ms / 3) break;
            if (!atomic_exchange(&l->held.cancelled, true)) n++;
        }
    }
    pthread_mutex_unlock(&t->mutex);
    return n;
}
