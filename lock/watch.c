/* SPDX-License-Identifier: Apache-2.0 */
/* The mutex without scripts: WATCH, reads, and MULTI … EXEC, on one connection.
 *
 * The reads are sent in one write and the changes in another, so a call takes two round trips. If a
 * watched key has changed in between, EXEC does nothing, and reads and changes are sent again. */
#include "lock/one.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 16, REPLIES_MAX = 8 };

/* Commands that are sent in one write, and their replies. */
struct batch {
    struct latchwork_client *client;
    struct lw_redis *redis;
    int slot;
    bool turned; /* true if a cluster node refused, because the slot is elsewhere */
    struct lw_buf out;
    int n;
    redisReply *reply[REPLIES_MAX];
};

static void forget_replies(struct batch *b) {
    for (int i = 0; i < b->n; i++)
        if (b->reply[i]) freeReplyObject(b->reply[i]);
    memset(b->reply, 0, sizeof b->reply);
    b->n = 0;
    b->out.n = 0;
}

static bool begin(struct batch *b, const struct latchwork_lock *l, struct latchwork_error *error) {
    *b = (struct batch){.client = l->client, .slot = l->slot};
    b->redis = lw_client_get(b->client, b->slot, error);
    return b->redis != NULL;
}

static void end(struct batch *b) {
    forget_replies(b);
    lw_buf_free(&b->out);
    lw_client_put(b->client, b->redis);
}

static void put(struct batch *b, struct lw_call *c) {
    lw_call_encode(c, &b->out);
    b->n++;
}

static void command(struct batch *b, const char *word, struct lw_bytes first,
                    struct lw_bytes second) {
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_text(&c, word);
    if (first.p) lw_call_add(&c, first.p, first.n);
    if (second.p) lw_call_add(&c, second.p, second.n);
    put(b, &c);
}
static const struct lw_bytes none = {NULL, 0};

/* Sends the commands and reads all replies. Returns false with *error if the connection broke or a
 * reply is an error. */
static bool run(struct batch *b, struct latchwork_error *error) {
    if (b->out.failed) {
        /* close the connection, since it may be in the middle of WATCH or MULTI */
        lw_redis_break(b->redis, LW_REDIS_MEMORY, "out of memory");
        return lw_lock_no_memory(error), false;
    }
    lw_redis_send(b->redis, b->out.p, b->out.n);
    bool good = true;
    for (int i = 0; i < b->n; i++) {
        redisReply *r = lw_next_reply(b->client, b->redis, error);
        if (!r) return false;
        struct lw_turn turn;
        if (r->type == REDIS_REPLY_ERROR &&
            lw_peer_turned(b->client, b->redis, r->str, b->slot, &turn))
            b->turned = true;
        b->reply[i] =
            r->type == REDIS_REPLY_ERROR ? lw_take_reply(b->client, r, good ? error : NULL) : r;
        good = good && b->reply[i];
        if (!good && b->reply[i]) freeReplyObject(b->reply[i]), b->reply[i] = NULL;
    }
    return good;
}

static bool is_string(const redisReply *r, const char *s) {
    return r->type == REDIS_REPLY_STRING && strcmp(r->str, s) == 0;
}
static bool was_executed(const redisReply *r) { return r->type == REDIS_REPLY_ARRAY; }

/* --- take ------------------------------------------------------------------------------------- */

static void next_fence(char *out, size_t size, struct lw_take *t, const redisReply *last,
                       const redisReply *time) {
    uint64_t fence = last->type == REDIS_REPLY_STRING ? strtoull(last->str, NULL, 10) + 1 : 1;
    uint64_t seen = atomic_load(&t->lock->seen) + 1, now = 0;
    if (time->type == REDIS_REPLY_ARRAY && time->elements == 2)
        now = strtoull(time->element[0]->str, NULL, 10) * 1000000 +
              strtoull(time->element[1]->str, NULL, 10);
    if (fence < seen) fence = seen;
    if (fence < now) fence = now;
    snprintf(out, size, "%" PRIu64, fence);
}

static void command_set(struct batch *b, struct lw_bytes key, const char *value, int64_t px) {
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_add(&c, "SET", 3);
    lw_call_add(&c, key.p, key.n);
    lw_call_text(&c, value);
    if (px) lw_call_add(&c, "PX", 2), lw_call_number(&c, px);
    put(b, &c);
}

static void command_expire(struct batch *b, struct lw_bytes key, int64_t ms) {
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_add(&c, "PEXPIRE", 7);
    lw_call_add(&c, key.p, key.n);
    lw_call_number(&c, ms);
    put(b, &c);
}

static void command_wait(struct batch *b, struct lw_take *t) {
    struct lw_bytes wait = t->lock->key[LW_KEY_WAIT];
    struct lw_call c;
    lw_call_script(&c, NULL, 0);
    lw_call_add(&c, "ZADD", 4);
    lw_call_add(&c, wait.p, wait.n);
    lw_call_add(&c, "NX", 2);
    lw_call_number(&c, lw_wall_ms() * 1000);
    lw_call_text(&c, t->client);
    put(b, &c);
    command_expire(b, wait, 60000);
}

/* Writes the commands that take the lock. The caller must have checked that the lock is free, or
 * that this attempt already holds it because an earlier answer was lost. */
static void take_it(struct batch *b, struct lw_take *t, const char *fence) {
    const struct latchwork_lock *l = t->lock;
    char value[LW_LOCK_VALUE_MAX + 1];
    if (l->o.flags & LATCHWORK_FLAG_PLAIN)
        snprintf(value, sizeof value, "%s", t->hold->token);
    else
        snprintf(value, sizeof value, "%s:%s", t->hold->token, fence);
    forget_replies(b);
    command(b, "MULTI", none, none);
    command_set(b, l->key[LW_KEY_LOCK], value, l->o.ttl_ms);
    command_set(b, l->key[LW_KEY_FENCE], fence, l->fence_keep_ms);
    if (t->wait && t->more) command_wait(b, t);
    if (t->wait && !t->more) command(b, "ZREM", l->key[LW_KEY_WAIT], lw_bytes_of(t->client));
    command(b, "EXEC", none, none);
}

static bool is_ours(const struct lw_take *t, const redisReply *held) {
    size_t n = strlen(t->hold->token);
    if (held->type != REDIS_REPLY_STRING || held->len < n || memcmp(held->str, t->hold->token, n))
        return false;
    return t->lock->o.flags & LATCHWORK_FLAG_PLAIN ? held->len == n : held->str[n] == ':';
}

/* Makes one round of WATCH and EXEC. Returns true if *took is the result of the attempt. Returns
 * false if EXEC did nothing, so the round must be repeated. */
static bool take_round(struct batch *b, struct lw_take *t, enum lw_took *took,
                       struct latchwork_error *error) {
    const struct latchwork_lock *l = t->lock;
    struct lw_bytes lock = l->key[LW_KEY_LOCK], fence_key = l->key[LW_KEY_FENCE];
    forget_replies(b);
    command(b, "WATCH", lock, fence_key);
    command(b, "GET", lock, none);
    command(b, "GET", fence_key, none);
    command(b, "TIME", none, none);
    command(b, "PTTL", lock, none);
    *took = LW_FAILED;
    if (!run(b, error)) return true;
    const redisReply *held = b->reply[1], *left = b->reply[4];
    int64_t sent_ms = lw_boot_ms();
    char fence[24];
    next_fence(fence, sizeof fence, t, b->reply[2], b->reply[3]);
    if (held->type == REDIS_REPLY_NIL || is_ours(t, held)) {
        take_it(b, t, fence);
        *took = LW_TAKEN;
    } else {
        t->left_ms = left->type == REDIS_REPLY_INTEGER ? lw_one_left_ms(left->integer) : 0;
        bool give = t->left_ms == -1 && l->o.give_ttl_ms;
        *took = LW_HELD;
        forget_replies(b);
        if (!t->wait && !give) {
            command(b, "UNWATCH", none, none);
            if (!run(b, error)) *took = LW_FAILED;
            return true;
        }
        command(b, "MULTI", none, none);
        if (give) command_expire(b, lock, l->o.give_ttl_ms);
        if (t->wait) command_wait(b, t);
        command(b, "EXEC", none, none);
    }
    if (!run(b, error)) {
        *took = LW_FAILED;
        return true;
    }
    if (!was_executed(b->reply[b->n - 1])) return false;
    if (*took == LW_TAKEN) lw_one_granted(t, fence, sent_ms);
    return true;
}

enum lw_took lw_watch_take(struct lw_take *t, struct latchwork_error *error) {
    if (!lw_client_ok(t->lock->client, error)) return LW_FAILED;
    enum lw_took took = LW_FAILED;
    for (int attempt = 0; attempt < 2; attempt++) {
        struct batch b;
        if (!begin(&b, t->lock, error)) return LW_FAILED;
        bool known = false;
        for (int i = 0; i < ROUNDS && !known; i++) known = take_round(&b, t, &took, error);
        bool broken = b.redis->err != 0, turned = b.turned;
        end(&b);
        /* Stop, because other clients changed the key in every round. */
        if (!known) {
            t->left_ms = 1;
            return LW_HELD;
        }
        if (took != LW_FAILED || (!broken && !turned)) return took;
        t->uncertain = t->uncertain || broken;
    }
    return took;
}

/* --- drop and keep ---------------------------------------------------------------------------- */

/* Publishes a message to a client's channel, in the form that lock/lua/parts/waiting.lua uses. */
static void command_tell(struct batch *b, const char *client, struct lw_bytes wait) {
    struct lw_buf channel = {0};
    lw_buf_tryf(&channel, "lwl:wake:%.100s", client);
    forget_replies(b);
    command(b, "PUBLISH", lw_bytes(channel.p, channel.n), wait);
    b->out.failed = b->out.failed || channel.failed;
    lw_buf_free(&channel);
}

/* Sends a message about the release to the client that has waited longest, and removes that client
 * from the list. Repeats this with the next client if no one receives the message. A failure is
 * harmless, because waiters also try from time to time without a message. */
static void tell_next(struct batch *b, const struct latchwork_lock *l) {
    struct latchwork_error ignored;
    struct lw_bytes wait = l->key[LW_KEY_WAIT];
    for (int i = 0; i < ROUNDS && wait.p; i++) {
        forget_replies(b);
        struct lw_call c;
        lw_call_script(&c, NULL, 0);
        lw_call_add(&c, "ZPOPMIN", 7);
        lw_call_add(&c, wait.p, wait.n);
        put(b, &c);
        if (!run(b, &ignored) || b->reply[0]->type != REDIS_REPLY_ARRAY || !b->reply[0]->elements)
            return;
        command_tell(b, b->reply[0]->element[0]->str, wait);
        if (!run(b, &ignored) ||
            (b->reply[0]->type == REDIS_REPLY_INTEGER && b->reply[0]->integer > 0))
            return;
    }
}

static void command_hint(struct batch *b, const struct latchwork_lock *l) {
    struct latchwork_error ignored;
    forget_replies(b);
    command(b, "ZSCORE", l->hint_if, l->hint);
    if (!run(b, &ignored) || b->reply[0]->type != REDIS_REPLY_STRING) return;
    forget_replies(b);
    command(b, "LPUSH", l->hint_to, l->hint);
    run(b, &ignored);
}

/* Makes one round of a release or renewal. Returns 1 on success, 0 if the lock is no longer held,
 * -1 with *error, and -2 if the round must be repeated. */
static int change_round(struct batch *b, struct latchwork_hold *h, int64_t ttl_ms, bool drop,
                        struct latchwork_error *error) {
    struct lw_bytes lock = h->lock->key[LW_KEY_LOCK];
    forget_replies(b);
    command(b, "WATCH", lock, none);
    command(b, "GET", lock, none);
    if (!run(b, error)) return -1;
    bool ours = is_string(b->reply[1], h->value);
    forget_replies(b);
    if (!ours || (!drop && !ttl_ms)) {
        command(b, "UNWATCH", none, none);
        return run(b, error) ? ours : -1;
    }
    command(b, "MULTI", none, none);
    if (drop)
        command(b, "DEL", lock, none);
    else
        command_expire(b, lock, ttl_ms);
    command(b, "EXEC", none, none);
    if (!run(b, error)) return -1;
    const redisReply *exec = b->reply[2];
    if (!was_executed(exec)) return -2;
    return exec->elements == 1 && exec->element[0]->type == REDIS_REPLY_INTEGER &&
           exec->element[0]->integer == 1;
}

static int change(struct latchwork_hold *h, int64_t ttl_ms, bool drop, bool *sent_again,
                  int64_t *sent_ms, struct latchwork_error *error) {
    *sent_again = false;
    for (int attempt = 0;; attempt++) {
        struct batch b;
        if (!lw_client_ok(h->lock->client, error) || !begin(&b, h->lock, error)) return -1;
        int done = -2;
        *sent_ms = lw_boot_ms();
        for (int i = 0; i < ROUNDS && done == -2; i++)
            done = change_round(&b, h, ttl_ms, drop, error);
        if (drop && done == 1) tell_next(&b, h->lock);
        if (drop && done == 1 && h->lock->hint.p) command_hint(&b, h->lock);
        bool broken = b.redis->err != 0, turned = b.turned;
        end(&b);
        if (done == -2) {
            lw_lock_fail(error, LATCHWORK_LOCK_ERROR, LATCHWORK_E_REPLY,
                         "the lock changes all the time");
            return -1;
        }
        if (done != -1 || (!broken && !turned) || attempt) return done;
        *sent_again = *sent_again || broken;
    }
}

int lw_watch_drop(struct latchwork_hold *h, bool *sent_again, struct latchwork_error *error) {
    int64_t sent_ms;
    return change(h, 0, true, sent_again, &sent_ms, error);
}

int lw_watch_keep(struct latchwork_hold *h, int64_t ttl_ms, int64_t *sent_ms,
                  struct latchwork_error *error) {
    bool sent_again;
    return change(h, ttl_ms, false, &sent_again, sent_ms, error);
}
