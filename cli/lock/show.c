/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the verb `latchwork lock show KEY`, which shows who holds the lock. With --set-ttl the
 * verb gives a TTL to a lock that has none. */
#include "cli/lock/lock.h"

#include <stdlib.h>
#include <string.h>

struct showing {
    const struct lock_args *a;
    /* `waiting` is the number of messages that wait behind a lane's lock, or the number of waiters
     * of a fair lock. A separate request reads this number. */
    int64_t now_ms, waiting, shown;
    bool lane, without_ttl;
    /* The members from `shard` on are set only for a lane, by look_at_lane(). */
    int shard;
    bool paused, runs;
    struct ops_run run; /* the message that the holder runs, if `runs` is true */
    struct ops_why why; /* why no message runs */
};

static int take_lane(struct ops *o, const struct ops_lane *l, void *ctx) {
    struct showing *s = ctx;
    s->shard = l->shard;
    s->waiting = l->n;
    s->paused = l->paused;
    s->runs = l->runs;
    s->run = l->run;
    return ops_why(o, l, &s->why);
}

static enum latchwork_result look_at_lane(struct showing *s, struct lock_target *t,
                                          struct latchwork_error *error) {
    struct ops *o = &t->ops;
    bool seen = lock_lane_connect(t) == 0 &&
                ops_look(o, ops_shard_of(o, t->name), &t->name, 1, take_lane, s) == 0;
    return seen ? LATCHWORK_LOCK_OK : lock_lane_failed(t, error);
}

static int seen(void *ctx, const struct latchwork_lock_info *info) {
    struct showing *s = ctx;
    struct lock_row row =
        lock_row_of(info, s->now_ms, s->a->plain, s->lane ? "" : NULL, s->lane ? s->shard : -1);
    row.key = lw_bytes_of(s->a->key);
    row.waiting += s->waiting;
    row.paused = s->paused;
    row.run = s->runs ? &s->run : NULL;
    row.why = &s->why;
    s->without_ttl = s->without_ttl || info->left_ms == -1;
    if (s->a->cli.json) {
        lock_print_json(&row);
    } else {
        if (s->shown) puts("");
        lock_print_whole(&row);
    }
    s->shown++;
    return 0;
}

static int count_waiting(void *ctx, const struct latchwork_lock_info *info) {
    *(int64_t *)ctx = info->waiting;
    return 0;
}

static enum latchwork_result show_kind(struct showing *s, struct latchwork_client *client,
                                       enum latchwork_kind kind, struct latchwork_error *error) {
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT, .kind = kind,
                                       .permits = kind == LATCHWORK_KIND_SEMAPHORE};
    struct latchwork_lock *lock = latchwork_lock_open(client, s->a->key, &o, error);
    if (!lock) return LATCHWORK_LOCK_ERROR;
    enum latchwork_result result =
        kind == LATCHWORK_KIND_FAIR ? latchwork_lock_show(lock, count_waiting, &s->waiting, error)
                                    : latchwork_lock_show(lock, seen, s, error);
    latchwork_lock_close(lock);
    return result;
}

/* Shows the locks of all kinds that have this name. The name alone does not say of which kind a
 * lock is, and locks of several kinds may have the same name. A fair lock is shown as a mutex. */
static enum latchwork_result show_all_kinds(struct showing *s, struct latchwork_client *client,
                                            struct latchwork_error *error) {
    static const enum latchwork_kind kinds[] = {LATCHWORK_KIND_FAIR, LATCHWORK_KIND_MUTEX,
                                                LATCHWORK_KIND_WRITE, LATCHWORK_KIND_SEMAPHORE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum latchwork_result result = show_kind(s, client, kinds[i], error);
        if (result == LATCHWORK_LOCK_ERROR) return result;
        if (kinds[i] != LATCHWORK_KIND_FAIR) s->waiting = 0;
    }
    return s->shown ? LATCHWORK_LOCK_OK : LATCHWORK_LOCK_BUSY;
}

static void tell_free(const struct showing *s) {
    char key[600];
    if (s->a->cli.json) {
        lock_print_free(s->a->key, s->waiting, s->paused, &s->why);
        return;
    }
    printf("%s: nobody holds it", lock_text(lw_bytes_of(s->a->key), key, sizeof key));
    if (s->lane && s->waiting) printf("; %lld waiting", (long long)s->waiting);
    if (s->paused) printf("; paused");
    puts("");
    if (s->why.reason) printf("%-8s %s\n", "why", s->why.text);
}

static int set_ttl(const struct lock_args *a, struct lock_target *t, bool without_ttl) {
    struct latchwork_error error;
    if (!without_ttl) {
        lock_say(a, "--set-ttl: this key has no lock without a TTL; nothing to do");
        return 0;
    }
    if (!a->execute) {
        lock_say(a, "would give it a TTL of %lld ms; use --execute to apply",
                 (long long)a->set_ttl_ms);
        return 0;
    }
    enum latchwork_result result = latchwork_lock_give_ttl(t->lock, a->set_ttl_ms, &error);
    if (result == LATCHWORK_LOCK_ERROR) return lock_failed(a, &error);
    if (result == LATCHWORK_LOCK_OK)
        lock_say(a, "its TTL is %lld ms now", (long long)a->set_ttl_ms);
    else
        lock_say(a, "%s; nothing was changed", error.text);
    return 0;
}

int lock_show(const struct lock_args *a) {
    struct lock_target t;
    struct latchwork_error error = {0};
    struct latchwork_lock_options o = {LATCHWORK_LOCK_INIT};
    struct showing s = {.a = a, .lane = a->cli.config != NULL};
    int status = lock_target_open(&t, a, &o);
    if (!status) {
        enum latchwork_result result = latchwork_client_ping(t.client, &error);
        if (result == LATCHWORK_LOCK_OK && s.lane) result = look_at_lane(&s, &t, &error);
        if (result == LATCHWORK_LOCK_OK) {
            s.now_ms = lock_redis_now_ms(t.client);
            result = s.lane || a->plain ? latchwork_lock_show(t.lock, seen, &s, &error)
                                        : show_all_kinds(&s, t.client, &error);
        }
        if (result == LATCHWORK_LOCK_ERROR)
            status = lock_failed(a, &error);
        else if (!s.shown)
            tell_free(&s);
        if (!status) status = lock_flush(a);
        if (!status && a->set_ttl_ms) status = set_ttl(a, &t, s.without_ttl);
    }
    lock_target_close(&t);
    return status;
}
