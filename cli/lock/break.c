/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork lock break KEY`, which ends a lock, whoever holds it, and raises
 * its fence. Without --execute the verb makes a dry run. */
#include "cli/lock/lock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct breaking {
    const struct lock_args *a;
    struct latchwork_client *client;
    int broken;
    bool lane;
};

static void tell(const struct breaking *b, struct lw_bytes holder, const char *kind, uint64_t fence,
                 bool done) {
    char key[600], who[200];
    if (b->a->cli.json) {
        lock_print_broken(b->a->key, kind, holder, fence, done);
        return;
    }
    printf("%s %s (%s), held by %s", done ? "broke" : "would break",
           lock_text(lw_bytes_of(b->a->key), key, sizeof key), kind,
           holder.n ? lock_text(holder, who, sizeof who) : "?");
    if (done)
        printf("; the fence is %" PRIu64 " now\n", fence);
    else
        puts(", and raise the fence; use --execute to apply");
}

/* --- what holds it ---------------------------------------------------------------------------- */

struct held {
    struct lw_buf who; /* names of the holders, joined by ", " */
    char kind[16];
    int64_t waiting;
    bool lane, plain;
};

static int seen(void *ctx, const struct latchwork_lock_info *info) {
    struct held *h = ctx;
    struct lock_row row = lock_row_of(info, 0, h->plain, h->lane ? "" : NULL, -1);
    struct lw_bytes who = row.holder.p ? row.holder : row.token;
    if (h->who.n) lw_buf_add(&h->who, ", ", 2);
    lw_buf_add(&h->who, who.p, who.n);
    snprintf(h->kind, sizeof h->kind, "%s", row.kind);
    h->waiting = info->waiting;
    return 0;
}

/* --- doing it --------------------------------------------------------------------------------- */

/* Ends the lock. If the lock belongs to a lane, the script that ends the lock also adds an entry to
 * the audit. */
static enum latchwork_result end_it(struct breaking *b, struct lock_target *t,
                                    struct latchwork_lock *lock, uint64_t *fence,
                                    struct latchwork_error *error) {
    if (!b->lane) return latchwork_lock_break(lock, fence, error);
    struct ops *o = &t->ops;
    struct lw_buf was = {0};
    bool bad = lock_lane_connect(t) || ops_break(o, ops_shard_of(o, t->name), t->name, fence, &was);
    lw_buf_free(&was);
    if (bad) return lock_lane_failed(t, error);
    return *fence ? LATCHWORK_LOCK_OK : LATCHWORK_LOCK_BUSY;
}

/* In a dry run, shows which lock would be ended; otherwise ends the lock. Returns OK, BUSY if
 * nobody holds the lock, or ERROR on failure. */
static enum latchwork_result break_one(struct breaking *b, struct lock_target *t,
                                       struct latchwork_lock *lock, struct latchwork_error *error) {
    struct held h = {.lane = b->lane, .plain = b->a->plain};
    uint64_t fence = 0;
    enum latchwork_result result = latchwork_lock_show(lock, seen, &h, error);
    if (result == LATCHWORK_LOCK_OK && b->a->execute) result = end_it(b, t, lock, &fence, error);
    if (result == LATCHWORK_LOCK_OK) {
        b->broken++;
        tell(b, lw_bytes(h.who.p, h.who.n), h.kind, fence, b->a->execute);
    }
    lw_buf_free(&h.who);
    return result;
}

static bool has_queue(struct latchwork_client *client, const char *key) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = LATCHWORK_KIND_FAIR};
    struct latchwork_lock *lock = latchwork_lock_open(client, key, &o, NULL);
    struct held h = {0};
    if (lock) latchwork_lock_show(lock, seen, &h, NULL);
    latchwork_lock_close(lock);
    lw_buf_free(&h.who);
    return h.waiting > 0;
}

/* Calls break_one() for each kind of lock, because the lock library allows locks of several kinds
 * under one name. Returns BUSY if nobody holds any of these locks. */
static enum latchwork_result break_all_kinds(struct breaking *b, struct latchwork_error *error) {
    enum latchwork_kind kinds[] = {has_queue(b->client, b->a->key) ? LATCHWORK_KIND_FAIR
                                                                   : LATCHWORK_KIND_MUTEX,
                                   LATCHWORK_KIND_WRITE, LATCHWORK_KIND_SEMAPHORE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kinds[i],
                                           .permits = kinds[i] == LATCHWORK_KIND_SEMAPHORE};
        struct latchwork_lock *lock = latchwork_lock_open(b->client, b->a->key, &o, error);
        enum latchwork_result result =
            lock ? break_one(b, NULL, lock, error) : LATCHWORK_LOCK_ERROR;
        latchwork_lock_close(lock);
        if (result == LATCHWORK_LOCK_ERROR) return result;
    }
    return b->broken ? LATCHWORK_LOCK_OK : LATCHWORK_LOCK_BUSY;
}

int lock_break(const struct lock_args *a) {
    struct lock_target t;
    struct latchwork_error error = {0};
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT};
    int status = lock_target_open(&t, a, &o);
    if (!status) {
        struct breaking b = {.a = a, .client = t.client, .lane = a->cli.config != NULL};
        enum latchwork_result result = latchwork_client_ping(t.client, &error);
        if (result == LATCHWORK_LOCK_OK)
            result = b.lane || a->plain ? break_one(&b, &t, t.lock, &error)
                                        : break_all_kinds(&b, &error);
        char key[600];
        if (result == LATCHWORK_LOCK_ERROR)
            status = lock_failed(a, &error);
        else if (!b.broken && a->cli.json)
            lock_print_free(a->key, 0, false, NULL);
        else if (!b.broken)
            printf("%s: nobody holds it\n", lock_text(lw_bytes_of(a->key), key, sizeof key));
        if (!status) status = lock_flush(a);
    }
    lock_target_close(&t);
    return status;
}
